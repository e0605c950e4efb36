//! The packet capture during a run: a thread that reads packets at the server's end and feeds [`watch::Watch`].
//!
//! ```text
//!   s0 --> ring --\                          /--> gauges, sampled in packet time
//!                  thread --> Watch, Between ---> WireBatch --> recorder: tables, agreement
//!   c0 --> ring --/  (only with `both`)
//! ```
//!
//! Packet timestamps are converted to the run's clock first ([`wall`]), so that all times in the run's tables count
//! from its zero. The rings are opened in their namespaces before the load's first packet and closed after its last;
//! the thread's cores are those of [`crate::host::CorePlan::watch_cores`] and docs/decisions/0011.

pub mod between;
pub mod gauges;
mod phase;
pub mod protocols;
pub mod queue;
pub mod secrets;
mod tap;
pub mod wall;

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use path::ClientPath;
use schema::{ConnectionRecord, QuicConnectionRecord, WatchSecond, WireRequest};
use sys::capture::{Capture, CaptureSpec, RETIRE};
use sys::clock::Clock;
use sys::epoll::{Epoll, Event, Interest};
use sys::namespace::NetNamespace;
use sys::sched::{Cores, Urgency};
use sys::signal::Wake;
use units::{Bytes, Timestamp};
use watch::{CapturePoint, Counts, Limits, Watch, WatchSpec};

use self::between::{Between, End};
use self::gauges::WireSampler;
use self::phase::{difference, note_phase};
use self::protocols::Protocols;
use self::queue::Outlet;
use self::secrets::SecretReceiver;
use self::tap::{Tap, blocks};
use self::wall::Wall;
use crate::drive::progress::Progress;
use crate::error::TestbedError;
use crate::packets::{HEADERS_MAX, KeptPackets};
use crate::topology::{CLIENT_DEVICE, Topology};
use plan::WatchAt;
use validity::evidence::Watched;

/// The open rings at the ends of the path.
pub struct Taps {
    /// Name of the device at the server's end.
    device: String,
    /// Addresses of servers in packets at the server's end.
    servers: Vec<IpAddr>,
    server: Tap,
    client: Option<Tap>,
}

/// Settings of the thread.
pub struct WatchSetup<'a> {
    /// The run's clock.
    pub clock: Clock,
    /// Provides the end of the measured phase.
    pub progress: Arc<Progress>,
    /// Start of the run.
    pub start: Timestamp,
    /// Start of the measured phase.
    pub measured_from: Timestamp,
    /// End of the measured phase, if it is known.
    pub measured_to: Option<Timestamp>,
    /// Every client's path, in client order.
    pub clients: &'a [ClientPath],
    /// Port of the server, where it is known.
    pub port: Option<u16>,
    /// Seed of the sampling times.
    pub seed: u64,
    /// Cores of the thread; `None`: any.
    pub cores: Option<Cores>,
    /// Where the packets' headers are kept; `None`: nowhere.
    pub kept: Option<KeptPackets>,
    /// What is read of the connections.
    pub protocols: Protocols,
}

/// Records of ended connections and requests, for the recorder.
#[derive(Debug, Default)]
pub struct WireBatch {
    /// Connections that ended.
    pub connections: Vec<ConnectionRecord>,
    /// QUIC connections that ended.
    pub quic_connections: Vec<QuicConnectionRecord>,
    /// Requests that ended.
    pub requests: Vec<WireRequest>,
    /// Seconds that ended.
    pub seconds: Vec<WatchSecond>,
}

/// The running capture. Dropping it without [`Watching::end`] ends the thread and loses its results.
pub struct Watching {
    thread: Option<JoinHandle<(Watched, Option<KeptPackets>)>>,
    stop: Arc<Stop>,
}

struct Stop {
    requested: AtomicBool,
    wake: Wake,
}

impl Taps {
    /// Opens the rings of `at`; `None` if there is no capture. Each captures TCP and UDP with a server's address, and its
    /// `port` if that is known. `snaplens`: bytes of each packet at the server's end and at the clients'; `ring`: size of a ring.
    ///
    /// # Errors
    /// The kernel refuses a packet socket or the memory of its ring.
    pub fn open(
        topology: &Topology,
        at: WatchAt,
        port: Option<u16>,
        (snaplens, ring): ([Bytes; 2], Bytes),
    ) -> Result<Option<Taps>, TestbedError> {
        let ports = port.as_slice();
        let (block_bytes, blocks) = blocks(ring);
        let (servers, device) = (topology.server_addresses(), topology.server_device.clone());
        let open = |net: &NetNamespace, device: &str, hosts: &[IpAddr], snaplen: u32| {
            net.run(|| {
                Capture::open(&CaptureSpec { ports, hosts, block_bytes, blocks, ..CaptureSpec::new(device, snaplen) })
            })
            .and_then(|outcome| outcome)
            .map(Tap::new)
            .map_err(|error| TestbedError::Environment(format!("--watch: {error}; --watch none disables the capture")))
        };
        Ok(match at {
            WatchAt::None => None,
            WatchAt::Server | WatchAt::Both => {
                let server = open(&topology.server_net, &device, &servers, snaplens[0].0 as u32)?;
                let client = match at {
                    WatchAt::Both => Some(open(
                        &topology.client_net,
                        CLIENT_DEVICE,
                        &topology.addresses_at_clients(),
                        snaplens[1].0 as u32,
                    )?),
                    _ => None,
                };
                Some(Taps { device, servers, server, client })
            }
        })
    }

    /// The device at the server's end.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Starts the thread. Records go to `records`, which is closed when it ends.
    ///
    /// # Errors
    /// The errors of epoll and of starting a thread.
    pub fn watch(self, mut setup: WatchSetup<'_>, records: Outlet) -> std::io::Result<Watching> {
        let stop = Arc::new(Stop { requested: AtomicBool::new(false), wake: Wake::new()? });
        let epoll = Epoll::new()?;
        use std::os::fd::AsFd;
        for tap in std::iter::once(&self.server).chain(&self.client) {
            epoll.add(tap.ring.as_fd(), Interest::READ, 0)?;
        }
        epoll.add(stop.wake.as_fd(), Interest::READ.edge(), 0)?;
        let cores = setup.cores.clone();
        let capture = CaptureThread::new(self, &mut setup, records);
        let thread_stop = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("watch".into()).spawn(move || {
            if let Some(cores) = cores {
                // An unpinned capture disturbs other threads, but stays correct.
                let _ = cores.pin_this_thread();
            }
            // High priority: a busy loop at nice -20 would starve a thread with lower priority. A real-time loop takes
            // precedence in any case.
            Urgency::High.apply_to_this_thread();
            capture.run(&epoll, &thread_stop)
        })?;
        Ok(Watching { thread: Some(thread), stop })
    }
}

impl Watching {
    /// Processes the packets captured so far, and ends; returns the results and the kept packets. Call it when the path
    /// has been idle for a short time.
    ///
    /// # Panics
    /// The thread itself panicked.
    pub fn end(mut self) -> (Watched, Option<KeptPackets>) {
        self.request_stop();
        let thread = self.thread.take().expect("the thread is only taken here and in drop");
        thread.join().expect("the capture thread does not panic")
    }

    fn request_stop(&self) {
        self.stop.requested.store(true, Ordering::Release);
        self.stop.wake.wake();
    }
}

impl Drop for Watching {
    /// A failed run leaves no thread and no ring behind: the next one forks.
    fn drop(&mut self) {
        self.request_stop();
        if let Some(thread) = self.thread.take() {
            // An error means that the thread panicked: the run has failed already, and a second panic would abort.
            let _ = thread.join();
        }
    }
}

/// State of the thread.
struct CaptureThread {
    taps: Taps,
    clock: Clock,
    wall: Wall,
    progress: Arc<Progress>,
    phase: (Timestamp, Option<Timestamp>),
    watch: Watch,
    sampler: WireSampler,
    between: Option<Between>,
    kept: Option<KeptPackets>,
    protocols: Protocols,
    records: Outlet,
    /// Counts at the start and the end of the phase.
    at_start: Option<Counts>,
    at_end: Option<Counts>,
    watched: Watched,
}

impl CaptureThread {
    fn new(taps: Taps, setup: &mut WatchSetup<'_>, records: Outlet) -> Self {
        let mut watch = Watch::new(WatchSpec {
            capture_point: CapturePoint::AtServer,
            server_ports: setup.port.map(|port| vec![port]),
            servers: taps.servers.clone(),
            linger: CLOSED_CONNECTION_RETENTION,
            idle_timeout: IDLE_TIMEOUT,
            limits: Limits { streams: setup.protocols.streams, ..Limits::default() },
            later_protocols: setup.protocols.are_later,
            secrets_are_reported: setup.protocols.secrets.is_some(),
            ..WatchSpec::default()
        });
        watch.handle_time(setup.clock.now());
        let device = taps.device.clone();
        let between = taps.client.is_some().then(|| Between::new(setup.clients, setup.measured_from));
        CaptureThread {
            taps,
            clock: setup.clock,
            wall: Wall::new(setup.clock),
            progress: Arc::clone(&setup.progress),
            phase: (setup.measured_from, setup.measured_to),
            watch,
            sampler: WireSampler::new(setup.seed, setup.start, setup.measured_from),
            between,
            kept: setup.kept.take(),
            protocols: std::mem::take(&mut setup.protocols),
            records,
            at_start: None,
            at_end: None,
            watched: Watched { device, ..Watched::default() },
        }
    }

    fn run(mut self, epoll: &Epoll, stop: &Stop) -> (Watched, Option<KeptPackets>) {
        let began = self.clock.now();
        let mut next_second = began + SECOND;
        let mut events = [Event::EMPTY; 4];
        while !stop.requested.load(Ordering::Acquire) && self.watched.failure.is_none() {
            if let Err(error) = epoll.wait(&mut events, POLL_TIMEOUT_MS) {
                self.watched.failure = Some(format!("epoll_wait: {error}"));
            }
            self.take_packets();
            let now = self.clock.now();
            if now >= next_second {
                next_second = now + SECOND;
                self.every_second(now);
            }
        }
        self.drain(epoll, &mut events);
        self.finish(began)
    }

    /// Processes the blocks that the kernel has delivered.
    fn take_packets(&mut self) {
        loop {
            // Read for every block: if a count or Ctrl-C ends the phase, its end is not known in advance, and under
            // load there is always another block.
            self.learn_end();
            let server = self.take_server_block();
            if !(self.take_client_block() || server) {
                return;
            }
        }
    }

    fn learn_end(&mut self) {
        if let Some(end) = self.progress.measured_end() {
            self.phase.1 = Some(end);
        }
        if let Some(end) = self.phase.1 {
            self.sampler.set_measured_end(end);
            if let Some(between) = &mut self.between {
                between.set_measured_end(end);
            }
        }
    }

    /// Processes a block of the server's end; true if there was one.
    fn take_server_block(&mut self) -> bool {
        let tap = &mut self.taps.server;
        let link = tap.link();
        let Some(block) = tap.ring.next_block() else { return false };
        // The secrets of the clients' packets in this block were reported before it was filled.
        if let Some(secrets) = &self.protocols.secrets {
            secrets.pass_to(&mut self.watch, self.kept.as_mut());
        }
        let mut last = None;
        for packet in block.packets() {
            let at = self.wall.run_time(packet.at);
            self.sampler.sample(at, &self.watch);
            note_phase(&self.watch, self.phase, at, &mut self.at_start, &mut self.at_end);
            self.watch.handle_packet(at, link, packet.bytes, packet.original_length);
            if let Some(between) = &mut self.between {
                between.packet(End::Server, at, packet.bytes, packet.original_length);
            }
            if let Some(kept) = &mut self.kept {
                kept.packet(End::Server, at, packet.bytes, packet.original_length);
            }
            tap.read += 1;
            last = Some(at);
        }
        drop(block);
        if let Some(at) = last {
            self.watched.lag = self.watched.lag.max(self.clock.now().since(at));
        }
        self.watched.records_lost += pass_on(&mut self.watch, &self.records);
        true
    }

    /// Processes a block of the clients' end; true if there was one.
    fn take_client_block(&mut self) -> bool {
        let (Some(tap), Some(between)) = (&mut self.taps.client, &mut self.between) else { return false };
        let Some(block) = tap.ring.next_block() else { return false };
        for packet in block.packets() {
            let at = self.wall.run_time(packet.at);
            between.packet(End::Client, at, packet.bytes, packet.original_length);
            if let Some(kept) = &mut self.kept {
                kept.packet(End::Client, at, packet.bytes, packet.original_length);
            }
            tap.read += 1;
        }
        true
    }

    fn every_second(&mut self, now: Timestamp) {
        self.wall.check();
        self.count_drops(now);
        // Slightly behind the clock, because the latest packets are in a block that has not been delivered yet.
        let settled = Timestamp::from_nanos(now.as_nanos().saturating_sub(SETTLE_DELAY.as_nanos() as u64));
        self.watch.handle_time(settled);
        self.watched.records_lost += pass_on(&mut self.watch, &self.records);
        if let Err(error) = self.taps.server.ring.check() {
            self.watched.failure = Some(error.to_string());
        }
    }

    fn count_drops(&mut self, now: Timestamp) {
        match self.taps.server.count() {
            Ok(0) => {}
            Ok(drops) => {
                self.watched.drops += drops;
                let settled = Timestamp::from_nanos(now.as_nanos().saturating_sub(SETTLE_DELAY.as_nanos() as u64));
                self.watch.handle_capture_drops(settled, drops);
            }
            Err(error) => self.watched.failure = Some(error.to_string()),
        }
        match self.taps.client.as_mut().map(Tap::count) {
            Some(Ok(drops)) => self.watched.client_drops += drops,
            Some(Err(error)) => self.watched.failure = Some(error.to_string()),
            None => {}
        }
    }

    /// Processes the remaining packets, some of which may be in a block that is not full. The kernel reports the number
    /// of captured packets, so the end is known.
    fn drain(&mut self, epoll: &Epoll, events: &mut [Event]) {
        // A ring that cannot be stopped is left when it is empty for a short time, or at the time limit.
        let _ = self.taps.server.ring.stop();
        if let Some(client) = &mut self.taps.client {
            let _ = client.ring.stop();
        }
        let deadline = self.clock.now() + LAST_BLOCKS_TIMEOUT;
        while self.watched.failure.is_none() {
            let now = self.clock.now();
            self.take_packets();
            self.count_drops(now);
            let waiting = self.taps.server.waiting() + self.taps.client.as_ref().map_or(0, Tap::waiting);
            if waiting == 0 {
                return;
            }
            if now >= deadline {
                self.watched.failure = Some(format!("{waiting} captured packets were never delivered"));
            } else if let Err(error) = epoll.wait(events, RETIRE.as_millis() as i32) {
                self.watched.failure = Some(format!("epoll_wait: {error}"));
            }
        }
    }

    fn finish(mut self, began: Timestamp) -> (Watched, Option<KeptPackets>) {
        self.wall.check();
        let now = self.clock.now();
        let end = self.phase.1.unwrap_or(now);
        self.sampler.sample(end.min(now), &self.watch);
        // In batches, because the records of ten thousand connections would take more memory than the analysis.
        while self.watch.finish_some(now, FINISH_BATCH) {
            self.watched.records_lost += pass_on(&mut self.watch, &self.records);
        }
        self.watched.records_lost += pass_on(&mut self.watch, &self.records);
        let counts = self.watch.live().counts;
        let to = self.at_end.unwrap_or(counts);
        let from = self.at_start.unwrap_or(to);
        let watched = Watched {
            levels: self.sampler.finish(),
            whole: counts,
            measured: difference(to, from),
            clock_deviation_ns: self.wall.deviation_ns(),
            unread: self.protocols.unread,
            undecrypted: self.watch.reading().undecrypted_tls,
            secrets_lost: self.protocols.secrets.as_ref().map_or(0, SecretReceiver::lost),
            cpu: sys::clock::thread_cpu_time(),
            wall: now.since(began),
            between: self.between.map(Between::finish),
            ..self.watched
        };
        (watched, self.kept)
    }
}

/// Passes ended records to the recorder; returns the number of records dropped because the queue was full.
fn pass_on(watch: &mut Watch, records: &Outlet) -> u64 {
    let mut batch = WireBatch::default();
    watch.take_connections(&mut batch.connections);
    watch.take_quic_connections(&mut batch.quic_connections);
    watch.take_requests(&mut batch.requests);
    watch.take_seconds(&mut batch.seconds);
    records.push_batch(batch)
}

/// Bytes of a packet at the clients' end, where only headers are used.
pub const CLIENT_SNAPLEN: Bytes = Bytes(HEADERS_MAX as u64);
/// Time for which a closed connection stays in memory, so that retransmissions count as its own. Shorter than for
/// foreign traffic, because a load may have ten thousand connections per second.
const CLOSED_CONNECTION_RETENTION: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);
const POLL_TIMEOUT_MS: i32 = 100;
/// Time by which the analysis is behind the clock: well above [`RETIRE`], after which the kernel delivers a block.
const SETTLE_DELAY: Duration = Duration::from_millis(200);
/// Longest wait for the last blocks: the kernel's timer delivers them after [`RETIRE`].
const LAST_BLOCKS_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of connections whose records are made at a time at the end.
const FINISH_BATCH: usize = 4096;
/// Idle timeout of connections: a server may take minutes for a response, and a request that is in flight for the load
/// must not be closed in the capture.
const IDLE_TIMEOUT: Duration = Duration::from_secs(3600);
