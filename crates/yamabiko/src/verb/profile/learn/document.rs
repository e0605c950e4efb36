//! The JSON document, and whether to believe what was learned.

use anyhow::Result;
use path::Profile;
use schema::document::{Check, CheckState, Run, SCHEMA, Validity, Weight};
use serde::Serialize;
use serde_json::{Value, json};
use testbed::host::{CorePlan, facts};
use watch::learn::{ArrivalRate, By, CaptureLocation, Loss};

use super::files::{Targets, is_kept, moment};
use super::{Found, REPEATED_MAX, clients, replay, rtts_ns};
use crate::verb::bench::command_line;

/// What is printed; `docs/concepts/learning-profiles.md` lists what is in `learned`.
#[derive(Serialize)]
pub struct Document {
    schema: &'static str,
    run: Run,
    validity: Validity,
    learned: Value,
}

/// Puts it together.
///
/// # Errors
/// The machine's facts cannot be read.
pub fn make(found: &Found, targets: &Targets, profile: &Profile) -> Result<Document> {
    let learned = &found.learned;
    let run = Run {
        command: command_line(),
        started_at: moment(learned.from.as_nanos()),
        duration_s: learned.to.since(learned.from).as_secs_f64(),
        interrupted: found.reading.interrupted,
        host: facts(&CorePlan::default(), 1)?,
        ..Run::default()
    };
    Ok(Document {
        schema: SCHEMA,
        run,
        validity: Validity::from_checks(checks(found)),
        learned: learned_part(found, targets, profile),
    })
}

fn learned_part(found: &Found, targets: &Targets, profile: &Profile) -> Value {
    let learned = &found.learned;
    let tallies = learned.tallies;
    let shares = &learned.shares;
    let mut part = json!({
        "source": found.name,
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
        "loss": { "up": loss(&learned.up, found), "down": loss(&learned.down, found) },
        "arrivals": {
            "bin_s": learned.arrivals.bin_s,
            "connections": pace(&learned.arrivals.connections),
            "requests": pace(&learned.arrivals.requests),
        },
        "notes": notes(found),
        "replay": {
            "command": replay(found, targets),
            "clients": clients(learned),
            "configured_rtt_ns": stats::quantiles_of_sorted(&rtts_ns(profile, learned)),
        },
    });
    if let Some(packets) = found.reading.packets {
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

/// What is absent is absent.
fn without_nulls(mut value: Value) -> Value {
    if let Some(object) = value.as_object_mut() {
        object.retain(|_, field| !field.is_null());
    }
    value
}

fn loss(loss: &Loss, found: &Found) -> Value {
    json!({
        "data_packets": loss.data_packets,
        "data_bytes": loss.data_bytes,
        "repeated_packets": loss.repeated_packets,
        "repeated_bytes": loss.repeated_bytes,
        "needless_packets": loss.needless_packets,
        "late_packets": loss.late_packets,
        "lost_packets": loss.lost_packets,
        "share": loss.share,
        "enough": is_kept(loss, found),
    })
}

fn pace(pace: &ArrivalRate) -> Value {
    without_nulls(json!({
        "count": pace.count,
        "rate_per_s": pace.rate_per_s,
        "peak_per_s": pace.peak_per_s,
        "dispersion": pace.dispersion,
    }))
}

/// The checks that bear on what was learned.
pub fn checks(found: &Found) -> Vec<Check> {
    let (learned, reading) = (&found.learned, &found.reading);
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
        ..check(
            "capture_whole",
            true,
            0.0,
            0.0,
            "",
            "The source was read to its end; from one that cannot be nothing is learned.",
        )
    };
    let told = tallies.by_handshake + tallies.by_data;
    let untold = tallies.untold as f64 / tallies.connections.max(1) as f64;
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
            "Beside an end, that end answers at once; where it does not, a part of the way is missing from the RTTs: \
             --at between takes both parts together.",
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
            "Packets that the capturing system lost: handshakes may be missing, and losses be counted that were none.",
        ),
        place,
        check(
            "syn_acks_once",
            !found.is_doubled(),
            found.repeated(),
            REPEATED_MAX,
            "share",
            "Many SYN-ACKs were seen more than once, as when every packet is captured twice (-i any, a mirror port of \
             both ways): losses cannot be told then, and are left out of the profile.",
        ),
        check(
            "connections_enough",
            told >= ENOUGH,
            told as f64,
            ENOUGH as f64,
            "connections",
            "With fewer distances than this even the middle of the distribution is mostly chance: capture for longer.",
        ),
        check(
            "distances_told",
            untold <= UNTOLD_MAX,
            untold,
            UNTOLD_MAX,
            "share",
            "Connections whose distance cannot be told (SYN-ACK sent twice, or open before the capture, and little \
             data) are likely to be other than the rest: far, or long.",
        ),
        check(
            "clients_many",
            learned.effective >= MANY,
            learned.effective,
            MANY,
            "clients",
            "Few clients make nearly all connections, as a proxy or load balancer in front of the server does: the \
             distances are then to it, not to the users. --except leaves an address out.",
        ),
    ]
}

/// What is to be known besides the checks.
pub fn notes(found: &Found) -> Vec<String> {
    let learned = &found.learned;
    let mut notes = Vec::new();
    if learned.effective < TAIL_KNOWN && learned.effective >= MANY {
        notes.push(format!(
            "the connections are worth {:.0} clients with equal shares: quantiles above {:.2} rest on fewer than ten of \
             them",
            learned.effective,
            1.0 - 10.0 / learned.effective
        ));
    }
    if learned.capture_point == watch::CapturePoint::AtClient {
        notes.push(
            "captured at the clients' end: these are the distances from there to the servers that were asked, not those \
             of a server's users"
                .to_owned(),
        );
    }
    let tallies = learned.tallies;
    if learned.by == By::Connection && tallies.requests >= tallies.connections * 3 / 2 {
        notes.push(format!(
            "connections carry {:.1} requests each: to replay them over connections that are kept open, --by request \
             gives every request its weight",
            tallies.requests as f64 / tallies.connections as f64
        ));
    }
    if learned.clients_sampled {
        notes.push("too many clients to hold them all: their shares and spread are of a sample of them".to_owned());
    }
    if let Some(heavy) = learned.shares.heavy.first().filter(|heavy| heavy.share >= HEAVY) {
        notes.push(format!(
            "{} made {} of the connections; --except {} leaves it out",
            heavy.address,
            report::figures::share(heavy.share),
            heavy.address
        ));
    }
    let pace = &learned.arrivals.requests;
    let pace = if pace.count > 0 { pace } else { &learned.arrivals.connections };
    if pace.dispersion.is_some_and(|dispersion| dispersion > BURSTY) {
        notes.push(
            "arrivals come in bursts, or their rate changes: the command below replays the mean rate only, and a rate \
             that changes over time cannot be replayed yet"
                .to_owned(),
        );
    }
    notes
}

/// Distances from which the middle of a distribution is known to within a tenth of rank.
const ENOUGH: u64 = 100;
const UNTOLD_MAX: f64 = 0.05;
/// With fewer clients there is no distribution of clients.
const MANY: f64 = 10.0;
/// From here on the 99th percentile rests on ten clients.
const TAIL_KNOWN: f64 = 1000.0;
const HEAVY: f64 = 0.1;
/// Above anything that independent users make within ten bins.
const BURSTY: f64 = 3.0;
