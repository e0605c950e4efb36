//! Both ends of the testbed and the path between them, in the test process.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use path::Counters;
use plan::{Engine, PathPlan, ServerTcp, Wait};
use schema::Direction;
use sys::clock::{Clock, monotonic_ns};
use sys::sched::{RealTimeLock, Urgency};
use sys::signal::Wake;
use testbed::drive::progress::Progress;
use testbed::drive::{Drive, Driven};
use testbed::host::CorePlan;
use testbed::topology::{self, SERVER, Topology};

/// Both ends of the testbed. The path runs on a thread of its own until [`TwoEnds::end`] or the drop.
pub struct TwoEnds {
    topology: Topology,
    progress: Arc<Progress>,
    stop: Arc<Wake>,
    thread: Option<JoinHandle<Driven>>,
    /// Start of the path in nanoseconds of CLOCK_MONOTONIC: the zero of the times of the path's changes.
    pub start_ns: u64,
}

impl TwoEnds {
    /// Starts the path that this `[path]` table of a plan describes, for one client.
    pub fn new(path: &str) -> Self {
        let plan: PathPlan = toml::from_str(path).unwrap_or_else(|error| panic!("{error}\n{path}"));
        let spec = testbed::distances::spec(&plan, 1).unwrap();
        let rootless = topology::gain_privilege().unwrap();
        let mut topology = Topology::new(None, &CorePlan::default(), None, rootless).unwrap();
        // cubic fills queues, while bbr, the default of some hosts, would avoid them.
        let tcp = ServerTcp { initcwnd: None, cc: Some("cubic".into()) };
        let mut path = topology.connect(&spec, true, &tcp, &CorePlan::default(), 1).expect("a path between them");
        let progress = Arc::new(Progress::default());
        let stop = Arc::new(Wake::new().unwrap());
        let clock = Clock::start();
        let (now, now_ns) = (clock.now(), monotonic_ns());
        path.set_start(now);
        let thread = std::thread::spawn({
            let (progress, stop) = (Arc::clone(&progress), Arc::clone(&stop));
            move || {
                let real_time_lock = RealTimeLock::acquire();
                let urgency = if real_time_lock.is_some() { Urgency::RealTime } else { Urgency::High };
                urgency.apply_to_this_thread();
                let drive = Drive {
                    clock,
                    wait: Wait::default(),
                    engine: Engine::default(),
                    path: Some(path),
                    load: None,
                    progress,
                    stop: stop.as_fd(),
                    drain: Duration::ZERO,
                    grace: Duration::ZERO,
                    others: Vec::new(),
                    own_core: false,
                    shares_core: false,
                    urgency: Urgency::Ordinary,
                };
                drive.run().expect("the path runs")
            }
        });
        TwoEnds { topology, progress, stop, thread: Some(thread), start_ns: now_ns }
    }

    /// A UDP socket at the server's end.
    pub fn server(&self, port: u16) -> UdpSocket {
        let address = SocketAddr::new(SERVER.into(), port);
        receiving(self.topology.server_net.run(|| UdpSocket::bind(address)).unwrap().unwrap())
    }

    /// A UDP socket at the client's end.
    pub fn client(&self, port: u16) -> UdpSocket {
        let address = SocketAddr::new(client_address(), port);
        receiving(self.topology.client_net.run(|| UdpSocket::bind(address)).unwrap().unwrap())
    }

    /// Does `work` at the server's end, such as listening.
    pub fn at_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.topology.server_net.run(work).unwrap()
    }

    /// Does `work` at the client's end.
    pub fn at_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.topology.client_net.run(work).unwrap()
    }

    /// Stops the path; returns its counters, up and down, after all packets in transit were dropped.
    pub fn end(mut self) -> [Counters; 2] {
        let path = self.join().path.expect("the loop gives the path back");
        [Direction::Up, Direction::Down].map(|direction| path.network().counters(direction).clone())
    }

    fn join(&mut self) -> Driven {
        self.progress.request_stop(1, units::Timestamp::ZERO);
        self.stop.wake();
        self.thread.take().expect("the path is joined once").join().expect("the path does not panic")
    }
}

impl Drop for TwoEnds {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.join();
        }
    }
}

/// Address of the client.
pub fn client_address() -> IpAddr {
    topology::client_address(0, SERVER.into())
}

fn receiving(socket: UdpSocket) -> UdpSocket {
    sys::socket::set_receive_buffer(&socket, 16 << 20).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

/// Asserts that in each direction accepted and duplicated packets equal delivered and dropped packets and those in
/// transit.
pub fn assert_conserved(counters: &[Counters; 2]) {
    for counters in counters {
        assert_eq!(
            counters.accepted + counters.duplicated,
            counters.delivered + counters.dropped_in_all() + counters.in_transit,
            "{counters:?}"
        );
    }
}
