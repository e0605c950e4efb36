//! Any program at the far end of a path.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ledger::WatchSecond;
use ledger::document::{Document, Run, SCHEMA, Validity};
use path::ClientPath;
use store::{Book, RunFolder};
use sys::clock::Clock;
use sys::place::{Exit, Net, Place, PlaceSpec};
use sys::sched::{Cores, RealTimeRight, Urgency};
use sys::signal::{Interrupts, Signal, Wake};
use units::{Limit, Timestamp};

use crate::drive::Drive;
use crate::drive::progress::Progress;
use crate::error::LabError;
use crate::gate::WireEvidence;
use crate::host::{self, CorePlan};
use crate::places::{self, Places};
use crate::plan::{HostPlan, PathPlan, Placement, ServerPlan, ServerTcp, WatchAt, WatchPlan};
use crate::recorder::WireSide;
use crate::watching::queue::queue;
use crate::watching::{Taps, WatchSetup, Watching};
use crate::wire_book::{WireBook, WireFigures};
use crate::{distances, gate, path_part, server, watch_part};

/// The server command of `net` is given so long to begin listening on any port.
const SETTLE: Duration = Duration::from_millis(300);

/// A network for a program, as meant.
#[derive(Clone, Debug)]
pub struct NetPlan {
    /// The distances.
    pub path: PathPlan,
    /// The server, if one is to be started.
    pub server: Option<ServerPlan>,
    /// TCP of the server's end, with or without a server.
    pub server_tcp: ServerTcp,
    /// Number of client addresses.
    pub clients: u32,
    /// The witness at the server's end; absent where it says nothing means at the server's.
    pub watch: WatchPlan,
    /// How the path waits and where things run.
    pub host: HostPlan,
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
    /// watch_series.parquet.
    pub folder: Option<PathBuf>,
}

/// Runs `command` at the clients' end. `tell` gets one line about the network before it starts.
///
/// With `interrupts`, an interrupt of this process is handed on to the program, a second one ends it. Without, the
/// program has the terminal, and Ctrl-C is for it alone, as in a shell.
///
/// # Errors
/// A plan that cannot be carried out, a machine that lacks something, a program that cannot be started.
pub fn net(
    plan: &NetPlan,
    command: &[OsString],
    interrupts: Option<&Interrupts>,
    tell: impl FnOnce(&str),
) -> Result<NetOutcome, LabError> {
    if plan.clients == 0 || plan.clients > path::AddressPlan::CLIENTS_MAX {
        return Err(LabError::Plan(format!(
            "--clients {}: from 1 to {} are possible",
            plan.clients,
            path::AddressPlan::CLIENTS_MAX
        )));
    }
    let spec = distances::spec(&plan.path, plan.clients)?;
    let clients = &spec.clients[..];
    let allowed = Cores::allowed().map_err(LabError::system("sched_getaffinity"))?;
    // Here the program is the client, and it belongs with the server, not with the path.
    let cores = if plan.host.placement == Placement::Split {
        CorePlan::new(Placement::Split, &allowed)
    } else {
        CorePlan::default()
    };
    let rootless = places::gain_privilege()?;
    let mut program = Place::start(PlaceSpec {
        hosts: vec![(places::SERVER.into(), places::SERVER_NAME.to_owned())],
        net: Net::New,
        rootless,
        ..PlaceSpec::new(command.to_vec())
    })
    .map_err(|error| match error {
        sys::Error::Exec { .. } => LabError::plan(error),
        other => LabError::environment(other),
    })?;
    let mut places = Places::new(plan.server.as_ref(), &CorePlan::default(), None, rootless)?;
    places.client_net = program.net().try_clone().map_err(LabError::environment)?;
    let tcp = plan.server.as_ref().map_or(&plan.server_tcp, |server| &server.tcp);
    let path_io = places.connect(&spec, plan.path.offload, tcp, &CorePlan::default(), plan.seed)?;
    if let Some(place) = &mut places.server {
        place.go().map_err(LabError::plan)?;
        // Nobody said which port it listens on; a server that cannot start is told apart from one that can.
        let deadline = sys::clock::monotonic_ns() + SETTLE.as_nanos() as u64;
        // Its end is told in two steps: the command's, then that nobody is left of it.
        loop {
            if let Some(how) = server::ended(place) {
                let words = places.server_output.as_ref().map(server::last_words).unwrap_or_default();
                return Err(LabError::Plan(format!("the server command ended at once ({how}){words}")));
            }
            let left = deadline.saturating_sub(sys::clock::monotonic_ns());
            if left == 0 || !sys::signal::wait_readable(place.status_fd(), Duration::from_nanos(left)) {
                break;
            }
        }
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
    let clock = Clock::start();
    let progress = Arc::new(Progress::default());
    let stop = Wake::new().map_err(LabError::system("eventfd"))?;
    let last = clients.len() as u32 - 1;
    tell(&format!(
        "client addresses {} to {}; the server's end is {} (`{}`); {}",
        places::client_address(0),
        places::client_address(last),
        places::SERVER,
        places::SERVER_NAME,
        distances::name(&plan.path),
    ));
    let before = places.device_statistics().ok();
    let started = clock.now();
    let witness = taps
        .map(|taps| watch(taps, plan, clients, clock, &progress, started, folder.as_ref()))
        .transpose()
        .map_err(LabError::system("start the watch"))?;
    program.go().map_err(LabError::plan)?;
    if interrupts.is_none() {
        sys::signal::leave_terminal_signals_to_child().map_err(LabError::system("sigaction"))?;
    }

    let (exit, driven) = std::thread::scope(|scope| {
        let drive = Drive {
            clock,
            wait: plan.host.wait,
            path: Some(path_io),
            load: None,
            progress: Arc::clone(&progress),
            stop: stop.as_fd(),
            drain: Duration::ZERO,
            grace: if at == WatchAt::None { Duration::ZERO } else { distances::grace(clients) },
        };
        let core = cores.loop_core();
        // Where nothing is ever due later, being on time means nothing, and a path that waits its turn finds packets in
        // batches, which carries more (docs/decisions/0009).
        let keeps_time = clients.iter().any(|client| {
            [&client.up, &client.down]
                .iter()
                .any(|link| !link.delay().is_zero() || !link.variation().is_zero() || link.rate() != Limit::Unlimited)
        });
        let right = keeps_time.then(RealTimeRight::take).flatten();
        let thread = std::thread::Builder::new()
            .name("path".into())
            .spawn_scoped(scope, move || {
                if let Some(core) = core {
                    // Not being pinned costs precision, which the lateness shows.
                    let _ = core.pin_this_thread();
                }
                // The path alone sleeps between packets, so the real-time class is safe, and it keeps the path on time
                // beside a program that is busy.
                let wanted = match right {
                    Some(_) => Urgency::RealTime,
                    None if keeps_time => Urgency::High,
                    None => Urgency::Ordinary,
                };
                let urgency = wanted.apply_to_this_thread();
                (drive.run(), urgency)
            })
            .map_err(LabError::system("start the path"))?;
        let exit = wait_for(&mut program, interrupts);
        progress.set_measured_end(clock.now());
        progress.ask(1);
        stop.wake();
        let (driven, urgency) = thread.join().expect("the path does not panic");
        Ok::<_, LabError>((exit, (driven.map_err(LabError::system("the path"))?, urgency)))
    })?;
    let after = places.device_statistics().ok();
    let (driven, urgency) = driven;
    let path = driven.path.expect("the loop gives the path back");

    let mut host = host::facts(&cores)?;
    host.settings.insert("wait".into(), plan.host.wait.name().into());
    host.settings.insert("loop_scheduling".into(), urgency.name().into());
    host.settings.insert("server_tcp".into(), places.tcp.clone());
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
    let mut checks = vec![gate::mistaken(path_part::mistaken_drops(before, after, &path, false).as_ref())];
    checks.extend(gate::capture_checks(wire.as_ref()));
    if let Some(error) = seen.as_ref().and_then(|(_, _, error)| error.as_deref()) {
        checks.push(gate::files_whole(error));
    }
    let mut path_part = path_part::document(distances::name(&plan.path), clients, &path, None);
    path_part.from_outside = seen.as_ref().and_then(|(watched, ..)| watched.between.clone());
    let kept = |of: fn(&RunFolder) -> String| folder.as_ref().map(of).unwrap_or_default();
    let document = Document {
        schema: SCHEMA.into(),
        run: Run {
            id: kept(|folder| folder.id().to_owned()),
            dir: kept(|folder| folder.path().display().to_string()),
            command: command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
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
        server: None,
        slo: None,
    };
    let status = match exit? {
        Exit::Code(code) => code as u8,
        Exit::Signal(signal) => (128 + signal) as u8,
    };
    if let Some(folder) = &folder {
        folder.write_summary(&document).map_err(LabError::environment)?;
    }
    Ok(NetOutcome {
        status,
        document,
        watch_series: seen.map(|(_, figures, _)| figures.seconds).unwrap_or_default(),
        folder: folder.map(|folder| folder.path().to_owned()),
    })
}

/// The thread that takes in what the wire showed.
type Keeper = std::thread::JoinHandle<(WireFigures, Option<String>)>;

/// Starts watching, and a thread that keeps what is seen.
fn watch(
    taps: Taps,
    plan: &NetPlan,
    clients: &[ClientPath],
    clock: Clock,
    progress: &Arc<Progress>,
    started: Timestamp,
    folder: Option<&RunFolder>,
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
    let watching = taps.watch(setup, sender)?;
    let rtts_ns = clients.iter().map(|client| units::time::saturating_nanos(client.rtt())).collect();
    let side = WireSide { book: WireBook::new(folder, Arc::clone(progress), started, rtts_ns, None), records };
    let keeper = std::thread::Builder::new().name("recorder".into()).spawn(move || {
        Urgency::Low.apply_to_this_thread();
        side.into_figures()
    })?;
    Ok((watching, keeper))
}

/// Interrupts are looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(100);

fn wait_for(program: &mut Place, interrupts: Option<&Interrupts>) -> Result<Exit, LabError> {
    let count = || interrupts.map_or(0, Interrupts::count);
    let mut seen = count();
    loop {
        if let Some(exit) = program.try_exit().map_err(LabError::environment)? {
            return Ok(exit);
        }
        if count() > seen {
            let signal = if seen == 0 { Signal::SIGINT } else { Signal::SIGKILL };
            seen = count();
            // Gone in this moment is as good.
            let _ = program.signal(signal);
        }
        let patience = if interrupts.is_some() { LOOK_EVERY } else { Duration::from_secs(3600) };
        sys::signal::wait_readable(program.status_fd(), patience);
    }
}
