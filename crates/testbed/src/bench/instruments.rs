//! Sixth stage: the instruments other than the load generator. These are the packet capture, the tap of the load's own
//! sockets, and the recorder, which counts and stores all records and writes a progress snapshot once a second.

use std::sync::Arc;

use load::{GaugeMerger, Tally, TallySpec};
use plan::HttpVersion;
use polymix::Verifier;
use sys::netlink::SockDiag;
use tap::self_tap::SelfTap;

use super::loops::Loops;
use super::main_thread::ReadingsPublisher;
use super::network::{MachineCounters, Network};
use super::{capture, document, spec};
use crate::distances;
use crate::drive::path_live::PathLive;
use crate::error::TestbedError;
use crate::handshakes::Handshakes;
use crate::packets::KeptPackets;
use crate::recorder::{Counting, Judging, Outlet, Recorder, Recording, WireSide};
use crate::recording_folder::RecordingFolder;
use crate::server_samples::{ServerSampler, ServerSamples, WaitReader};
use crate::snapshot::{MainThreadReadings, PathFacts, SnapshotBuilder};
use crate::tapping::{Prepared, Sampling, Started, TapPlan, Tapped, Tapping};
use crate::topology::{Steering, Topology};
use crate::watching::Watching;
use crate::watching::protocols::Protocols;
use crate::watching::secrets::SecretSender;
use validity::evidence::Watched;

/// The running instruments.
pub(super) struct Instruments {
    path_live: Option<Arc<PathLive>>,
    capture: Option<Watching>,
    /// Destination of the load's TLS secrets, if the capture uses them.
    secrets: Option<SecretSender>,
    sampler: Option<ServerSampler>,
    tap: Option<Tapping>,
    recorder: Recorder,
    /// Destination of each loop's records, until the loops take them.
    outlets: Vec<Outlet>,
    readings: Arc<MainThreadReadings>,
    is_stored: bool,
}

/// Results of packet capture and tap.
pub(super) struct Capture {
    /// The packet capture.
    pub packets: Option<Watched>,
    /// Headers of its packets, if they are kept.
    pub kept: Option<KeptPackets>,
    /// Samples of the server's sockets and CPU waits, if packets are kept.
    pub samples: Option<ServerSamples>,
    /// The tap of the load's own sockets.
    pub sockets: Option<Tapped>,
}

impl Instruments {
    /// Starts the instruments. `own`: this process was started under its own tap.
    ///
    /// # Errors
    /// No thread or descriptor is available, or the tap's rings cannot be created.
    pub fn start(
        loops: &Loops<'_>,
        network: &mut Network,
        folder: &mut RecordingFolder,
        own: Option<SelfTap>,
    ) -> Result<Self, TestbedError> {
        let path_live = network.path_io.as_mut().map(|path_io| {
            path_io.set_start(loops.schedule.measured_from());
            let live = Arc::new(PathLive::default());
            if folder.is_stored() {
                path_io.publish_live(Arc::clone(&live));
            }
            live
        });
        let (sampler, kept) = start_keeping(loops, network, folder)?;
        let plan = &loops.resolved.plan;
        let shard_plan = loops.resources.shard_plan;
        let (protocols, secrets) =
            Protocols::of(plan, loops.resolved.spec.as_ref(), shard_plan.threads() == shard_plan.of);
        let secrets = secrets.filter(|_| network.taps.is_some());
        let (capture, wire) = start_capture(loops, network, folder, kept, protocols)?.unzip();
        let tap = own.map(|own| start_tap(loops, own, folder)).transpose()?.flatten();
        let readings = Arc::new(MainThreadReadings::default());
        let builder = snapshot_builder(loops, network, folder, path_live.as_ref(), wire.is_some(), &readings);
        let (schedule, shards) = (loops.schedule, loops.resources.shard_plan.of as usize);
        let judging = spec::world(loops.load_spec);
        let levels = GaugeMerger::new(plan.seed, schedule.start, schedule.measured_from(), shards);
        let (outlets, recorder) = Recorder::start(Recording {
            shards,
            counting: counting(loops),
            levels: if loops.resolved.shard.is_some() { levels.keeping() } else { levels },
            judging: judging.map(|world| Judging::new(Verifier::new(Arc::clone(world), schedule.measured))),
            measured_end: schedule.measured.1,
            progress: Arc::clone(&loops.progress),
            folder: folder.take_folder(),
            wire,
            cores: loops.resources.cores.client.clone(),
            snapshot: builder.map(SnapshotBuilder::for_recorder),
        })
        .map_err(TestbedError::system("start the recorder"))?;
        Ok(Instruments {
            path_live,
            capture,
            secrets,
            sampler,
            tap,
            recorder,
            outlets,
            readings,
            is_stored: folder.is_stored(),
        })
    }

    /// Takes the destinations of the loops' records, one a loop.
    pub fn outlets(&mut self) -> Vec<Outlet> {
        std::mem::take(&mut self.outlets)
    }

    /// Destination of the load's TLS secrets, if the packet capture uses them.
    pub fn secrets(&self) -> Option<SecretSender> {
        self.secrets.clone()
    }

    /// The main thread's part of progress snapshots, if the run is stored.
    pub fn publisher<'a>(&'a self, before: &'a MachineCounters, network: &Network) -> Option<ReadingsPublisher<'a>> {
        if !self.is_stored {
            return None;
        }
        let mut publisher = ReadingsPublisher::new(&self.recorder, &self.readings, before);
        publisher.path = self.path_live.as_deref();
        publisher.steered =
            network.topology.as_ref().is_some_and(|topology| topology.steering == Steering::ServerCores);
        Some(publisher)
    }

    /// Ends capture and tap. The capture ends first, which closes its queue to the recorder.
    pub fn end(self) -> (Capture, Recorder) {
        let (packets, kept) = self.capture.map(Watching::end).unzip();
        let samples = self.sampler.map(ServerSampler::end);
        let sockets = self.tap.map(Tapping::end);
        (Capture { packets, kept: kept.flatten(), samples, sockets }, self.recorder)
    }
}

/// Where the packets' headers are kept, if the plan keeps them and the run is stored, and the samples of the testbed's
/// own server meanwhile. Without sock_diag there are no samples.
fn start_keeping(
    loops: &Loops<'_>,
    network: &Network,
    folder: &RecordingFolder,
) -> Result<(Option<ServerSampler>, Option<KeptPackets>), TestbedError> {
    if !loops.resolved.plan.watch.keep || !folder.is_stored() || network.taps.is_none() {
        return Ok((None, None));
    }
    let is_quic = loops.resolved.plan.load.http == HttpVersion::Http3;
    let without_samples = || if is_quic { KeptPackets::of_quic() } else { KeptPackets::default() };
    let server = network.topology.as_ref().filter(|topology| topology.server.is_some());
    let diag = server.and_then(|topology| topology.server_net.run(SockDiag::open).ok()?.ok());
    let Some((topology, diag)) = server.zip(diag) else { return Ok((None, Some(without_samples()))) };
    let waits = WaitReader::new(topology.cgroup.as_ref(), topology.server.as_ref());
    let cores = loops.resources.cores.watch_cores();
    let (sampler, feed) = ServerSampler::start(loops.schedule.clock, diag, waits, cores)
        .map_err(TestbedError::system("start sampling the server"))?;
    // The kernel knows nothing of QUIC's state: only the server's CPU waits are sampled.
    let kept = if is_quic { without_samples() } else { KeptPackets::feeding(Some(feed)) };
    Ok((Some(sampler), Some(kept)))
}

fn start_capture(
    loops: &Loops<'_>,
    network: &mut Network,
    folder: &RecordingFolder,
    kept: Option<KeptPackets>,
    protocols: Protocols,
) -> Result<Option<(Watching, WireSide)>, TestbedError> {
    let Some(taps) = network.taps.take() else { return Ok(None) };
    let setting = capture::Setting {
        plan: &loops.resolved.plan,
        clock: loops.schedule.clock,
        progress: &loops.progress,
        start: loops.schedule.start,
        measured: loops.schedule.measured,
        spec: loops.resolved.spec.as_ref(),
        port: loops.resolved.destination.port,
        cores: &loops.resources.cores,
        folder: folder.folder(),
        reaches: network.topology.as_ref().map_or(&[][..], |topology| &topology.reaches),
        protocols,
    };
    capture::start(taps, setting, kept).map(Some)
}

fn start_tap(loops: &Loops<'_>, own: SelfTap, folder: &RecordingFolder) -> Result<Option<Tapping>, TestbedError> {
    let plan = &loops.resolved.plan;
    if !plan.watch.tap {
        return Ok(None);
    }
    let sampling = Sampling {
        seed: plan.seed,
        start: loops.schedule.start,
        measured_from: loops.schedule.measured_from(),
        progress: Arc::clone(&loops.progress),
    };
    let started = Started::own_load(loops.resources.cores.watch_cores())?;
    let prepared = Prepared::own(own, loops.schedule.clock)?;
    prepared.start_with(TapPlan::default(), started, folder.folder(), Some(sampling)).map(Some)
}

/// A function that creates empty counts.
fn counting(loops: &Loops<'_>) -> Arc<dyn Fn() -> Counting + Send + Sync> {
    let plan = &loops.resolved.plan;
    let measured_from = loops.schedule.measured_from();
    let rtts_ns = loops.resolved.rtts_ns();
    let tally = TallySpec {
        open_loop: plan.load.is_open(),
        measured: loops.schedule.measured,
        clients_rtt_ns: rtts_ns.clone(),
        urls: loops.resolved.urls.clone(),
        phases: loops.resolved.phases.clone(),
    };
    Arc::new(move || {
        let handshakes = rtts_ns.clone().map(|rtts_ns| Handshakes::new(measured_from, rtts_ns));
        Counting::new(Tally::new(tally.clone()), handshakes)
    })
}

/// The builder of progress snapshots, if the run is stored.
fn snapshot_builder(
    loops: &Loops<'_>,
    network: &Network,
    folder: &RecordingFolder,
    live: Option<&Arc<PathLive>>,
    is_captured: bool,
    readings: &Arc<MainThreadReadings>,
) -> Option<SnapshotBuilder> {
    let resolved = loops.resolved;
    let path =
        live.zip(resolved.spec.as_ref()).zip(resolved.plan.path.as_ref()).map(|((live, spec), path)| PathFacts {
            profile: distances::name(path),
            configured_rtt_ns: stats::quantiles_of(&resolved.rtts_ns().unwrap_or_default()),
            live: Arc::clone(live),
            rtt_varies: document::rtt_varies(spec),
            beyond: network.topology.as_ref().is_some_and(Topology::beyond),
            only_delays: spec.only_delays(),
        });
    let device = network.topology.as_ref().filter(|_| is_captured).map(|topology| topology.server_device.clone());
    folder.progress().cloned().map(|writer| SnapshotBuilder {
        writer,
        clock: loops.schedule.clock,
        plan: resolved.plan.clone(),
        progress: Arc::clone(&loops.progress),
        path,
        device,
        readings: Arc::clone(readings),
    })
}
