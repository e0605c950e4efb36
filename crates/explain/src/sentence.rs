//! One sentence about what limits a response, with figures and, where one is known, a remedy.

use units::figures::{bit_rate, duration};

use crate::explanation::{Dominant, Explanation};
use crate::summary::{Advice, Group, limits};
use crate::what_if::{Remedy, transfer, what_if};
use schema::share::{Cause, Confidence, Limit};

/// The sentence for a group, with the figures of `example`, one of its responses.
pub(crate) fn sentence(group: &Group, example: &Explanation) -> String {
    let Some(dominant) = group.dominant else { return String::from("The responses took no time.") };
    let place = group.distance_ns.map_or(String::from("Of"), |distance| format!("At {}, of", duration(distance)));
    let which = match group.percentile {
        5_000 => String::from("median"),
        percentile => format!("p{}", percentile / 100),
    };
    let median = format!("the {which} response of {}", duration(group.response_time_ns));
    if dominant.limit == Limit::Of(Cause::Unknown) {
        let percent = percent(dominant.time_ns, group);
        return format!("{place} {median}, {percent} % is unknown: the inputs do not decide what limits it.");
    }
    let text = format!("{place} {median}, {}.", clause(dominant, group, example));
    match after_distance(group, dominant) {
        Some(next) => format!("{text} Another {}.", clause(next, group, example)),
        None => text,
    }
}

/// The limit that takes longest after distance, if that dominates. Distance cannot be shortened: what else takes long is
/// worth a sentence.
fn after_distance(group: &Group, dominant: Dominant) -> Option<Dominant> {
    limits(&group.shares).into_iter().find(|limit| {
        dominant.limit == Limit::Of(Cause::Propagation)
            && ![dominant.limit, Limit::Of(Cause::Unknown)].contains(&limit.limit)
            && percent(limit.time_ns, group) >= NEXT_PERCENT_MIN
    })
}

/// The remedy that [`sentence`] names, if it gains something.
pub(crate) fn advice(group: &Group, example: &Explanation) -> Option<Advice> {
    let dominant = group.dominant?;
    let limit = after_distance(group, dominant).unwrap_or(dominant);
    let prediction = what_if(example, remedy_of(limit.limit, example)?)?;
    let measured_ns = example.response_time_ns();
    (prediction.gain_ns > 0).then_some(Advice { distance_ns: group.distance_ns, measured_ns, prediction })
}

/// Share of the response time from which the limit after distance is named.
const NEXT_PERCENT_MIN: u64 = 20;

fn percent(time_ns: u64, group: &Group) -> u64 {
    (time_ns * 100 + group.response_time_ns / 2) / group.response_time_ns.max(1)
}

/// Share, name and confidence of a limit, its figures and what a remedy would gain.
fn clause(limit: Dominant, group: &Group, example: &Explanation) -> String {
    let doubt = match limit.confidence {
        Confidence::Certain => "",
        Confidence::Likely => " (likely)",
        Confidence::Weak => " (one of several explanations)",
    };
    let detail = detail(limit.limit, example).map_or(String::new(), |detail| format!(": {detail}"));
    format!("{} % is {}{doubt}{detail}", percent(limit.time_ns, group), phrase(limit.limit))
}

/// The limit as an object of "is".
fn phrase(limit: Limit) -> &'static str {
    match limit {
        Limit::Loss => "recovery of lost packets",
        Limit::Of(cause) => match cause {
            Cause::SendLag => "the load generator's send lag",
            Cause::ConnectionWait => "waiting for a connection",
            Cause::ReceiveLag => "the load generator's receive lag",
            Cause::Dns => "name resolution",
            Cause::TcpHandshake => "the TCP handshake",
            Cause::TlsHandshake => "the TLS handshake",
            Cause::RequestUpload => "the upload of the request",
            Cause::ServerProcessing => "server processing",
            Cause::ServerPause => "a pause of the server in mid-response",
            Cause::CpuThrottling => "the server's CPU limit",
            Cause::RunQueue => "the server waiting for a CPU",
            Cause::CongestionWindow => "waiting for the congestion window",
            Cause::ReceiveWindow => "waiting for the receive window",
            Cause::SendBuffer => "waiting for the server's send buffer",
            Cause::Http2StreamWindow => "waiting for the HTTP/2 stream window",
            Cause::Http2ConnectionWindow => "waiting for the HTTP/2 connection window",
            Cause::QuicHandshake => "the QUIC handshake",
            Cause::AmplificationLimit => "the server's wait for the client's address to be proven",
            Cause::QuicStreamWindow => "waiting for the QUIC stream window",
            Cause::QuicConnectionWindow => "waiting for the QUIC connection window",
            Cause::BottleneckRate => "transmission at the bottleneck's rate",
            Cause::Queue => "waiting in a queue",
            Cause::SharedQueue => "waiting in the queue of a shared link",
            Cause::HeadOfLine => "waiting behind other streams of the connection",
            Cause::Reordering => "waiting for reordered packets",
            Cause::Propagation => "distance",
            Cause::AckDelay => "waiting for delayed ACKs",
            _ => "unknown",
        },
    }
}

/// Figures about a limit, and what a remedy would gain.
fn detail(limit: Limit, example: &Explanation) -> Option<String> {
    let facts = &example.facts;
    let Limit::Of(cause) = limit else { return None };
    let state = match cause {
        Cause::CongestionWindow => {
            let window = facts.initial_window?;
            let round_trips = transfer(example)?.simulate().round_trips;
            // On a connection that was open before, the window is what earlier responses have left.
            let is_opener = |cause| matches!(cause, Cause::TcpHandshake | Cause::QuicHandshake);
            let window = if example.intervals.iter().any(|part| is_opener(part.cause)) {
                format!("the server's initial window is {window} segments")
            } else {
                format!("the server sends {window} segments before the first acknowledgement")
            };
            format!("{window} and the response needs {round_trips} round trips")
        }
        Cause::ReceiveWindow => format!("the client admits {} in flight", size(facts.receive_window?)),
        Cause::SendBuffer => format!("the server has at most {} in flight", size(facts.peak_in_flight?)),
        Cause::Http2StreamWindow
        | Cause::Http2ConnectionWindow
        | Cause::QuicStreamWindow
        | Cause::QuicConnectionWindow => {
            format!("the client's window is {}", size(facts.stream_window?))
        }
        Cause::AmplificationLimit => String::from(
            "its certificates are more than three times what the client had sent; a shorter chain avoids it",
        ),
        Cause::TcpHandshake | Cause::QuicHandshake => String::from("the connection is opened for the request"),
        Cause::TlsHandshake => format!("it takes {}", duration(example.time_of(Cause::TlsHandshake))),
        Cause::BottleneckRate => {
            let rate = bit_rate(facts.bottleneck_bit_per_s? as f64);
            format!("{} at {rate}", size(facts.response_bytes?))
        }
        Cause::Propagation => format!("the round trip is {}", duration(facts.rtt_ns?)),
        _ => return None,
    };
    Some(match remedy_of(limit, example) {
        Some(remedy) => with_remedy(state, example, remedy),
        None => state,
    })
}

/// What would remove a limit; `None` where nothing known would.
fn remedy_of(limit: Limit, example: &Explanation) -> Option<Remedy> {
    let facts = &example.facts;
    let Limit::Of(cause) = limit else { return None };
    match cause {
        Cause::CongestionWindow => {
            let window = u64::from(facts.initial_window?);
            let larger = if window < 10 { 10 } else { LARGE_INITIAL_WINDOW };
            (window < larger).then_some(Remedy::InitialWindow(larger))
        }
        Cause::ReceiveWindow => Some(Remedy::ReceiveWindow(ample(example)?.max(facts.receive_window?))),
        Cause::SendBuffer => Some(Remedy::SendBuffer(ample(example)?)),
        Cause::Http2StreamWindow
        | Cause::Http2ConnectionWindow
        | Cause::QuicStreamWindow
        | Cause::QuicConnectionWindow => Some(Remedy::StreamWindow(ample(example)?)),
        Cause::TcpHandshake | Cause::QuicHandshake | Cause::AmplificationLimit => Some(Remedy::KeepAlive),
        Cause::TlsHandshake => Some(Remedy::TlsResumption),
        _ => None,
    }
}

/// A remedy as part of a sentence.
fn change(remedy: Remedy) -> String {
    match remedy {
        Remedy::InitialWindow(segments) => format!("with an initial window of {segments}"),
        Remedy::ReceiveWindow(bytes) | Remedy::SendBuffer(bytes) | Remedy::StreamWindow(bytes) => {
            format!("with {}", size(bytes))
        }
        Remedy::KeepAlive => String::from("on an open connection"),
        Remedy::TlsResumption => String::from("with a resumed session"),
        Remedy::Rtt(rtt_ns) => format!("at {}", duration(rtt_ns)),
    }
}

/// An initial window that content networks use, segments.
const LARGE_INITIAL_WINDOW: u64 = 32;

/// A window that does not limit the response: all of it.
fn ample(example: &Explanation) -> Option<u64> {
    example.facts.response_bytes.map(u64::next_power_of_two)
}

/// The state of things, and what it would be with a remedy.
fn with_remedy(state: String, example: &Explanation, remedy: Remedy) -> String {
    match what_if(example, remedy) {
        Some(prediction) if prediction.gain_ns > 0 => {
            let gain = duration(prediction.gain_ns.unsigned_abs());
            let [before, after] = prediction.round_trips;
            let rounds =
                if before > after { format!(" {after} instead of {before} round trips and") } else { String::new() };
            format!("{state}; {} it would need{rounds} about {gain} less", change(remedy))
        }
        _ => state,
    }
}

/// A size as windows and buffers are configured, in powers of 1024.
fn size(bytes: u64) -> String {
    match bytes {
        0..1_024 => format!("{bytes} bytes"),
        1_024..1_048_064 => format!("{} KB", (bytes + 512) / 1_024),
        _ => format!("{:.3} MB", bytes as f64 / 1_048_576.0),
    }
}
