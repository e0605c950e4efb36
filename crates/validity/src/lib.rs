//! Validity checks: whether the figures of a run can be believed, and if not, why not.
//!
//! ```text
//!   load generator's clock --.
//!   packet capture ----------+--> Evidence, Document --> checks --> [Check] --> Validity (schema): the verdict
//!   sockets of programs -----'
//! ```
//!
//! Each check compares a figure with a limit and has one sentence for the reader. Checks see only [`evidence`]; they
//! have no clock and no descriptor, and never change a figure. docs/concepts/validity.md explains each check. A new
//! check is one function, listed in [`checks`], with its test in `tests.rs`.

mod cache;
mod draft;
pub mod evidence;
mod failures;
mod little;
mod midway;
mod packets;
mod server_cpu;
mod shards;
mod sockets;
mod steady;
mod timing;

use std::time::Duration;

use load::GaugeStatistics;
use schema::document::{Check, CheckState, Document, Weight};

use self::draft::Draft;
use self::little::Sampled;
pub use self::midway::checks as midway;
pub use self::packets::capture_checks;
pub use self::shards::{ShardEvidence, ShardsEvidence, shard_checks};
pub use self::sockets::{LoadTotals, tap_agrees, tap_agrees_with_load, tap_checks, tap_kernel, tap_little};
pub use self::timing::generator_delay;
use self::timing::tail_of;
use crate::evidence::{Evidence, UnintendedDrops};
use plan::HttpVersion;
use plan::slo::TimeFigure;

/// A load generator that is busy for a larger share of the time limits the run.
const BUSY_SHARE: f64 = 0.95;
/// A shorter phase does not show how busy the load generator is.
const PHASE_MIN: Duration = Duration::from_millis(1);
/// Largest share of the offered requests that may still wait at the end of the phase.
const SHORTFALL_SHARE: f64 = 0.02;

/// All checks, in the order in which they are shown.
pub fn checks(document: &Document, evidence: &Evidence<'_>) -> Vec<Check> {
    let mut checks = vec![
        server_answers(document, evidence),
        timing::generator_on_time(document, evidence),
        timing::path_on_time(document),
        timing::loop_not_stalled(document, evidence),
        rtt_as_configured(document, evidence),
        rtt_tail_as_configured(document, evidence),
        no_unintended_drops(document, evidence),
        server_host_receives(document, evidence),
        client_cpu(evidence),
        client_descriptors_and_ports(document),
        connection_cap(evidence),
        open_connections_established(document),
        law(evidence, "littles_law_requests", "in flight", &evidence.levels.in_flight, evidence.little.in_flight),
        law(evidence, "littles_law_connections", "open", &evidence.levels.connections, evidence.little.connections),
        conservation(document),
        steady::check(document, evidence),
        achieved_as_offered(document, evidence),
        failures::responses_whole(document),
        failures::error_rate(document, evidence.plan),
        failures::responses_solicited(document),
        failures::early_responses(document),
        failures::retries(document),
        server_alive(evidence),
        records_stored(evidence),
        timing::machine_undisturbed(document, evidence),
    ];
    let after_little = checks.iter().position(|check| check.name == "conservation").unwrap_or(checks.len());
    checks.splice(after_little..after_little, packets::checks(document, evidence));
    checks.extend(server_cpu::checks(document));
    checks.extend(cache::checks(document, evidence));
    checks
}

/// Little's law with the load generator's gauges and records.
fn law(evidence: &Evidence<'_>, name: &str, what: &str, statistics: &GaugeStatistics, from_records: f64) -> Check {
    let sampled = Sampled { statistics, samples: evidence.levels.samples };
    little::check(Draft::new(name, Weight::Invalid, "ratio"), what, sampled, from_records)
}

fn server_answers(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("server_answers", Weight::Invalid, "requests");
    let Some(load) = &document.load else { return check.not_applicable("there is no load") };
    if let Some(refused) = evidence.all_refused {
        return check.failed(&format!(
            "nothing listens on {}: the first {refused} connections were all refused, so the run was stopped: check \
             that the service runs, and the port",
            evidence.target
        ));
    }
    if load.offered_requests == 0 {
        return check
            .failed("no request was offered in the measured phase: it was interrupted, or is shorter than 1/rate");
    }
    let answers = load.completed as f64;
    if load.completed > 0 {
        return check.end(CheckState::Ok, Some(answers), None, "complete responses");
    }
    let causes: Vec<String> =
        load.failed.iter().map(|(cause, count)| format!("{} {count} times", cause.replace('_', " "))).collect();
    let causes = if causes.is_empty() { "none ended".to_owned() } else { causes.join(", ") };
    let unreachable = load.failed.keys().any(|cause| cause.starts_with("connect"));
    let fix = if unreachable { ": is it running, and is the URL right?" } else { "" };
    let tls = load.tls.as_ref().and_then(|tls| tls.first_failure.as_deref());
    let tls = tls.map(|why| format!("; TLS failed: {why}")).unwrap_or_default();
    check.end(
        CheckState::Failed,
        Some(answers),
        None,
        &format!(
            "no request got a complete response ({causes}), so the figures do not show how the server performs{fix}{tls}"
        ),
    )
}

fn rtt_as_configured(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("rtt_as_configured", Weight::Invalid, "ns");
    let Some(path) = &document.path else { return check.not_applicable("there is no path") };
    if evidence.rtt_varies {
        return check.not_applicable("on links with a rate or jitter, handshakes have no fixed time");
    }
    if evidence.beyond {
        return check.not_applicable(REMOTE_RTT_REASON);
    }
    if evidence.plan.load.http == HttpVersion::Http3 {
        return check.not_applicable(QUIC_RTT_REASON);
    }
    match &path.rtt_error_ns {
        None => check.could_not_run("no connection was established, so no handshake was measured"),
        Some(error) => {
            let check = check.material(
                document,
                TimeFigure::P50,
                error.p50 as f64,
                "median difference between each handshake and its client's configured RTT",
                "handshakes took longer than the configured RTT: the path or the server's host was too busy",
            );
            // One stall affects all of few handshakes; each request's time is compared with the RTT as well.
            let weight = if TimeFigure::P50.is_known(error.count) { check.weight } else { Weight::Suspect };
            Check { weight, ..check }
        }
    }
}

/// Reason of a tail check that does not apply.
const TAIL_TOO_FEW_REASON: &str =
    "fewer than 80 connections were established in the measured phase: too few to judge a tail";

const QUIC_RTT_REASON: &str = "a handshake of QUIC includes the server's time for TLS, so it is longer than the RTT";

const REMOTE_RTT_REASON: &str = "handshakes with another host include the time of the real network; the checks at the server's end of the path \
                      judge them without it";

fn rtt_tail_as_configured(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("rtt_tail_as_configured", Weight::Invalid, "ns");
    if document.path.is_none() {
        return check.not_applicable("there is no path");
    }
    if evidence.rtt_varies {
        return check.not_applicable("on links with a rate or jitter, handshakes have no fixed time");
    }
    if evidence.beyond {
        return check.not_applicable(REMOTE_RTT_REASON);
    }
    if evidence.plan.load.http == HttpVersion::Http3 {
        return check.not_applicable(QUIC_RTT_REASON);
    }
    let tail = evidence.handshake_error.and_then(|error| Some((error, tail_of(error.count)?)));
    match tail {
        None => check.not_applicable(TAIL_TOO_FEW_REASON),
        Some((error, figure)) => check.material(
            document,
            figure,
            figure.of(&error).unwrap_or(0.0),
            &format!("{} of the difference between each handshake and its client's configured RTT", figure.name()),
            "some handshakes were far from the configured RTT: packets waited before the path read them, because \
             another program used its core",
        ),
    }
}

fn no_unintended_drops(document: &Document, evidence: &Evidence<'_>) -> Check {
    if document.path.is_none() {
        return Draft::new("no_unintended_drops", Weight::Invalid, "packets").not_applicable("there is no path");
    }
    unintended_drops_check(evidence.unintended_drops.as_ref())
}

/// The check of files that could not be written completely.
pub fn files_whole(error: &str) -> Check {
    Draft::new("records_stored", Weight::Suspect, "records")
        .failed(&format!("the counts are exact, but the run's files are incomplete: {error}"))
}

/// The check `no_unintended_drops`, for any path, with or without a load.
pub fn unintended_drops_check(drops: Option<&UnintendedDrops>) -> Check {
    let check = Draft::new("no_unintended_drops", Weight::Invalid, "packets");
    match drops {
        None => check.could_not_run("the TUN devices' drop counters could not be read"),
        Some(drops) => check.at_most(
            drops.packets as f64,
            0.0,
            "packets lost in yamabiko itself",
            &format!(
                "yamabiko lost packets that no link was configured to lose ({}): lower the rate or the number of \
                 connections opened at the same time",
                drops.places
            ),
        ),
    }
}

/// Packets that the server's kernel did not receive in time are lost at the server, as on a network card with a full
/// ring; but the length of that queue is this machine's (net.core.netdev_max_backlog), not a real server's.
fn server_host_receives(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("server_host_receives", Weight::Suspect, "packets");
    if document.path.is_none() {
        return check.not_applicable("there is no path");
    }
    match &evidence.unintended_drops {
        None => check.not_applicable("the counters could not be read (see no_unintended_drops)"),
        Some(drops) => check.at_most(
            drops.not_received as f64,
            0.0,
            "packets that the server's core could not receive in time",
            "the server's core could not receive packets in time and its queue (net.core.netdev_max_backlog) overflowed: \
             the server is overloaded, and this loss is in its figures",
        ),
    }
}

fn client_cpu(evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("client_cpu", Weight::Invalid, "ratio");
    // If the phase was interrupted before it began, the loop measured only the interruption.
    if evidence.loop_health.wall < PHASE_MIN {
        return check.not_applicable("the measured phase was too short to tell");
    }
    check.at_most(
        evidence.loop_health.busy_share(),
        BUSY_SHARE,
        "share of the time in which generator and path were busy",
        "generator and path were busy all the time: the figures show the limit of yamabiko, not of the server",
    )
}

fn client_descriptors_and_ports(document: &Document) -> Check {
    let check = Draft::new("client_descriptors_and_ports", Weight::Invalid, "requests");
    let Some(load) = &document.load else { return check.not_applicable("there is no load") };
    let count = |cause: &str| load.failed.get(cause).copied().unwrap_or(0);
    let (ports, descriptors, other) = (count("no_ports"), count("no_descriptors"), count("local_error"));
    check.at_most(
        (ports + descriptors + other) as f64,
        0.0,
        "requests that failed by limits of this machine",
        &format!(
            "requests failed on this machine, not at the server: {ports} without a free port (use more --clients), \
             {descriptors} without a descriptor (raise the open-file limit, or lower -c), {other} by other local errors"
        ),
    )
}

/// Idle open connections must be open during the whole phase: otherwise the server had fewer connections than
/// configured.
fn open_connections_established(document: &Document) -> Check {
    let check = Draft::new("open_connections_established", Weight::Invalid, "connections");
    let open = document.load.as_ref().and_then(|load| Some((load, load.open_connections.as_ref()?)));
    let Some((load, open)) = open else { return check.not_applicable("no idle open connections are configured") };
    // The mean is of samples: half a connection is one that was missing for half of the time.
    let missing = (open.connections as f64 - load.connections.mean).max(open.failed as f64).max(0.0);
    check.at_most(
        missing,
        0.5,
        "idle open connections missing during the phase",
        "connections were refused, or closed while idle: raise the server's limits of connections and open files, and its \
         idle timeout",
    )
}

fn connection_cap(evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("connection_cap", Weight::Suspect, "arrivals");
    if !evidence.plan.load.is_open() {
        return check.not_applicable("in a closed loop the number of connections is the load");
    }
    check.at_most(
        evidence.cap_hits as f64,
        0.0,
        "arrivals that waited because every connection was busy",
        match evidence.plan.load.connections {
            Some(_) => {
                "arrivals waited because the limit of open connections (-c) was reached; the response times include the wait: \
                 raise -c unless the limit is intended"
            }
            None => {
                "arrivals waited because as many connections were open as this machine's limits on open files and ports \
                 allow; the response times include the wait: lower the rate, or raise the limits (ulimit -n)"
            }
        },
    )
}

fn conservation(document: &Document) -> Check {
    let check = Draft::new("conservation", Weight::Invalid, "requests");
    let Some(load) = &document.load else { return check.not_applicable("there is no load") };
    let failed: u64 = load.failed.values().sum();
    let accounted = load.completed + failed + load.in_flight_at_end;
    let mut missing = load.offered_requests.abs_diff(accounted);
    if !load.by_phase.is_empty() {
        // Each request is scheduled in one phase, so the phases add up to the total.
        let in_phases: u64 = load.by_phase.iter().map(|phase| phase.offered_requests).sum();
        missing = missing.max(load.offered_requests.abs_diff(in_phases + load.in_flight_at_end));
    }
    check.at_most(
        missing as f64,
        0.0,
        "offered less completed, failed and in flight at the end",
        "requests are not accounted for: records were lost, or the run was killed",
    )
}

/// Offered requests must also have been achieved: the rest was still waiting when the phase ended. The number in flight
/// differs between start and end of the phase by chance, too: three standard deviations of it (Poisson) are allowed.
fn achieved_as_offered(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("achieved_as_offered", Weight::Suspect, "ratio");
    let Some(load) = &document.load else { return check.not_applicable("there is no load") };
    if !evidence.plan.load.is_open() {
        return check.not_applicable("a closed loop offers what it achieves");
    }
    if load.offered_requests == 0 {
        return check.not_applicable("nothing was offered");
    }
    let failed: u64 = load.failed.values().sum();
    let carried = load.achieved_rate_per_s * document.run.duration_s;
    let offered = load.offered_requests as f64;
    let chance = 3.0 * (2.0 * load.in_flight.mean.max(1.0)).sqrt();
    check.at_most(
        (offered - carried - failed as f64) / offered,
        SHORTFALL_SHARE + chance / offered,
        "share of the offered requests that was neither completed nor failed when the phase ended",
        "the achieved rate was below the offered rate, so requests queued: response times grow with the length of the run \
         and do not describe the server; lower the rate",
    )
}

fn server_alive(evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("server_alive", Weight::Invalid, "");
    match (evidence.plan.server.is_some(), evidence.server_ended) {
        (false, _) => check.not_applicable("the testbed did not start the server"),
        (true, None) => check.ok("the server command ran until the end"),
        (true, Some(how)) => check.failed(&format!("the server command ended during the run: {how}")),
    }
}

fn records_stored(evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("records_stored", Weight::Suspect, "requests");
    match evidence.store_error {
        Some(error) => files_whole(error),
        None => {
            let one_in = evidence.table.map_or(1, |table| table.one_in);
            check.at_most(
                one_in as f64,
                1.0,
                "requests for each row of requests.parquet",
                &format!(
                    "the disk was too slow to store every request: requests.parquet is an even sample of one \
                     request in {one_in}; all figures here are of all requests, but figures computed from the table are of \
                     the sample"
                ),
            )
        }
    }
}

#[cfg(test)]
mod tests;
