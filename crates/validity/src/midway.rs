//! Checks of a run in progress: those that can be judged before its end, by the same functions.

use schema::document::{Check, CheckState, Document};

use super::{PHASE_MIN, failures, packets, timing};
use crate::evidence::Evidence;

/// The checks that can be judged from the data so far. In `document` only ended requests count as offered, so requests
/// in flight are not missing.
///
/// Omitted are checks that need both ends of the phase: Little's law, conservation, steady state, achieved as offered,
/// and agreement of the vantage points.
pub fn checks(document: &Document, evidence: &Evidence<'_>) -> Vec<Check> {
    let mut checks = Vec::new();
    // Before any request has ended, responses are not judged.
    if document.load.as_ref().is_some_and(|load| load.offered_requests > 0) {
        checks.extend([super::server_answers(document, evidence), timing::generator_on_time(document, evidence)]);
    }
    if document.path.as_ref().is_some_and(|path| path.timing_error_ns.count > 0) {
        checks.push(timing::path_on_time(document));
    }
    if evidence.loop_health.wall >= PHASE_MIN {
        checks.extend([timing::loop_not_stalled(document, evidence), super::client_cpu(evidence)]);
    }
    checks.extend([
        super::rtt_as_configured(document, evidence),
        super::rtt_tail_as_configured(document, evidence),
        super::no_unintended_drops(document, evidence),
        super::server_host_receives(document, evidence),
        super::client_descriptors_and_ports(document),
        super::connection_cap(evidence),
    ]);
    checks.extend(packets::midway(document, evidence));
    checks.extend([
        failures::responses_whole(document),
        failures::error_rate(document, evidence.plan),
        failures::responses_solicited(document),
        super::server_alive(evidence),
        super::records_stored(evidence),
        timing::machine_undisturbed(document, evidence),
    ]);
    checks.retain(|check| matches!(check.state, CheckState::Ok | CheckState::Failed));
    checks
}
