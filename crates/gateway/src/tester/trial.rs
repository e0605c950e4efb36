//! One end of a trial: its threads, which send, receive, request and respond, and their report.
//!
//! ```text
//!                    client                                        server
//!   stream           one thread per connection: sends or receives  receives or sends
//!   transactions     sends requests                                responds
//!   connections      connects                                      (the listener thread accepts tickets)
//!   packets          sends, or datagram receiver                   datagram receiver, or sends
//!   probes           sends; datagram receiver measures RTT         datagram receiver sends back
//! ```
//!
//! The datagram receiver runs from before the trial until its report, since datagrams may arrive before the `Go`
//! message.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sys::clock::monotonic_ns;
use sys::datagrams;
use sys::namespace::NetNamespace;
use sys::socket::set_receive_buffer;

use super::connect::{self, ConnectionTest};
use super::control_connection::Liveness;
use super::datagram::{Datagram, Marks};
use super::message::Test;
use super::packet::{self, Expected, PacketTrain, Received};
use super::probe::{self, ProbeTimes};
use super::report::{EndReport, ExchangesReport, RttReport, SentReport};
use super::secret::{End, Keys};
use super::stream::{self, StreamResult};
use super::transact;
use super::worker::{STOP_CHECK_INTERVAL, StopFlag, Worker};

/// A trial at one end.
pub(super) struct Trial {
    pub(super) end: End,
    pub(super) number: u32,
    pub(super) test: Test,
    pub(super) keys: Keys,
    pub(super) stop: StopFlag,
    /// Actual socket buffers of the first stream.
    pub(super) socket_bytes_actual: Option<[u32; 2]>,
    datagram_receiver: Option<DatagramReceiver>,
    running: Option<RunningTrial>,
    /// Number of sent packets, set by the sender at its end.
    sent: Option<Arc<AtomicU64>>,
}

/// The socket of a trial's datagrams, and the thread that receives from it.
struct DatagramReceiver {
    socket: Arc<UdpSocket>,
    probe_times: ProbeTimes,
    /// Number of different packets received so far.
    progress: Arc<AtomicU64>,
    worker: Worker<Received>,
    /// Length of the headers of IP and UDP.
    headers: usize,
}

/// A started trial.
struct RunningTrial {
    begun_ns: u64,
    workers: Vec<Worker<io::Result<ThreadResult>>>,
}

/// Work of a thread.
type ThreadWork = Box<dyn FnOnce(&StopFlag) -> io::Result<ThreadResult> + Send>;

/// Result of a thread.
enum ThreadResult {
    Nothing,
    Sent(SentReport),
    Stream(StreamResult),
    Rtt(RttReport),
    Exchanges(ExchangesReport),
}

/// Results of one end. RTT and exchanges are measured by the client only.
pub(super) struct LocalReport {
    pub(super) report: EndReport,
    pub(super) rtt: Option<RttReport>,
    pub(super) exchanges: Option<ExchangesReport>,
}

impl Trial {
    pub(super) fn new(end: End, number: u32, test: Test, keys: Keys, liveness: Liveness) -> Self {
        let stop = StopFlag::new(liveness);
        Trial {
            end,
            number,
            test,
            keys,
            stop,
            socket_bytes_actual: None,
            datagram_receiver: None,
            running: None,
            sent: None,
        }
    }

    /// Mark of this trial's keep-alive datagrams.
    pub(super) fn keep_alive_mark(&self) -> u64 {
        Marks::new(&self.keys, self.number).keep_alive
    }

    /// Starts the datagram receiver on a connected socket. Returns the socket, for keep-alives.
    pub(super) fn start_receiving(&mut self, socket: UdpSocket) -> io::Result<Arc<UdpSocket>> {
        set_receive_buffer(&socket, UDP_BUFFER)?;
        datagrams::never_fragment(&socket)?;
        socket.set_read_timeout(Some(STOP_CHECK_INTERVAL))?;
        let headers = headers(socket.peer_addr()?);
        let socket = Arc::new(socket);
        let expected_packets = if self.receives_packets() { self.test.packets() } else { 0 };
        let gap_ns = match self.test {
            Test::Packets { per_second, .. } => 1e9 / per_second,
            _ => 1e9,
        };
        let expected =
            Expected { marks: Marks::new(&self.keys, self.number), count: expected_packets, gap_ns, headers };
        let (probe_times, progress) = (ProbeTimes::new(), Arc::new(AtomicU64::new(0)));
        let (receiver_socket, times_in_thread, progress_in_thread) =
            (Arc::clone(&socket), probe_times.clone(), Arc::clone(&progress));
        // The datagram receiver runs longer than the other threads: it has a stop flag of its own.
        let stop = StopFlag::new(self.stop.liveness().clone());
        let is_server = self.end == End::Server;
        let worker = Worker::start("receiver", &stop, true, move |stop| {
            if is_server {
                packet::receive(&receiver_socket, &expected, &progress_in_thread, stop, packet::echo())
            } else {
                packet::receive(&receiver_socket, &expected, &progress_in_thread, stop, |_, _, probe: Datagram, now| {
                    times_in_thread.add(probe, now)
                })
            }
        })?;
        self.datagram_receiver =
            Some(DatagramReceiver { socket: Arc::clone(&socket), probe_times, progress, worker, headers });
        Ok(socket)
    }

    /// Starts the threads of the trial. The client makes connections to `to` in the namespace `net`.
    pub(super) fn start(
        &mut self,
        streams: Vec<TcpStream>,
        to: SocketAddr,
        net: Option<NetNamespace>,
    ) -> io::Result<()> {
        let begun_ns = monotonic_ns();
        let mut workers = Vec::new();
        for (name, work) in self.thread_work(streams, to, net, begun_ns)? {
            // Senders on a schedule have a higher priority.
            let urgent = matches!(name, "packets" | "probes");
            workers.push(Worker::start(name, &self.stop, urgent, work)?);
        }
        self.running = Some(RunningTrial { begun_ns, workers });
        Ok(())
    }

    /// Work of this end's threads, by thread name.
    fn thread_work(
        &mut self,
        streams: Vec<TcpStream>,
        to: SocketAddr,
        net: Option<NetNamespace>,
        begun_ns: u64,
    ) -> io::Result<Vec<(&'static str, ThreadWork)>> {
        let lasts = Duration::from_millis(u64::from(self.test.lasts_ms()));
        let is_client = self.end == End::Client;
        let marks = Marks::new(&self.keys, self.number);
        let mut thread_work: Vec<(&str, ThreadWork)> = Vec::new();
        if let Some(datagram_receiver) = self.datagram_receiver.as_ref().filter(|_| is_client && self.test.probes()) {
            let (socket, probe_times) = (Arc::clone(&datagram_receiver.socket), datagram_receiver.probe_times.clone());
            let send = move |stop: &StopFlag| {
                Ok(ThreadResult::Rtt(probe::send(&socket, marks.probe, lasts, &probe_times, stop)))
            };
            thread_work.push(("probes", Box::new(send)));
        }
        match self.test {
            Test::Stream { up, message_bytes, omit_ms, .. } => {
                let message_bytes = message_bytes as usize;
                let window = [begun_ns + u64::from(omit_ms) * 1_000_000, begun_ns + lasts.as_nanos() as u64];
                for stream in streams {
                    let work: ThreadWork = match up == is_client {
                        true => Box::new(move |stop| {
                            stream::send(stream, message_bytes, lasts, stop);
                            Ok(ThreadResult::Nothing)
                        }),
                        false => Box::new(move |stop| {
                            Ok(ThreadResult::Stream(stream::receive(stream, message_bytes, window, stop)))
                        }),
                    };
                    thread_work.push(("stream", work));
                }
            }
            Test::Transactions { request, response, .. } => {
                let (request, response) = (request as usize, response as usize);
                for stream in streams {
                    let work: ThreadWork = match is_client {
                        true => Box::new(move |stop| {
                            Ok(ThreadResult::Exchanges(transact::run_client(stream, request, response, lasts, stop)))
                        }),
                        false => Box::new(move |stop| {
                            transact::run_server(stream, request, response, lasts, stop);
                            Ok(ThreadResult::Nothing)
                        }),
                    };
                    thread_work.push(("transactions", work));
                }
            }
            Test::Connections { parallel, .. } if is_client => {
                let (keys, parallel) = (self.keys.clone(), usize::from(parallel));
                let spec = ConnectionTest { to, keys, trial: self.number, parallel, lasts };
                let work = move |stop: &StopFlag| {
                    if let Some(net) = net {
                        net.enter().map_err(io::Error::other)?;
                    }
                    Ok(ThreadResult::Exchanges(connect::run(&spec, stop)?))
                };
                thread_work.push(("connections", Box::new(work)));
            }
            Test::Packets { up, ip_bytes, per_second, .. } if up == is_client => {
                let Some(datagram_receiver) = &self.datagram_receiver else {
                    return Err(io::Error::other("packets without a socket"));
                };
                let payload = usize::from(ip_bytes).saturating_sub(datagram_receiver.headers);
                let train = PacketTrain { mark: marks.packet, count: self.test.packets(), per_second, payload };
                let (socket, sent_count) = (Arc::clone(&datagram_receiver.socket), Arc::new(AtomicU64::new(0)));
                self.sent = Some(Arc::clone(&sent_count));
                let work = move |stop: &StopFlag| {
                    let sent = packet::send(&socket, &train, stop);
                    sent_count.store(sent.sent, Ordering::Relaxed);
                    Ok(ThreadResult::Sent(sent))
                };
                thread_work.push(("packets", Box::new(work)));
            }
            _ => {}
        }
        Ok(thread_work)
    }

    /// Whether the trial was started.
    pub(super) fn has_begun(&self) -> bool {
        self.running.is_some()
    }

    /// Whether all threads but the datagram receiver have ended.
    pub(super) fn is_done(&self) -> bool {
        self.running.as_ref().is_none_or(|running| running.workers.iter().all(Worker::is_finished))
    }

    /// Whether the time of the trial is over on this end's clock.
    pub(super) fn is_over(&self) -> bool {
        let lasts_ns = u64::from(self.test.lasts_ms()) * 1_000_000;
        self.running.as_ref().is_some_and(|running| monotonic_ns() >= running.begun_ns + lasts_ns)
    }

    /// Whether the wait for packets is over: all `sent` packets have arrived, or the wait since `since_ns` has ended.
    pub(super) fn has_settled(&self, sent: u64, since_ns: u64) -> bool {
        let Test::Packets { settle_ms, .. } = self.test else { return true };
        let settle = Duration::from_millis(u64::from(settle_ms));
        let Some(datagram_receiver) = &self.datagram_receiver else { return true };
        packet::settled(&datagram_receiver.progress, sent, since_ns, settle, self.stop.liveness())
    }

    /// Number of packets that this end has sent, once its sender has ended; `None` if it sends none.
    pub(super) fn sent(&self) -> Option<u64> {
        self.sent.as_ref().map(|sent| sent.load(Ordering::Relaxed))
    }

    /// Whether this end receives the packets of the test.
    pub(super) fn receives_packets(&self) -> bool {
        matches!(self.test, Test::Packets { up, .. } if up == (self.end == End::Server))
    }

    /// Ends the trial and returns its results, given the number of packets that the other end sent. Threads that still
    /// run are stopped.
    pub(super) fn finish(mut self, sent: Option<u64>) -> io::Result<LocalReport> {
        let mut local = LocalReport { report: EndReport::default(), rtt: None, exchanges: None };
        let Some(running) = self.running.take() else { return Ok(local) };
        let cut_short = self.stop.is_set();
        let lasts = Duration::from_millis(u64::from(self.test.lasts_ms()));
        let report = &mut local.report;
        report.socket_bytes_actual = self.socket_bytes_actual;
        (report.from_ns, report.to_ns) = (running.begun_ns, running.begun_ns);
        for worker in running.workers {
            if !worker.is_finished() {
                self.stop.set();
            }
            let done = worker.join();
            add_cpu_time(report, done.cpu, done.lasted.min(lasts));
            match done.result? {
                ThreadResult::Nothing => {}
                ThreadResult::Sent(sent) => report.sent = Some(sent),
                ThreadResult::Stream(result) => {
                    // If the trial was ended early, the end of the stream is the end of the window.
                    let to_ns = result.broken_ns.filter(|_| cut_short).unwrap_or(result.to_ns);
                    (report.from_ns, report.to_ns) = (result.from_ns, report.to_ns.max(to_ns));
                    report.bytes += result.bytes;
                    report.stream_bytes.push(result.bytes);
                    report.broken += u32::from(result.broken_ns.is_some() && !cut_short);
                }
                ThreadResult::Rtt(rtt) => local.rtt = Some(rtt),
                ThreadResult::Exchanges(exchanges) => local.exchanges = Some(exchanges),
            }
        }
        if let Some(DatagramReceiver { worker, .. }) = self.datagram_receiver.take() {
            let done = worker.stop_and_join();
            // The datagram receiver also ran before and after the trial.
            add_cpu_time(report, done.cpu, done.lasted.min(lasts));
            let received = done.result;
            report.overflowed = received.overflowed;
            if self.receives_packets() {
                report.bytes = received.bytes;
                (report.from_ns, report.to_ns) = (received.from_ns, received.to_ns);
                report.arrivals = Some(received.arrivals(sent.unwrap_or(0)));
            }
        }
        Ok(local)
    }
}

/// Adds the CPU time of a thread to the report, and its utilization over the length of the trial.
pub(super) fn add_cpu_time(report: &mut EndReport, cpu: Duration, lasted: Duration) {
    report.cpu_s += cpu.as_secs_f64();
    if !lasted.is_zero() {
        report.busiest = report.busiest.max(cpu.as_secs_f64() / lasted.as_secs_f64());
    }
}

/// Length of the headers of IP and UDP.
fn headers(peer: SocketAddr) -> usize {
    if peer.ip().to_canonical().is_ipv4() { 28 } else { 48 }
}

/// Sets the socket options of a stream after its handshake, at both ends. Returns the actual send and receive buffer.
pub(super) fn prepare(stream: &TcpStream, test: &Test) -> io::Result<[u32; 2]> {
    match test {
        Test::Stream { socket_bytes, .. } => stream::prepare(stream, *socket_bytes),
        _ => stream::prepare(stream, None),
    }
}

/// Receive buffer for packets that arrive while the receiver does not run: 8 MB are 50 ms of small packets at two
/// million per second.
const UDP_BUFFER: usize = 8 << 20;
