//! A run of load, from plan to document, in stages. Each stage is a type that owns its results and is passed to the
//! next:
//!
//! ```text
//!   Resolved          the checked plan, its files read, names resolved              resolve.rs
//!   Resources         descriptors, processes, cores, privilege                     resources.rs
//!   RecordingFolder   the run's directory and its progress file                      ../recording_folder.rs
//!   Network           sandboxes, server, path, open capture rings                  network.rs
//!   Schedule          the run's clock, and when everything begins and ends         schedule.rs
//!   Loops             the load itself, one loop a shard: processes, then threads   loops.rs
//!   Instruments       packet capture, sockets, recorder                            instruments.rs
//!   MainThread        what is read while the loops run                             main_thread.rs
//!   Ended             everything collected                                         collect.rs
//!   Outcome           document, checks, files                                      document.rs, evidence.rs, files.rs
//! ```

mod capture;
mod collect;
mod destination;
mod document;
mod evidence;
mod files;
mod instruments;
mod loops;
mod main_thread;
pub(crate) mod memory;
mod network;
mod notes;
mod observer;
mod outcome;
mod permission;
mod possible;
mod resolve;
mod resources;
mod schedule;
mod shard_part;
mod spec;
mod urgency;

use store::RunStore;
use sys::signal::Interrupts;
use tap::self_tap::SelfTap;

use self::collect::Ended;
use self::instruments::Instruments;
use self::loops::{Inputs, Loops};
use self::main_thread::MainThread;
use self::network::{MachineCounters, Network};
use self::notes::notes;
pub use self::observer::{NoObserver, Observer, RunFacts};
pub use self::outcome::{FirstExchange, Outcome};
pub use self::possible::{Possible, connections_possible};
use self::resolve::Resolved;
use self::resources::Resources;
use self::schedule::Schedule;
use crate::error::TestbedError;
use crate::recording_folder::RecordingFolder;
use crate::shards::ShardEnd;
use crate::snapshot::SnapshotWriter;
use crate::topology::Topology;
use plan::Plan;

/// Makes a run. Call it while this process has one thread, because the testbed forks.
///
/// # Errors
/// A plan that cannot be carried out, or a machine that lacks a feature. A run with a verdict other than valid is not
/// an error.
pub fn bench(
    plan: &Plan,
    command: &str,
    run_store: Option<&RunStore>,
    interrupts: &Interrupts,
    observer: &mut dyn Observer,
) -> Result<Outcome, TestbedError> {
    bench_tapped(plan, None, command, run_store, interrupts, observer)
}

/// The part of a load that `plan` describes, as its document will have it, without making a run, and the plan with the
/// hosts that permit their load. Reads the plan's files, looks up names and requests permissions.
///
/// # Errors
/// A plan that cannot be carried out, or that is not one of several shards; a target that does not permit its load.
pub fn shard_of(plan: &Plan) -> Result<(schema::document::Shard, Plan), TestbedError> {
    let (resolved, load_spec) = Resolved::of(plan, plan.watch.tap)?;
    permission::check(&resolved, &load_spec.arrivals)?;
    let mut permitted = plan.clone();
    permitted.target.owned = resolved.targets.iter().map(|target| target.host.clone()).collect();
    permitted.target.owned.dedup();
    let shard = resolved.shard;
    let shard = shard.ok_or_else(|| TestbedError::Plan("expected the plan of a shard (--shard INDEX/COUNT)".into()))?;
    Ok((shard, permitted))
}

/// Digest of the plan of a search whose trials several machines make: of its keys and of the contents of its files.
///
/// # Errors
/// A file of the plan cannot be read.
pub fn digest_of_search(plan: &Plan) -> Result<String, TestbedError> {
    shard_part::plan_digest(plan, None)
}

/// Makes a run with a tap on the load's own sockets, if the plan configures one. This process must have been started
/// under its own tap ([`crate::tapping::own_start`]); such a tap serves one run.
///
/// # Errors
/// As [`bench`]; a plan with a tap without `own`.
pub fn bench_tapped(
    plan: &Plan,
    own: Option<SelfTap>,
    command: &str,
    run_store: Option<&RunStore>,
    interrupts: &Interrupts,
    observer: &mut dyn Observer,
) -> Result<Outcome, TestbedError> {
    // Interrupts (Ctrl-C) count from here on, also while files are read and the server starts.
    let interrupts_before = interrupts.count();
    let (resolved, mut load_spec) = Resolved::of(plan, own.is_some())?;
    let plan = &resolved.plan;
    permission::check(&resolved, &load_spec.arrivals)?;
    let tls = resolved.tls()?;
    let resources = Resources::claim(&resolved, &mut load_spec)?;
    let mut folder = RecordingFolder::begin(
        run_store,
        &plan.name,
        |folder| folder.write_plan(&plan.to_toml()),
        |folder| SnapshotWriter::of_load(folder, plan, command),
    )?;
    if let Some(path) = folder.path() {
        observer.folder(path);
    }
    let mut network = Network::create(&resolved, &resources, folder.path()).inspect_err(|_| folder.discard())?;
    let schedule = Schedule::start(&resolved, &resources, &load_spec, (interrupts, interrupts_before))
        .inspect_err(|_| folder.discard())?;
    folder.set_zero(&schedule.clock);
    spec::set_wall_zero(&mut load_spec, schedule.clock.started());

    // Processes are forked first: from here on there are threads.
    let mut loops = Loops::fork(&resolved, &resources, &network, &schedule, &load_spec)?;
    let mut instruments = Instruments::start(&loops, &mut network, &mut folder, own)?;
    let before = MachineCounters::read(network.topology.as_ref());
    observer.started(&RunFacts {
        duration: plan.load.duration,
        warmup: plan.load.warmup,
        requests: plan.load.requests,
        notes: [resolved.notes.clone(), notes(plan, &network.topology, resolved.clients(), resources.connections_max)]
            .concat(),
        cores: resources.cores.client.clone(),
    });
    let mut main_thread = MainThread::new(&loops, &network, interrupts_before)?;
    let inputs =
        Inputs { path_io: network.path_io.take(), outlets: instruments.outlets(), secrets: instruments.secrets() };
    let joined = loops.run(tls, inputs, |running| {
        let publisher = instruments.publisher(&before, &network);
        main_thread.until_done(running, interrupts, &schedule.clock, network.topology.as_mut(), observer, publisher);
    });
    let joined = main_thread
        .refused
        .take()
        .map_or(joined, |error| Err(TestbedError::Environment(format!("--server-cpu: {error}"))));
    observer.ended();
    // The CPU speed probe is stopped after the observation of the server: its idle-priority thread ends late on a busy
    // core.
    main_thread.cpu_probe = None;
    let after = MachineCounters::read(network.topology.as_ref());
    let (capture, recorder) = instruments.end();
    let (path, shards) = joined?;
    // The readers of the loops' processes have ended: end and reap the processes.
    let http2_frames = loops.http2_frames.take();
    drop(loops);
    let origin = network.topology.as_ref().and_then(Topology::origin_figures);
    let recorded = recorder.join();
    folder.return_folder(recorded.folder);
    let mix = collect::mix(recorded.cache, recorded.exchanges_left_out, &load_spec, &schedule.clock);
    let ended = Ended {
        command,
        resolved: &resolved,
        resources: &resources,
        clock: schedule.clock,
        start: schedule.start,
        shard: ShardEnd::merged(&shards),
        path,
        levels: recorded.levels,
        samples: recorded.samples,
        wire: recorded.wire,
        table: recorded.table,
        store_error: recorded.store_error,
        mix,
        capture,
        http2_frames,
        network,
        main_thread,
        folder,
        before,
        after,
        origin,
    };
    document::finish(recorded.counting, ended)
}
