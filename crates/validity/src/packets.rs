//! Checks of the packet capture at the server's end, alone and against the load generator.

use schema::document::{Check, Document, Weight};

use super::TAIL_TOO_FEW_REASON;
use super::draft::Draft;
use super::little::{self, Sampled};
use super::timing::tail_of;
use crate::evidence::{Agreed, Evidence, WireEvidence};
use plan::slo::TimeFigure;
use plan::{HttpVersion, Plan, WatchAt};

/// A larger change of the wall clock against the monotonic clock means that the time was set: NTP slews both alike.
const CLOCK_NS: f64 = 100e3;
/// Longest wait of a packet for its analysis: at full load the ring holds about 200 ms, at less much more.
const LAG_NS: f64 = 1e9;
/// Fewer handshakes have no reliable median: a closed loop opens its few connections together. Each request's time is
/// compared with the RTT all the same.
const MEDIAN_MIN: u64 = 20;

/// The evidence, or the reason why it is missing.
type Wire<'a> = Result<&'a WireEvidence<'a>, &'static str>;

/// All checks of the packet capture, in the order in which they are shown.
pub fn checks(document: &Document, evidence: &Evidence<'_>) -> Vec<Check> {
    let wire = evidence.wire.as_ref().ok_or_else(|| why_not_captured(evidence.plan));
    let capture = [capture_whole(wire), kept_up(wire), wall_clock_unchanged(wire)];
    let compared = [
        requests_agree(wire),
        sends_agree(wire),
        connections_agree(wire),
        service_times_agree(document, wire, evidence),
        service_time_tail_agrees(document, wire, evidence),
        rtt_at_server(document, wire, evidence),
        rtt_tail_at_server(document, wire, evidence),
        little_of_requests(wire, sampled_late(evidence.plan)),
        little_of_connections(wire),
        path_on_time_in_capture(document, evidence),
    ];
    capture.into_iter().chain(compared).collect()
}

/// The checks that can be judged during the capture.
pub fn midway(document: &Document, evidence: &Evidence<'_>) -> Vec<Check> {
    let wire = evidence.wire.as_ref().ok_or("there is no packet capture");
    vec![capture_whole(wire), rtt_at_server(document, wire, evidence), rtt_tail_at_server(document, wire, evidence)]
}

/// The checks of any capture, with or without a load.
pub fn capture_checks(wire: Option<&WireEvidence<'_>>) -> Vec<Check> {
    let wire = wire.ok_or("the packet capture is disabled (--watch none)");
    vec![
        capture_whole(wire),
        kept_up(wire),
        wall_clock_unchanged(wire),
        little_of_requests(wire, None),
        little_of_connections(wire),
    ]
}

fn why_not_captured(plan: &Plan) -> &'static str {
    match (&plan.path, plan.watch_at()) {
        (None, _) => "without a path there is no packet capture",
        (_, WatchAt::None) => "the packet capture is disabled (--watch none)",
        (_, WatchAt::Server | WatchAt::Both) => "a packet capture was configured, but has no results",
    }
}

fn capture_whole(wire: Wire<'_>) -> Check {
    let check = Draft::new("wire_capture_drops", Weight::Suspect, "packets");
    let evidence = match wire {
        Ok(evidence) => evidence,
        Err(why) => return check.not_applicable(why),
    };
    if let Some(failure) = &evidence.watched.failure {
        return check.could_not_run(&format!("the capture ended early: {failure}"));
    }
    let lost = evidence.watched.drops + evidence.watched.client_drops;
    let missing = evidence.figures.missing_bytes;
    if lost == 0 && missing > 0 {
        return check.failed(&format!("{missing} bytes were acknowledged but not captured: the capture is incomplete"));
    }
    check.at_most(
        lost as f64,
        0.0,
        "packets that did not fit into the capture buffer",
        "the capture lost packets and is incomplete: enlarge its buffer ([watch] ring in a plan), \
         or lower the rate",
    )
}

fn kept_up(wire: Wire<'_>) -> Check {
    let check = Draft::new("wire_kept_up", Weight::Suspect, "ns");
    match wire {
        Err(why) => check.not_applicable(why),
        Ok(evidence) => check.at_most(
            evidence.watched.lag.as_nanos() as f64,
            LAG_NS,
            "longest time from a packet to its analysis",
            "the analysis was behind the packets, because server and generator used its core: with more load packets would \
             be lost",
        ),
    }
}

fn wall_clock_unchanged(wire: Wire<'_>) -> Check {
    let check = Draft::new("wire_clock", Weight::Suspect, "ns");
    match wire {
        Err(why) => check.not_applicable(why),
        Ok(evidence) => check.at_most(
            evidence.watched.clock_deviation_ns as f64,
            CLOCK_NS,
            "movement of the wall clock, the clock of packets, against the run's clock",
            "the time of day was set during the run, so packet times are not comparable with the load's",
        ),
    }
}

fn requests_agree(wire: Wire<'_>) -> Check {
    let check = Draft::new("vantage_points_agree_requests", Weight::Invalid, "requests");
    let agreed = match read(wire) {
        Ok((_, agreed)) => agreed,
        Err(reason) => return reason.end(check),
    };
    let Agreed { both, load_only, wire_only, failed_at_load, load_failed, status_differs, .. } = agreed;
    check.at_most(
        (agreed.unaccounted() + status_differs) as f64,
        0.0,
        &format!(
            "requests that are complete at one vantage point and that the other cannot account for, of {both} at both, warm-up and \
             drain included{}",
            if *load_failed == 0 { String::new() } else { format!("; of {load_failed} failures {failed_at_load} had a response") }
        ),
        &format!(
            "load and capture disagree: {load_only} requests are complete only in the load's records, {wire_only} only in the capture \
             ({load_failed} failed for the load), {status_differs} have another status; {both} are whole for both. One of \
             the vantage points is wrong, or the server sent unsolicited responses"
        ),
    )
}

/// Compares the load's count of sent requests, retries included, with those that reached the server: an uncounted retry
/// would hide a request that the server dropped.
fn sends_agree(wire: Wire<'_>) -> Check {
    let check = Draft::new("vantage_points_agree_sends", Weight::Invalid, "requests");
    let agreed = match read(wire) {
        Ok((_, agreed)) => agreed,
        Err(reason) => return reason.end(check),
    };
    let Agreed { load_sent, load_sent_in_vain, wire_requests, .. } = agreed;
    check.at_most(
        agreed.sends_unaccounted() as f64,
        0.0,
        &format!("requests sent, retries included, and not captured, or the reverse, of {load_sent} sent"),
        &format!(
            "load and capture disagree: the load sent {load_sent} requests, {load_sent_in_vain} of them without a response, and \
             {wire_requests} reached the server's end"
        ),
    )
}

fn connections_agree(wire: Wire<'_>) -> Check {
    let check = Draft::new("vantage_points_agree_connections", Weight::Invalid, "connections");
    match compared(wire) {
        Err(reason) => reason.end(check),
        Ok((_, agreed)) => check.at_most(
            agreed.connections_unaccounted() as f64,
            0.0,
            &format!(
                "connections at one vantage point that the other cannot account for, of {} captured, warm-up included",
                agreed.wire_opened
            ),
            &format!(
                "load and capture disagree: the load called connect {} times and established {} connections, the capture has {} first packets \
                 of new connections",
                agreed.load_called, agreed.load_established, agreed.wire_opened
            ),
        ),
    }
}

fn service_times_agree(document: &Document, wire: Wire<'_>, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("vantage_points_agree_service_time", Weight::Invalid, "ns");
    match timed(wire, evidence) {
        Err(reason) => reason.end(check),
        Ok(agreed) if agreed.differences.count() == 0 => {
            check.could_not_run("no request of the measured phase is complete at both vantage points")
        }
        Ok(agreed) => check.material(
            document,
            TimeFigure::P50,
            agreed.differences.median_ns().abs(),
            "median of the load's service time less the captured one less that client's RTT",
            "the load's service time is not the captured one and the RTT: one of the clocks, or \
             the path, is wrong",
        ),
    }
}

fn service_time_tail_agrees(document: &Document, wire: Wire<'_>, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("vantage_points_agree_service_time_tail", Weight::Invalid, "ns");
    match timed(wire, evidence) {
        Err(reason) => reason.end(check),
        Ok(agreed) => {
            let Some(figure) = tail_of(agreed.differences.count()) else {
                return check.not_applicable("fewer than 80 requests in the measured phase: too few to judge a tail");
            };
            check.material(
                document,
                figure,
                figure.of(&agreed.differences.magnitudes()).unwrap_or(0.0),
                &format!("{} of the magnitude of the same difference", figure.name()),
                "for some requests the load's time is far from the captured one and the RTT: packets waited before \
                 the path read them, or the load read its responses late, because another program used its core",
            )
        }
    }
}

fn rtt_at_server(document: &Document, wire: Wire<'_>, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("rtt_at_server_as_configured", Weight::Invalid, "ns");
    match at_server(wire, evidence) {
        Err(reason) => reason.end(check),
        Ok(wire) => check.material(
            document,
            TimeFigure::P50,
            wire.figures.handshake_error.value_at(0.5) as f64,
            "median difference between each handshake at the server's end (ACK - SYN-ACK) and its client's configured RTT",
            "handshakes at the server's end took longer than the configured RTT",
        ),
    }
}

fn rtt_tail_at_server(document: &Document, wire: Wire<'_>, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("rtt_tail_at_server_as_configured", Weight::Invalid, "ns");
    match at_server(wire, evidence) {
        Err(reason) => reason.end(check),
        Ok(wire) => {
            let Some(figure) = tail_of(wire.figures.handshake_error.len()) else {
                return check.not_applicable(TAIL_TOO_FEW_REASON);
            };
            check.material(
                document,
                figure,
                figure.of(&wire.figures.handshake_error.quantiles()).unwrap_or(0.0),
                &format!("{} of the same difference", figure.name()),
                "some handshakes at the server's end were far from the configured RTT",
            )
        }
    }
}

fn little_of_requests(wire: Wire<'_>, sampled_late: Option<&str>) -> Check {
    let check = Draft::new("littles_law_wire_requests", Weight::Invalid, "ratio");
    if let (Some(why), true) = (sampled_late, wire.is_ok()) {
        return check.not_applicable(why);
    }
    let evidence = match whole(wire).and_then(decoded) {
        Ok(evidence) => evidence,
        Err(reason) => return reason.end(check),
    };
    let figures = evidence.figures;
    if figures.ended_by_direction > 0 {
        return check.not_applicable(&format!(
            "the ends of {} requests (of {} in the phase) were recognised only when the other side sent again, because their \
             heads or chunks exceed the snap length (--watch-snaplen): they count as in flight until then",
            figures.ended_by_direction, figures.requests
        ));
    }
    if figures.unended > 0 {
        return check.not_applicable(&format!(
            "{} requests, warm-up included (of {} in the phase), have no complete response: how long they were in flight is \
             unknown",
            figures.unended, figures.requests
        ));
    }
    let sampled = Sampled { statistics: &evidence.watched.levels.in_flight, samples: evidence.watched.levels.samples };
    little::check(check, "in flight at the server's end", sampled, figures.in_flight_ns as f64 / evidence.phase_ns)
}

fn little_of_connections(wire: Wire<'_>) -> Check {
    let check = Draft::new("littles_law_wire_connections", Weight::Invalid, "ratio");
    match whole(wire) {
        Err(reason) => reason.end(check),
        Ok(evidence) => {
            let levels = &evidence.watched.levels;
            let sampled = Sampled { statistics: &levels.connections, samples: levels.samples };
            let from_records = evidence.figures.connections_ns as f64 / evidence.phase_ns;
            little::check(check, "open at the server's end", sampled, from_records)
        }
    }
}

fn path_on_time_in_capture(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("path_on_time_in_capture", Weight::Invalid, "ns");
    let outside = document.path.as_ref().and_then(|path| path.packet_capture.as_ref());
    match outside {
        None => check.not_applicable("the capture is not at both ends of the path (--watch both)"),
        Some(_) if !evidence.only_delays => {
            check.not_applicable("on links with loss, a rate or jitter, packets have no fixed time")
        }
        Some(outside) => {
            let Some(figure) = tail_of(outside.matched) else {
                return check.not_applicable("fewer than 80 packets: too few to judge a tail");
            };
            check.material(
                document,
                figure,
                figure.of(&outside.timing_error_ns).unwrap_or(0.0),
                &format!("{} of each packet's time from device to device less the configured delay", figure.name()),
                "packets took longer from device to device than the configured delay: they waited before the path read them",
            )
        }
    }
}

/// Why a check has no figure.
enum Reason {
    DoesNotApply(String),
    CouldNotRun(String),
}

impl Reason {
    fn end(self, check: Draft) -> Check {
        match self {
            Reason::DoesNotApply(why) => check.not_applicable(&why),
            Reason::CouldNotRun(why) => check.could_not_run(&why),
        }
    }
}

/// The evidence, if it is complete.
fn whole(wire: Wire<'_>) -> Result<&WireEvidence<'_>, Reason> {
    let evidence = wire.map_err(|why| Reason::DoesNotApply(why.into()))?;
    let watched = evidence.watched;
    if watched.drops > 0 || evidence.figures.missing_bytes > 0 || watched.failure.is_some() {
        return Err(Reason::CouldNotRun("the capture is incomplete (see wire_capture_drops)".into()));
    }
    if watched.records_lost > 0 {
        return Err(Reason::CouldNotRun(format!(
            "{} records of the capture were dropped, because the recorder was too far behind",
            watched.records_lost
        )));
    }
    // Times of another clock are not comparable with the load's, and requests are paired by time.
    if watched.clock_deviation_ns as f64 > CLOCK_NS {
        return Err(Reason::CouldNotRun("the time of day was set during the run (see wire_clock)".into()));
    }
    if watched.whole.evicted > 0 {
        return Err(Reason::CouldNotRun(format!(
            "{} connections were dropped while open, because the table of connections was full",
            watched.whole.evicted
        )));
    }
    Ok(evidence)
}

/// The capture and its comparison with the load.
fn compared(wire: Wire<'_>) -> Result<(&WireEvidence<'_>, &Agreed), Reason> {
    let wire = whole(wire)?;
    let agreed = wire.figures.agreed.as_ref().ok_or_else(|| Reason::DoesNotApply("there is no load".into()))?;
    if agreed.overflowed {
        return Err(Reason::CouldNotRun(
            "one vantage point was so far behind the other that records were dropped".into(),
        ));
    }
    Ok((wire, agreed))
}

/// The evidence, if its requests could be read.
fn decoded<'a>(wire: &'a WireEvidence<'a>) -> Result<&'a WireEvidence<'a>, Reason> {
    let watched = wire.watched;
    if let Some(why) = watched.unread {
        return Err(Reason::DoesNotApply(format!("requests are not compared: {why}")));
    }
    if watched.undecrypted > 0 {
        let lost = match watched.secrets_lost {
            0 => String::new(),
            secrets => format!(" ({secrets} TLS secrets of the load did not reach the capture in time)"),
        };
        return Err(Reason::CouldNotRun(format!(
            "{} connections were not decrypted, or not to their end{lost}: their requests are unknown",
            watched.undecrypted
        )));
    }
    Ok(wire)
}

/// The capture's requests and their comparison.
fn read(wire: Wire<'_>) -> Result<(&WireEvidence<'_>, &Agreed), Reason> {
    let (wire, agreed) = compared(wire)?;
    decoded(wire).map(|wire| (wire, agreed))
}

/// Why the capture's gauge of requests in flight is not comparable with its records.
fn sampled_late(plan: &Plan) -> Option<&'static str> {
    let is_early = plan.load.http == HttpVersion::Http3 && plan.load.quic().early_data;
    is_early.then_some(
        "early data is decrypted when the client has finished its handshake (--early-data): requests in it are counted as in \
         flight from then on",
    )
}

/// The capture and its comparison, if times can be compared with the RTT.
fn timed<'a>(wire: Wire<'a>, evidence: &Evidence<'_>) -> Result<&'a Agreed, Reason> {
    let (_, agreed) = read(wire)?;
    if evidence.only_delays {
        Ok(agreed)
    } else {
        Err(Reason::DoesNotApply("on links with loss, a rate or jitter, packets have no fixed time".into()))
    }
}

/// Handshakes at the server's end, if they can be compared with the RTT. A retransmitted SYN-ACK is not counted (Karn's
/// rule), so links may lose packets.
fn at_server<'a>(wire: Wire<'a>, evidence: &Evidence<'_>) -> Result<&'a WireEvidence<'a>, Reason> {
    let wire = whole(wire)?;
    if evidence.rtt_varies {
        return Err(Reason::DoesNotApply("on links with a rate or jitter, handshakes have no fixed time".into()));
    }
    if wire.figures.handshake_error.len() < MEDIAN_MIN {
        return Err(Reason::DoesNotApply(
            "too few connections were established in the measured phase: a single stall would affect all of them"
                .into(),
        ));
    }
    Ok(wire)
}
