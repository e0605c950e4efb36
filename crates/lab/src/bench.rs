//! A run of load, from plan to document.

mod document;
mod spec;
mod witness;

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ledger::Document;
use load::{LevelSampler, Load, Tally, TallySpec, Target};
use path::{ClientPath, PathSpec};
use stats::{Histogram, Rng};
use store::{Book, RunFolder};
use sys::clock::Clock;
use sys::sched::{Cores, RealTimeRight, Urgency};
use sys::signal::{Interrupts, Wake};
use units::Timestamp;

use crate::distances;
use crate::drive::endpoints::Endpoints;
use crate::drive::load_io::LoadIo;
use crate::drive::path_io::PathIo;
use crate::drive::progress::{Phase, Progress, Snapshot};
use crate::drive::tls::Tls;
use crate::drive::{Drive, Driven, Loading};
use crate::error::LabError;
use crate::handshakes::Handshakes;
use crate::host::CorePlan;
use crate::places::target::{Reach, check_listening, in_lab, resolve, through_path};
use crate::places::{self, Places};
use crate::plan::{Plan, TlsPlan, Wait};
use crate::recorder::{Recorded, Recorder};
use crate::server::{self, Account};
use crate::watching::{Taps, Watching};

/// The main thread looks at the run this often.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// And tells the observer this often.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Memory of the server is read this often.
const MEMORY_EVERY: Duration = Duration::from_millis(500);
/// The load starts so long after everything is ready, so that threads are in place.
const LEAD: Duration = Duration::from_millis(50);
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
    /// Asked some hundred times a second: true ends the measured phase, as Ctrl-C would.
    fn enough(&mut self, _snapshot: &Snapshot) -> bool {
        false
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
    plan.check()?;
    let target = Target::parse(&plan.load.url).map_err(LabError::plan)?;
    let spec = match &plan.path {
        Some(path) => Some(distances::spec(path, plan.load.clients)?),
        None => None,
    };
    let clients = spec.as_ref().map(|spec| &spec.clients[..]);
    let workload = spec::workload(plan)?;

    let (host, port) = match &plan.load.proxy {
        Some(proxy) => (proxy.host.as_str(), proxy.port),
        None => (target.host.as_str(), target.port),
    };
    let (endpoints, reaches) = destination(plan, host, port)?;
    let tls = match &plan.load.tls {
        _ if !target.secure => None,
        Some(tls) => Some(Tls::new(tls, &target.host)?),
        None => Some(Tls::new(&TlsPlan::default(), &target.host)?),
    };
    let descriptors = sys::limits::raise_open_files();
    let connections_max = connections_max(plan, descriptors)?;

    let allowed = Cores::allowed().map_err(LabError::system("sched_getaffinity"))?;
    // Without a server of the lab nobody knows where the server runs: nothing is pinned.
    let cores = if plan.server.is_some() { CorePlan::new(plan.host.placement, &allowed) } else { CorePlan::default() };
    // A user namespace, where one is needed, comes before the first file: files belong to whoever makes them.
    let rootless = if plan.server.is_some() { places::gain_privilege()? } else { false };
    let folder = match book {
        None => None,
        Some(book) => Some(create_folder(book, plan)?),
    };
    let log = folder.as_ref().map(|folder| folder.path().join("server.log"));

    let mut places = None;
    let mut path_io = None;
    let mut taps = None;
    if let (Some(path), Some(spec)) = (&plan.path, &spec) {
        let made = lay(plan, path.offload, spec, &endpoints, reaches, &cores, log.as_deref(), rootless);
        // Nothing was measured: a folder left behind would look like a run that was killed.
        let (made, io, open) = made.inspect_err(|_| discard(folder.as_ref()))?;
        (places, path_io, taps) = (Some(made), Some(io), open);
    }
    let clock = Clock::start();
    let start = clock.now() + LEAD;
    let load = Load::new(spec::load(plan, workload, connections_max), start);
    let (measured_from, _) = load.measured();
    if let Some(path_io) = &mut path_io {
        path_io.set_start(measured_from);
    }
    let sampler = LevelSampler::new(plan.seed, start, measured_from);
    let rtts_ns = clients
        .map(|clients| clients.iter().map(|path| units::time::saturating_nanos(path.rtt())).collect::<Vec<u64>>());
    let tally = Tally::new(TallySpec {
        open_loop: plan.load.rate.is_some(),
        measured: load.measured(),
        clients_rtt_ns: rtts_ns.clone(),
        urls: vec![plan.load.url.clone()],
    });
    let handshakes = rtts_ns.map(|rtts_ns| Handshakes::new(measured_from, rtts_ns));
    let progress = Arc::new(Progress::default());
    let setting = witness::Setting {
        plan,
        clock,
        progress: &progress,
        start,
        measured: load.measured(),
        spec: spec.as_ref(),
        port,
        cores: &cores,
        folder: folder.as_ref(),
        reaches: places.as_ref().map_or(&[][..], |places| &places.reaches),
    };
    let (watching, wire) = taps.map(|taps| witness::start(taps, &setting)).transpose()?.unzip();
    let notes_ports = watching.is_some();
    let (handover, recorder) = Recorder::start(tally, folder, handshakes, wire, cores.client.clone())
        .map_err(LabError::system("start the recorder"))?;

    let has_path = path_io.is_some();
    // Without a witness a server of the lab may never hear of the end, for it ends as well; others live on.
    let carries_end = notes_ports || places.as_ref().is_some_and(|places| !places.reaches.is_empty());
    let source: crate::drive::load_io::SourceAddress = if has_path {
        Box::new(|client, server| Some(places::client_address(client, server)))
    } else {
        Box::new(|_, _| None)
    };
    let stop = Wake::new().map_err(LabError::system("eventfd"))?;
    let before = Before { devices: device_statistics(places.as_ref()), cpu: sys::accounting::cpu_times().ok() };
    observer.started(&RunFacts {
        duration: plan.load.duration,
        warmup: plan.load.warmup,
        requests: plan.load.requests,
        notes: notes(plan, &places, clients.unwrap_or_default(), connections_max),
    });

    let mut looked = Looked::default();
    if plan.load.warmup.is_zero() {
        // Measured from the start: the first look at a short run may come when it is over.
        looked.server_from = places.as_ref().and_then(server::account);
    }
    let (driven, urgency) = std::thread::scope(|scope| {
        let drive = Drive {
            clock,
            wait: plan.host.wait,
            engine: plan.host.engine,
            path: path_io,
            load: Some(Loading {
                io: LoadIo::new(load, vec![Endpoints::new(endpoints)], source, handover, notes_ports).with_tls(tls),
                sampler,
            }),
            progress: Arc::clone(&progress),
            stop: stop.as_fd(),
            drain: plan.load.connect_timeout + plan.load.timeout,
            grace: spec.as_ref().filter(|_| carries_end).map_or(Duration::ZERO, distances::grace),
        };
        let net = match &places {
            Some(places) => Some(places.client_net.try_clone().map_err(LabError::environment)?),
            None => None,
        };
        let core = cores.loop_core();
        let (urgency, right) = urgency(plan, core.is_some());
        let thread = std::thread::Builder::new()
            .name("loop".into())
            .spawn_scoped(scope, move || loop_thread(drive, net, core, urgency))
            .map_err(LabError::system("start the loop"))?;
        looked.until_done(&progress, interrupts, &stop, &clock, places.as_mut(), observer);
        let joined = thread.join();
        drop(right);
        joined.expect("the loop does not panic")
    })?;
    observer.ended();

    let after = Before { devices: device_statistics(places.as_ref()), cpu: sys::accounting::cpu_times().ok() };
    let Driven { path, load, loop_health, engine } = driven;
    let Loading { io, sampler } = load.expect("the loop gives the load back");
    let tls = io.tls().map(Tls::document);
    let (load, records_lost) = io.into_load();
    // First the wire, which hangs up the recorder's other line.
    let watched = watching.map(Watching::end);
    let Recorded { tally, folder, handshakes, wire, store_error } = recorder.join();
    let ended = document::Ended {
        plan,
        command,
        clock,
        cores: &cores,
        urgency,
        load,
        tls,
        sampler,
        path,
        spec: spec.as_ref(),
        handshakes,
        loop_health,
        engine,
        records_lost,
        store_error,
        watched: watched.zip(wire),
        folder,
        places,
        before,
        after,
        looked,
        descriptors,
    };
    document::finish(tally, ended)
}

/// Counters of the machine at one end of the run.
struct Before {
    devices: Option<[sys::netlink::LinkStats; 2]>,
    cpu: Option<Vec<(usize, sys::accounting::CpuTimes)>>,
}

/// What the main thread saw while the loop ran.
#[derive(Default)]
struct Looked {
    server_from: Option<Account>,
    server_to: Option<Account>,
    rss_bytes_max: u64,
    server_ended: Option<String>,
    interrupted: bool,
    gave_up: bool,
}

impl Looked {
    fn until_done(
        &mut self,
        progress: &Progress,
        interrupts: &Interrupts,
        stop: &Wake,
        clock: &Clock,
        mut places: Option<&mut Places>,
        observer: &mut dyn Observer,
    ) {
        let asked_before = interrupts.count();
        let (mut asked, mut told, mut memory_read) = (0, Timestamp::ZERO, Timestamp::ZERO);
        loop {
            let phase = progress.phase();
            if phase == Phase::Done {
                self.gave_up = progress.gave_up();
                if self.server_to.is_none() {
                    // Nothing was in flight at the end, so that the drain was over between two looks.
                    self.server_to = places.as_deref().and_then(server::account);
                }
                return;
            }
            let now = clock.now();
            if let Some(places) = places.as_deref_mut() {
                if phase == Phase::Measured && self.server_from.is_none() {
                    self.server_from = server::account(places);
                }
                if phase > Phase::Measured && self.server_to.is_none() {
                    self.server_to = server::account(places);
                }
                if now.since(memory_read) >= MEMORY_EVERY {
                    memory_read = now;
                    if let Some(account) = server::account(places) {
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
            let count = (interrupts.count() - asked_before).max(u32::from(observer.enough(&progress.snapshot())));
            if count > asked {
                asked = count;
                self.interrupted |= phase < Phase::Drain;
                progress.ask(asked);
                stop.wake();
            }
            if now.since(told) >= TELL_EVERY {
                told = now;
                observer.tick(now.since(Timestamp::ZERO), &progress.snapshot());
            }
            interrupts.wait(LOOK_EVERY);
        }
    }
}

fn loop_thread(
    drive: Drive<'_>,
    net: Option<sys::namespace::NetNamespace>,
    core: Option<Cores>,
    urgency: Urgency,
) -> Result<(Driven, Urgency), LabError> {
    // Dropped also when the loop panics: the main thread waits for this.
    let _done = Done(Arc::clone(&drive.progress));
    (|| {
        if let Some(net) = net {
            net.enter().map_err(LabError::environment)?;
        }
        if let Some(core) = core {
            core.pin_this_thread().map_err(LabError::system("sched_setaffinity"))?;
        }
        let urgency = urgency.apply_to_this_thread();
        Ok((drive.run().map_err(LabError::system("the loop"))?, urgency))
    })()
}

/// An open loop on its own core sleeps between arrivals: the real-time class is safe there, and keeps it on time beside
/// whatever else runs. A closed loop may be busy without end, and so is one that spins: the kernel would take 50 ms of
/// every second from it. A loop without its own core must not starve the server, and two on one core would not take turns.
fn urgency(plan: &Plan, own_core: bool) -> (Urgency, Option<RealTimeRight>) {
    let sleeps = plan.load.rate.is_some() && own_core && plan.host.wait != Wait::Spin;
    match sleeps.then(RealTimeRight::take).flatten() {
        Some(right) => (Urgency::RealTime, Some(right)),
        None => (Urgency::High, None),
    }
}

/// Says that the loop has ended, however it did.
struct Done(Arc<Progress>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.enter(Phase::Done);
    }
}

fn connections_max(plan: &Plan, descriptors: u64) -> Result<u32, LabError> {
    let possible = u32::try_from(descriptors.saturating_sub(DESCRIPTORS_KEPT)).unwrap_or(u32::MAX);
    if possible == 0 {
        return Err(LabError::Environment(format!(
            "this process may have {descriptors} open files, and needs {DESCRIPTORS_KEPT} before the first connection: \
             raise the limit (ulimit -n, or LimitNOFILE= of a service)"
        )));
    }
    match plan.load.connections {
        Some(asked) if asked > possible => Err(LabError::Environment(format!(
            "-c {asked}: this process may have {descriptors} open files, {possible} of them connections: raise the \
             limit (ulimit -n, or LimitNOFILE= of a service) or lower -c"
        ))),
        Some(asked) => Ok(asked),
        None if plan.path.is_none() => Ok(possible.min(ports_easily_found())),
        None => Ok(possible),
    }
}

/// Connections that one address can open to another without the kernel searching long for a port: it looks through
/// every second port of its range first, and when nine tenths of those are taken a connect takes a millisecond.
fn ports_easily_found() -> u32 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut ends = range.split_whitespace().filter_map(|end| end.parse::<u32>().ok());
    match (ends.next(), ends.next()) {
        (Some(first), Some(last)) if first <= last => ((last - first).div_ceil(2) * 9 / 10).max(1),
        _ => u32::MAX,
    }
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

/// The addresses that connections go to, and, where a path leads to a service that is there already, how it is reached.
fn destination(plan: &Plan, host: &str, port: u16) -> Result<(Vec<SocketAddr>, Vec<Reach>), LabError> {
    let with_port = |address: IpAddr| SocketAddr::new(address, port);
    if let Some(server) = &plan.server {
        let reaches = in_lab(host, port, server, plan.target.family)?;
        return Ok((reaches.iter().map(|reach| with_port(reach.connect)).collect(), Vec::new()));
    }
    let addresses = resolve(host, port, &plan.target)?;
    if plan.path.is_none() {
        return Ok((addresses.into_iter().map(with_port).collect(), Vec::new()));
    }
    places::require_host_privilege(host)?;
    let reaches = through_path(host, &addresses)?;
    for reach in &reaches {
        check_listening(reach, port)?;
    }
    Ok((reaches.iter().map(|reach| with_port(reach.connect)).collect(), reaches))
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

fn notes(plan: &Plan, places: &Option<Places>, clients: &[ClientPath], connections_max: u32) -> Vec<String> {
    let mut notes = places.as_ref().map(|places| places.notes.clone()).unwrap_or_default();
    if plan.load.rate.is_none() && plan.load.clients > connections_max && !plan.load.close {
        notes.push(format!(
            "only {connections_max} of {} clients take part: a closed loop has one client a connection",
            plan.load.clients
        ));
    }
    if let (Some(cap), Some(_), false) = (plan.load.connections, plan.load.rate, plan.load.close)
        && cap < plan.load.clients
    {
        notes.push(format!(
            "fewer connections ({cap}) than clients ({}): one client's connection is closed to make room for another's, \
             so few are kept alive; raise -c or lower --clients unless that is meant",
            plan.load.clients
        ));
    }
    let cut = |link: &path::LinkSpec| link.variation() > link.delay();
    let clients_cut = clients.iter().filter(|client| cut(&client.up) || cut(&client.down)).count();
    if clients_cut > 0 {
        notes.push(format!(
            "{clients_cut} of {} clients are nearer than the variation of their delay: theirs is cut to the delay",
            clients.len()
        ));
    }
    if let (Some(path), Some(places)) = (&plan.path, places)
        && path.loss.is_some_and(|loss| !loss.is_none())
        && places.tcp.contains("bbr")
    {
        notes.push(
            "the server's congestion control is bbr, which hides loss; --server-tcp cc=cubic is what most servers use"
                .into(),
        );
    }
    notes
}
