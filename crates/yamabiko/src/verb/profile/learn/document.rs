//! The JSON document of a learned profile, its validity checks and notes.

use anyhow::Result;
use path::Profile;
use schema::document::{Check, CheckState, Run, SCHEMA, Validity, Weight};
use serde::Serialize;
use serde_json::{Value, json};
use testbed::host::{CorePlan, facts};
use watch::learn::{ArrivalRate, By, CaptureLocation, Loss};

use super::files::{Targets, is_in_profile, utc_time};
use super::{CaptureResult, REPEATED_MAX, clients, replay, rtts_ns};
use crate::verb::bench::command_line;

/// The printed document; `docs/concepts/learning-profiles.md` lists the fields of `learned`.
#[derive(Serialize)]
pub struct Document {
    schema: &'static str,
    run: Run,
    validity: Validity,
    learned: Value,
}

/// Makes the document.
///
/// # Errors
/// The machine's facts cannot be read.
pub fn make(capture_result: &CaptureResult, targets: &Targets, profile: &Profile) -> Result<Document> {
    let learned = &capture_result.learned;
    let run = Run {
        command: command_line(),
        started_at: utc_time(learned.from.as_nanos()),
        duration_s: learned.to.since(learned.from).as_secs_f64(),
        interrupted: capture_result.reading.interrupted,
        host: facts(&CorePlan::default(), 1)?,
        ..Run::default()
    };
    Ok(Document {
        schema: SCHEMA,
        run,
        validity: Validity::from_checks(checks(capture_result)),
        learned: learned_part(capture_result, targets, profile),
    })
}

fn learned_part(capture_result: &CaptureResult, targets: &Targets, profile: &Profile) -> Value {
    let learned = &capture_result.learned;
    let tallies = learned.tallies;
    let shares = &learned.shares;
    let mut part = json!({
        "source": capture_result.name,
        "capture_point": learned.capture_point.name(),
        "profile": targets.profile,
        "arrivals_file": targets.arrivals,
        "by": learned.by.name(),
        "connections": tallies.connections,
        "half_open": tallies.half_open,
        "by_handshake": tallies.by_handshake,
        "by_data": tallies.by_data,
        "untold": tallies.untold,
        "handshakes_repeated": tallies.handshakes_repeated,
        "requests": tallies.requests,
        "clients": learned.clients,
        "clients_sampled": learned.clients_sampled,
        "effective_clients": learned.effective,
        "rtt_ns": learned.rtt_ns,
        "quantiles": learned.estimates.iter().map(|estimate| without_nulls(json!({
            "quantile": estimate.quantile,
            "rtt_ns": estimate.rtt_ns,
            "low_ns": estimate.low_ns,
            "high_ns": estimate.high_ns,
        }))).collect::<Vec<_>>(),
        "curve_points": learned.points.len(),
        "shares": {
            "connections_mean": shares.connections_mean,
            "connections_p50": shares.connections_p50,
            "busiest_hundredth": shares.busiest_hundredth,
            "busiest_tenth": shares.busiest_tenth,
            "heavy": shares.heavy.iter().map(|heavy| json!({
                "address": heavy.address,
                "connections": heavy.connections,
                "share": heavy.share,
            })).collect::<Vec<_>>(),
        },
        "loss": { "up": loss(&learned.up, capture_result), "down": loss(&learned.down, capture_result) },
        "arrivals": {
            "bin_s": learned.arrivals.bin_s,
            "connections": arrival_rate(&learned.arrivals.connections),
            "requests": arrival_rate(&learned.arrivals.requests),
        },
        "notes": notes(capture_result),
        "replay": {
            "command": replay(capture_result, targets),
            "clients": clients(learned),
            "configured_rtt_ns": stats::quantiles_of_sorted(&rtts_ns(profile, learned)),
        },
    });
    if let Some(packets) = capture_result.reading.packets {
        part["packets"] = json!(packets);
    }
    if let Some(spread) = learned.spread {
        part["spread"] = json!({
            "clients": spread.clients,
            "deviation_ns": spread.deviation_ns,
            "jitter_ns": spread.jitter_ns,
        });
    }
    part
}

/// Removes the null fields of an object.
fn without_nulls(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.retain(|_, field| !field.is_null());
    }
    value
}

fn loss(loss: &Loss, capture_result: &CaptureResult) -> Value {
    json!({
        "data_packets": loss.data_packets,
        "data_bytes": loss.data_bytes,
        "repeated_packets": loss.repeated_packets,
        "repeated_bytes": loss.repeated_bytes,
        "needless_packets": loss.needless_packets,
        "late_packets": loss.late_packets,
        "lost_packets": loss.lost_packets,
        "share": loss.share,
        "enough": is_in_profile(loss, capture_result),
    })
}

fn arrival_rate(rate: &ArrivalRate) -> Value {
    without_nulls(json!({
        "count": rate.count,
        "rate_per_s": rate.rate_per_s,
        "peak_per_s": rate.peak_per_s,
        "dispersion": rate.dispersion,
    }))
}

/// The validity checks of a learned profile.
pub fn checks(capture_result: &CaptureResult) -> Vec<Check> {
    let (learned, reading) = (&capture_result.learned, &capture_result.reading);
    let tallies = learned.tallies;
    let check = |name: &str, ok: bool, value: f64, limit: f64, unit: &str, why: &str| Check {
        name: name.into(),
        state: if ok { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(value),
        limit: Some(limit),
        unit: unit.into(),
        why: why.into(),
    };
    let whole = Check {
        value: None,
        limit: None,
        ..check("capture_whole", true, 0.0, 0.0, "", "The source was read to its end; otherwise no profile is learned.")
    };
    let with_rtt = tallies.by_handshake + tallies.by_data;
    let without_rtt = tallies.untold as f64 / tallies.connections.max(1) as f64;
    let (near_ns, far_ns) = match learned.place {
        CaptureLocation::AsConfigured => (None, None),
        CaptureLocation::Between { near_ns, far_ns } | CaptureLocation::OtherEnd { near_ns, far_ns } => {
            (Some(near_ns), Some(far_ns))
        }
    };
    let place = Check {
        value: near_ns.map(|near| near as f64),
        limit: far_ns.map(|far| far as f64 / 10.0),
        ..check(
            "capture_place",
            near_ns.is_none(),
            0.0,
            0.0,
            "ns",
            "Next to an end, that end answers immediately; otherwise a part of the path is missing from the RTTs: \
             --at between measures both parts together.",
        )
    };
    vec![
        whole,
        check(
            "capture_drops",
            reading.capture_drops == 0,
            reading.capture_drops as f64,
            0.0,
            "packets",
            "Packets that the capturing system lost: handshakes may be missing, and counted losses may be wrong.",
        ),
        place,
        check(
            "syn_acks_once",
            !capture_result.has_duplicate_packets(),
            capture_result.repeated_share(),
            REPEATED_MAX,
            "share",
            "Many SYN-ACKs were captured more than once, as when every packet is captured twice (-i any, a mirror \
             port of both directions): losses cannot be measured then, and are left out of the profile.",
        ),
        check(
            "connections_enough",
            with_rtt >= CONNECTIONS_MIN,
            with_rtt as f64,
            CONNECTIONS_MIN as f64,
            "connections",
            "With fewer RTTs than this even the median of the distribution is uncertain: capture for longer.",
        ),
        check(
            "distances_told",
            without_rtt <= WITHOUT_RTT_MAX,
            without_rtt,
            WITHOUT_RTT_MAX,
            "share",
            "Connections without a measurable RTT (SYN-ACK sent twice, or open before the capture, and little data) \
             probably differ from the rest: more distant, or longer.",
        ),
        check(
            "clients_many",
            learned.effective >= EFFECTIVE_CLIENTS_MIN,
            learned.effective,
            EFFECTIVE_CLIENTS_MIN,
            "clients",
            "Few clients make nearly all connections, as a proxy or load balancer in front of the server does: the \
             RTTs are then those to it, not those to the users. --except leaves an address out.",
        ),
    ]
}

/// Notes that qualify the learned profile, besides the checks.
pub fn notes(capture_result: &CaptureResult) -> Vec<String> {
    let learned = &capture_result.learned;
    let mut notes = Vec::new();
    if learned.effective < TAIL_CLIENTS_MIN && learned.effective >= EFFECTIVE_CLIENTS_MIN {
        notes.push(format!(
            "the connections are worth {:.0} clients with equal shares: quantiles above {:.2} rest on fewer than ten of \
             them",
            learned.effective,
            1.0 - 10.0 / learned.effective
        ));
    }
    if learned.capture_point == watch::CapturePoint::AtClient {
        notes.push(
            "captured at the clients' end: these are the distances from there to the requested servers, not those of a \
             server's users"
                .to_owned(),
        );
    }
    let tallies = learned.tallies;
    if learned.by == By::Connection && tallies.requests >= tallies.connections * 3 / 2 {
        notes.push(format!(
            "connections carry {:.1} requests each: to replay them over persistent connections, --by request weights \
             the RTTs by requests",
            tallies.requests as f64 / tallies.connections as f64
        ));
    }
    if learned.clients_sampled {
        notes.push("too many clients to store them all: their shares and spread are those of a sample".to_owned());
    }
    if let Some(heavy) = learned.shares.heavy.first().filter(|heavy| heavy.share >= HEAVY_SHARE_MIN) {
        notes.push(format!(
            "{} made {} of the connections; --except {} leaves it out",
            heavy.address,
            report::figures::share(heavy.share),
            heavy.address
        ));
    }
    let rate = &learned.arrivals.requests;
    let rate = if rate.count > 0 { rate } else { &learned.arrivals.connections };
    if rate.dispersion.is_some_and(|dispersion| dispersion > BURSTY_DISPERSION_MIN) {
        notes.push(
            "arrivals come in bursts, or their rate changes: the command below replays the mean rate only, and a rate \
             that changes over time cannot be replayed yet"
                .to_owned(),
        );
    }
    notes
}

/// Least number of RTTs: the median is then known to within a tenth of rank.
const CONNECTIONS_MIN: u64 = 100;
/// Largest share of connections without a measurable RTT.
const WITHOUT_RTT_MAX: f64 = 0.05;
/// Least number of effective clients (connections weighted by the clients' shares) for a distribution of clients.
const EFFECTIVE_CLIENTS_MIN: f64 = 10.0;
/// Effective clients from which the 99th percentile rests on ten clients.
const TAIL_CLIENTS_MIN: f64 = 1000.0;
/// Share of the connections from which a client is mentioned.
const HEAVY_SHARE_MIN: f64 = 0.1;
/// Index of dispersion that independent users do not reach within ten bins.
const BURSTY_DISPERSION_MIN: f64 = 3.0;
