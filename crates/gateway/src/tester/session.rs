//! The server's side of a session: runs one trial after the other, as the client requests.

use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::signal::Wake;

use super::control_connection::{ControlConnection, InboxItem, PeerLost};
use super::message::{PROTOCOL, Test, ToClient, ToServer};
use super::secret::{End, Keys};
use super::session_table::{ExpectedConnections, SessionTable};
use super::trial::{self, Trial};

/// One session. The session table has the client's address and keys.
pub(super) struct ServerSession {
    control: ControlConnection,
    keys: Keys,
    session_table: SessionTable,
    stop: Arc<Wake>,
    trial: Option<PreparedTrial>,
    last: u32,
}

/// A trial from its `Ready` message to its report.
struct PreparedTrial {
    trial: Trial,
    /// Streams that have connected, by index.
    streams: Vec<Option<TcpStream>>,
    /// Time at which the client requested the report, and the number of packets that it sent.
    report_requested: Option<(u64, Option<u64>)>,
    /// CPU time of the listener thread at the start, in a trial of connections, which that thread serves.
    listener_cpu: Option<Duration>,
}

/// Whether a session continues.
enum SessionStep {
    Continue,
    End(String),
}

impl ServerSession {
    pub(super) fn new(control: ControlConnection, keys: Keys, session_table: SessionTable, stop: Arc<Wake>) -> Self {
        ServerSession { control, keys, session_table, stop, trial: None, last: 0 }
    }

    /// Serves until the client ends the session or is lost, or the server stops. Returns how the session ended.
    pub(super) fn run(mut self) -> String {
        let how = match self.exchange_hello() {
            Ok(SessionStep::Continue) => self.serve(),
            Ok(SessionStep::End(how)) => Ok(how),
            Err(lost) => Err(lost),
        };
        let during = match self.trial.as_ref().filter(|prepared| prepared.trial.has_begun()) {
            Some(prepared) => format!(", during trial {}", prepared.trial.number),
            None => String::new(),
        };
        // End threads and close sockets before the end is reported.
        self.trial = None;
        match how {
            Ok(how) => how,
            Err(PeerLost(why)) => format!("lost: {why}{during}"),
        }
    }

    fn exchange_hello(&mut self) -> Result<SessionStep, PeerLost> {
        let begun_ns = monotonic_ns();
        while monotonic_ns() - begun_ns < HELLO_TIMEOUT.as_nanos() as u64 {
            let Some(InboxItem::Message(text)) = self.control.receive(POLL_INTERVAL)? else { continue };
            // Parse the version first, so that another version is distinguished from an invalid message.
            let Some((version, protocol)) = super::message::hello(&text) else { return Ok(invalid_message()) };
            self.control.send(&ToClient::Hello {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                protocol: PROTOCOL,
                cores: sys::sched::cores_online() as u32,
                congestion_control: congestion_control(),
            })?;
            if protocol != PROTOCOL {
                // The client receives this server's version and disconnects.
                std::thread::sleep(POLL_INTERVAL);
                return Ok(SessionStep::End(format!("the client has another version ({version})")));
            }
            return Ok(SessionStep::Continue);
        }
        Ok(SessionStep::End("the client sent no message".to_owned()))
    }

    fn serve(&mut self) -> Result<String, PeerLost> {
        loop {
            if is_readable(self.stop.as_fd()) {
                return Ok("the server was stopped".to_owned());
            }
            let interval = if self.trial.as_ref().is_some_and(|trial| trial.report_requested.is_some()) {
                REPORT_POLL_INTERVAL
            } else {
                POLL_INTERVAL
            };
            let next = match self.control.receive(interval)? {
                None => SessionStep::Continue,
                Some(InboxItem::Message(text)) => match serde_json::from_slice(&text) {
                    Ok(message) => self.handle(message)?,
                    Err(_) => invalid_message(),
                },
                Some(InboxItem::Stream { index, stream }) => self.add_stream(index, stream)?,
                Some(InboxItem::DatagramSocket { trial, port, socket }) => self.start_datagrams(trial, port, socket)?,
            };
            if let SessionStep::End(how) = next {
                return Ok(how);
            }
            self.report()?;
        }
    }

    fn handle(&mut self, message: ToServer) -> Result<SessionStep, PeerLost> {
        match message {
            ToServer::Ready { trial, test } => return self.prepare(trial, test),
            ToServer::Go { trial } => {
                if let Some(prepared) = self.prepared(trial).filter(|prepared| !prepared.trial.has_begun()) {
                    let streams = std::mem::take(&mut prepared.streams);
                    let streams: Option<Vec<TcpStream>> = streams.into_iter().collect();
                    let begun = match streams {
                        Some(streams) => {
                            prepared.trial.start(streams, unused_address(), None).map_err(|e| e.to_string())
                        }
                        None => Err("a stream is missing".to_owned()),
                    };
                    if let Err(why) = begun {
                        return self.refuse(why);
                    }
                }
            }
            ToServer::Stop { trial } => {
                if let Some(prepared) = self.prepared(trial) {
                    prepared.trial.stop.set();
                    if !prepared.trial.has_begun() {
                        self.clear();
                    }
                }
            }
            ToServer::Report { trial, sent } => {
                if let Some(prepared) = self.prepared(trial) {
                    prepared.report_requested.get_or_insert((monotonic_ns(), sent));
                }
            }
            ToServer::Alive {} | ToServer::Hello { .. } => {}
            ToServer::Bye {} => return Ok(SessionStep::End("closed by the client".to_owned())),
        }
        Ok(SessionStep::Continue)
    }

    fn prepare(&mut self, number: u32, test: Test) -> Result<SessionStep, PeerLost> {
        self.clear();
        if number <= self.last {
            return self.refuse(format!("trial {number} after trial {}: expected increasing numbers", self.last));
        }
        self.last = number;
        if let Err(why) = test.check() {
            return self.refuse(why);
        }
        self.session_table.expect_trial(Some(ExpectedConnections::new(number, &test)));
        let streams = (0..test.streams()).map(|_| None).collect();
        let listener_cpu = matches!(test, Test::Connections { .. }).then(|| self.session_table.listener_cpu());
        let trial = Trial::new(End::Server, number, test, self.keys.clone(), self.control.liveness());
        self.trial = Some(PreparedTrial { trial, streams, report_requested: None, listener_cpu });
        self.control.send(&ToClient::Ready { trial: number })?;
        Ok(SessionStep::Continue)
    }

    /// Adds a stream. The listener has checked that it is expected and the first with its index.
    fn add_stream(&mut self, index: u32, stream: TcpStream) -> Result<SessionStep, PeerLost> {
        let Some(prepared) = &mut self.trial else { return Ok(SessionStep::Continue) };
        let Some(slot) = prepared.streams.get_mut(index as usize) else { return Ok(SessionStep::Continue) };
        match trial::prepare(&stream, &prepared.trial.test) {
            Ok(actual) => {
                prepared.trial.socket_bytes_actual.get_or_insert(actual);
                *slot = Some(stream);
                Ok(SessionStep::Continue)
            }
            Err(error) => self.refuse(error.to_string()),
        }
    }

    fn start_datagrams(&mut self, number: u32, port: u16, socket: UdpSocket) -> Result<SessionStep, PeerLost> {
        let Some(prepared) = self.prepared(number) else { return Ok(SessionStep::Continue) };
        let socket_result = prepared.trial.start_receiving(socket);
        let mark = prepared.trial.keep_alive_mark();
        match socket_result {
            Ok(socket) => {
                self.control.set_keep_alive_socket(Some((socket, mark)));
                self.control.send(&ToClient::UdpSeen { trial: number, port })?;
                Ok(SessionStep::Continue)
            }
            Err(error) => self.refuse(error.to_string()),
        }
    }

    /// Sends the report when it was requested and all packets have arrived or the wait for them is over.
    fn report(&mut self) -> Result<(), PeerLost> {
        let Some(PreparedTrial { trial, report_requested: Some((requested_ns, sent)), .. }) = &self.trial else {
            return Ok(());
        };
        let late = monotonic_ns().saturating_sub(*requested_ns) > THREAD_END_TIMEOUT.as_nanos() as u64;
        if !(trial.is_done() || late) || !trial.has_settled(sent.unwrap_or(0), *requested_ns) {
            return Ok(());
        }
        let sent = *sent;
        self.session_table.expect_trial(None);
        let Some(PreparedTrial { trial, listener_cpu, .. }) = self.trial.take() else { return Ok(()) };
        let (number, lasts) = (trial.number, Duration::from_millis(u64::from(trial.test.lasts_ms())));
        let message = match trial.finish(sent) {
            Ok(mut local) => {
                if let Some(before) = listener_cpu {
                    trial::add_cpu_time(
                        &mut local.report,
                        self.session_table.listener_cpu().saturating_sub(before),
                        lasts,
                    );
                }
                ToClient::Report { trial: number, seen: local.report }
            }
            Err(error) => ToClient::Refused { why: error.to_string() },
        };
        self.control.send(&message)?;
        self.control.set_keep_alive_socket(None);
        Ok(())
    }

    fn refuse(&mut self, why: String) -> Result<SessionStep, PeerLost> {
        self.clear();
        self.control.send(&ToClient::Refused { why })?;
        Ok(SessionStep::Continue)
    }

    /// Discards the trial: ends its threads and closes its sockets.
    fn clear(&mut self) {
        self.session_table.expect_trial(None);
        self.control.set_keep_alive_socket(None);
        self.trial = None;
    }

    fn prepared(&mut self, number: u32) -> Option<&mut PreparedTrial> {
        self.trial.as_mut().filter(|prepared| prepared.trial.number == number)
    }
}

fn invalid_message() -> SessionStep {
    SessionStep::End("the client sent an invalid message".to_owned())
}

/// Placeholder address: only the client connects in a trial.
fn unused_address() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 0))
}

fn is_readable(fd: BorrowedFd<'_>) -> bool {
    sys::signal::wait_readable(fd, Duration::ZERO)
}

fn congestion_control() -> String {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    text.unwrap_or_default().trim().chars().take(32).collect()
}

/// Timeout of the first message.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval at which a session checks whether it must stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Interval at which a session checks whether a requested report is complete.
const REPORT_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Time after the request of the report at which threads that still run are stopped, such as the sender of a stream
/// whose receiver has closed, or the server of transactions without requests.
const THREAD_END_TIMEOUT: Duration = Duration::from_secs(1);
