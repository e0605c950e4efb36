//! The packet capture of a run of load: opened with the sandboxes, started before the load, ended after its last
//! packet.

use std::sync::Arc;

use path::PathSpec;
use store::RunFolder;
use sys::clock::Clock;
use units::Timestamp;

use crate::agreement::Agreement;
use crate::capture_tables::CaptureTables;
use crate::drive::progress::Progress;
use crate::error::TestbedError;
use crate::host::CorePlan;
use crate::packets::KeptPackets;
use crate::recorder::WireSide;
use crate::topology::target::Reach;
use crate::watching::protocols::Protocols;
use crate::watching::queue::queue;
use crate::watching::{Taps, WatchSetup, Watching};
use plan::{HttpVersion, Plan};

/// What the capture needs from the run.
pub struct Setting<'a> {
    pub plan: &'a Plan,
    pub clock: Clock,
    pub progress: &'a Arc<Progress>,
    pub start: Timestamp,
    pub measured: (Timestamp, Option<Timestamp>),
    pub spec: Option<&'a PathSpec>,
    pub port: u16,
    pub cores: &'a CorePlan,
    pub folder: Option<&'a RunFolder>,
    pub reaches: &'a [Reach],
    pub protocols: Protocols,
}

/// Starts the capture thread on open rings. The recorder takes its records; headers of packets go to `kept`.
///
/// # Errors
/// No thread or descriptor is available.
pub fn start(
    taps: Taps,
    setting: Setting<'_>,
    kept: Option<KeptPackets>,
) -> Result<(Watching, WireSide), TestbedError> {
    let (measured_from, measured_to) = setting.measured;
    let (sender, records) = queue();
    let clients = setting.spec.map_or(&[][..], |spec| &spec.clients[..]);
    let setup = WatchSetup {
        clock: setting.clock,
        progress: Arc::clone(setting.progress),
        start: setting.start,
        measured_from,
        measured_to,
        clients,
        port: Some(setting.port),
        seed: setting.plan.seed,
        cores: setting.cores.watch_cores(),
        kept,
        protocols: setting.protocols,
    };
    let is_read = setup.protocols.unread.is_none();
    let watching = taps.watch(setup, sender).map_err(TestbedError::system("start the packet capture"))?;
    let rtts_ns: Vec<u64> = clients.iter().map(path::ClientPath::rtt_ns).collect();
    let comparable = if setting.spec.is_some_and(PathSpec::only_delays) { rtts_ns.clone() } else { Vec::new() };
    let mut agreement = Agreement::new(measured_from, comparable).with_servers(setting.reaches);
    if !is_read {
        agreement = agreement.connections_only();
    }
    let mut tables =
        CaptureTables::new(setting.folder, Arc::clone(setting.progress), measured_from, rtts_ns, Some(agreement));
    if setting.plan.load.http == HttpVersion::Http3 {
        tables = tables.with_quic(setting.folder);
    }
    Ok((watching, WireSide { tables, records }))
}
