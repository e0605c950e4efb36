//! Fifth stage: the load's loops, one for each shard. If one process may not have all connections there are more
//! processes, forked before the first thread; the others are threads of this process. The first loop has the path as
//! well.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use load::{Load, LoadSpec, ShardSampler};
use sys::namespace::NetNamespace;
use sys::sched::{Cores, Urgency};
use sys::signal::Wake;
use sys::worker::Worker;

use super::network::Network;
use super::resolve::Resolved;
use super::resources::Resources;
use super::schedule::{OPEN_PER_SECOND, Schedule, closing};
use super::{spec, urgency};
use crate::distances;
use crate::drive::load_io::{LoadIo, Migration, SourceAddress};
use crate::drive::path_io::PathIo;
use crate::drive::progress::{Phase, Progress};
use crate::drive::quic::Quic;
use crate::drive::tls::Tls;
use crate::drive::tunnel::Tunnelling;
use crate::drive::{Drive, Driven};
use crate::error::TestbedError;
use crate::http2_frames::FrameLog;
use crate::recorder::{Handover, Outlet};
use crate::shards::{Line, Running, ShardEnd, process};
use crate::topology;
use crate::watching::secrets::SecretSender;
use plan::HttpVersion;

/// The loops of a run. Processes already run and wait for the start; threads are created by [`Loops::run`].
pub(super) struct Loops<'a> {
    pub resolved: &'a Resolved,
    pub resources: &'a Resources,
    pub schedule: &'a Schedule,
    pub load_spec: &'a LoadSpec,
    /// Progress of the whole run, for recorder and packet capture.
    pub progress: Arc<Progress>,
    /// Progress of each loop; a single loop has the run's.
    progress_of_shards: Vec<Arc<Progress>>,
    client_net: Option<NetNamespace>,
    is_captured: bool,
    /// Keeps frames of HTTP/2, of the shards in this process.
    pub http2_frames: Option<Arc<FrameLog>>,
    carries_end: bool,
    /// Wakes the threads.
    wakes: Vec<Wake>,
    /// The processes.
    workers: Vec<Worker>,
}

/// What the loops of this process take over.
pub(super) struct Inputs {
    /// The path, for the first loop.
    pub path_io: Option<PathIo>,
    /// Destination of the records of each loop, also of those in other processes.
    pub outlets: Vec<Outlet>,
    /// Destination of TLS secrets.
    pub secrets: Option<SecretSender>,
}

/// Results of all loops: the path, and the end of each.
type Ends = (Option<PathIo>, Vec<ShardEnd>);
/// A thread with its loop.
type LoopThread<'scope> = ScopedJoinHandle<'scope, Result<(Option<PathIo>, ShardEnd), TestbedError>>;
/// A thread that reads the reports of a process.
type ReaderThread<'scope> = ScopedJoinHandle<'scope, Result<ShardEnd, TestbedError>>;

impl<'a> Loops<'a> {
    /// Forks the processes, if there are any. Only while this process has one thread.
    ///
    /// # Errors
    /// No process or descriptor is available.
    pub fn fork(
        resolved: &'a Resolved,
        resources: &'a Resources,
        network: &Network,
        schedule: &'a Schedule,
        load_spec: &'a LoadSpec,
    ) -> Result<Self, TestbedError> {
        let plan = resources.shard_plan;
        let progress = Arc::new(Progress::default());
        let progress_of_shards =
            if plan.of == 1 { vec![Arc::clone(&progress)] } else { (0..plan.of).map(|_| Arc::default()).collect() };
        let wakes = (0..plan.threads()).map(|_| Wake::new()).collect::<Result<Vec<_>, _>>();
        let mut loops = Loops {
            resolved,
            resources,
            schedule,
            load_spec,
            progress,
            progress_of_shards,
            client_net: network.client_net()?,
            is_captured: network.is_captured,
            http2_frames: (resolved.plan.watch.keep && resolved.plan.load.http == HttpVersion::Http2)
                .then(Arc::default),
            carries_end: network.carries_end(),
            wakes: wakes.map_err(TestbedError::system("eventfd"))?,
            workers: Vec::new(),
        };
        for index in plan.threads()..plan.of {
            let worker = loops.fork_one(index)?;
            loops.workers.push(worker);
        }
        Ok(loops)
    }

    /// Process numbers of the load generator: this process and those of its loops.
    pub fn pids(&self) -> Vec<i32> {
        [std::process::id().cast_signed()].into_iter().chain(self.workers.iter().map(Worker::pid)).collect()
    }

    /// Runs all loops to their ends. `meanwhile` runs on this thread with access to them, and returns when they have
    /// ended.
    ///
    /// # Errors
    /// A thread cannot be created; a loop failed, or its process ended early.
    pub fn run(
        &self,
        first_tls: Option<Tls>,
        inputs: Inputs,
        meanwhile: impl FnOnce(&Running<'_>),
    ) -> Result<Ends, TestbedError> {
        let links = self.workers.iter().map(|worker| Line::Process(worker.link()));
        let lines = self.wakes.iter().map(Line::Thread).chain(links);
        let running =
            Running::new(Arc::clone(&self.progress), self.progress_of_shards.iter().cloned().zip(lines).collect());
        let Inputs { path_io, outlets, secrets } = inputs;
        std::thread::scope(|scope| {
            let mut outlets = outlets.into_iter();
            let (first_urgency, right) = urgency::urgency(&self.resolved.plan, self.resources.own_core);
            let mut first = Some((first_tls, path_io));
            let mut threads = Vec::new();
            for (index, outlet) in (0..self.resources.shard_plan.threads()).zip(outlets.by_ref()) {
                let (tls, path_io) = match first.take() {
                    Some(first) => first,
                    None => (self.resolved.tls()?, None),
                };
                let tls = match &secrets {
                    Some(secrets) => tls.map(|tls| tls.reporting_to(secrets)),
                    None => tls,
                };
                threads.push(self.thread(scope, index, outlet, tls, path_io, first_urgency)?);
            }
            let readers = self.readers(scope, &running, outlets)?;
            meanwhile(&running);
            let threads: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("the loop does not panic")).collect();
            let readers: Vec<_> =
                readers.into_iter().map(|reader| reader.join().expect("a shard's reader does not panic")).collect();
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
            Ok((path, ends))
        })
    }

    /// Forks the process of loop `index`.
    fn fork_one(&self, index: u32) -> Result<Worker, TestbedError> {
        let tls = self.resolved.tls()?;
        process::start(index, self.client_net.as_ref(), |setting| {
            let loading = self.load_io(index, tls, setting.handover);
            let drive = self.drive(setting.progress, setting.stop.as_fd(), loading);
            let (_, end) = loop_thread(drive, None, self.resources.cores.shard_core(index), Urgency::High)
                .map_err(|error| error.to_string())?;
            Ok(end)
        })
    }

    /// Starts the thread of loop `index`.
    fn thread<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        index: u32,
        outlet: Outlet,
        tls: Option<Tls>,
        path_io: Option<PathIo>,
        first_urgency: Urgency,
    ) -> Result<LoopThread<'scope>, TestbedError> {
        let (cores, shards) = (&self.resources.cores, self.resources.shard_plan);
        let loading = self.load_io(index, tls, Handover::new(outlet));
        let mut drive = self.drive(
            Arc::clone(&self.progress_of_shards[index as usize]),
            self.wakes[index as usize].as_fd(),
            loading,
        );
        drive.shares_core = self.resources.recorder_shares_the_core();
        if index == 0 {
            drive.path = path_io;
            let spec = self.resolved.spec.as_ref().filter(|_| self.carries_end);
            drive.grace = spec.map_or(Duration::ZERO, distances::grace);
            drive.others = self.progress_of_shards[1..].to_vec();
        }
        let net =
            self.client_net.as_ref().map(NetNamespace::try_clone).transpose().map_err(TestbedError::environment)?;
        let core = cores.shard_core(index);
        // Two real-time loops on one core would not alternate.
        let urgency = if cores.is_own(index, shards.threads()) || index == 0 { first_urgency } else { Urgency::High };
        std::thread::Builder::new()
            .name("loop".into())
            .spawn_scoped(scope, move || loop_thread(drive, net, core, urgency))
            .map_err(TestbedError::system("start the loop"))
    }

    /// Starts a thread for each process, which reads what it reports.
    fn readers<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        running: &'scope Running<'_>,
        outlets: impl Iterator<Item = Outlet>,
    ) -> Result<Vec<ReaderThread<'scope>>, TestbedError> {
        let first = self.resources.shard_plan.threads();
        let each = (first..).zip(self.workers.iter().zip(outlets));
        each.map(|(index, (worker, outlet))| {
            let (progress, lost) = (&self.progress_of_shards[index as usize], running.lost());
            std::thread::Builder::new()
                .name("shard".into())
                .spawn_scoped(scope, move || process::read(worker.link(), index, progress, outlet, lost))
                .map_err(TestbedError::system("start a shard's reader"))
        })
        .collect()
    }

    /// Input of one loop, here or in its own process.
    fn load_io(&self, index: u32, tls: Option<Tls>, handover: Handover) -> LoadIo {
        let (plan, schedule) = (&self.resolved.plan, self.schedule);
        let spec = spec::shard(self.load_spec, self.resources.shard_plan, index);
        let shard = spec.shard;
        let mut load = Load::new(spec, schedule.start);
        if let Some(connections) = plan.load.open_connections {
            load.open_first(connections, OPEN_PER_SECOND, schedule.open_from);
        }
        if let Some(over) = plan.load.users_over {
            load.spread_users(over);
        }
        let source: SourceAddress = if self.client_net.is_some() {
            Box::new(|client, server| Some(topology::client_address(client, server)))
        } else {
            Box::new(|_, _| None)
        };
        let sampler = ShardSampler::new(plan.seed, schedule.start);
        let endpoints = self.resolved.destination.endpoints.clone();
        LoadIo::new(load, sampler, endpoints, source, handover, self.is_captured)
            .with_tls(tls)
            .with_tunnel(plan.load.proxy.as_ref().map(|proxy| Tunnelling { authorization: proxy.authorization() }))
            .with_http2(
                (plan.load.http == HttpVersion::Http2).then(|| plan.load.http2_windows()),
                self.http2_frames.clone(),
            )
            .with_quic((plan.load.http == HttpVersion::Http3).then(|| {
                Quic::new(&plan.load.quic(), &schedule.clock, stats::Rng::new(plan.seed, u64::from(shard.index)))
            }))
            .with_migrations(Migration::of(
                self.resolved.spec.as_ref().map_or(&[], |spec| &spec.changes),
                schedule.measured_from(),
            ))
    }

    /// The loop of a shard; the first has the path.
    fn drive<'stop>(&self, progress: Arc<Progress>, stop: BorrowedFd<'stop>, loading: LoadIo) -> Drive<'stop> {
        let plan = &self.resolved.plan;
        Drive {
            clock: self.schedule.clock,
            wait: plan.host.wait,
            engine: plan.host.engine,
            path: None,
            load: Some(loading),
            progress,
            stop,
            drain: plan.load.connect_timeout + plan.load.timeout + closing(plan),
            grace: Duration::ZERO,
            others: Vec::new(),
            own_core: self.resources.own_core,
            shares_core: false,
            urgency: Urgency::Ordinary,
        }
    }
}

/// Runs a shard's loop to its end.
fn loop_thread(
    mut drive: Drive<'_>,
    net: Option<NetNamespace>,
    core: Option<Cores>,
    urgency: Urgency,
) -> Result<(Option<PathIo>, ShardEnd), TestbedError> {
    // The main thread waits for this report, which is also made if the loop panics.
    let _done = Done(Arc::clone(&drive.progress));
    if let Some(net) = net {
        net.enter().map_err(TestbedError::environment)?;
    }
    if let Some(core) = &core {
        core.pin_this_thread().map_err(TestbedError::system("sched_setaffinity"))?;
    }
    drive.urgency = urgency.apply_to_this_thread();
    // A shard in another process records in the first process.
    let pinned = Cores::allowed().is_ok_and(|cores| urgency::is_pinned(&cores));
    drive.own_core &= pinned;
    drive.shares_core &= pinned;
    let clock = drive.clock;
    let scheduling = drive.urgency;
    let Driven { path, load, loop_health, engine } = drive.run().map_err(TestbedError::system("the loop"))?;
    let io = load.expect("the loop gives the load back");
    let tls = io.tls().map(Tls::document);
    let quic = io.quic().map(Quic::document);
    let load = io.into_load(clock.now());
    let mut end = ShardEnd::of(&load, loop_health, engine, tls);
    end.quic = quic;
    end.scheduling = scheduling.name().to_owned();
    end.core = core.and_then(|core| core.list().first().copied());
    Ok((path, end))
}

/// Reports on drop that the loop has ended, also after an error or a panic.
struct Done(Arc<Progress>);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.enter(Phase::Done);
    }
}
