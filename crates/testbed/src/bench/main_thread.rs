//! The main thread's measurements while the loops run.

use std::time::Duration;

use load::Live;
use sys::clock::Clock;
use sys::sched::Pinned;
use sys::signal::Interrupts;
use units::{CpuShare, Timestamp};

use super::Observer;
use super::loops::Loops;
use super::memory::Memory;
use super::network::{MachineCounters, Network, device_statistics};
use crate::cpu_probe::CpuProbe;
use crate::drive::path_live::PathLive;
use crate::drive::progress::Phase;
use crate::error::TestbedError;
use crate::host::steal_share;
use crate::path_part::{Refused, mistaken_drops};
use crate::recorder::Recorder;
use crate::server::watch::{CoreWatch, Own};
use crate::server::{self, Account, Series};
use crate::shards::{Running, STOP_LEAD};
use crate::snapshot::MainThreadReadings;
use crate::topology::Topology;

/// Interval of the main thread's readings.
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Interval of the observer's ticks.
const OBSERVER_TICK_INTERVAL: Duration = Duration::from_millis(200);
/// Interval of reading the server's memory.
const MEMORY_INTERVAL: Duration = Duration::from_millis(500);

/// Interval of readings for progress snapshots.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of reading the devices' counters, which takes entering their namespaces.
const DEVICE_COUNTERS_INTERVAL: Duration = Duration::from_secs(5);

/// The main thread's part of progress snapshots, if the run is stored.
pub(super) struct ReadingsPublisher<'a> {
    pub recorder: &'a Recorder,
    pub readings: &'a MainThreadReadings,
    /// Counters of the machine when the run began.
    pub before: &'a MachineCounters,
    pub path: Option<&'a PathLive>,
    /// Whether packets for the server are received on its own cores.
    pub steered: bool,
    published_at: Timestamp,
    device_counters_read_at: Timestamp,
}

impl<'a> ReadingsPublisher<'a> {
    pub fn new(recorder: &'a Recorder, readings: &'a MainThreadReadings, before: &'a MachineCounters) -> Self {
        ReadingsPublisher {
            recorder,
            readings,
            before,
            path: None,
            steered: false,
            published_at: Timestamp::ZERO,
            device_counters_read_at: Timestamp::ZERO,
        }
    }

    /// Publishes current readings, if it is time.
    fn publish_if_due(&mut self, now: Timestamp, topology: Option<&Topology>, server_ended: Option<&str>) {
        if now.since(self.published_at) < PUBLISH_INTERVAL {
            return;
        }
        self.published_at = now;
        let cpu = sys::accounting::cpu_times().ok();
        let stolen = steal_share(self.before.cpu.as_deref(), cpu.as_deref());
        let reads_devices = now.since(self.device_counters_read_at) >= DEVICE_COUNTERS_INTERVAL;
        let mistaken = self.path.filter(|_| reads_devices).and_then(|path| {
            self.device_counters_read_at = now;
            let refused = Refused { writes: path.refused(), overflowed: 0 };
            mistaken_drops(self.before.devices, device_statistics(topology), refused, self.steered)
        });
        let mut readings = self.readings.lock();
        readings.server_ended = server_ended.map(str::to_owned);
        readings.steal_share = stolen;
        if reads_devices {
            readings.mistaken = mistaken;
        }
    }
}

/// The main thread's measurements while the loops ran.
#[derive(Default)]
pub(super) struct MainThread {
    /// Interrupts of this process before the run.
    pub interrupts_before: u32,
    /// Processes of the load generator.
    pub pids: Vec<i32>,
    pub memory_before: Memory,
    /// Memory at the start of the measured phase.
    pub memory: Option<Memory>,
    pub server_from: Option<Account>,
    pub server_to: Option<Account>,
    /// Resource usage in the measured phase, second by second.
    pub server_series: Series,
    /// Whether the server's packets are received on its own cores.
    pub steered: bool,
    /// Reads the server's cores; none without a server of the testbed.
    pub watch: Option<CoreWatch>,
    /// The generator's other processes, if nothing is pinned: they run on the server's cores.
    pub floating: Option<Vec<i32>>,
    /// Time before which there is no load.
    pub load_from: Timestamp,
    /// Resource usage before there was load, until its figures are known.
    pub idle_from: Option<Account>,
    /// Interrupts a second on the server's cores before the load.
    pub baseline: f64,
    /// Whether the server has a CPU limit.
    pub bounded: bool,
    /// The CPU limit of the measured phase, and the time from which it applies; none once it is set.
    pub cpu_limit: Option<(Timestamp, CpuShare)>,
    /// Why the limit could not be set.
    pub refused: Option<sys::Error>,
    /// CPU speed probe on the server's cores; none if these are unknown.
    pub cpu_probe: Option<CpuProbe>,
    /// Median of the CPU speed probe in the measured phase.
    pub cpu_probe_ns: Option<u64>,
    pub rss_bytes_max: u64,
    pub server_ended: Option<String>,
    pub interrupted: bool,
    pub gave_up: bool,
    /// Number of refused connections, if all were refused: the run then ends early.
    pub all_refused: Option<u64>,
    /// Keeps this thread, and the processes that it starts, off the server's cores.
    pub _pinned: Option<Pinned>,
}

/// A CPU limit of the measured phase begins this long before it, or in the middle of a shorter warm-up.
const CPU_LIMIT_LEAD: Duration = Duration::from_millis(500);

/// After this many refused connections without another outcome, nothing listens at the target.
const REFUSED_MIN: u64 = 20;

fn nothing_listens(live: &Live) -> bool {
    live.refused >= REFUSED_MIN && live.refused == live.failed && live.completed == 0
}

impl MainThread {
    /// Begins to read the server's cores, before there is load. `interrupts_before`: interrupts before the run.
    ///
    /// # Errors
    /// The CPU speed probe cannot be started.
    pub fn new(loops: &Loops<'_>, network: &Network, interrupts_before: u32) -> Result<Self, TestbedError> {
        let (plan, cores) = (&loops.resolved.plan, &loops.resources.cores);
        let topology = network.topology.as_ref();
        let measured_from = loops.schedule.measured_from();
        let limit = plan.server.as_ref().and_then(|server| server.cpu_measured);
        let cpu_probe = cores
            .server
            .as_ref()
            .map(CpuProbe::start)
            .transpose()
            .map_err(TestbedError::system("start the CPU speed probe"))?;
        let pinned = cores.client.as_ref().and_then(Pinned::to);
        let pids = loops.pids();
        let served = topology.filter(|topology| topology.server.is_some());
        let mut main_thread = MainThread {
            memory_before: Memory::read(&pids),
            watch: served.map(|topology| CoreWatch::start(loops.resources.server_cores().clone(), topology)),
            floating: cores.server.is_none().then(|| pids[1..].to_vec()),
            load_from: loops.schedule.open_from,
            pids,
            interrupts_before,
            steered: topology.is_some_and(|topology| topology.steered(cores).is_some()),
            bounded: plan.server.as_ref().is_some_and(|server| server.share().is_some()),
            cpu_limit: limit.map(|share| (measured_from - CPU_LIMIT_LEAD.min(plan.load.warmup / 2), share)),
            cpu_probe,
            _pinned: pinned,
            ..MainThread::default()
        };
        main_thread.idle_from = topology.and_then(|topology| main_thread.account(topology));
        if plan.load.warmup.is_zero() {
            // Measured from the start: the first reading of a short run may come after its end.
            main_thread.server_from = topology.and_then(|topology| main_thread.first_account(topology));
        }
        Ok(main_thread)
    }

    /// Takes readings until the run is over.
    pub fn until_done(
        &mut self,
        running: &Running<'_>,
        interrupts: &Interrupts,
        clock: &Clock,
        mut topology: Option<&mut Topology>,
        observer: &mut dyn Observer,
        mut publisher: Option<ReadingsPublisher<'_>>,
    ) {
        let (mut stops_requested, mut ticked_at, mut memory_read) = (0, Timestamp::ZERO, Timestamp::ZERO);
        loop {
            running.update();
            let progress = &running.run;
            let phase = progress.phase();
            if phase > Phase::Measured
                && self.cpu_probe_ns.is_none()
                && let Some(cpu_probe) = &self.cpu_probe
            {
                self.cpu_probe_ns = cpu_probe.median_ns();
            }
            if phase == Phase::Done {
                self.gave_up = progress.gave_up();
                if self.server_to.is_none() {
                    // Without requests in flight the drain can end between two readings.
                    self.server_to = topology.as_deref().and_then(|topology| self.last_account(topology));
                    self.add_second(clock.now(), self.server_to.clone(), publisher.as_ref());
                }
                return;
            }
            let now = clock.now();
            let live = progress.live();
            if self.all_refused.is_none() && nothing_listens(&live) && phase <= Phase::Measured {
                self.all_refused = Some(live.refused);
                running.request_stop(1, now);
            }
            if phase == Phase::Measured && self.memory.is_none() {
                self.memory = Some(Memory::read(&self.pids));
                if let Some(cpu_probe) = &self.cpu_probe {
                    cpu_probe.clear();
                }
            }
            if let Some(topology) = topology.as_deref_mut() {
                if let Some((_, share)) = self.cpu_limit.take_if(|(from, _)| now >= *from)
                    && let Some(group) = &mut topology.cgroup
                {
                    self.refused = group.set_cpu_limit(share).err();
                }
                self.before_the_load(now, topology);
                if phase == Phase::Measured && self.server_from.is_none() {
                    self.server_from = self.first_account(topology);
                }
                // Also during the drain, to see whether the server waits then.
                self.with_watch(|watch, own| watch.read_if_due(topology, own));
                match self.server_series.due() {
                    None if phase == Phase::Measured => {
                        if let Some(account) = self.account(topology) {
                            self.server_series.begin(now, account);
                        }
                    }
                    Some(due) if phase == Phase::Measured && now >= due => {
                        let account = self.account(topology);
                        self.add_second(now, account, publisher.as_ref());
                    }
                    _ => {}
                }
                if phase > Phase::Measured && self.server_to.is_none() {
                    self.server_to = self.last_account(topology);
                    self.add_second(now, self.server_to.clone(), publisher.as_ref());
                }
                if now.since(memory_read) >= MEMORY_INTERVAL {
                    memory_read = now;
                    if let Some(account) = self.account(topology) {
                        self.rss_bytes_max = self.rss_bytes_max.max(account.rss_bytes());
                    }
                }
                if self.server_ended.is_none()
                    && phase < Phase::Drain
                    && let Some(sandbox) = &mut topology.server
                {
                    self.server_ended = server::ended(sandbox);
                }
            }
            if let Some(publisher) = &mut publisher {
                publisher.publish_if_due(now, topology.as_deref(), self.server_ended.as_deref());
            }
            let snapshot = progress.snapshot();
            let observers = if observer.at_once(&snapshot) { 2 } else { u32::from(observer.enough(&snapshot)) };
            let count = (interrupts.count() - self.interrupts_before).max(observers);
            if count > stops_requested {
                stops_requested = count;
                self.interrupted |= phase < Phase::Drain;
                running.request_stop(stops_requested, now + STOP_LEAD);
            }
            if now.since(ticked_at) >= OBSERVER_TICK_INTERVAL {
                ticked_at = now;
                observer.tick(now.since(Timestamp::ZERO), &progress.snapshot());
            }
            interrupts.wait(POLL_INTERVAL);
        }
    }

    /// The server's resource usage so far.
    pub fn account(&mut self, topology: &Topology) -> Option<Account> {
        let own = self.own(true);
        server::account(topology, self.watch.as_mut(), own)
    }

    /// Resource usage at the start of the measured phase.
    pub fn first_account(&mut self, topology: &Topology) -> Option<Account> {
        self.with_watch(|watch, own| watch.begin(topology, own));
        self.account(topology)
    }

    /// Resource usage at the end of the measured phase.
    fn last_account(&mut self, topology: &Topology) -> Option<Account> {
        let account = self.account(topology);
        self.with_watch(|watch, own| watch.end(topology, own));
        account
    }

    /// Calls the observation of the server's cores, if there is one, with a function that reads this program's own
    /// time.
    fn with_watch(&mut self, action: impl FnOnce(&mut CoreWatch, &dyn Fn() -> Own)) {
        let Some(mut watch) = self.watch.take() else { return };
        action(&mut watch, &|| self.own(false));
        self.watch = Some(watch);
    }

    /// Activity of the server's cores without load does not belong to the server.
    fn before_the_load(&mut self, now: Timestamp, topology: &Topology) {
        if self.idle_from.is_some()
            && now + POLL_INTERVAL * 2 >= self.load_from
            && let Some(earlier) = self.idle_from.take()
            && let Some(account) = self.account(topology)
            // A late reading includes some load.
            && now < self.load_from
        {
            self.baseline = account.interrupts_since(&earlier);
        }
    }

    /// This program's time on the server's cores. `all`: also threads that may run anywhere, which takes a reading of
    /// each.
    fn own(&self, all: bool) -> Own {
        let certain = self.cpu_probe.as_ref().map(CpuProbe::cpu_time).unwrap_or_default();
        match (&self.floating, &self.watch) {
            (Some(pids), _) => {
                let process = sys::clock::process_cpu_time();
                let others = pids.iter().filter_map(|&pid| sys::accounting::served(pid, pid));
                let sum = certain.max(process) + others.map(|served| served.ran).sum::<Duration>();
                Own { certain: sum, possible: sum }
            }
            (None, Some(watch)) if all => Own { certain, possible: certain + watch.time_on_shared_cores() },
            _ => Own { certain, possible: certain },
        }
    }

    fn add_second(&mut self, now: Timestamp, account: Option<Account>, publisher: Option<&ReadingsPublisher<'_>>) {
        let Some(account) = account else { return };
        let before = self.server_series.rows().len();
        self.server_series.add(now, account, self.steered, self.bounded);
        if let Some(publisher) = publisher {
            self.server_series.rows()[before..].iter().for_each(|&row| publisher.recorder.put_server_second(row));
        }
    }
}
