//! One end's part in a trial: the threads that send, receive, ask and answer, and what they saw.
//!
//! ```text
//!                    client                                        server
//!   stream           a thread a connection: sends or receives      receives or sends
//!   transactions     asks                                          answers
//!   connections      connects                                      (the door takes tickets)
//!   packets          sends or not; ears receive                    ears receive; sends or not
//!   probes           sends; ears take the time                     ears send back
//! ```
//!
//! Ears are there before the trial begins and until its report: a datagram may come before the word that it was to begin.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::datagrams;
use sys::namespace::NetNamespace;
use sys::socket::set_receive_buffer;

use super::connect::{self, Connecting};
use super::datagram::{Datagram, Marks};
use super::line::Pulse;
use super::message::Test;
use super::packet::{self, Expected, Received, Train};
use super::probe::{self, Times};
use super::secret::{End, Keys};
use super::seen::{EndReport, ExchangesSeen, RttSeen, SentSeen};
use super::stream::{self, Brought};
use super::transact;
use super::work::{Halt, LOOK, Worker};

/// What is known of a trial before it begins.
pub(super) struct Trial {
    pub(super) end: End,
    pub(super) number: u32,
    pub(super) test: Test,
    pub(super) keys: Keys,
    pub(super) halt: Halt,
    /// Of the first stream.
    pub(super) socket_bytes_actual: Option<[u32; 2]>,
    ears: Option<Ears>,
    going: Option<Going>,
    /// Packets sent, told by their sender when it is done.
    sent: Option<Arc<AtomicU64>>,
}

/// The socket of a trial's datagrams, and the thread that receives from it.
struct Ears {
    socket: Arc<UdpSocket>,
    times: Times,
    /// Different packets that have come.
    progress: Arc<AtomicU64>,
    worker: Worker<Received>,
    /// What IP and UDP add.
    headers: usize,
}

/// What was begun.
struct Going {
    begun_ns: u64,
    workers: Vec<Worker<io::Result<Part>>>,
}

/// What a thread does.
type Work = Box<dyn FnOnce(&Halt) -> io::Result<Part> + Send>;

/// What a thread brought.
enum Part {
    Nothing,
    Sent(SentSeen),
    Brought(Brought),
    Rtt(RttSeen),
    Exchanges(ExchangesSeen),
}

/// Everything that one end saw.
pub(super) struct Saw {
    pub(super) seen: EndReport,
    pub(super) rtt: Option<RttSeen>,
    pub(super) exchanges: Option<ExchangesSeen>,
}

impl Trial {
    pub(super) fn new(end: End, number: u32, test: Test, keys: Keys, pulse: Pulse) -> Self {
        let halt = Halt::new(pulse);
        Trial { end, number, test, keys, halt, socket_bytes_actual: None, ears: None, going: None, sent: None }
    }

    /// The mark of this trial's signs of life.
    pub(super) fn alive_mark(&self) -> u64 {
        Marks::new(&self.keys, self.number).alive
    }

    /// Begins to hear datagrams on a connected socket; returns it for the signs of life.
    pub(super) fn hear(&mut self, socket: UdpSocket) -> io::Result<Arc<UdpSocket>> {
        set_receive_buffer(&socket, UDP_BUFFER)?;
        datagrams::never_fragment(&socket)?;
        socket.set_read_timeout(Some(LOOK))?;
        let headers = headers(socket.peer_addr()?);
        let socket = Arc::new(socket);
        let to_here = if self.receives_packets() { self.test.packets() } else { 0 };
        let gap_ns = match self.test {
            Test::Packets { per_second, .. } => 1e9 / per_second,
            _ => 1e9,
        };
        let expected = Expected { marks: Marks::new(&self.keys, self.number), count: to_here, gap_ns, headers };
        let (times, progress) = (Times::new(), Arc::new(AtomicU64::new(0)));
        let (ear, back, told) = (Arc::clone(&socket), times.clone(), Arc::clone(&progress));
        // Ears outlive the rest of the trial: their halt is their own.
        let halt = Halt::new(self.halt.pulse().clone());
        let is_server = self.end == End::Server;
        let worker = Worker::start("ears", &halt, true, move |halt| {
            if is_server {
                packet::receive(&ear, &expected, &told, halt, packet::echo())
            } else {
                packet::receive(&ear, &expected, &told, halt, |_, _, probe: Datagram, now| back.add(probe, now))
            }
        })?;
        self.ears = Some(Ears { socket: Arc::clone(&socket), times, progress, worker, headers });
        Ok(socket)
    }

    /// Begins, with all of its streams. Connections are made to `to`, from inside `net`.
    pub(super) fn go(&mut self, streams: Vec<TcpStream>, to: SocketAddr, net: Option<NetNamespace>) -> io::Result<()> {
        let begun_ns = monotonic_ns();
        let mut workers = Vec::new();
        for (name, work) in self.works(streams, to, net, begun_ns)? {
            // Those that have a moment for each thing they send.
            let urgent = matches!(name, "packets" | "probes");
            workers.push(Worker::start(name, &self.halt, urgent, work)?);
        }
        self.going = Some(Going { begun_ns, workers });
        Ok(())
    }

    /// What this end's threads do, by their names.
    fn works(
        &mut self,
        streams: Vec<TcpStream>,
        to: SocketAddr,
        net: Option<NetNamespace>,
        begun_ns: u64,
    ) -> io::Result<Vec<(&'static str, Work)>> {
        let lasts = Duration::from_millis(u64::from(self.test.lasts_ms()));
        let is_client = self.end == End::Client;
        let marks = Marks::new(&self.keys, self.number);
        let mut works: Vec<(&str, Work)> = Vec::new();
        if let Some(ears) = self.ears.as_ref().filter(|_| is_client && self.test.probes()) {
            let (socket, times) = (Arc::clone(&ears.socket), ears.times.clone());
            let send = move |halt: &Halt| Ok(Part::Rtt(probe::send(&socket, marks.probe, lasts, &times, halt)));
            works.push(("probes", Box::new(send)));
        }
        match self.test {
            Test::Stream { up, message_bytes, omit_ms, .. } => {
                let message_bytes = message_bytes as usize;
                let window = [begun_ns + u64::from(omit_ms) * 1_000_000, begun_ns + lasts.as_nanos() as u64];
                for stream in streams {
                    let work: Work = match up == is_client {
                        true => Box::new(move |halt| {
                            stream::send(stream, message_bytes, lasts, halt);
                            Ok(Part::Nothing)
                        }),
                        false => Box::new(move |halt| {
                            Ok(Part::Brought(stream::receive(stream, message_bytes, window, halt)))
                        }),
                    };
                    works.push(("stream", work));
                }
            }
            Test::Transactions { request, response, .. } => {
                let (request, response) = (request as usize, response as usize);
                for stream in streams {
                    let work: Work = match is_client {
                        true => Box::new(move |halt| {
                            Ok(Part::Exchanges(transact::ask(stream, request, response, lasts, halt)))
                        }),
                        false => Box::new(move |halt| {
                            transact::answer(stream, request, response, lasts, halt);
                            Ok(Part::Nothing)
                        }),
                    };
                    works.push(("transactions", work));
                }
            }
            Test::Connections { parallel, .. } if is_client => {
                let (keys, parallel) = (self.keys.clone(), usize::from(parallel));
                let spec = Connecting { to, keys, trial: self.number, parallel, lasts };
                let work = move |halt: &Halt| {
                    if let Some(net) = net {
                        net.enter().map_err(io::Error::other)?;
                    }
                    Ok(Part::Exchanges(connect::run(&spec, halt)?))
                };
                works.push(("connections", Box::new(work)));
            }
            Test::Packets { up, ip_bytes, per_second, .. } if up == is_client => {
                let Some(ears) = &self.ears else { return Err(io::Error::other("packets without a socket")) };
                let payload = usize::from(ip_bytes).saturating_sub(ears.headers);
                let train = Train { mark: marks.packet, count: self.test.packets(), per_second, payload };
                let (socket, told) = (Arc::clone(&ears.socket), Arc::new(AtomicU64::new(0)));
                self.sent = Some(Arc::clone(&told));
                let work = move |halt: &Halt| {
                    let sent = packet::send(&socket, &train, halt);
                    told.store(sent.sent, Ordering::Relaxed);
                    Ok(Part::Sent(sent))
                };
                works.push(("packets", Box::new(work)));
            }
            _ => {}
        }
        Ok(works)
    }

    /// Whether it has begun.
    pub(super) fn has_begun(&self) -> bool {
        self.going.is_some()
    }

    /// Whether all that this end does by itself is done; ears go on.
    pub(super) fn is_done(&self) -> bool {
        self.going.as_ref().is_none_or(|going| going.workers.iter().all(Worker::is_finished))
    }

    /// Whether its time is over, by this end's clock.
    pub(super) fn is_over(&self) -> bool {
        let lasts_ns = u64::from(self.test.lasts_ms()) * 1_000_000;
        self.going.as_ref().is_some_and(|going| monotonic_ns() >= going.begun_ns + lasts_ns)
    }

    /// Whether no packet is to be waited for any more, of so many that the other end sent until `since_ns`.
    pub(super) fn has_settled(&self, sent: u64, since_ns: u64) -> bool {
        let Test::Packets { settle_ms, .. } = self.test else { return true };
        let settle = Duration::from_millis(u64::from(settle_ms));
        let Some(ears) = &self.ears else { return true };
        packet::settled(&ears.progress, sent, since_ns, settle, self.halt.pulse())
    }

    /// Packets that this end sent, once it is done; `None` where it sends none.
    pub(super) fn sent(&self) -> Option<u64> {
        self.sent.as_ref().map(|sent| sent.load(Ordering::Relaxed))
    }

    /// Whether this end receives its packets.
    pub(super) fn receives_packets(&self) -> bool {
        matches!(self.test, Test::Packets { up, .. } if up == (self.end == End::Server))
    }

    /// Ends it and says what was seen; of packets the other end sent so many. Which threads have not ended by themselves end
    /// early.
    pub(super) fn finish(mut self, sent: Option<u64>) -> io::Result<Saw> {
        let mut saw = Saw { seen: EndReport::default(), rtt: None, exchanges: None };
        let Some(going) = self.going.take() else { return Ok(saw) };
        let cut_short = self.halt.is_set();
        let lasts = Duration::from_millis(u64::from(self.test.lasts_ms()));
        let seen = &mut saw.seen;
        seen.socket_bytes_actual = self.socket_bytes_actual;
        (seen.from_ns, seen.to_ns) = (going.begun_ns, going.begun_ns);
        for worker in going.workers {
            if !worker.is_finished() {
                self.halt.set();
            }
            let done = worker.join();
            used(seen, done.cpu, done.lasted.min(lasts));
            match done.result? {
                Part::Nothing => {}
                Part::Sent(sent) => seen.sent = Some(sent),
                Part::Brought(brought) => {
                    // Of a trial cut short, a stream's end is the trial's.
                    let to_ns = brought.broken_ns.filter(|_| cut_short).unwrap_or(brought.to_ns);
                    (seen.from_ns, seen.to_ns) = (brought.from_ns, seen.to_ns.max(to_ns));
                    seen.bytes += brought.bytes;
                    seen.stream_bytes.push(brought.bytes);
                    seen.broken += u32::from(brought.broken_ns.is_some() && !cut_short);
                }
                Part::Rtt(rtt) => saw.rtt = Some(rtt),
                Part::Exchanges(exchanges) => saw.exchanges = Some(exchanges),
            }
        }
        if let Some(Ears { worker, .. }) = self.ears.take() {
            let done = worker.end();
            // They waited before it and after it.
            used(seen, done.cpu, done.lasted.min(lasts));
            let received = done.result;
            seen.overflowed = received.overflowed;
            if self.receives_packets() {
                seen.bytes = received.bytes;
                (seen.from_ns, seen.to_ns) = (received.from_ns, received.to_ns);
                seen.arrivals = Some(received.arrivals(sent.unwrap_or(0)));
            }
        }
        Ok(saw)
    }
}

/// Adds what a thread used while the trial lasted so long.
pub(super) fn used(seen: &mut EndReport, cpu: Duration, lasted: Duration) {
    seen.cpu_s += cpu.as_secs_f64();
    if !lasted.is_zero() {
        seen.busiest = seen.busiest.max(cpu.as_secs_f64() / lasted.as_secs_f64());
    }
}

/// What IP and UDP add to a payload.
fn headers(peer: SocketAddr) -> usize {
    if peer.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

/// Of both ends' streams, once the handshake is done.
pub(super) fn prepare(stream: &TcpStream, test: &Test) -> io::Result<[u32; 2]> {
    match test {
        Test::Stream { socket_bytes, .. } => stream::prepare(stream, *socket_bytes),
        _ => stream::prepare(stream, None),
    }
}

/// Room for what arrives while the receiver is not running: 8 MB is 50 ms of small packets at two million a second.
const UDP_BUFFER: usize = 8 << 20;
