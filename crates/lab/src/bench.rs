//! A run of load, from plan to document.

mod destination;
mod document;
mod looked;
pub(crate) mod memory;
mod notes;
mod possible;
mod spec;
mod urgency;
mod witness;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use load::{Lane, LaneSampler, LevelMerger, Load, LoadSpec, Span, Tally, TallySpec, Urls};
use path::PathSpec;
use polymix::{Judge, OriginFigures};
use schema::{CacheFigures, Document, ServerSecond};
use stats::{Histogram, Rng};
use store::{Book, RunFolder};
use sys::clock::Clock;
use sys::namespace::NetNamespace;
use sys::sched::{Cores, Pinned, Urgency};
use sys::signal::{Interrupts, Wake};
use sys::worker::Worker;
use tap::own::Own;
use units::Timestamp;

use self::destination::Destination;
use self::looked::{Looked, Showing};
use self::notes::notes;
pub use self::possible::{Possible, connections_possible};
use crate::bench::memory::Memory;
use crate::distances;
use crate::drive::load_io::LoadIo;
use crate::drive::path_io::PathIo;
use crate::drive::path_live::PathLive;
use crate::drive::progress::{Phase, Progress, Snapshot};
use crate::drive::tls::Tls;
use crate::drive::tunnel::Tunnelling;
use crate::drive::{Drive, Driven};
use crate::error::LabError;
use crate::handshakes::Handshakes;
use crate::host::{CorePlan, Wakefulness};
use crate::lanes::{LaneEnd, LanePlan, Line, Running, process};
use crate::offer;
use crate::pace::Pace;
use crate::places::target::Reach;
use crate::places::{self, Places, Steering};
use crate::recorder::{Counting, Handover, Judging, Recorded, Recorder, Recording};
use crate::server;
use crate::server::watch::CoreWatch;
use crate::standing::{Keeper, Opening, PathFacts, Seen};
use crate::tapping::{Prepared, Sampling, Started, TapPlan, Tapping};
use crate::watching::{Taps, Watching};
use plan::{Engine, HttpVersion, Plan};

/// The load starts so long after everything is ready, so that threads are in place.
const LEAD: Duration = Duration::from_millis(50);
/// And so much later for each process that takes part.
const LEAD_EACH: Duration = Duration::from_millis(10);
/// For so long the cores of a server of the lab are looked at before there is load: what they do then is not the server's.
const BASELINE: Duration = Duration::from_millis(100);
/// Connections that are held are opened and closed at this pace: a machine of two cores, both ends and the path between
/// them on it, carries it without delay.
const OPEN_PER_SECOND: u32 = 5_000;
/// And the load begins so long after the last of them was called for.
const SETTLE: Duration = Duration::from_secs(1);
/// A server that is measured within another share than it starts in has it so long before the measured phase, or from the middle of a
/// shorter warm-up on.
const HELD_BEFORE: Duration = Duration::from_millis(500);
/// Processes that a run may be divided among.
const PROCESSES_MAX: u32 = 64;
/// Descriptors kept for everything that is not a connection.
const DESCRIPTORS_KEPT: u64 = 128;

/// Watches a run go by.
pub trait Observer {
    /// The load starts now.
    fn started(&mut self, facts: &RunFacts);
    /// Some five times a second. `elapsed` is since the run's zero.
    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot);
    /// No more ticks.
    fn ended(&mut self);
    /// The run is kept in this folder, which was just made: nothing of it has begun. Not called where it is not kept.
    fn folder(&mut self, _dir: &Path) {}
    /// Asked some hundred times a second: true ends the measured phase, as Ctrl-C would.
    fn enough(&mut self, _snapshot: &Snapshot) -> bool {
        false
    }
    /// Asked as often: true ends everything, as a second Ctrl-C would, whatever is still in flight.
    fn at_once(&mut self, _snapshot: &Snapshot) -> bool {
        false
    }
}

impl<O: Observer + ?Sized> Observer for Box<O> {
    fn started(&mut self, facts: &RunFacts) {
        (**self).started(facts);
    }

    fn tick(&mut self, elapsed: Duration, snapshot: &Snapshot) {
        (**self).tick(elapsed, snapshot);
    }

    fn ended(&mut self) {
        (**self).ended();
    }

    fn folder(&mut self, dir: &Path) {
        (**self).folder(dir);
    }

    fn enough(&mut self, snapshot: &Snapshot) -> bool {
        (**self).enough(snapshot)
    }

    fn at_once(&mut self, snapshot: &Snapshot) -> bool {
        (**self).at_once(snapshot)
    }
}

/// What an observer may want to know beforehand.
#[derive(Clone, Debug)]
pub struct RunFacts {
    /// Length of the measured phase, where it has one.
    pub duration: Option<Duration>,
    /// Warm-up before it.
    pub warmup: Duration,
    /// Requests that end it, where it has a count.
    pub requests: Option<u64>,
    /// What the user should know before the result.
    pub notes: Vec<String>,
    /// Where generator, path and recorder run, if they are held to cores: what serves those who look on belongs there, and
    /// not on the server's.
    pub cores: Option<Cores>,
}

/// A run that was made.
#[derive(Debug)]
pub struct Outcome {
    /// Everything known about it.
    pub document: Document,
    /// Response times of the measured phase.
    pub response_time: Histogram,
    /// Its first exchange, as it went over the wire.
    pub first_exchange: FirstExchange,
    /// The wall clock at the run's zero, from which the moments in its records count.
    pub zero_at: SystemTime,
    /// Its folder in the book.
    pub folder: Option<PathBuf>,
    /// What a cache in between did, where the load is a mix.
    pub cache: Option<CacheFigures>,
    /// Exchanges of the mix that are not in their table: for want of room, of a disk that takes them, or of somebody to
    /// judge them.
    pub exchanges_left_out: u64,
    /// The measured phase, on the run's clock.
    pub measured: std::ops::Range<Timestamp>,
    /// The measured phase in spans of 100 ms; only whole ones.
    pub spans: Vec<Span>,
    /// What the server of the lab used, second by second of the measured phase. Empty without one.
    pub server_seconds: Vec<ServerSecond>,
    /// Share of the time for which the busiest loop of the load worked, `[0, 1]`.
    pub loop_busy: f64,
    /// What the origin counted that the lab started (`[origin]`), if it still answered at the end.
    pub origin: Option<OriginFigures>,
    /// Whether it was stopped because every connection was refused.
    pub all_refused: bool,
}

/// What was asked, and how the server began to answer.
#[derive(Clone, Debug)]
pub struct FirstExchange {
    /// The request, head and body.
    pub request: Box<[u8]>,
    /// Head of the first response that was whole, as it came; none where no response was.
    pub response_head: Option<Box<[u8]>>,
}

/// Makes a run. Must be called while this process has one thread, since the lab forks.
///
/// # Errors
/// A plan that cannot be carried out, or a machine that lacks something. A run whose figures are not to be trusted is
/// not an error: its document says so.
pub fn bench(
    plan: &Plan,
    command: &str,
    book: Option<&Book>,
    interrupts: &Interrupts,
    observer: &mut dyn Observer,
) -> Result<Outcome, LabError> {
    bench_tapped(plan, None, command, book, interrupts, observer)
}

/// The same with the third witness, where the plan asks for it: this process was then started under its own tap
/// ([`crate::tapping::own_start`]), which serves one run.
///
/// # Errors
/// As [`bench`]; a plan that asks for the tap without `own`.
pub fn bench_tapped(
    plan: &Plan,
    own: Option<Own>,
    command: &str,
    book: Option<&Book>,
    interrupts: &Interrupts,
    observer: &mut dyn Observer,
) -> Result<Outcome, LabError> {
    // What is asked while files are read and the server starts counts.
    let asked_before = interrupts.count();
    plan.check()?;
    if plan.capacity.is_some() {
        return Err(LabError::plan(
            "this plan seeks a capacity ([capacity]), which takes many runs: say yamabiko capacity, or run",
        ));
    }
    if plan.watch.tap && own.is_none() {
        return Err(LabError::plan(
            "tap (--tap, [watch] tap): only `bench` and `run` can stand beside their own load so",
        ));
    }
    let mut offer = offer::of(plan)?;
    if plan.watch.tap {
        // What a ring does no hook sees.
        offer.plan.host.engine = Engine::Epoll;
    }
    let workload = offer.workload.take().map_or_else(|| spec::workload(&offer.plan), Ok)?;
    let (targets, _) = workload.endpoints();
    offer.plan.load.settle_targets(&targets);
    let plan = &offer.plan;
    plan.check_targets(&targets).map_err(LabError::Plan)?;
    let spec = match &plan.path {
        Some(path) => Some(distances::spec(path, plan.load.clients)?),
        None => None,
    };
    let clients = spec.as_ref().map(|spec| &spec.clients[..]);

    let Destination { endpoints, addresses, reaches, port } = destination::of(plan, &targets)?;
    let target = destination::words(plan, &targets, &addresses);
    let new_tls = || match (targets.iter().find(|target| target.secure), &plan.load.tls) {
        (Some(target), Some(tls)) => Tls::new(tls, &target.host).map(Some),
        _ => Ok(None),
    };
    let tls = new_tls()?;
    let descriptors = sys::limits::raise_open_files();
    // Or the loop stands still for it in the middle of opening connections.
    sys::limits::widen_table_of_files(descriptors);
    // In a closed loop every connection asked for stands for a user, who opens as many as a step needs at once.
    let at_once = if plan.load.is_open() { 1 } else { u32::from(workload.widest_step()) };
    let (connections_max, lane_plan) = connections_max(plan, descriptors, at_once)?;

    // Before this process is root of a namespace only, and so that the server starts on processors that are awake.
    let wakefulness = Wakefulness::of(plan.host.idle);
    let allowed = Cores::allowed().map_err(LabError::system("sched_getaffinity"))?;
    // Without a server of the lab nobody knows where the server runs: nothing is pinned.
    let cores = if plan.server.is_some() {
        CorePlan::new(plan.host.placement, &allowed, lane_plan.of)
    } else {
        CorePlan::default()
    };
    let own_core = urgency::has_own_core(&cores, &allowed, &addresses);
    // A user namespace, where one is needed, comes before the first file: files belong to whoever makes them.
    let rootless = if plan.server.is_some() { places::gain_privilege()? } else { false };
    let folder = match book {
        None => None,
        Some(book) => Some(create_folder(book, plan)?),
    };
    let mut stands = folder.as_ref().map(|folder| Opening::of_load(folder, plan, command));
    if let Some(folder) = &folder {
        observer.folder(folder.path());
    }
    let log = folder.as_ref().map(|folder| folder.path().join("server.log"));

    let mut places = None;
    let mut path_io = None;
    let mut taps = None;
    if let (Some(path), Some(spec)) = (&plan.path, &spec) {
        let laid = distances::with_origin(spec, plan.origin.as_ref())?;
        let made = lay(plan, path.offload, &laid, &addresses, reaches, &cores, log.as_deref(), rootless);
        // Nothing was measured: a folder left behind would look like a run that was killed.
        let (made, io, open) = made.inspect_err(|_| discard(folder.as_ref()))?;
        (places, path_io, taps) = (Some(made), Some(io), open);
    }
    let urls = Urls::of(&workload);
    let mut load_spec = spec::load(plan, workload, offer.arrivals, connections_max);
    let building = building(&load_spec, lane_plan);
    let clock = Clock::start();
    if let Some(stands) = &mut stands {
        stands.set_zero(&clock);
    }
    spec::set_wall_zero(&mut load_spec, clock.started());
    let baseline = if plan.server.is_some() { BASELINE } else { Duration::ZERO };
    let open_from = clock.now() + LEAD + baseline + LEAD_EACH * lane_plan.processes() + building;
    let start = open_from + self::opening(plan, spec.as_ref());
    let notes_ports = taps.is_some();
    let has_path = path_io.is_some();
    // What each lane's loop works on, here or in a process of its own.
    let hands = |lane: Lane, tls: Option<Tls>, handover: Handover| {
        let mut load = Load::new(spec::lane(&load_spec, lane), start);
        if let Some(connections) = plan.load.open_connections {
            load.open_first(connections, OPEN_PER_SECOND, open_from);
        }
        if let Some(over) = plan.load.users_over {
            load.spread_users(over);
        }
        let source: crate::drive::load_io::SourceAddress = if has_path {
            Box::new(|client, server| Some(places::client_address(client, server)))
        } else {
            Box::new(|_, _| None)
        };
        let sampler = LaneSampler::new(plan.seed, start);
        LoadIo::new(load, sampler, endpoints.clone(), source, handover, notes_ports)
            .with_tls(tls)
            .with_tunnel(plan.load.proxy.as_ref().map(|proxy| Tunnelling { authorization: proxy.authorization() }))
            .with_http2(plan.load.http == HttpVersion::Http2)
    };
    let client_net = places.as_ref().map(|places: &Places| places.client_net.try_clone());
    let client_net = client_net.transpose().map_err(LabError::environment)?;

    // Processes first: from here on there are threads.
    let mut workers = Vec::new();
    for index in lane_plan.threads()..lane_plan.of {
        let tls = new_tls()?;
        workers.push(process::start(index, client_net.as_ref(), |setting| {
            let loading = hands(lane_plan.lane(index), tls, setting.handover);
            let mut drive = drive(plan, clock, setting.progress, setting.stop.as_fd(), loading);
            drive.own_core = own_core;
            let (_, end) =
                loop_thread(drive, None, cores.lane_core(index), Urgency::High).map_err(|error| error.to_string())?;
            Ok(end)
        })?);
    }

    let measured_from = start + plan.load.warmup;
    let measured = (measured_from, plan.load.duration.map(|duration| measured_from + duration));
    let path_live = path_io.as_mut().map(|path_io| {
        path_io.set_start(measured_from);
        let live = Arc::new(PathLive::default());
        if stands.is_some() {
            path_io.show_now_and_then(Arc::clone(&live));
        }
        live
    });
    let rtts_ns = clients
        .map(|clients| clients.iter().map(|path| units::time::saturating_nanos(path.rtt())).collect::<Vec<u64>>());
    let tally = TallySpec {
        open_loop: plan.load.is_open(),
        measured,
        clients_rtt_ns: rtts_ns.clone(),
        urls,
        phases: offer.phases,
    };
    let path_facts =
        path_live.as_ref().zip(spec.as_ref()).zip(plan.path.as_ref()).map(|((live, spec), path)| PathFacts {
            profile: distances::name(path),
            asked_rtt_ns: stats::quantiles_of(rtts_ns.as_deref().unwrap_or_default()),
            live: Arc::clone(live),
            rtt_varies: document::rtt_varies(spec),
            beyond: places.as_ref().is_some_and(Places::beyond),
            only_delays: spec.only_delays(),
        });
    let counting = move || {
        let handshakes = rtts_ns.clone().map(|rtts_ns| Handshakes::new(measured_from, rtts_ns));
        Counting::new(Tally::new(tally.clone()), handshakes)
    };
    let progress = Arc::new(Progress::default());
    let setting = witness::Setting {
        plan,
        clock,
        progress: &progress,
        start,
        measured,
        spec: spec.as_ref(),
        port,
        cores: &cores,
        folder: folder.as_ref(),
        reaches: places.as_ref().map_or(&[][..], |places| &places.reaches),
    };
    let (watching, wire) = taps.map(|taps| witness::start(taps, &setting)).transpose()?.unzip();
    let lanes = lane_plan.of as usize;
    let tapping = match own.filter(|_| plan.watch.tap) {
        None => None,
        Some(own) => {
            let sampling = Sampling { seed: plan.seed, start, measured_from, progress: Arc::clone(&progress) };
            let started = Started::own_load(cores.watch_cores())?;
            let prepared = Prepared::own(own, clock)?;
            Some(prepared.start_with(TapPlan::default(), started, folder.as_ref(), Some(sampling))?)
        }
    };
    let seen = Arc::new(Seen::default());
    let standing = stands.clone().map(|opening| {
        let keeper = Keeper {
            opening,
            clock,
            plan: plan.clone(),
            progress: Arc::clone(&progress),
            path: path_facts,
            device: wire.as_ref().and(places.as_ref()).map(|places| places.server_device.clone()),
            seen: Arc::clone(&seen),
        };
        keeper.for_recorder()
    });
    let (outlets, recorder) = Recorder::start(Recording {
        lanes,
        counting: Arc::new(counting),
        levels: LevelMerger::new(plan.seed, start, measured_from, lanes),
        judging: spec::world(&load_spec).map(|world| Judging::new(Judge::new(Arc::clone(world), measured))),
        measured_end: measured.1,
        progress: Arc::clone(&progress),
        folder,
        wire,
        cores: cores.client.clone(),
        standing,
    })
    .map_err(LabError::system("start the recorder"))?;

    // Without a witness a server of the lab may never hear of the end, for it ends as well; others live on.
    let carries_end = notes_ports || places.as_ref().is_some_and(|places| !places.reaches.is_empty());
    // A lane alone is the run.
    let each: Vec<Arc<Progress>> =
        if lanes == 1 { vec![Arc::clone(&progress)] } else { (0..lanes).map(|_| Arc::default()).collect() };
    let wakes = (0..lane_plan.threads()).map(|_| Wake::new()).collect::<Result<Vec<_>, _>>();
    let wakes = wakes.map_err(LabError::system("eventfd"))?;
    let links = workers.iter().map(|worker| Line::Process(worker.link()));
    let lines = wakes.iter().map(Line::Thread).chain(links);
    let running = Running::new(Arc::clone(&progress), each.iter().cloned().zip(lines).collect());
    let before = Before { devices: device_statistics(places.as_ref()), cpu: sys::accounting::cpu_times().ok() };
    observer.started(&RunFacts {
        duration: plan.load.duration,
        warmup: plan.load.warmup,
        requests: plan.load.requests,
        notes: [offer.notes, notes(plan, &places, clients.unwrap_or_default(), connections_max)].concat(),
        cores: cores.client.clone(),
    });

    let pids: Vec<i32> = [std::process::id() as i32].into_iter().chain(workers.iter().map(Worker::pid)).collect();
    let steered = places.as_ref().is_some_and(|places: &Places| places.steered(&cores).is_some());
    let bounded = plan.server.as_ref().is_some_and(|server| server.share().is_some());
    let hold = plan.server.as_ref().and_then(|server| server.cpu_measured);
    let hold = hold.map(|share| (measured_from - HELD_BEFORE.min(plan.load.warmup / 2), share));
    let pace = cores.server.as_ref().map(Pace::start).transpose().map_err(LabError::system("start the pace"))?;
    let watched_cores = cores.server.clone().unwrap_or_else(|| allowed.clone());
    let served = places.as_ref().filter(|places| places.server.is_some());
    // This thread and the processes that it starts must not run on the server's cores.
    let _pinned = cores.client.as_ref().and_then(Pinned::to);
    let mut looked = Looked {
        memory_before: Memory::read(&pids),
        watch: served.map(|places| CoreWatch::start(watched_cores, places)),
        floating: cores.server.is_none().then(|| pids[1..].to_vec()),
        load_from: open_from,
        pids,
        asked_before,
        steered,
        bounded,
        hold,
        pace,
        ..Looked::default()
    };
    looked.idle_from = places.as_ref().and_then(|places| looked.account(places));
    if plan.load.warmup.is_zero() {
        // Measured from the start: the first look at a short run may come when it is over.
        looked.server_from = places.as_ref().and_then(|places| looked.first_account(places));
    }
    let joined = std::thread::scope(|scope| {
        let mut outlets = outlets.into_iter();
        let (mut threads, mut readers) = (Vec::new(), Vec::new());
        let (first_urgency, right) = urgency::urgency(plan, own_core);
        let recorder_has_one_core = cores.client.as_ref().unwrap_or(&allowed).list().len() == 1;
        let mut tls = Some(tls);
        for (index, wake) in (0..).zip(&wakes) {
            let Some(outlet) = outlets.next() else { break };
            let tls = match tls.take() {
                Some(tls) => tls,
                None => new_tls()?,
            };
            let loading = hands(lane_plan.lane(index), tls, Handover::new(outlet));
            let mut drive = drive(plan, clock, Arc::clone(&each[index as usize]), wake.as_fd(), loading);
            drive.own_core = own_core;
            drive.shares_core = recorder_has_one_core;
            if index == 0 {
                drive.path = path_io.take();
                drive.grace = spec.as_ref().filter(|_| carries_end).map_or(Duration::ZERO, distances::grace);
                drive.others = each[1..].to_vec();
            }
            let net = client_net.as_ref().map(NetNamespace::try_clone).transpose().map_err(LabError::environment)?;
            let core = cores.lane_core(index);
            // Two real-time loops on one core would not take turns.
            let urgency =
                if cores.is_own(index, lane_plan.threads()) || index == 0 { first_urgency } else { Urgency::High };
            let thread = std::thread::Builder::new()
                .name("loop".into())
                .spawn_scoped(scope, move || loop_thread(drive, net, core, urgency))
                .map_err(LabError::system("start the loop"))?;
            threads.push(thread);
        }
        for (worker, outlet) in workers.iter().zip(outlets) {
            let index = lane_plan.threads() + readers.len() as u32;
            let (progress, lost) = (&each[index as usize], running.lost());
            let reader = std::thread::Builder::new()
                .name("lane".into())
                .spawn_scoped(scope, move || process::read(worker.link(), index, progress, outlet, lost))
                .map_err(LabError::system("start a lane's reader"))?;
            readers.push(reader);
        }
        let mut showing = stands.as_ref().map(|_| Showing::new(&recorder, &seen, &before));
        if let Some(showing) = &mut showing {
            showing.path = path_live.as_deref();
            showing.steered = places.as_ref().is_some_and(|places| places.steering == Steering::ServerCores);
        }
        looked.until_done(&running, interrupts, &clock, places.as_mut(), observer, showing);
        let threads: Vec<_> =
            threads.into_iter().map(|thread| thread.join().expect("the loop does not panic")).collect();
        let readers: Vec<_> =
            readers.into_iter().map(|reader| reader.join().expect("a lane's reader does not panic")).collect();
        drop(right);
        let (mut path, mut ends) = (None, Vec::new());
        for joined in threads {
            let (io, end) = joined?;
            path = path.or(io);
            ends.push(end);
        }
        for joined in readers {
            ends.push(joined?);
        }
        Ok::<_, LabError>((path, ends))
    });
    let joined =
        looked.refused.take().map_or(joined, |error| Err(LabError::Environment(format!("--server-cpu: {error}"))));
    observer.ended();
    drop(running);
    // Not while the server is still looked at: its core may be busy, and an idle thread takes its time to end.
    looked.pace = None;

    let after = Before { devices: device_statistics(places.as_ref()), cpu: sys::accounting::cpu_times().ok() };
    // First the wire, which hangs up the recorder's other line.
    let watched = watching.map(Watching::end);
    // No lane is left; workers of a load that could not be started are killed when they are dropped.
    let tapped = tapping.map(Tapping::end);
    let (path, lanes) = joined?;
    let origin = places.as_ref().and_then(Places::origin_figures);
    let Recorded { counting, levels, folder, wire, store_error, table, cache, exchanges_left_out } = recorder.join();
    let ended = document::Ended {
        plan,
        command,
        clock,
        cores: &cores,
        lane: LaneEnd::merged(&lanes),
        lanes: lane_plan,
        levels,
        path,
        spec: spec.as_ref(),
        handshakes: counting.handshakes,
        requests: counting.requests,
        delays: counting.delays,
        table,
        store_error,
        watched: watched.zip(wire),
        tapped,
        folder,
        opening: stands,
        places,
        target,
        before,
        after,
        looked,
        descriptors,
        idle: wakefulness.words(),
        recordings: (offer.replay, offer.har),
        mix: cache.zip(spec::world(&load_spec)).map(|(figures, world)| document::Mix {
            name: world.spec.name.clone(),
            figures,
            left_out: exchanges_left_out,
            wall_drift: wall_drift(&clock),
        }),
    };
    document::finish(counting.tally, ended).map(|outcome| Outcome { origin, ..outcome })
}

/// Counters of the machine at one end of the run.
struct Before {
    devices: Option<[sys::netlink::LinkStats; 2]>,
    cpu: Option<Vec<(usize, sys::accounting::CpuTimes)>>,
}

/// A lane's loop, as every lane has it; a path is the first's.
fn drive<'a>(plan: &Plan, clock: Clock, progress: Arc<Progress>, stop: BorrowedFd<'a>, loading: LoadIo) -> Drive<'a> {
    Drive {
        clock,
        wait: plan.host.wait,
        engine: plan.host.engine,
        path: None,
        load: Some(loading),
        progress,
        stop,
        drain: plan.load.connect_timeout + plan.load.timeout + closing(plan),
        grace: Duration::ZERO,
        others: Vec::new(),
        own_core: false,
        shares_core: false,
        urgency: Urgency::Ordinary,
    }
}

/// A lane's loop, from its place to its end.
fn loop_thread(
    mut drive: Drive<'_>,
    net: Option<NetNamespace>,
    core: Option<Cores>,
    urgency: Urgency,
) -> Result<(Option<PathIo>, LaneEnd), LabError> {
    // Dropped also when the loop panics: the main thread waits for this.
    let _done = Done(Arc::clone(&drive.progress));
    if let Some(net) = net {
        net.enter().map_err(LabError::environment)?;
    }
    if let Some(core) = &core {
        core.pin_this_thread().map_err(LabError::system("sched_setaffinity"))?;
    }
    drive.urgency = urgency.apply_to_this_thread();
    // A lane of another process records in the first's.
    let pinned = Cores::allowed().is_ok_and(|cores| urgency::is_pinned(&cores));
    drive.own_core &= pinned;
    drive.shares_core &= pinned;
    let clock = drive.clock;
    let scheduling = drive.urgency;
    let Driven { path, load, loop_health, engine } = drive.run().map_err(LabError::system("the loop"))?;
    let io = load.expect("the loop gives the load back");
    let tls = io.tls().map(Tls::document);
    let load = io.into_load(clock.now());
    let mut end = LaneEnd::of(&load, loop_health, engine, tls);
    end.scheduling = scheduling.name().to_owned();
    end.core = core.and_then(|core| core.list().first().copied());
    Ok((path, end))
}

/// How far the wall clock has run apart from the run's own since the run's zero, either way.
fn wall_drift(clock: &Clock) -> Duration {
    let by_run = clock.started() + Duration::from_nanos(clock.now().as_nanos());
    let wall = SystemTime::now();
    wall.duration_since(by_run).unwrap_or_else(|behind| behind.duration())
}

/// Says that the loop has ended, however it did.
struct Done(Arc<Progress>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.enter(Phase::Done);
    }
}

/// Connections that the run may have open at once, and the lanes that it takes: more than one process may have are divided
/// among several.
fn connections_max(plan: &Plan, descriptors: u64, at_once: u32) -> Result<(u32, LanePlan), LabError> {
    let possible = u32::try_from(descriptors.saturating_sub(DESCRIPTORS_KEPT)).unwrap_or(u32::MAX);
    if possible == 0 {
        return Err(LabError::Environment(format!(
            "this process may have {descriptors} open files, and needs {DESCRIPTORS_KEPT} before the first connection: \
             raise the limit (ulimit -n, or LimitNOFILE= of a service)"
        )));
    }
    let threads = plan.host.threads;
    match plan.load.connections.or(plan.load.open_connections) {
        Some(asked) => {
            let lanes = LanePlan::new(threads, asked, possible / at_once);
            if lanes.in_processes && lanes.of > PROCESSES_MAX {
                return Err(LabError::Environment(format!(
                    "-c {asked}: a process may have {descriptors} open files, {possible} of them connections, so this takes \
                     {} processes, and {PROCESSES_MAX} are the most: raise the limit (ulimit -n, or LimitNOFILE= of a \
                     service) or lower -c",
                    lanes.of
                )));
            }
            Ok((asked, lanes))
        }
        None => {
            let possible = if plan.path.is_none() { possible.min(possible::ports_easily_found()) } else { possible };
            Ok((possible, LanePlan::new(threads, possible, possible)))
        }
    }
}

/// How long it takes to make ready what the loops of all lanes work on, found by doing it once: with a log of a million
/// different requests it takes seconds, in which the load must not be due yet.
fn building(spec: &LoadSpec, lanes: LanePlan) -> Duration {
    let began = sys::clock::monotonic_ns();
    drop(Load::new(spec::lane(spec, lanes.lane(0)), Timestamp::ZERO));
    // One more than there are, since it may take longer the next time.
    Duration::from_nanos(sys::clock::monotonic_ns().saturating_sub(began)).saturating_mul(lanes.of + 1)
}

/// How long it takes to open the connections that are held, and until the last of them is established.
fn opening(plan: &Plan, spec: Option<&PathSpec>) -> Duration {
    let rtt = spec.map_or(Duration::ZERO, distances::longest_rtt);
    if plan.load.open_connections.is_some() { closing(plan) + SETTLE + rtt * 2 } else { Duration::ZERO }
}

/// How long it takes to close them.
fn closing(plan: &Plan) -> Duration {
    Duration::from_secs_f64(f64::from(plan.load.open_connections.unwrap_or(0)) / f64::from(OPEN_PER_SECOND))
}

fn create_folder(book: &Book, plan: &Plan) -> Result<RunFolder, LabError> {
    let now = std::time::SystemTime::now();
    // The letters only keep two runs of one second apart: not part of what the seed repeats.
    let letters = Rng::new(sys::clock::monotonic_ns(), u64::from(std::process::id())).next();
    let folder = book.create(&plan.name, now, letters).map_err(LabError::environment)?;
    match folder.write_plan(&plan.to_toml()) {
        Ok(()) => Ok(folder),
        Err(error) => {
            discard(Some(&folder));
            Err(LabError::environment(error))
        }
    }
}

fn discard(folder: Option<&RunFolder>) {
    if let Some(folder) = folder {
        // What cannot be removed is listed as unfinished, which it is.
        let _ = std::fs::remove_dir_all(folder.path());
    }
}

/// Makes the places and lays the path between them; a server of the lab listens when this returns.
#[allow(clippy::too_many_arguments, reason = "everything that was decided before; it is called once")]
fn lay(
    plan: &Plan,
    offload: bool,
    spec: &PathSpec,
    endpoints: &[SocketAddr],
    reaches: Vec<Reach>,
    cores: &CorePlan,
    log: Option<&Path>,
    rootless: bool,
) -> Result<(Places, PathIo, Option<Taps>), LabError> {
    let port = endpoints[0].port();
    let (made, path_io) = match &plan.server {
        Some(server) => {
            let mut made = Places::new(Some(server), cores, log, rootless)?;
            let path_io = made.connect(spec, offload, &server.tcp, cores, plan.seed)?;
            let addresses: Vec<IpAddr> = endpoints.iter().map(SocketAddr::ip).collect();
            made.require_family(addresses.iter().copied())?;
            if let Some(origin) = &plan.origin {
                // The witness tells the proxy's own flows by their port.
                if origin.at(plan.load.clients).port() == port {
                    return Err(LabError::Plan(format!(
                        "[origin] listen: port {port} is the proxy's; another is wanted"
                    )));
                }
                places::origin::start(&mut made, origin, plan.load.clients, cores, log)?;
            }
            server::start(&mut made, server, &addresses, port)?;
            (made, path_io)
        }
        None => {
            let mut made = Places::toward(reaches)?;
            let path_io = made.connect(spec, offload, &plan.target.tcp, cores, plan.seed)?;
            (made, path_io)
        }
    };
    let taps = Taps::open(&made, plan.watch_at(), Some(port), &plan.watch)?;
    Ok((made, path_io, taps))
}

fn device_statistics(places: Option<&Places>) -> Option<[sys::netlink::LinkStats; 2]> {
    places.and_then(|places| places.device_statistics().ok())
}
