//! The engine over io_uring: one system call a turn for all that is received and for all small answers.
//!
//! ```text
//!   wait() ── completions ─┬─ received ──▶ Link, straight from the kernel's buffer ──▶ small answer: copied for the next
//!     ▲                    │                                                            wait(); large: send(2), sendfile(2)
//!     │                    ├─ not all of a small answer was taken: the rest goes back to the link
//!     │                    └─ room to send again, listener readable, time to stop ..
//!     └── operations queued meanwhile ◀──────────────────────────────────────────────┘
//! ```
//!
//! A small answer counts as sent when it is queued. The kernel is handed it by the next call of `wait`, and only what it
//! did not take comes back, with the completions of that call. So nothing else may be sent on a connection in the same turn: it
//! waits for the next one, which begins at once; and where a receive was queued behind the answer, whose completions may stand
//! before those of the answer, for the one after that.

mod connections;

use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use nix::libc::{EAGAIN, ECANCELED, ENOBUFS};
use sys::uring::{CROWD, Completion, Copied, Ring, RingSpec};
use units::Timestamp;

use super::table::Table;
use super::turn::Turn;
use super::{Ground, HEARD, INPUT_BYTES, Seat, Sent, TURNS, flush, has_all};
use crate::connection::{Desk, Outbound, Step};
use crate::dynamic::Front;
use crate::link::Link;
use crate::spec::{ServeError, system};

/// A ring for a worker.
pub(crate) fn ring() -> Result<Ring, ServeError> {
    Ring::new(RING).map_err(system("io_uring_setup"))
}

/// A worker before and while it runs.
pub(crate) struct Worker<'a> {
    ground: Ground<'a>,
    ring: Ring,
    desk: Desk,
    table: Table<Client>,
    /// Number of this turn of the loop; the first is 1.
    turn: u64,
    /// Tokens of connections that have more to do in the next turn.
    again: Vec<u64>,
    /// What came in bursts from those who are known, in the order in which it came: it waits for the light work.
    bursts: VecDeque<(u64, Completion)>,
    /// Strangers, and others with much to say, from whom something waits in the kernel: it is read after everything else.
    strangers: VecDeque<u64>,
    /// Somebody may wait at the listener.
    knocked: bool,
    /// No connection can be accepted before, unless one ends.
    accept_again_at: Option<Timestamp>,
    /// The server ends, at the latest then.
    stop_at: Option<Timestamp>,
    /// Bytes as read from a stranger.
    input: Box<[u8]>,
}

/// One connection.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    link: Link,
    receiving: Receiving,
    /// In the middle of waiting for room to send.
    blocked: bool,
    /// In `again`.
    queued: bool,
    /// The small answer that was queued last, and in which turn; 0 for never.
    copied: Option<Copied>,
    sent_in: u64,
    /// A receive was queued behind it, so what that brings may be told before what was not taken.
    receives_behind: bool,
    /// The kernel did not take all of the small answer before: whoever waits for room has to ask for it.
    short: bool,
    /// The turn in which it was accepted.
    accepted_in: u64,
    /// A request of it was answered since, and it may send another.
    known: bool,
    /// It is known to send more at a time than fits a buffer.
    heavy: bool,
    /// How many of its buffers wait among the bursts.
    waiting: u32,
    /// The turn in which its receive was last told to end.
    cancelled_in: u64,
}

impl Seat for Client {
    fn link(&self) -> &Link {
        &self.link
    }

    fn parts(&mut self) -> (&TcpStream, &mut Link) {
        (&self.stream, &mut self.link)
    }
}

/// What receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Receiving {
    Nothing,
    /// Nothing: it is watched, until something can be read or is about to be.
    Watched,
    /// The ring, as long as there is something to receive.
    On,
    /// The same, but it has been told to end.
    Ending,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// That the client sends something.
    Input,
    /// Nothing of the client's: something else must happen first.
    Hold,
    /// That the kernel takes more.
    Output,
    /// The next turn.
    Turn,
    /// Nothing any more.
    Close,
}

impl<'a> Worker<'a> {
    /// On a ring of its own.
    pub(crate) fn new(mut ring: Ring, ground: Ground<'a>, desk: Desk) -> Self {
        ring.poll_readable(ground.stop, STOP);
        ring.poll_readable(ground.failed, FAILED);
        ring.poll_readable(ground.listener.as_fd(), LISTENER);
        if let Some(front) = &desk.front {
            ring.poll_readable(front.wake_fd(), RELAY);
        }
        Worker {
            table: Table::new(ground.tick(), desk.now),
            ground,
            ring,
            desk,
            turn: 1,
            again: Vec::new(),
            bursts: VecDeque::new(),
            strangers: VecDeque::new(),
            knocked: true,
            accept_again_at: None,
            stop_at: None,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
        }
    }

    /// Serves until it is told to stop, and has; what is not finished then is cut off.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let outcome = self.serve();
        for token in self.table.tokens() {
            self.close(token);
        }
        outcome
    }

    fn serve(&mut self) -> Result<(), ServeError> {
        let mut precedence = self.ground.beside.stand(self.desk.now);
        // Completions since the last turn that had time for everything else.
        let mut came = 0;
        loop {
            let mut patience = if came > 0 { Some(Duration::ZERO) } else { self.patience() };
            match &mut patience {
                None => self.desk.books.tick(self.desk.now),
                Some(patience) => *patience = (*patience).min(self.desk.books.due_at().since(self.desk.now)),
            }
            let more = self.ring.wait_once(patience).map_err(system("io_uring_enter"))?;
            self.desk.now = self.ground.clock.now();
            self.desk.date.refresh(self.desk.now);
            precedence.review(self.desk.now);
            if came == 0 {
                self.desk.turn = Turn::begun(self.ground.clock, self.desk.now);
            }
            self.turn += 1;
            let again = std::mem::take(&mut self.again);
            while let Some(completion) = self.ring.next() {
                came += 1;
                match completion.token {
                    FAILED => return Ok(()),
                    STOP if self.stop_at.is_some() => return Ok(()),
                    STOP => self.stop(),
                    LISTENER => self.knocked = true,
                    RELAY => self.hear(),
                    token => self.sort(token, completion),
                }
            }
            if self.desk.now >= self.desk.books.due_at() {
                self.desk.books.tick(self.desk.now);
            }
            if more && came < CROWD {
                // Others have light work, too, which the kernel has not told of yet.
                self.again.splice(..0, again);
                continue;
            }
            came = 0;
            let mut done = 0;
            while done < again.len() && (done == 0 || !self.desk.turn.is_over()) {
                let token = again[done];
                done += 1;
                if let Some(client) = self.table.get(token) {
                    client.queued = false;
                    self.advance(token);
                }
            }
            // Those that had no time left keep their place.
            self.again.splice(..0, again[done..].iter().copied());
            while let Some((token, completion)) = self.bursts.pop_front() {
                if let Some(client) = self.table.get(token & TOKEN_MASK) {
                    client.waiting -= 1;
                }
                self.completed(token, completion);
                // The buffers are everybody's.
                if self.bursts.len() <= BURSTS_MAX && self.desk.turn.is_over() {
                    break;
                }
            }
            self.desk.turn.for_strangers();
            while let Some(token) = self.strangers.pop_front() {
                self.look_at(token);
                if self.desk.turn.is_over() {
                    break;
                }
            }
            while let Some(token) = self.table.due(self.desk.now) {
                let Some(client) = self.table.get(token) else { continue };
                let deadline = client.link.deadline();
                if deadline > self.desk.now {
                    self.table.schedule(token, deadline);
                } else {
                    client.link.late(&mut self.desk);
                    self.advance(token);
                }
            }
            if self.accept_again_at.is_some_and(|at| self.desk.now >= at) {
                self.accept_again_at = None;
                self.knocked = true;
            }
            if self.knocked && self.accept_again_at.is_none() {
                self.accept()?;
            }
            if self.stop_at.is_some_and(|at| self.desk.now >= at || self.table.length() == 0) {
                return Ok(());
            }
        }
    }

    /// Does what is asked by those who are known, at once; what strangers sent waits for the end of the turn, and has the
    /// time that is left of it. So a flood of connections or of heads without end costs the others a turn, not its length:
    /// not even taking it out of the kernel, which makes that carry more of it, is done before.
    fn sort(&mut self, marked: u64, completion: Completion) {
        let token = marked & TOKEN_MASK;
        if marked & !TOKEN_MASK == RECEIVE
            && let Some(client) = self.table.get(token)
        {
            if client.receiving == Receiving::Watched {
                return self.strangers.push_back(token);
            }
            if completion.result.as_ref().is_ok_and(|&bytes| bytes >= RING.buffer_bytes) {
                // It has much to say: from now on that stays in the kernel until its turn has come.
                client.heavy = true;
            }
            if client.heavy && completion.more {
                client.receive_no_more(token, self.turn, &mut self.ring);
            }
            if client.heavy || client.waiting > 0 {
                client.waiting += 1;
                return self.bursts.push_back((marked, completion));
            }
        }
        self.completed(marked, completion);
    }

    fn completed(&mut self, marked: u64, completion: Completion) {
        let token = marked & TOKEN_MASK;
        let Some(client) = self.table.get(token) else {
            // Of a connection that is gone.
            if let Some(buffer) = completion.buffer {
                self.ring.give_back(buffer);
            }
            return;
        };
        match marked & !TOKEN_MASK {
            RECEIVE => return self.received(token, completion),
            SEND => match completion.result {
                Ok(taken) => client.take_back(&self.ring, taken as usize),
                Err(error) if error.raw_os_error() == Some(EAGAIN) => client.take_back(&self.ring, 0),
                Err(_) => client.link.broken(),
            },
            _ => client.blocked = false,
        }
        self.advance(token);
    }

    fn received(&mut self, token: u64, completion: Completion) {
        let Some(client) = self.table.get(token) else { return };
        if !completion.more {
            client.receiving = Receiving::Nothing;
        }
        match (completion.result, &completion.buffer) {
            (Ok(length @ 1..), Some(buffer)) => {
                client.link.take(&mut self.desk, self.ring.bytes(buffer, length as usize));
            }
            (Ok(_), _) => client.link.ended(),
            (Err(error), _) if matches!(error.raw_os_error(), Some(ENOBUFS | ECANCELED)) => {}
            (Err(_), _) => client.link.broken(),
        }
        if let Some(buffer) = completion.buffer {
            self.ring.give_back(buffer);
        }
        self.advance(token);
    }

    /// Passes on what the relay has to say.
    fn hear(&mut self) {
        if let Some(front) = &mut self.desk.front {
            front.woken();
        }
        for _ in 0..HEARD {
            let Some((token, event)) = self.desk.front.as_mut().and_then(Front::next) else { return };
            if let Some(client) = self.table.get(token) {
                client.link.heard(&mut self.desk, event);
                self.advance(token);
            }
        }
        if let Some(front) = &self.desk.front {
            front.wake_again();
        }
    }

    /// Does all that can be done about a connection in this turn.
    fn advance(&mut self, token: u64) {
        let Some(client) = self.table.get(token) else { return };
        if client.queued {
            // It had its share of this turn, or what it sent in this turn is not certain to be taken.
            client.link.settle(&mut self.desk);
            if client.link.is_full() || !client.link.stays_open() {
                client.receive_no_more(token, self.turn, &mut self.ring);
            }
            return;
        }
        let next = client.work(token, self.turn, &mut self.desk, &mut self.ring).unwrap_or(Next::Close);
        client.link.settle(&mut self.desk);
        let spare = client.accepted_in < self.turn && client.link.spare_since() == Some(self.desk.now);
        client.known |= spare && next == Next::Input;
        match next {
            Next::Input => client.receive(token, &mut self.ring),
            Next::Hold => {}
            Next::Output => {
                if !client.blocked {
                    client.blocked = true;
                    self.ring.poll_writable(client.stream.as_fd(), token | ROOM);
                }
            }
            Next::Turn => {
                client.queued = true;
                self.again.push(token);
            }
            Next::Close => return self.close(token),
        }
        // What is thrown away is not worth a buffer.
        if client.link.is_full() || !client.link.stays_open() {
            client.receive_no_more(token, self.turn, &mut self.ring);
        }
        let deadline = client.link.deadline();
        let used = client.link.spare_since() == Some(self.desk.now);
        self.table.schedule(token, deadline);
        if used {
            self.table.used(token);
        }
    }
}

impl Client {
    /// Sends and answers in turn.
    fn work(&mut self, token: u64, turn: u64, desk: &mut Desk, ring: &mut Ring) -> io::Result<Next> {
        for _ in 0..TURNS {
            if self.sent_in == turn || (self.receives_behind && self.sent_in + 1 == turn) {
                // What was queued may not be taken whole, and that is not known yet, so nothing may follow it now.
                let idle = matches!(self.link.outbound(desk), Outbound::Nothing) && !self.link.has_more();
                return Ok(if idle && self.link.step() == Step::Go { Next::Input } else { Next::Turn });
            }
            if self.blocked {
                // Broken off while it waited for room.
                return Ok(if self.link.step() == Step::Close { Next::Close } else { Next::Output });
            }
            if self.link.stays_open()
                && !self.short
                && let Outbound::Bytes(bytes, false) = self.link.outbound(desk)
                && bytes.len() <= COPY_MAX
                && let Some(copied) = ring.send_copy(self.stream.as_fd(), bytes, token | SEND)?
            {
                let length = bytes.len();
                self.copied = Some(copied);
                self.sent_in = turn;
                self.receives_behind = false;
                self.link.sent(desk, length);
                continue;
            }
            match flush(&self.stream, &mut self.link, desk, true)? {
                Sent::All => self.short = false,
                Sent::Blocked => return Ok(Next::Output),
                Sent::Enough => return Ok(Next::Turn),
            }
            if self.link.has_more() {
                if desk.turn.is_over() {
                    return Ok(Next::Turn);
                }
                self.link.proceed(desk);
                continue;
            }
            match self.link.step() {
                Step::Close => return Ok(Next::Close),
                Step::Part if has_all(&self.stream) => return Ok(Next::Close),
                Step::Hold | Step::Part => return Ok(Next::Hold),
                Step::Go | Step::Discard => return Ok(Next::Input),
                Step::Finish => {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.link.finished(desk);
                }
            }
        }
        Ok(Next::Turn)
    }

    /// Only `taken` bytes of what was queued last were taken.
    fn take_back(&mut self, ring: &Ring, taken: usize) {
        if let Some(copied) = self.copied.take() {
            self.link.not_sent(ring.copied(&copied, taken));
            self.short = true;
        }
    }

    fn receive(&mut self, token: u64, ring: &mut Ring) {
        if self.receiving == Receiving::Nothing {
            if self.known && !self.heavy && self.link.stays_open() {
                self.receives_behind = true;
                self.receiving = Receiving::On;
                ring.receive(self.stream.as_fd(), token | RECEIVE);
            } else {
                // Buffers that many of them fill would be there for nobody else.
                self.receiving = Receiving::Watched;
                ring.poll_readable_once(self.stream.as_fd(), token | RECEIVE);
            }
        }
    }

    /// What the client sends from now on stays in the kernel, but for what is on its way already. To be called again while more
    /// comes: a receive that is about to go on by itself, since it has brought all that one call may, is not found by who
    /// would end it.
    fn receive_no_more(&mut self, token: u64, turn: u64, ring: &mut Ring) {
        if matches!(self.receiving, Receiving::On | Receiving::Ending) && self.cancelled_in != turn {
            self.receiving = Receiving::Ending;
            self.cancelled_in = turn;
            ring.cancel(token | RECEIVE);
        }
    }

    fn let_go(self, token: u64, turn: u64, ring: &mut Ring) {
        let socket = OwnedFd::from(self.stream);
        if self.receiving != Receiving::Nothing || self.blocked {
            ring.cancel_and_close(socket, &[token | RECEIVE, token | ROOM]);
        } else if self.known || self.sent_in == turn {
            ring.close(socket);
        }
        // A stranger's is closed here and now: it is work that counts in its turn.
    }
}

/// Marks of operations beside a connection's token.
const TOKEN_MASK: u64 = (1 << 60) - 1;
const RECEIVE: u64 = 0;
const SEND: u64 = 1 << 60;
const ROOM: u64 = 2 << 60;
/// Tokens that no connection has.
const STOP: u64 = (3 << 60) + 1;
const FAILED: u64 = (3 << 60) + 2;
const LISTENER: u64 = (3 << 60) + 3;
const RELAY: u64 = (3 << 60) + 4;

const RING: RingSpec = RingSpec { operations: 4096, buffers: 2048, buffer_bytes: 2048 };
/// Buffers that bursts may hold from one turn to the next: half of them.
const BURSTS_MAX: usize = RING.buffers as usize / 2;
/// Answers up to this size are copied and sent with the next wait; larger ones are worth a system call of their own.
const COPY_MAX: usize = 4 << 10;
