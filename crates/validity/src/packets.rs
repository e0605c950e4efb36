//! Checks of the packet capture at the server's end, by itself and against the load generator.

use schema::document::{Check, Document, Weight};

use super::TOO_FEW;
use super::draft::Draft;
use super::little::{self, Sampled};
use super::timing::tail_of;
use crate::evidence::{Agreed, Evidence, WireEvidence};
use plan::slo::TimeFigure;
use plan::{HttpVersion, Plan, WatchAt};

/// A movement of the wall clock against the monotonic one beyond this means that someone set it: NTP slews both alike.
const CLOCK_NS: f64 = 100e3;
/// A packet may wait so long for its analysis: at full load the ring holds some 200 ms, at less much more.
const LAG_NS: f64 = 1e9;
/// Fewer handshakes have no median to judge by: a closed loop opens its few at once. Each request's time is held against
/// the distance all the same.
const MEDIAN_MIN: u64 = 20;

/// The evidence, or why nobody may miss it.
type Wire<'a> = Result<&'a WireEvidence<'a>, &'static str>;

/// All checks of the packet capture, in the order in which a person should read them.
pub fn checks(document: &Document, evidence: &Evidence<'_>) -> Vec<Check> {
    let wire = evidence.wire.as_ref().ok_or_else(|| not_asked(evidence.plan));
    vec![
        capture_whole(wire),
        kept_up(wire),
        clock_stood(wire),
        requests_agree(wire, evidence),
        sends_agree(wire, evidence),
        connections_agree(wire),
        service_times_agree(document, wire, evidence),
        service_time_tail_agrees(document, wire, evidence),
        rtt_at_server(document, wire, evidence),
        rtt_tail_at_server(document, wire, evidence),
        little_of_requests(wire, unread(evidence.plan)),
        little_of_connections(wire),
        path_from_outside(document, evidence),
    ]
}

/// Those checks that can be judged while the capture goes on.
pub fn midway(document: &Document, evidence: &Evidence<'_>) -> Vec<Check> {
    let wire = evidence.wire.as_ref().ok_or("nothing is watched");
    vec![capture_whole(wire), rtt_at_server(document, wire, evidence), rtt_tail_at_server(document, wire, evidence)]
}

/// The checks that hold for any capture, with a load or without.
pub fn capture_checks(wire: Option<&WireEvidence<'_>>) -> Vec<Check> {
    let wire = wire.ok_or("no witness was asked for (--watch none)");
    vec![
        capture_whole(wire),
        kept_up(wire),
        clock_stood(wire),
        little_of_requests(wire, None),
        little_of_connections(wire),
    ]
}

fn not_asked(plan: &Plan) -> &'static str {
    match (&plan.path, plan.watch_at()) {
        (None, _) => "there is no path, whose ends could be watched",
        (_, WatchAt::None) => "no second witness was asked for (--watch none)",
        (_, WatchAt::Server | WatchAt::Both) => "the wire was not watched",
    }
}

fn capture_whole(wire: Wire<'_>) -> Check {
    let check = Draft::new("wire_capture_drops", Weight::Suspect, "packets");
    let evidence = match wire {
        Ok(evidence) => evidence,
        Err(why) => return check.not_applicable(why),
    };
    if let Some(failure) = &evidence.watched.failure {
        return check.could_not_run(&format!("the capture broke off: {failure}"));
    }
    let lost = evidence.watched.drops + evidence.watched.client_drops;
    let missing = evidence.figures.missing_bytes;
    if lost == 0 && missing > 0 {
        return check.failed(&format!(
            "{missing} bytes were acknowledged that the capture never saw: what the wire says is incomplete"
        ));
    }
    check.at_most(
        lost as f64,
        0.0,
        "packets that found no room in the capture's ring",
        "the capture lost packets, so what the wire says is incomplete: give it a larger ring ([watch] ring in a plan), \
         or offer less",
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
            "the analysis fell behind the packets, since server and generator left it no time: a little more, and packets \
             are lost",
        ),
    }
}

fn clock_stood(wire: Wire<'_>) -> Check {
    let check = Draft::new("wire_clock", Weight::Suspect, "ns");
    match wire {
        Err(why) => check.not_applicable(why),
        Ok(evidence) => check.at_most(
            evidence.watched.clock_deviation_ns as f64,
            CLOCK_NS,
            "how far the wall clock, which stamps packets, moved against the run's clock",
            "someone set the time of day during the run, so the wire's moments are not the load's",
        ),
    }
}

fn requests_agree(wire: Wire<'_>, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("vantage_points_agree_requests", Weight::Invalid, "requests");
    let agreed = match compared(wire).and_then(|both| readable(evidence).map(|()| both)) {
        Ok((_, agreed)) => agreed,
        Err(reason) => return reason.end(check),
    };
    let Agreed { both, load_only, wire_only, failed_at_load, load_failed, status_differs, .. } = agreed;
    check.at_most(
        (agreed.unaccounted() + status_differs) as f64,
        0.0,
        &format!(
            "requests that one witness saw whole and the other cannot account for, of {both} that both saw, warm-up and \
             drain included{}",
            if *load_failed == 0 { String::new() } else { format!("; of {load_failed} failures {failed_at_load} had an answer") }
        ),
        &format!(
            "load and wire disagree: {load_only} requests are whole for the load alone, {wire_only} for the wire alone \
             ({load_failed} failed for the load), {status_differs} have another status; {both} are whole for both. One of \
             the witnesses is wrong, or the server sent answers that nobody asked for"
        ),
    )
}

/// The load's count of what it sent, retries included, beside what reached the server: a request that is sent again without
/// being counted would hide that the server dropped it.
fn sends_agree(wire: Wire<'_>, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("vantage_points_agree_sends", Weight::Invalid, "requests");
    let agreed = match compared(wire).and_then(|both| readable(evidence).map(|()| both)) {
        Ok((_, agreed)) => agreed,
        Err(reason) => return reason.end(check),
    };
    let Agreed { load_sent, load_sent_in_vain, wire_requests, .. } = agreed;
    check.at_most(
        agreed.sends_unaccounted() as f64,
        0.0,
        &format!("requests sent, retries included, that are not on the wire, or the reverse, of {load_sent} sent"),
        &format!(
            "load and wire disagree: the load sent {load_sent} requests, {load_sent_in_vain} of them in vain, and \
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
                "connections that one witness counts and the other cannot account for, of {} on the wire, warm-up included",
                agreed.wire_opened
            ),
            &format!(
                "load and wire disagree: the load called connect {} times and was connected {} times, the wire saw {} SYNs \
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
            check.could_not_run("not one request of the measured phase was seen whole by both witnesses")
        }
        Ok(agreed) => check.material(
            document,
            TimeFigure::P50,
            agreed.differences.median_ns().abs(),
            "median of the load's service time less the wire's less that client's RTT",
            "what the load calls service time is not what passed the server's end and the distance: one of the clocks, or \
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
                return check.not_applicable("fewer than 80 requests in the measured phase: their tail is not known");
            };
            check.material(
                document,
                figure,
                figure.of(&agreed.differences.magnitudes()).unwrap_or(0.0),
                &format!("{} of the same, in magnitude", figure.name()),
                "for some requests the load's time is far from the wire's and the distance: packets waited before \
                 the path read them, or the load read its answers late, since something else had its core",
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
            "median difference between each handshake at the server's end (ACK - SYN-ACK) and its client's asked RTT",
            "handshakes as the server's end saw them took longer than the distances asked",
        ),
    }
}

fn rtt_tail_at_server(document: &Document, wire: Wire<'_>, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("rtt_tail_at_server_as_configured", Weight::Invalid, "ns");
    match at_server(wire, evidence) {
        Err(reason) => reason.end(check),
        Ok(wire) => {
            let Some(figure) = tail_of(wire.figures.handshake_error.len()) else {
                return check.not_applicable(TOO_FEW);
            };
            check.material(
                document,
                figure,
                figure.of(&wire.figures.handshake_error.quantiles()).unwrap_or(0.0),
                &format!("{} of the same", figure.name()),
                "some handshakes were far from the distance configured, as the server's end saw them",
            )
        }
    }
}

fn little_of_requests(wire: Wire<'_>, unread: Option<&str>) -> Check {
    let check = Draft::new("littles_law_wire_requests", Weight::Invalid, "ratio");
    if let (Some(why), true) = (unread, wire.is_ok()) {
        return check.not_applicable(why);
    }
    let evidence = match whole(wire) {
        Ok(evidence) => evidence,
        Err(reason) => return reason.end(check),
    };
    let figures = evidence.figures;
    if figures.ended_by_direction > 0 {
        return check.not_applicable(&format!(
            "the ends of {} requests (of {} in the phase) were found only when the other side spoke again, because their \
             heads or chunks lie beyond the snaplen (--watch-snaplen): they stay in flight until then",
            figures.ended_by_direction, figures.requests
        ));
    }
    if figures.unended > 0 {
        return check.not_applicable(&format!(
            "{} requests, warm-up included (of {} in the phase), were not answered whole: how long they were in flight is \
             not known to the wire",
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
            little::check(check, "in process at the server's end", sampled, from_records)
        }
    }
}

fn path_from_outside(document: &Document, evidence: &Evidence<'_>) -> Check {
    let check = Draft::new("path_on_time_in_capture", Weight::Invalid, "ns");
    let outside = document.path.as_ref().and_then(|path| path.packet_capture.as_ref());
    match outside {
        None => check.not_applicable("both ends of the path were not watched (--watch both)"),
        Some(_) if !evidence.only_delays => {
            check.not_applicable("on links that lose, limit or vary packets take what they take")
        }
        Some(outside) => {
            let Some(figure) = tail_of(outside.matched) else {
                return check.not_applicable("fewer than 80 packets: their tail is not known");
            };
            check.material(
                document,
                figure,
                figure.of(&outside.timing_error_ns).unwrap_or(0.0),
                &format!("{} of each packet's time from device to device less the delay configured", figure.name()),
                "packets took longer from device to device than the delay configured: they waited before the path read them",
            )
        }
    }
}

/// Why a check does not give a figure.
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

/// The evidence, if nothing is missing from it.
fn whole(wire: Wire<'_>) -> Result<&WireEvidence<'_>, Reason> {
    let evidence = wire.map_err(|why| Reason::DoesNotApply(why.into()))?;
    let watched = evidence.watched;
    if watched.drops > 0 || evidence.figures.missing_bytes > 0 || watched.failure.is_some() {
        return Err(Reason::CouldNotRun("the capture is not whole, as wire_capture_drops says".into()));
    }
    if watched.records_lost > 0 {
        return Err(Reason::CouldNotRun(format!(
            "{} of the wire's records were thrown away, since the recorder was too far behind to take them",
            watched.records_lost
        )));
    }
    // Moments on another clock are no evidence against the load, and requests are paired by moments.
    if watched.clock_deviation_ns as f64 > CLOCK_NS {
        return Err(Reason::CouldNotRun("the time of day was set during the run, as wire_clock says".into()));
    }
    if watched.whole.evicted > 0 {
        return Err(Reason::CouldNotRun(format!(
            "{} connections were let go for want of room while they were open",
            watched.whole.evicted
        )));
    }
    Ok(evidence)
}

/// The capture and what was compared with the load.
fn compared(wire: Wire<'_>) -> Result<(&WireEvidence<'_>, &Agreed), Reason> {
    let wire = whole(wire)?;
    let agreed = wire.figures.agreed.as_ref().ok_or_else(|| Reason::DoesNotApply("there is no load".into()))?;
    if agreed.overflowed {
        return Err(Reason::CouldNotRun(
            "one witness was so far behind the other that records were thrown away".into(),
        ));
    }
    Ok((wire, agreed))
}

/// Whether the wire can read what the load asks and gets.
fn readable(evidence: &Evidence<'_>) -> Result<(), Reason> {
    unread(evidence.plan).map_or(Ok(()), |why| Err(Reason::DoesNotApply(why.into())))
}

/// Why the wire has nothing to say of requests, where it has not.
fn unread(plan: &Plan) -> Option<&'static str> {
    match &plan.load {
        load if load.secure() => Some(SEALED),
        load if load.http == HttpVersion::Http2 => Some(FRAMED),
        _ => None,
    }
}

/// The watch pairs requests and responses of HTTP/1.
const FRAMED: &str = "requests and responses are streams of HTTP/2, which the wire's witness does not take apart: connections and round trips are compared all the same";
const SEALED: &str = "requests and responses are inside TLS, where the wire cannot read them: connections and round trips are compared all the same";

/// The same, where times can be held against distances.
fn timed<'a>(wire: Wire<'a>, evidence: &Evidence<'_>) -> Result<&'a Agreed, Reason> {
    let (_, agreed) = compared(wire)?;
    readable(evidence)?;
    if evidence.only_delays {
        Ok(agreed)
    } else {
        Err(Reason::DoesNotApply("on links that lose, limit or vary packets take what they take".into()))
    }
}

/// Handshakes at the server's end, where they can be held against distances. A lost SYN-ACK is sent again and then not
/// counted (Karn's rule), so links may lose.
fn at_server<'a>(wire: Wire<'a>, evidence: &Evidence<'_>) -> Result<&'a WireEvidence<'a>, Reason> {
    let wire = whole(wire)?;
    if evidence.rtt_varies {
        return Err(Reason::DoesNotApply("on links with a rate or a jitter handshakes take what they take".into()));
    }
    if wire.figures.handshake_error.len() < MEDIAN_MIN {
        return Err(Reason::DoesNotApply(
            "too few connections were established in the measured phase: opened at one moment, one pause moves them all".into(),
        ));
    }
    Ok(wire)
}
