//! The server's side of a session: one trial after the other, as the client asks.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::signal::Wake;

use super::line::{Heard, Line, Lost};
use super::message::{PROTOCOL, Test, ToClient, ToServer};
use super::secret::{End, Keys};
use super::session_table::{Awaited, SessionTable};
use super::trial::{self, Trial};

/// One session; the session_table holds its guest.
pub(super) struct Service {
    line: Line,
    keys: Keys,
    session_table: SessionTable,
    stop: Arc<Wake>,
    trial: Option<Prepared>,
    last: u32,
}

/// A trial, from `ready` to its report.
struct Prepared {
    trial: Trial,
    /// Those that have come, at their places.
    streams: Vec<Option<TcpStream>>,
    /// When the report was asked for, and what was sent.
    asked: Option<(u64, Option<u64>)>,
    /// What the door had used when it began, where connections are its part.
    door_cpu: Option<Duration>,
}

/// How a session goes on.
enum Next {
    On,
    End(String),
}

impl Service {
    pub(super) fn new(line: Line, keys: Keys, session_table: SessionTable, stop: Arc<Wake>) -> Self {
        Service { line, keys, session_table, stop, trial: None, last: 0 }
    }

    /// Until the client says goodbye, is lost, or the server stops: how it ended.
    pub(super) fn run(mut self) -> String {
        let how = match self.greet() {
            Ok(Next::On) => self.serve(),
            Ok(Next::End(how)) => Ok(how),
            Err(lost) => Err(lost),
        };
        let during = match self.trial.as_ref().filter(|prepared| prepared.trial.has_begun()) {
            Some(prepared) => format!(", during trial {}", prepared.trial.number),
            None => String::new(),
        };
        // Threads end and sockets close before it is told.
        self.trial = None;
        match how {
            Ok(how) => how,
            Err(Lost(why)) => format!("lost: {why}{during}"),
        }
    }

    fn greet(&mut self) -> Result<Next, Lost> {
        let begun_ns = monotonic_ns();
        while monotonic_ns() - begun_ns < GREETING.as_nanos() as u64 {
            let Some(Heard::Text(text)) = self.line.receive(TURN)? else { continue };
            // Looked at by itself, so that another version is told apart from nonsense.
            let Some((version, protocol)) = super::message::hello(&text) else { return Ok(nonsense()) };
            self.line.send(&ToClient::Hello {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                protocol: PROTOCOL,
                cores: sys::sched::cores_online() as u32,
                congestion_control: congestion_control(),
            })?;
            if protocol != PROTOCOL {
                // Its end hears ours, and goes.
                std::thread::sleep(TURN);
                return Ok(Next::End(format!("speaks another version ({version})")));
            }
            return Ok(Next::On);
        }
        Ok(Next::End("said nothing".to_owned()))
    }

    fn serve(&mut self) -> Result<String, Lost> {
        loop {
            if is_readable(self.stop.as_fd()) {
                return Ok("the server stops".to_owned());
            }
            let patience = if self.trial.as_ref().is_some_and(|trial| trial.asked.is_some()) { BRIEF } else { TURN };
            let next = match self.line.receive(patience)? {
                None => Next::On,
                Some(Heard::Text(text)) => match serde_json::from_slice(&text) {
                    Ok(message) => self.take(message)?,
                    Err(_) => nonsense(),
                },
                Some(Heard::Stream { index, stream }) => self.join(index, stream)?,
                Some(Heard::Introduced { trial, port, socket }) => self.introduce(trial, port, socket)?,
            };
            if let Next::End(how) = next {
                return Ok(how);
            }
            self.report()?;
        }
    }

    fn take(&mut self, message: ToServer) -> Result<Next, Lost> {
        match message {
            ToServer::Ready { trial, test } => return self.prepare(trial, test),
            ToServer::Go { trial } => {
                if let Some(prepared) = self.prepared(trial).filter(|prepared| !prepared.trial.has_begun()) {
                    let streams = std::mem::take(&mut prepared.streams);
                    let streams: Option<Vec<TcpStream>> = streams.into_iter().collect();
                    let begun = match streams {
                        Some(streams) => prepared.trial.go(streams, self_address(), None).map_err(|e| e.to_string()),
                        None => Err("a stream is missing".to_owned()),
                    };
                    if let Err(why) = begun {
                        return self.refuse(why);
                    }
                }
            }
            ToServer::Stop { trial } => {
                if let Some(prepared) = self.prepared(trial) {
                    prepared.trial.halt.set();
                    if !prepared.trial.has_begun() {
                        self.clear();
                    }
                }
            }
            ToServer::Report { trial, sent } => {
                if let Some(prepared) = self.prepared(trial) {
                    prepared.asked.get_or_insert((monotonic_ns(), sent));
                }
            }
            ToServer::Alive {} | ToServer::Hello { .. } => {}
            ToServer::Bye {} => return Ok(Next::End("said goodbye".to_owned())),
        }
        Ok(Next::On)
    }

    fn prepare(&mut self, number: u32, test: Test) -> Result<Next, Lost> {
        self.clear();
        if number <= self.last {
            return self.refuse(format!("trial {number} comes after {}", self.last));
        }
        self.last = number;
        if let Err(why) = test.check() {
            return self.refuse(why);
        }
        self.session_table.await_trial(Some(Awaited::new(number, &test)));
        let streams = (0..test.streams()).map(|_| None).collect();
        let door_cpu = matches!(test, Test::Connections { .. }).then(|| self.session_table.door_cpu());
        let trial = Trial::new(End::Server, number, test, self.keys.clone(), self.line.pulse());
        self.trial = Some(Prepared { trial, streams, asked: None, door_cpu });
        self.line.send(&ToClient::Ready { trial: number })?;
        Ok(Next::On)
    }

    /// The door has seen that it is waited for, and the first of its place.
    fn join(&mut self, index: u32, stream: TcpStream) -> Result<Next, Lost> {
        let Some(prepared) = &mut self.trial else { return Ok(Next::On) };
        let Some(place) = prepared.streams.get_mut(index as usize) else { return Ok(Next::On) };
        match trial::prepare(&stream, &prepared.trial.test) {
            Ok(got) => {
                prepared.trial.socket_bytes_actual.get_or_insert(got);
                *place = Some(stream);
                Ok(Next::On)
            }
            Err(error) => self.refuse(error.to_string()),
        }
    }

    fn introduce(&mut self, number: u32, port: u16, socket: UdpSocket) -> Result<Next, Lost> {
        let Some(prepared) = self.prepared(number) else { return Ok(Next::On) };
        let heard = prepared.trial.hear(socket);
        let mark = prepared.trial.alive_mark();
        match heard {
            Ok(socket) => {
                self.line.beat_on(Some((socket, mark)));
                self.line.send(&ToClient::UdpSeen { trial: number, port })?;
                Ok(Next::On)
            }
            Err(error) => self.refuse(error.to_string()),
        }
    }

    /// Answers with what was seen, once it is asked for and everything has come or will not.
    fn report(&mut self) -> Result<(), Lost> {
        let Some(Prepared { trial, asked: Some((asked_ns, sent)), .. }) = &self.trial else { return Ok(()) };
        let late = monotonic_ns().saturating_sub(*asked_ns) > OWN_END.as_nanos() as u64;
        if !(trial.is_done() || late) || !trial.has_settled(sent.unwrap_or(0), *asked_ns) {
            return Ok(());
        }
        let sent = *sent;
        self.session_table.await_trial(None);
        let Some(Prepared { trial, door_cpu, .. }) = self.trial.take() else { return Ok(()) };
        let (number, lasts) = (trial.number, Duration::from_millis(u64::from(trial.test.lasts_ms())));
        let message = match trial.finish(sent) {
            Ok(mut saw) => {
                if let Some(before) = door_cpu {
                    trial::used(&mut saw.seen, self.session_table.door_cpu().saturating_sub(before), lasts);
                }
                ToClient::Report { trial: number, seen: saw.seen }
            }
            Err(error) => ToClient::Refused { why: error.to_string() },
        };
        self.line.send(&message)?;
        self.line.beat_on(None);
        Ok(())
    }

    fn refuse(&mut self, why: String) -> Result<Next, Lost> {
        self.clear();
        self.line.send(&ToClient::Refused { why })?;
        Ok(Next::On)
    }

    /// No trial any more: threads end, sockets close.
    fn clear(&mut self) {
        self.session_table.await_trial(None);
        self.line.beat_on(None);
        self.trial = None;
    }

    fn prepared(&mut self, number: u32) -> Option<&mut Prepared> {
        self.trial.as_mut().filter(|prepared| prepared.trial.number == number)
    }
}

fn nonsense() -> Next {
    Next::End("sent an invalid message".to_owned())
}

/// The server connects to nobody; the address is the client's to give.
fn self_address() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    sys::signal::wait_readable(fd, Duration::ZERO)
}

fn congestion_control() -> String {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    text.unwrap_or_default().trim().chars().take(32).collect()
}

/// The first message comes at once, or never.
const GREETING: Duration = Duration::from_secs(5);
/// How often a session looks whether it is to stop.
const TURN: Duration = Duration::from_millis(50);
/// And whether a report that is asked for can be given.
const BRIEF: Duration = Duration::from_millis(2);
/// Threads of a trial that have not ended so long after the client asked for the report are ended: a sender of streams
/// whose receiver is gone, an answerer that nobody asks.
const OWN_END: Duration = Duration::from_secs(1);
