//! Any program at the far end of a path.

use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use path::ClientPath;
use schema::document::{Document, Run, SCHEMA, Validity};
use schema::{StandingPhase, StandingWatch, WatchSecond};
use store::{Book, RunFolder};
use sys::clock::Clock;
use sys::place::{Exit, Net, Place, PlaceSpec};
use sys::relay::Relay;
use sys::sched::{Cores, RealTimeRight, Urgency};
use sys::signal::{Interrupts, Signal, Wake};
use units::Timestamp;

use crate::drive::Drive;
use crate::drive::path_live::PathLive;
use crate::drive::progress::Progress;
use crate::error::LabError;
use crate::host::{self, CorePlan, Wakefulness};
use crate::path_part::Refused;
use crate::places::target::{self, Named, Reach};
use crate::places::{self, Places};
use crate::recorder::WireSide;
use crate::standing::{self, Opening, PathFacts};
use crate::tapping::{Prepared, Sampling, Started, TapPlan, Tapping};
use crate::watching::queue::queue;
use crate::watching::{Taps, WatchSetup, Watching};
use crate::wire_book::WireBook;
use crate::{distances, path_part, server, watch_part};
use plan::{HostPlan, PathPlan, Placement, ServerPlan, TargetPlan, To, WatchAt, WatchPlan};
use validity::evidence::{WireEvidence, WireFigures};

/// A network for a program, as meant.
#[derive(Clone, Debug)]
pub struct NetPlan {
    /// The distances.
    pub path: PathPlan,
    /// The server, if one is to be started.
    pub server: Option<ServerPlan>,
    /// Which addresses a name has, and TCP of the far end where the lab starts no server.
    pub target: TargetPlan,
    /// What is at the far end, where that is not the lab's own.
    pub to: Vec<To>,
    /// Number of client addresses.
    pub clients: u32,
    /// The witness at the server's end; absent where it says nothing means at the server's.
    pub watch: WatchPlan,
    /// How the path waits and where things run.
    pub host: HostPlan,
    /// The third witness, in the program; `None`: it is left alone.
    pub tap: Option<TapPlan>,
    /// Seed of every random choice.
    pub seed: u64,
    /// Where the run is kept; `None`: nowhere.
    pub book: Option<Book>,
    /// Name in the run's folder.
    pub name: String,
}

/// How it ended.
#[derive(Debug)]
pub struct NetOutcome {
    /// The program's exit status; 128 and the signal's number if one ended it, as in a shell.
    pub status: u8,
    /// What the path did, and what the wire showed from the program's start to its end.
    pub document: Document,
    /// Every second as the wire saw it, from the run's zero; empty where nothing was watched.
    pub watch_series: Vec<WatchSecond>,
    /// The run's folder, where it was kept: summary.json, connections.parquet, wire_requests.parquet,
    /// watch_series.parquet, taps.parquet.
    pub folder: Option<PathBuf>,
    /// The wall clock at the run's zero, from which all its moments count: for logs that programs wrote meanwhile.
    pub started: SystemTime,
}

/// Runs `command` at the clients' end. `tell` gets a line about the network before it starts,
/// and one for each thing that the user should know.
///
/// With `interrupts`, an interrupt of this process is handed on to the program, a second one ends it. Without, the
/// program has the terminal, and Ctrl-C is for it alone, as in a shell; what another process sends to this one (TERM, HUP, INT, QUIT, USR1, USR2)
/// is handed on to the program, and its end is waited for.
///
/// # Errors
/// A plan that cannot be carried out, a machine that lacks something, a program that cannot be started.
pub fn net(
    plan: &NetPlan,
    command: &[OsString],
    interrupts: Option<&Interrupts>,
    tell: impl FnMut(&str),
) -> Result<NetOutcome, LabError> {
    net_shown(plan, command, interrupts, tell, |_| {})
}

/// The same; `folder` is told where the run is kept, if it is, before the program starts.
///
/// # Errors
/// Those of [`net`].
pub fn net_shown(
    plan: &NetPlan,
    command: &[OsString],
    interrupts: Option<&Interrupts>,
    mut tell: impl FnMut(&str),
    mut shown: impl FnMut(&Path),
) -> Result<NetOutcome, LabError> {
    if plan.clients == 0 || plan.clients > path::AddressPlan::CLIENTS_MAX {
        return Err(LabError::Plan(format!(
            "--clients {}: from 1 to {} are possible",
            plan.clients,
            path::AddressPlan::CLIENTS_MAX
        )));
    }
    plan.path.check().map_err(LabError::Plan)?;
    plan.watch.check().map_err(LabError::Plan)?;
    if let Some(server) = &plan.server {
        server.check().map_err(LabError::Plan)?;
    }
    let spec = distances::spec(&plan.path, plan.clients)?;
    let clients = &spec.clients[..];
    let wakefulness = Wakefulness::of(plan.host.idle);
    let allowed = Cores::allowed().map_err(LabError::system("sched_getaffinity"))?;
    // Here the program is the client, and it belongs with the server, not with the path.
    let cores = if plan.host.placement == Placement::Split {
        CorePlan::new(Placement::Split, &allowed, 1)
    } else {
        CorePlan::default()
    };
    let far = match plan.to.first() {
        None => Vec::new(),
        Some(first) => {
            places::require_host_privilege(&first.host)?;
            target::named(&plan.to, plan.target.family)?
        }
    };
    let rootless = if far.is_empty() { places::gain_privilege()? } else { false };
    let clock = Clock::start();
    let prepared = plan.tap.as_ref().map(|_| Prepared::new(clock)).transpose()?;
    let preload = std::env::var_os("LD_PRELOAD");
    let mut program = Place::start(PlaceSpec {
        env: prepared.as_ref().map(|tap| tap.environment(preload.as_deref())).unwrap_or_default(),
        hosts: hosts(plan, &far),
        net: Net::New,
        rootless,
        ..PlaceSpec::new(command.to_vec())
    })
    .map_err(|error| match error {
        sys::Error::Exec { .. } => LabError::plan(error),
        other => LabError::environment(other),
    })?;
    let mut places = if far.is_empty() {
        Places::new(plan.server.as_ref(), &CorePlan::default(), None, rootless)?
    } else {
        Places::toward(reaches(&far))?
    };
    places.client_net = program.net().try_clone().map_err(LabError::environment)?;
    let tcp = plan.server.as_ref().map_or(&plan.target.tcp, |server| &server.tcp);
    let mut path_io = places.connect(&spec, plan.path.offload, tcp, &CorePlan::default(), plan.seed)?;
    if far.is_empty() {
        let count = plan.server.as_ref().map_or(1, |server| server.addresses);
        places.require_family(plan.target.family.choose(&target::lab_addresses(count)).into_iter())?;
    }
    if let Some(server) = &plan.server {
        let addresses = plan.target.family.choose(&target::lab_addresses(server.addresses));
        server::start_on_any_port(&mut places, server, &addresses)?;
    }
    // From here on what this process is sent is the program's. Before other threads are made, which would take it.
    let mut relay = interrupts.is_none().then(Relay::install).transpose().map_err(LabError::system("sigaction"))?;
    if let Some(relay) = &mut relay {
        relay.hold().map_err(LabError::system("pthread_sigmask"))?;
    }

    let at = plan.watch.at.unwrap_or_default();
    let taps = Taps::open(&places, at, None, &plan.watch)?;
    let folder = match &plan.book {
        None => None,
        Some(book) => {
            let letters = sys::clock::monotonic_ns() ^ u64::from(std::process::id());
            Some(book.create(&plan.name, std::time::SystemTime::now(), letters).map_err(LabError::environment)?)
        }
    };
    let words = command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let opening = folder.as_ref().map(|folder| {
        let mut opening = Opening::begin(folder, "net", &words, plan.seed);
        opening.set_zero(&clock);
        shown(folder.path());
        opening
    });
    let live = Arc::new(PathLive::default());
    if opening.is_some() {
        path_io.show(Arc::clone(&live));
    }
    let rtts_ns: Vec<u64> = clients.iter().map(|client| units::time::saturating_nanos(client.rtt())).collect();
    let facts = PathFacts {
        profile: distances::name(&plan.path),
        asked_rtt_ns: stats::quantiles_of(&rtts_ns),
        live,
        // Nothing is judged by these while it goes.
        rtt_varies: false,
        beyond: !far.is_empty(),
        only_delays: spec.only_delays(),
    };
    let seen_by_wire = Arc::new(Mutex::new(None));
    let progress = Arc::new(Progress::default());
    let stop = Wake::new().map_err(LabError::system("eventfd"))?;
    let last = clients.len() as u32 - 1;
    for note in &places.notes {
        tell(note);
    }
    tell(&format!(
        "client addresses {} to {}; {}; {}",
        places::client_address(0, places::SERVER.into()),
        places::client_address(last, places::SERVER.into()),
        far_end(&far),
        distances::name(&plan.path),
    ));
    let before = places.device_statistics().ok();
    let started = clock.now();
    path_io.set_start(started);
    let witness = taps
        .map(|taps| watch(taps, plan, rtts_ns, clients, clock, &progress, started, folder.as_ref(), &seen_by_wire))
        .transpose()
        .map_err(LabError::system("start the watch"))?;
    program.go().map_err(LabError::plan)?;
    if let Some(relay) = &mut relay {
        program.relay(relay);
    }
    let tapping = match (prepared, &plan.tap) {
        (Some(prepared), Some(tap)) => {
            let command = command.first().cloned().unwrap_or_default();
            let root = program.init_pid();
            let what = Started { root, pid: 0, own_numbers: false, command, own_load: false, cores: None };
            let progress = Arc::clone(&progress);
            let sampling = Sampling { seed: plan.seed, start: started, measured_from: started, progress };
            Some(prepared.start_with(tap.clone(), what, folder.as_ref(), Some(sampling))?)
        }
        _ => None,
    };
    let (exit, driven) = std::thread::scope(|scope| {
        let mut drive = Drive {
            clock,
            wait: plan.host.wait,
            engine: plan.host.engine,
            path: Some(path_io),
            load: None,
            progress: Arc::clone(&progress),
            stop: stop.as_fd(),
            drain: Duration::ZERO,
            // A server of the lab that nobody watches ends as well, others live on.
            others: Vec::new(),
            own_core: false,
            shares_core: false,
            urgency: Urgency::Ordinary,
            grace: if at == WatchAt::None && far.is_empty() { Duration::ZERO } else { distances::grace(&spec) },
        };
        let core = cores.loop_core();
        let keeps_time = distances::keeps_time(&spec);
        let right = keeps_time.then(RealTimeRight::take).flatten();
        let thread = std::thread::Builder::new()
            .name("path".into())
            .spawn_scoped(scope, move || {
                if let Some(core) = core {
                    // Not being pinned costs precision, which the lateness shows.
                    let _ = core.pin_this_thread();
                }
                // The real-time class keeps the path on time beside a program that is busy; while packets come faster than it
                // can carry them it takes turns with the others.
                let wanted = match right {
                    Some(_) => Urgency::RealTime,
                    None if keeps_time => Urgency::High,
                    None => Urgency::Ordinary,
                };
                drive.urgency = wanted.apply_to_this_thread();
                let urgency = drive.urgency;
                (drive.run(), urgency)
            })
            .map_err(LabError::system("start the path"))?;
        let exit = wait_for(&mut program, interrupts, opening.is_some(), || {
            let Some(opening) = &opening else { return };
            let mut standing = opening.at(clock.now(), StandingPhase::Measured);
            standing.path = Some(standing::path(&facts));
            standing.watch = seen_by_wire.lock().unwrap_or_else(PoisonError::into_inner).clone();
            standing.tap = tapping.as_ref().and_then(Tapping::glance).map(|glance| standing::tap(&glance));
            opening.write(&standing);
        });
        if let Some(relay) = &mut relay {
            relay.stop();
        }
        progress.set_measured_end(clock.now());
        progress.ask(1, Timestamp::ZERO);
        stop.wake();
        let (driven, urgency) = thread.join().expect("the path does not panic");
        Ok::<_, LabError>((exit, (driven.map_err(LabError::system("the path"))?, urgency)))
    })?;
    let tapped = tapping.map(Tapping::end);
    let after = places.device_statistics().ok();
    let (driven, urgency) = driven;
    let path = driven.path.expect("the loop gives the path back");

    let mut host = host::facts(&cores, 1)?;
    host.settings.insert("wait".into(), plan.host.wait.name().into());
    host.settings.insert("idle".into(), wakefulness.words().into());
    host.settings.insert("loop_scheduling".into(), urgency.name().into());
    host.settings.insert("server_tcp".into(), places.tcp.clone());
    if !far.is_empty() {
        host.settings.insert("target".into(), format!("{}; by device {}", far_end(&far), places.server_device));
    }
    host.settings.insert("loop_busy".into(), format!("{:.1}%", 100.0 * driven.loop_health.busy_share()));
    let seen = witness.map(|(watching, keeper)| {
        let watched = watching.end();
        let (figures, error) = keeper.join().expect("the keeper of the wire's records does not panic");
        (watched, figures, error)
    });
    let phase = progress.measured_end().map_or(Duration::ZERO, |end| end.since(started));
    let wire =
        seen.as_ref().map(|(watched, figures, _)| WireEvidence { watched, figures, phase_ns: phase.as_nanos() as f64 });
    if let Some((watched, ..)) = &seen {
        host.settings.insert("watch".into(), watched.cost());
    }
    let mut checks =
        vec![validity::mistaken(path_part::mistaken_drops(before, after, Refused::by(&path), false).as_ref())];
    checks.extend(validity::capture_checks(wire.as_ref()));
    if let Some(error) = seen.as_ref().and_then(|(_, _, error)| error.as_deref()) {
        checks.push(validity::files_whole(error));
    }
    if let Some(tapped) = &tapped {
        checks.extend(validity::tap_checks(&tapped.part, tapped.cut, tapped.error.as_deref()));
        checks.extend(validity::tap_kernel(&tapped.part, tapped.client.called, tapped.kernel));
        if let Some((_, figures, _)) = &seen {
            checks.extend(validity::tap_agrees(
                &tapped.part,
                tapped.outside,
                figures.made,
                figures.up_bytes,
                figures.down_bytes,
            ));
        }
        checks.extend(validity::tap_little(&tapped.part, tapped.levels.as_ref()));
    }
    let responses = tapped.as_ref().map(|tapped| tapped.responses.clone());
    let mut path_part = path_part::document(distances::name(&plan.path), clients, &path, None);
    path_part.from_outside = seen.as_ref().and_then(|(watched, ..)| watched.between.clone());
    let kept = |of: fn(&RunFolder) -> String| folder.as_ref().map(of).unwrap_or_default();
    let document = Document {
        schema: SCHEMA.into(),
        run: Run {
            id: kept(|folder| folder.id().to_owned()),
            dir: kept(|folder| folder.path().display().to_string()),
            command: words,
            seed: plan.seed,
            started_at: store::rfc3339(clock.started()),
            duration_s: driven.loop_health.wall.as_secs_f64(),
            host,
            ..Run::default()
        },
        validity: Validity::from_checks(checks),
        load: None,
        path: Some(path_part),
        watch: seen.as_ref().map(|(watched, figures, _)| watch_part::document(watched, figures, phase)),
        tap: tapped.map(|tapped| tapped.part),
        server: None,
        slo: None,
        cache: None,
    };
    let status = match exit? {
        Exit::Code(code) => code as u8,
        Exit::Signal(signal) => (128 + signal) as u8,
    };
    if let Some(folder) = &folder {
        if let Some(responses) = &responses {
            responses.keep(folder, clock.now()).map_err(LabError::environment)?;
        }
        folder.write_summary(&document).map_err(LabError::environment)?;
    }
    if let Some(opening) = &opening {
        opening.done(clock.now(), &document);
    }
    Ok(NetOutcome {
        status,
        document,
        watch_series: seen.map(|(_, figures, _)| figures.seconds).unwrap_or_default(),
        folder: folder.map(|folder| folder.path().to_owned()),
        started: clock.started(),
    })
}

/// What the program can look up: the server's names, or those of what is at the far end.
fn hosts(plan: &NetPlan, far: &[Named]) -> Vec<(IpAddr, String)> {
    let names = match &plan.server {
        Some(server) => target::names(server),
        None => vec![places::SERVER_NAME],
    };
    if far.is_empty() {
        let count = plan.server.as_ref().map_or(1, |server| server.addresses);
        return places::hosts(&plan.target.family.choose(&target::lab_addresses(count)), &names);
    }
    let connects = |named: &Named| named.reaches.iter().map(|reach| reach.connect).collect::<Vec<_>>();
    let mut hosts: Vec<(IpAddr, String)> = Vec::new();
    for named in far.iter().filter(|named| named.name.parse::<IpAddr>().is_err()) {
        hosts.extend(places::hosts(&connects(named), &[&named.name]));
    }
    if !far.iter().any(|named| named.name == places::SERVER_NAME) {
        hosts.extend(places::hosts(&connects(&far[0]), &names));
    }
    hosts
}

/// Each once.
fn reaches(far: &[Named]) -> Vec<Reach> {
    let mut all: Vec<Reach> = Vec::new();
    for reach in far.iter().flat_map(|named| &named.reaches) {
        if !all.contains(reach) {
            all.push(*reach);
        }
    }
    all
}

/// Where the path ends, in words.
fn far_end(far: &[Named]) -> String {
    if far.is_empty() {
        return format!("the server's end is {} (`{}`)", places::SERVER, places::SERVER_NAME);
    }
    let each = far.iter().map(|named| {
        let words: Vec<String> = named.reaches.iter().map(Reach::words).collect();
        format!("`{}` ({})", named.name, words.join(", "))
    });
    format!(
        "reachable are {} and nothing else; the first is also `{}`",
        each.collect::<Vec<_>>().join(", "),
        places::SERVER_NAME
    )
}

/// The thread that takes in what the wire showed.
type Keeper = std::thread::JoinHandle<(WireFigures, Option<String>)>;

/// Starts watching, and a thread that keeps what is seen, and tells it now and then in `seen`.
#[allow(clippy::too_many_arguments, reason = "everything that was decided before; it is called once")]
fn watch(
    taps: Taps,
    plan: &NetPlan,
    rtts_ns: Vec<u64>,
    clients: &[ClientPath],
    clock: Clock,
    progress: &Arc<Progress>,
    started: Timestamp,
    folder: Option<&RunFolder>,
    seen: &Arc<Mutex<Option<StandingWatch>>>,
) -> std::io::Result<(Watching, Keeper)> {
    let (sender, records) = queue();
    let setup = WatchSetup {
        clock,
        progress: Arc::clone(progress),
        start: started,
        measured_from: started,
        measured_to: None,
        clients,
        port: None,
        seed: plan.seed,
        cores: None,
    };
    let device = taps.device().to_owned();
    let watching = taps.watch(setup, sender)?;
    let seen = Arc::clone(seen);
    let side = WireSide { book: WireBook::new(folder, Arc::clone(progress), started, rtts_ns, None), records };
    let keeper = std::thread::Builder::new().name("recorder".into()).spawn(move || {
        Urgency::Low.apply_to_this_thread();
        side.into_figures_told(|book| {
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = Some(book.standing(&device));
        })
    })?;
    Ok((watching, keeper))
}

/// Interrupts are looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// And how the run stands is written this often, where it is kept.
const STANDING_EVERY: Duration = Duration::from_secs(1);

fn wait_for(
    program: &mut Place,
    interrupts: Option<&Interrupts>,
    is_kept: bool,
    mut stand: impl FnMut(),
) -> Result<Exit, LabError> {
    let count = || interrupts.map_or(0, Interrupts::count);
    let mut seen = count();
    let mut stood = None;
    loop {
        let now = sys::clock::monotonic_ns();
        if is_kept && stood.is_none_or(|stood| now - stood >= STANDING_EVERY.as_nanos() as u64) {
            stood = Some(now);
            stand();
        }
        if let Some(exit) = program.try_exit().map_err(LabError::environment)? {
            return Ok(exit);
        }
        if count() > seen {
            let signal = if seen == 0 { Signal::SIGINT } else { Signal::SIGKILL };
            seen = count();
            // Gone in this moment is as good.
            let _ = program.signal(signal);
        }
        let patience = match interrupts {
            Some(_) => LOOK_EVERY,
            None if is_kept => STANDING_EVERY,
            None => Duration::from_secs(3600),
        };
        sys::signal::wait_readable(program.status_fd(), patience);
    }
}
