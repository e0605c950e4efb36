//! Any program at the far end of a path.

use std::ffi::OsString;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use ledger::document::{Document, Run, SCHEMA, Validity};
use sys::clock::Clock;
use sys::place::{Exit, Net, Place, PlaceSpec};
use sys::sched::{Cores, RealTimeRight, Urgency};
use sys::signal::Wake;
use units::Limit;

use crate::drive::Drive;
use crate::drive::progress::Progress;
use crate::error::LabError;
use crate::host::{self, CorePlan};
use crate::path_part;
use crate::places::{self, Places};
use crate::plan::{HostPlan, PathPlan, Placement, ServerPlan, ServerTcp};
use crate::{distances, gate, server};

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
    /// How the path waits and where things run.
    pub host: HostPlan,
    /// Seed of every random choice.
    pub seed: u64,
}

/// How it ended.
#[derive(Debug)]
pub struct NetOutcome {
    /// The program's exit status; 128 and the signal's number if one ended it, as in a shell.
    pub status: u8,
    /// What the path did.
    pub document: Document,
}

/// Runs `command` at the clients' end. `tell` gets one line about the network before it starts.
///
/// # Errors
/// A plan that cannot be carried out, a machine that lacks something, a program that cannot be started.
pub fn net(plan: &NetPlan, command: &[OsString], tell: impl FnOnce(&str)) -> Result<NetOutcome, LabError> {
    if plan.clients == 0 || plan.clients > path::AddressPlan::CLIENTS_MAX {
        return Err(LabError::Plan(format!(
            "--clients {}: from 1 to {} are possible",
            plan.clients,
            path::AddressPlan::CLIENTS_MAX
        )));
    }
    let clients = distances::clients(&plan.path, plan.clients)?;
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
    let path_io = places.connect(&clients, plan.path.offload, tcp, &CorePlan::default(), plan.seed)?;
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
    program.go().map_err(LabError::plan)?;
    sys::signal::leave_terminal_signals_to_child().map_err(LabError::system("sigaction"))?;

    let (exit, driven) = std::thread::scope(|scope| {
        let drive = Drive {
            clock,
            wait: plan.host.wait,
            path: Some(path_io),
            load: None,
            progress: Arc::clone(&progress),
            stop: stop.as_fd(),
            drain: Duration::ZERO,
        };
        let core = cores.loop_core();
        // Where nothing is ever due later, being on time means nothing, and a path that waits its turn finds packets in
        // batches, which carries more (docs/decisions/0009).
        let keeps_time = clients.iter().any(|client| {
            [&client.up, &client.down]
                .iter()
                .any(|link| !link.delay.is_zero() || !link.variation.is_zero() || link.rate != Limit::Unlimited)
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
        let exit = wait_for(&mut program);
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
    let check = gate::mistaken(path_part::mistaken_drops(before, after, &path, false).as_ref());
    let document = Document {
        schema: SCHEMA.into(),
        run: Run {
            command: command.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" "),
            seed: plan.seed,
            started_at: store::rfc3339(clock.started()),
            duration_s: driven.loop_health.wall.as_secs_f64(),
            host,
            ..Run::default()
        },
        validity: Validity::from_checks(vec![check]),
        load: None,
        path: Some(path_part::document(distances::name(&plan.path), &clients, &path, None)),
        server: None,
        slo: None,
    };
    let status = match exit? {
        Exit::Code(code) => code as u8,
        Exit::Signal(signal) => (128 + signal) as u8,
    };
    Ok(NetOutcome { status, document })
}

fn wait_for(program: &mut Place) -> Result<Exit, LabError> {
    loop {
        if let Some(exit) = program.try_exit().map_err(LabError::environment)? {
            return Ok(exit);
        }
        sys::signal::wait_readable(program.status_fd(), Duration::from_secs(3600));
    }
}
