//! What the main thread sees while the loops run.

use std::time::Duration;

use load::Live;
use sys::clock::Clock;
use sys::sched::Pinned;
use sys::signal::Interrupts;
use units::{CpuShare, Timestamp};

use super::Observer;
use super::evidence::steal_share;
use super::loops::Loops;
use super::memory::Memory;
use super::network::{MachineCounters, Network, device_statistics};
use crate::drive::path_live::PathLive;
use crate::drive::progress::Phase;
use crate::error::LabError;
use crate::lanes::{Running, STOP_LEAD};
use crate::pace::Pace;
use crate::path_part::{Refused, mistaken_drops};
use crate::places::Places;
use crate::recorder::Recorder;
use crate::server::watch::{CoreWatch, Own};
use crate::server::{self, Account, Series};
use crate::standing::Seen;

/// The main thread looks at the run this often.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// And tells the observer this often.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Memory of the server is read this often.
const MEMORY_EVERY: Duration = Duration::from_millis(500);

/// What those who look on are told is of about this often.
const SHOW_EVERY: Duration = Duration::from_secs(1);
/// Of the devices seldom: they are asked in their namespaces.
const DEVICES_EVERY: Duration = Duration::from_secs(5);

/// What the main thread tells those who look on, where the run is kept.
pub(super) struct Showing<'a> {
    pub recorder: &'a Recorder,
    pub seen: &'a Seen,
    /// Counters of the machine when the run began.
    pub before: &'a MachineCounters,
    pub path: Option<&'a PathLive>,
    /// Whether packets for the server are received on its own cores.
    pub steered: bool,
    told: Timestamp,
    asked_devices: Timestamp,
}

impl<'a> Showing<'a> {
    pub fn new(recorder: &'a Recorder, seen: &'a Seen, before: &'a MachineCounters) -> Self {
        Showing {
            recorder,
            seen,
            before,
            path: None,
            steered: false,
            told: Timestamp::ZERO,
            asked_devices: Timestamp::ZERO,
        }
    }

    /// Tells what is seen now, if it is time.
    fn tell(&mut self, now: Timestamp, places: Option<&Places>, server_ended: Option<&str>) {
        if now.since(self.told) < SHOW_EVERY {
            return;
        }
        self.told = now;
        let cpu = sys::accounting::cpu_times().ok();
        let stolen = steal_share(self.before.cpu.as_deref(), cpu.as_deref());
        let asks = now.since(self.asked_devices) >= DEVICES_EVERY;
        let mistaken = self.path.filter(|_| asks).and_then(|path| {
            self.asked_devices = now;
            let refused = Refused { writes: path.refused(), overflowed: 0 };
            mistaken_drops(self.before.devices, device_statistics(places), refused, self.steered)
        });
        let mut sight = self.seen.lock();
        sight.server_ended = server_ended.map(str::to_owned);
        sight.steal_share = stolen;
        if asks {
            sight.mistaken = mistaken;
        }
    }
}

/// What the main thread saw while the loop ran.
#[derive(Default)]
pub(super) struct MainThread {
    /// Interrupts of this process before the run.
    pub interrupts_before: u32,
    /// The generator's processes.
    pub pids: Vec<i32>,
    pub memory_before: Memory,
    /// When the measured phase began.
    pub memory: Option<Memory>,
    pub server_from: Option<Account>,
    pub server_to: Option<Account>,
    /// The measured phase, second by second.
    pub server_series: Series,
    /// Whether the server's packets are received on its own cores.
    pub steered: bool,
    /// Looks at the server's cores; none without a server of the lab.
    pub watch: Option<CoreWatch>,
    /// The generator's processes beside this one, where nothing is pinned: they run on the server's cores.
    pub floating: Option<Vec<i32>>,
    /// Before this there is no load.
    pub load_from: Timestamp,
    /// The account when there was none, until what it shows is known.
    pub idle_from: Option<Account>,
    /// Interrupts a second on the server's cores before the load.
    pub baseline: f64,
    /// Whether the server is held to a share of the processor.
    pub bounded: bool,
    /// To which share it is to be held from when on; none once that is done.
    pub hold: Option<(Timestamp, CpuShare)>,
    /// Why it could not be.
    pub refused: Option<sys::Error>,
    /// How fast the server's cores are; none where nobody knows which they are.
    pub pace: Option<Pace>,
    /// Its median in the measured phase.
    pub cpu_probe_ns: Option<u64>,
    pub rss_bytes_max: u64,
    pub server_ended: Option<String>,
    pub interrupted: bool,
    pub gave_up: bool,
    /// How many connections were opened and refused, where that was all that happened: the run was stopped then.
    pub all_refused: Option<u64>,
    /// Keeps this thread, and the processes that it starts, off the server's cores.
    pub _pinned: Option<Pinned>,
}

/// A server that is measured within another share than it starts in has it so long before the measured phase, or from the
/// middle of a shorter warm-up on.
const LIMIT_BEFORE: Duration = Duration::from_millis(500);

/// After so many refused connections and no other outcome, nothing listens at the target.
const REFUSED_MIN: u64 = 20;

fn nothing_listens(live: &Live) -> bool {
    live.refused >= REFUSED_MIN && live.refused == live.failed && live.completed == 0
}

impl MainThread {
    /// Begins to read what the server's cores do, before there is load. `interrupts_before`: interrupts before the run.
    ///
    /// # Errors
    /// The speed probe cannot be started.
    pub fn new(loops: &Loops<'_>, network: &Network, interrupts_before: u32) -> Result<Self, LabError> {
        let (plan, cores) = (&loops.resolved.plan, &loops.resources.cores);
        let places = network.places.as_ref();
        let measured_from = loops.schedule.measured_from();
        let limit = plan.server.as_ref().and_then(|server| server.cpu_measured);
        let pace = cores.server.as_ref().map(Pace::start).transpose().map_err(LabError::system("start the pace"))?;
        let pinned = cores.client.as_ref().and_then(Pinned::to);
        let pids = loops.pids();
        let served = places.filter(|places| places.server.is_some());
        let mut main_thread = MainThread {
            memory_before: Memory::read(&pids),
            watch: served.map(|places| CoreWatch::start(loops.resources.server_cores().clone(), places)),
            floating: cores.server.is_none().then(|| pids[1..].to_vec()),
            load_from: loops.schedule.open_from,
            pids,
            interrupts_before,
            steered: places.is_some_and(|places| places.steered(cores).is_some()),
            bounded: plan.server.as_ref().is_some_and(|server| server.share().is_some()),
            hold: limit.map(|share| (measured_from - LIMIT_BEFORE.min(plan.load.warmup / 2), share)),
            pace,
            _pinned: pinned,
            ..MainThread::default()
        };
        main_thread.idle_from = places.and_then(|places| main_thread.account(places));
        if plan.load.warmup.is_zero() {
            // Measured from the start: the first look at a short run may come when it is over.
            main_thread.server_from = places.and_then(|places| main_thread.first_account(places));
        }
        Ok(main_thread)
    }

    /// Looks at the run until it is over.
    pub fn until_done(
        &mut self,
        running: &Running<'_>,
        interrupts: &Interrupts,
        clock: &Clock,
        mut places: Option<&mut Places>,
        observer: &mut dyn Observer,
        mut showing: Option<Showing<'_>>,
    ) {
        let (mut asked, mut told, mut memory_read) = (0, Timestamp::ZERO, Timestamp::ZERO);
        loop {
            running.look();
            let progress = &running.run;
            let phase = progress.phase();
            if phase > Phase::Measured
                && self.cpu_probe_ns.is_none()
                && let Some(pace) = &self.pace
            {
                self.cpu_probe_ns = pace.median_ns();
            }
            if phase == Phase::Done {
                self.gave_up = progress.gave_up();
                if self.server_to.is_none() {
                    // Nothing was in flight at the end, so that the drain was over between two looks.
                    self.server_to = places.as_deref().and_then(|places| self.last_account(places));
                    self.add_second(clock.now(), self.server_to.clone(), showing.as_ref());
                }
                return;
            }
            let now = clock.now();
            let live = progress.live();
            if self.all_refused.is_none() && nothing_listens(&live) && phase <= Phase::Measured {
                self.all_refused = Some(live.refused);
                running.ask(1, now);
            }
            if phase == Phase::Measured && self.memory.is_none() {
                self.memory = Some(Memory::read(&self.pids));
                if let Some(pace) = &self.pace {
                    pace.clear();
                }
            }
            if let Some(places) = places.as_deref_mut() {
                if let Some((_, share)) = self.hold.take_if(|(from, _)| now >= *from)
                    && let Some(group) = &mut places.cgroup
                {
                    self.refused = group.hold(share).err();
                }
                self.before_the_load(now, places);
                if phase == Phase::Measured && self.server_from.is_none() {
                    self.server_from = self.first_account(places);
                }
                // In the drain as well: it is told then if the server waited at the end.
                self.with_watch(|watch, own| watch.look(places, own));
                match self.server_series.due() {
                    None if phase == Phase::Measured => {
                        if let Some(account) = self.account(places) {
                            self.server_series.begin(now, account);
                        }
                    }
                    Some(due) if phase == Phase::Measured && now >= due => {
                        let account = self.account(places);
                        self.add_second(now, account, showing.as_ref());
                    }
                    _ => {}
                }
                if phase > Phase::Measured && self.server_to.is_none() {
                    self.server_to = self.last_account(places);
                    self.add_second(now, self.server_to.clone(), showing.as_ref());
                }
                if now.since(memory_read) >= MEMORY_EVERY {
                    memory_read = now;
                    if let Some(account) = self.account(places) {
                        self.rss_bytes_max = self.rss_bytes_max.max(account.rss_bytes());
                    }
                }
                if self.server_ended.is_none()
                    && phase < Phase::Drain
                    && let Some(place) = &mut places.server
                {
                    self.server_ended = server::ended(place);
                }
            }
            if let Some(showing) = &mut showing {
                showing.tell(now, places.as_deref(), self.server_ended.as_deref());
            }
            let snapshot = progress.snapshot();
            let observers = if observer.at_once(&snapshot) { 2 } else { u32::from(observer.enough(&snapshot)) };
            let count = (interrupts.count() - self.interrupts_before).max(observers);
            if count > asked {
                asked = count;
                self.interrupted |= phase < Phase::Drain;
                running.ask(asked, now + STOP_LEAD);
            }
            if now.since(told) >= TELL_EVERY {
                told = now;
                observer.tick(now.since(Timestamp::ZERO), &progress.snapshot());
            }
            interrupts.wait(LOOK_EVERY);
        }
    }

    /// What the server has used so far.
    pub fn account(&mut self, places: &Places) -> Option<Account> {
        let own = self.own(true);
        server::account(places, self.watch.as_mut(), own)
    }

    /// The same where the measured phase begins.
    pub fn first_account(&mut self, places: &Places) -> Option<Account> {
        self.with_watch(|watch, own| watch.begin(places, own));
        self.account(places)
    }

    /// And where it ends.
    fn last_account(&mut self, places: &Places) -> Option<Account> {
        let account = self.account(places);
        self.with_watch(|watch, own| watch.end(places, own));
        account
    }

    /// Has the watch do something, where there is one; it reads this program's own time when it wants it.
    fn with_watch(&mut self, act: impl FnOnce(&mut CoreWatch, &dyn Fn() -> Own)) {
        let Some(mut watch) = self.watch.take() else { return };
        act(&mut watch, &|| self.own(false));
        self.watch = Some(watch);
    }

    /// What the server's cores do while there is no load is not the server's.
    fn before_the_load(&mut self, now: Timestamp, places: &Places) {
        if self.idle_from.is_some()
            && now + LOOK_EVERY * 2 >= self.load_from
            && let Some(earlier) = self.idle_from.take()
            && let Some(account) = self.account(places)
            // A look that came late has the load in it.
            && now < self.load_from
        {
            self.baseline = account.interrupts_since(&earlier);
        }
    }

    /// This program's time on the server's cores. `all`: also threads that may run anywhere, which takes a look at each.
    fn own(&self, all: bool) -> Own {
        let certain = self.pace.as_ref().map(Pace::spent).unwrap_or_default();
        match (&self.floating, &self.watch) {
            (Some(pids), _) => {
                let process = sys::clock::process_cpu_time();
                let others = pids.iter().filter_map(|&pid| sys::accounting::served(pid, pid));
                let sum = certain.max(process) + others.map(|served| served.ran).sum::<Duration>();
                Own { certain: sum, possible: sum }
            }
            (None, Some(watch)) if all => Own { certain, possible: certain + watch.wandering() },
            _ => Own { certain, possible: certain },
        }
    }

    fn add_second(&mut self, now: Timestamp, account: Option<Account>, showing: Option<&Showing<'_>>) {
        let Some(account) = account else { return };
        let before = self.server_series.rows().len();
        self.server_series.add(now, account, self.steered, self.bounded);
        if let Some(showing) = showing {
            self.server_series.rows()[before..].iter().for_each(|&row| showing.recorder.keep_server_second(row));
        }
    }
}
