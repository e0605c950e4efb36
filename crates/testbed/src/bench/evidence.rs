//! Makes the evidence for the validity checks of a run of load that has ended.

use path::PathSpec;
use schema::Document;
use schema::document::Check;

use super::collect::Ended;
use super::document::{Counted, rtt_varies};
use crate::path_part::{Refused, mistaken_drops};
use crate::tapping::Tapped;
use crate::topology::{Steering, Topology};
use validity::evidence::{Evidence, UnintendedDrops, WireEvidence};

/// All checks but those of the tap. `series_error`: why the exact series could not be written.
pub(super) fn checks(
    document: &Document,
    ended: &Ended<'_>,
    counted: &Counted,
    series_error: Option<store::StoreError>,
) -> Vec<Check> {
    let (resolved, main_thread) = (ended.resolved, &ended.main_thread);
    let store_error = store_error(ended, series_error);
    let seconds = counted.load.seconds.iter().filter(|second| second.measured);
    let in_flight_by_second: Vec<f64> = seconds.map(|second| second.in_flight_mean).collect();
    let handshakes = counted.handshakes.as_ref();
    let kinds = path_kinds(ended);
    let evidence = Evidence {
        plan: &resolved.plan,
        loop_health: &ended.shard.health,
        delays: &counted.delays,
        little: &counted.load.little,
        levels: &counted.levels,
        in_flight_by_second: &in_flight_by_second,
        unintended_drops: lost_by_the_instrument(ended),
        cap_hits: ended.shard.live.cap_hits,
        wall_drift: ended.mix.as_ref().map(|mix| mix.wall_drift),
        table: ended.table,
        store_error: store_error.as_deref(),
        server_ended: main_thread.server_ended.as_deref(),
        gave_up: main_thread.gave_up,
        all_refused: main_thread.all_refused,
        target: &resolved.target,
        handshake_error: handshakes.map(|handshakes| handshakes.measured_error().quantiles()),
        rtt_varies: kinds.rtt_varies,
        beyond: kinds.beyond,
        only_delays: kinds.only_delays,
        wire: ended.wire().map(|(watched, figures)| WireEvidence {
            watched,
            figures,
            phase_ns: counted.phase().as_nanos() as f64,
        }),
    };
    validity::checks(document, &evidence)
}

/// What a path's links do, and where they end.
pub(super) struct PathKinds {
    pub rtt_varies: bool,
    pub beyond: bool,
    pub only_delays: bool,
}

/// What the links of the run's path do; without a path nothing.
pub(super) fn path_kinds(ended: &Ended<'_>) -> PathKinds {
    let spec = ended.resolved.spec.as_ref();
    PathKinds {
        rtt_varies: spec.is_some_and(rtt_varies),
        beyond: ended.network.topology.as_ref().is_some_and(Topology::beyond),
        only_delays: spec.is_some_and(PathSpec::only_delays),
    }
}

/// Why the run's files are incomplete, if they are.
fn store_error(ended: &Ended<'_>, series_error: Option<store::StoreError>) -> Option<String> {
    let left_out = ended.mix.as_ref().map_or(0, |mix| mix.left_out);
    // Unverified exchanges have their own check.
    let not_stored = left_out - ended.mix.as_ref().map_or(0, |mix| mix.figures.unverified);
    let not_stored =
        (not_stored > 0).then(|| format!("the disk was too slow to store {not_stored} exchanges of the workload"));
    ended.store_error.clone().or_else(|| series_error.map(|error| error.to_string())).or(not_stored)
}

/// Packets lost by the path or its devices that no link was configured to lose.
pub(super) fn lost_by_the_instrument(ended: &Ended<'_>) -> Option<UnintendedDrops> {
    let path = ended.path.as_ref()?;
    let steered = ended.network.topology.as_ref().is_some_and(|topology| topology.steering == Steering::ServerCores);
    mistaken_drops(ended.before.devices, ended.after.devices, Refused::by(path), steered)
}

/// Checks of the tap: alone, against the load, and against the capture.
pub(super) fn tap_checks(tapped: &Tapped, ended: &Ended<'_>) -> Vec<Check> {
    let live = ended.shard.live;
    let totals = validity::LoadTotals {
        called: live.connections_opened,
        completed: live.completed,
        failed: live.failed,
        retried: live.retried,
        sent_bytes: live.bytes_sent,
        received_bytes: live.bytes_received,
    };
    let mut checks = validity::tap_checks(&tapped.part, tapped.cut, tapped.error.as_deref());
    checks.extend(validity::tap_agrees_with_load(&tapped.part, &ended.resolved.plan, tapped.client, totals));
    if let Some((_, figures)) = ended.wire() {
        let (part, outside) = (&tapped.part, tapped.outside);
        checks.extend(validity::tap_agrees(part, outside, figures.made, figures.up_bytes, figures.down_bytes));
    }
    checks.extend(validity::tap_little(&tapped.part, tapped.levels.as_ref()));
    checks
}
