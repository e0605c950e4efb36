//! MAX over io_uring: one system call for all operations of a turn.

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::libc::{EAGAIN, ECANCELED, ENOBUFS};
use sys::clock::Clock;
use sys::uring::{Completion, Message, Ring, RingSpec};
use units::Timestamp;

use super::reader::Reader;
use super::{PENDING_RESPONSES_MAX, ResponseRef, Responses};
use crate::spec::{Limits, ServeError, system};

/// Serves until one of `stops` is readable.
pub(super) fn run(listener: &TcpListener, stops: [BorrowedFd<'_>; 2], answers: &Responses) -> Result<(), ServeError> {
    let mut ring = Ring::new(RING).map_err(system("io_uring_setup"))?;
    let messages = answers.all().map(|bytes| ring.register(bytes.clone())).collect();
    for stop in stops {
        ring.poll_readable(stop, STOP);
    }
    ring.accept(listener.as_fd(), LISTENER);
    let clock = Clock::start();
    let mut server = Server {
        ring,
        answers,
        messages,
        slots: Vec::new(),
        free: Vec::new(),
        now: clock.now(),
        swept_at: clock.now(),
        accept_again_at: None,
        turn: 1,
        put_off: Vec::new(),
        last_sent: Vec::new(),
    };
    loop {
        let timeouts = match server.accept_again_at {
            // By then the kernel has accepted or returned all submitted output.
            _ if !server.put_off.is_empty() || !server.last_sent.is_empty() => Duration::ZERO,
            Some(_) => ACCEPT_PAUSE,
            None => TICK,
        };
        server.ring.wait(Some(timeouts)).map_err(system("io_uring_enter"))?;
        server.now = clock.now();
        let put_off = std::mem::take(&mut server.put_off);
        let last_sent = std::mem::take(&mut server.last_sent);
        while let Some(completion) = server.ring.next() {
            match completion.token {
                STOP => return Ok(()),
                LISTENER => server.accepted(completion),
                token => server.completed(token, completion),
            }
        }
        server.turn += 1;
        for index in put_off {
            server.send(index);
        }
        for (index, generation) in last_sent {
            server.finish(index, generation);
        }
        server.sweep();
        if server.accept_again_at.is_some_and(|at| server.now >= at) {
            server.accept_again_at = None;
            server.ring.accept(listener.as_fd(), LISTENER);
        }
    }
}

struct Server<'a> {
    ring: Ring,
    answers: &'a Responses,
    messages: Vec<Message>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    now: Timestamp,
    swept_at: Timestamp,
    /// Accepting failed: the time of the next attempt.
    accept_again_at: Option<Timestamp>,
    /// Number of this turn of the loop.
    turn: u64,
    /// Connections with pending output whose output of this turn may not have been accepted completely.
    put_off: Vec<u32>,
    /// Connections, with their generation, whose last response was submitted in this turn: FIN follows.
    last_sent: Vec<(u32, u32)>,
}

/// A slot for a connection. The generation identifies completions of an earlier connection.
#[derive(Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

struct Connection {
    socket: OwnedFd,
    reader: Reader,
    /// Pending responses; the first one is partially sent if `patient` is set.
    owed: VecDeque<ResponseRef>,
    /// The response submitted last: still pending if the kernel did not accept all of it.
    last_sent: ResponseRef,
    /// The turn of that submission; 0 for never.
    sent_in: u64,
    /// Accepted bytes of the first pending response, while the rest waits for space.
    patient: Option<usize>,
    /// A receive is submitted.
    receiving: bool,
    /// The last response was submitted, and FIN follows.
    finishing: bool,
    /// Time of the last activity.
    seen_at: Timestamp,
}

impl Server<'_> {
    fn accepted(&mut self, completion: Completion) {
        if let Some(socket) = completion.accepted {
            let index = self.free.pop().unwrap_or_else(|| {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            });
            let slot = &mut self.slots[index as usize];
            self.ring.receive(socket.as_fd(), token(index, slot.generation, RECEIVE));
            slot.connection = Some(Connection {
                socket,
                reader: Reader::default(),
                owed: VecDeque::new(),
                last_sent: self.answers.refusal(),
                sent_in: 0,
                patient: None,
                receiving: true,
                finishing: false,
                seen_at: self.now,
            });
        }
        if !completion.more {
            // Out of descriptors or memory: connections stay in the backlog.
            self.accept_again_at = Some(self.now + ACCEPT_PAUSE);
        }
    }

    fn completed(&mut self, token: u64, completion: Completion) {
        let (index, generation, kind) = split_token(token);
        let Some(slot) = self.slots.get_mut(index as usize).filter(|slot| slot.generation == generation) else {
            if let Some(buffer) = completion.buffer {
                self.ring.give_back(buffer);
            }
            return;
        };
        let Some(connection) = &mut slot.connection else { return };
        connection.seen_at = self.now;
        match kind {
            RECEIVE => self.received(index, completion),
            SEND => self.not_all_sent(index, &completion.result),
            _ => self.watched_sent(index, &completion.result),
        }
    }

    fn received(&mut self, index: u32, completion: Completion) {
        let Slot { generation, connection: Some(connection) } = &mut self.slots[index as usize] else { return };
        connection.receiving = completion.more;
        match completion.result {
            Ok(length @ 1..) => {
                let mut responses_due = 0;
                if let Some(buffer) = completion.buffer {
                    let bytes = self.ring.bytes(&buffer, length as usize);
                    connection.reader.take(bytes, self.answers, |answer| {
                        connection.owed.push_back(answer);
                        responses_due += 1;
                    });
                    self.ring.give_back(buffer);
                }
                if !completion.more {
                    self.ring.receive(connection.socket.as_fd(), token(index, *generation, RECEIVE));
                    connection.receiving = true;
                }
                if connection.owed.len() > PENDING_RESPONSES_MAX {
                    return self.close(index);
                }
                if responses_due > 0 {
                    self.send(index);
                }
            }
            // The client closed; pending output is dropped.
            Ok(0) => self.close(index),
            Err(error) if error.raw_os_error() == Some(ENOBUFS) => {
                self.ring.receive(connection.socket.as_fd(), token(index, *generation, RECEIVE));
                connection.receiving = true;
            }
            Err(_) => self.close(index),
        }
    }

    /// Submits pending output, unless earlier output may not have been accepted.
    fn send(&mut self, index: u32) {
        let Slot { generation, connection: Some(connection) } = &mut self.slots[index as usize] else { return };
        if connection.patient.is_some() {
            return;
        }
        if connection.sent_in == self.turn {
            return self.put_off.push(index);
        }
        let socket = connection.socket.as_fd();
        match (connection.owed.pop_front(), connection.owed.is_empty()) {
            (None, _) => {}
            (Some(answer), _) if answer.in_memory < answer.length => {
                connection.owed.push_front(answer);
                self.send_from_file(index, 0);
            }
            // The usual case: one request, one response.
            (Some(answer), true) => {
                let message = self.messages[answer.index];
                self.ring.send(socket, message, 0, answer.length, token(index, *generation, SEND));
                if answer.last {
                    connection.finishing = true;
                    self.last_sent.push((index, *generation));
                }
                (connection.last_sent, connection.sent_in) = (answer, self.turn);
            }
            (Some(answer), false) => {
                connection.owed.push_front(answer);
                self.send_watched(index, 0);
            }
        }
    }

    /// Sends the first pending response from byte `from` on, and waits for space.
    fn send_watched(&mut self, index: u32, from: usize) {
        let Slot { generation, connection: Some(connection) } = &mut self.slots[index as usize] else { return };
        let Some(&answer) = connection.owed.front() else { return };
        if answer.in_memory < answer.length {
            return self.send_from_file(index, from);
        }
        connection.patient = Some(from);
        let message = self.messages[answer.index];
        let token = token(index, *generation, WATCHED_SEND);
        self.ring.send_with_retries(connection.socket.as_fd(), message, from, answer.length, token);
    }

    /// Sends pending responses whose bodies are in a file, the first from byte `from` on, by system calls; then waits for
    /// space, or sends the next response.
    fn send_from_file(&mut self, index: u32, mut from: usize) {
        let Slot { generation, connection: Some(connection) } = &mut self.slots[index as usize] else { return };
        while let Some(&answer) = connection.owed.front() {
            if answer.in_memory == answer.length {
                return self.send(index);
            }
            while from < answer.length {
                match self.answers.send(&connection.socket, answer, from) {
                    Ok(Some(taken)) => from += taken,
                    Ok(None) => {
                        connection.patient = Some(from);
                        let token = token(index, *generation, WATCHED_SEND);
                        return self.ring.poll_writable(connection.socket.as_fd(), token);
                    }
                    Err(_) => return self.close(index),
                }
            }
            from = 0;
            connection.owed.pop_front();
            if answer.last {
                connection.finishing = true;
                let generation = *generation;
                return self.finish(index, generation);
            }
        }
    }

    /// The kernel did not accept all of a response.
    fn not_all_sent(&mut self, index: u32, result: &io::Result<u32>) {
        let Some(connection) = &mut self.slots[index as usize].connection else { return };
        let taken = match result {
            Ok(bytes) => *bytes as usize,
            Err(error) if error.raw_os_error() == Some(EAGAIN) => 0,
            Err(error) if error.raw_os_error() == Some(ECANCELED) => return,
            Err(_) => return self.close(index),
        };
        connection.owed.push_front(connection.last_sent);
        self.send_watched(index, taken);
    }

    fn watched_sent(&mut self, index: u32, result: &io::Result<u32>) {
        let Some(connection) = &mut self.slots[index as usize].connection else { return };
        let (Some(from), Some(answer)) = (connection.patient.take(), connection.owed.pop_front()) else { return };
        match result {
            Ok(_) if answer.in_memory < answer.length => {
                connection.owed.push_front(answer);
                self.send_from_file(index, from);
            }
            Ok(bytes) if from + *bytes as usize == answer.length => {
                if answer.last {
                    connection.finishing = true;
                    let generation = self.slots[index as usize].generation;
                    self.finish(index, generation);
                } else {
                    self.send(index);
                }
            }
            // The connection failed.
            _ => self.close(index),
        }
    }

    /// Sends FIN, if the connection is open and its last response was accepted completely. By a system call: a shutdown
    /// in the ring runs later on a kernel thread, on whatever connection uses the descriptor number by then.
    fn finish(&mut self, index: u32, generation: u32) {
        let slot = &self.slots[index as usize];
        let Some(connection) = slot.connection.as_ref().filter(|_| slot.generation == generation) else { return };
        if connection.patient.is_none() && connection.owed.is_empty() {
            // A failed connection is detected at its next read.
            let _ = nix::sys::socket::shutdown(connection.socket.as_raw_fd(), nix::sys::socket::Shutdown::Write);
        }
    }

    fn close(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if let Some(connection) = slot.connection.take() {
            let under_way = [RECEIVE, WATCHED_SEND].map(|kind| token(index, slot.generation, kind));
            slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
            self.free.push(index);
            if connection.receiving || connection.patient.is_some() {
                self.ring.cancel_and_close(connection.socket, &under_way);
            } else {
                self.ring.close(connection.socket);
            }
        }
    }

    /// Closes connections that were silent for too long.
    fn sweep(&mut self) {
        if self.now.since(self.swept_at) < TICK {
            return;
        }
        self.swept_at = self.now;
        let limits = Limits::default();
        for index in 0..self.slots.len() {
            let Some(connection) = &self.slots[index].connection else { continue };
            let timeouts = match () {
                () if connection.patient.is_some() => limits.stall_time,
                () if connection.finishing => LINGER,
                () if connection.reader.is_idle() => limits.idle_time,
                () => limits.head_time,
            };
            if self.now.since(connection.seen_at) >= timeouts {
                self.close(index as u32);
            }
        }
    }
}

fn token(index: u32, generation: u32, kind: u64) -> u64 {
    kind << 60 | u64::from(generation) << 32 | u64::from(index)
}

fn split_token(token: u64) -> (u32, u32, u64) {
    (token as u32, (token >> 32) as u32 & GENERATION_MASK, token >> 60)
}

/// 28 bits, between the kind and the index.
const GENERATION_MASK: u32 = (1 << 28) - 1;
const RECEIVE: u64 = 0;
const SEND: u64 = 1;
const WATCHED_SEND: u64 = 2;
/// Tokens of other descriptors.
const LISTENER: u64 = 3 << 60;
const STOP: u64 = (3 << 60) + 1;

const RING: RingSpec = RingSpec { operations: 4096, buffers: 4096, buffer_bytes: 2048 };
/// Interval of the check for silent connections.
const TICK: Duration = Duration::from_secs(1);
/// Descriptors may become free elsewhere; more frequent attempts only cost CPU time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Time after which a silent client is disconnected after FIN.
const LINGER: Duration = Duration::from_secs(5);
