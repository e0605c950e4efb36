//! Descriptions of incorrect responses.

use schema::{CacheExchange, CacheForm, Wrong, WrongExample};

use super::{is_framed, object};
use crate::{Object, World};

/// The example of an incorrect exchange.
pub(super) fn example(world: &World, exchange: &CacheExchange) -> WrongExample {
    WrongExample {
        kind: exchange.wrong.map(|wrong| wrong.name().to_owned()).unwrap_or_default(),
        request: request(world, exchange),
        sequence: exchange.sequence,
        why: exchange.wrong.map(|wrong| why(world, exchange, wrong)).unwrap_or_default(),
    }
}

fn request(world: &World, exchange: &CacheExchange) -> String {
    let mut words = format!("{} {}", exchange.method.as_str(), path(world, object(exchange)));
    if exchange.form != CacheForm::Basic {
        words.push_str(&format!(" ({})", exchange.form.name()));
    }
    words
}

/// Path of an object. A corrupted identity can name one that the workload does not have.
fn path(world: &World, object: Object) -> String {
    if !world.has(object) {
        return format!("object {:x} of kind {}, which the workload does not have,", object.number, object.kind);
    }
    let mut path = Vec::new();
    world.write_path(object, &mut path);
    String::from_utf8_lossy(&path).into_owned()
}

fn why(world: &World, exchange: &CacheExchange, wrong: Wrong) -> String {
    let origin_request = origin_request(exchange);
    let (received_bytes, whole) = (exchange.body_bytes, exchange.object_bytes);
    match wrong {
        Wrong::Foreign if exchange.response_object.is_none() => {
            format!(
                "status {} with {received_bytes} bytes not from the origin: no X-Yamabiko in its head",
                exchange.status
            )
        }
        Wrong::Foreign => {
            format!("received an object of world {:x}, expected world {:x}", exchange.response_world, exchange.world)
        }
        Wrong::WrongObject => {
            let got = Object { kind: exchange.response_kind, number: exchange.response_object.unwrap_or_default() };
            format!("received {}, {origin_request}", path(world, got))
        }
        Wrong::WrongVariant => format!("received a gzip body without accepting gzip, {origin_request}"),
        Wrong::WrongBody => format!("correct head, wrong body of {received_bytes} bytes, {origin_request}"),
        Wrong::Truncated if is_framed(exchange) => {
            format!("received {received_bytes} of {whole} bytes declared complete, {origin_request}")
        }
        Wrong::Truncated => {
            format!(
                "received {received_bytes} of {whole} bytes: a response aborted by the origin was cached, \
                 {origin_request}"
            )
        }
        Wrong::FalseNotModified if exchange.form == CacheForm::Ims200 => {
            "received a 304 although the object had changed since the date in If-Modified-Since".to_owned()
        }
        Wrong::FalseNotModified => "received a 304 for an unconditional request".to_owned(),
        Wrong::HitOnUncacheable => {
            format!("served from the cache although the origin forbids storing it (no-store), {origin_request}")
        }
        Wrong::HitOnReload => {
            let old_ms = exchange.requested_unix_ms.saturating_sub(exchange.generated_unix_ms);
            format!("received a copy {} old for a request with no-cache, {origin_request}", age(old_ms))
        }
        Wrong::FalseHit => format!("{origin_request}, which was for another object"),
        Wrong::Stale => {
            let old_ms = exchange.requested_unix_ms.saturating_sub(exchange.generated_unix_ms);
            format!(
                "received version {}, {} old and expired; expected version {}, {origin_request}",
                exchange.response_version,
                age(old_ms),
                exchange.expected_version
            )
        }
        Wrong::FalseMiss => "fetched from the origin although an earlier response could be stored".to_owned(),
    }
}

fn origin_request(exchange: &CacheExchange) -> String {
    match exchange.from_sequence {
        Some(sequence) if sequence == exchange.sequence && exchange.from_run == Some(exchange.run) => {
            "generated for this request".to_owned()
        }
        Some(sequence) if exchange.from_run == Some(exchange.run) => format!("generated for request {sequence}"),
        Some(_) => "generated in an earlier run".to_owned(),
        None if exchange.renewed => "renewed by a 304".to_owned(),
        None => "generated for a request without id".to_owned(),
    }
}

fn age(ms: u64) -> String {
    units::figures::duration(ms.saturating_mul(1_000_000))
}
