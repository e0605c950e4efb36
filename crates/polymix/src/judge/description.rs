//! A wrong answer in words: the request, what came and what was due.

use schema::{CacheExchange, CacheForm, Wrong, WrongExample};

use super::{is_framed, object};
use crate::{Object, World};

/// An exchange that is wrong, for a person.
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

/// The identity of an answer may name what no world has: it passed through other hands.
fn path(world: &World, object: Object) -> String {
    if !world.has(object) {
        return format!("object {:x} of kind {}, which the workload does not have,", object.number, object.kind);
    }
    let mut path = Vec::new();
    world.write_path(object, &mut path);
    String::from_utf8_lossy(&path).into_owned()
}

fn why(world: &World, exchange: &CacheExchange, wrong: Wrong) -> String {
    let maker = maker(exchange);
    let (came, whole) = (exchange.body_bytes, exchange.object_bytes);
    match wrong {
        Wrong::Foreign if exchange.response_object.is_none() => {
            format!(
                "status {} with {came} bytes that the origin did not make: no X-Yamabiko in its head",
                exchange.status
            )
        }
        Wrong::Foreign => {
            format!("an object of another world came: {:x} and not {:x}", exchange.response_world, exchange.world)
        }
        Wrong::WrongObject => {
            let got = Object { kind: exchange.response_kind, number: exchange.response_object.unwrap_or_default() };
            format!("{} came, {maker}", path(world, got))
        }
        Wrong::WrongVariant => format!("a gzip body came to a client that does not take gzip, {maker}"),
        Wrong::WrongBody => format!("the head is right, the body of {came} bytes is not, {maker}"),
        Wrong::Truncated if is_framed(exchange) => format!("{came} of {whole} bytes came as if they were all, {maker}"),
        Wrong::Truncated => {
            format!("{came} of {whole} bytes came: an answer that the origin had cut was kept and used again, {maker}")
        }
        Wrong::FalseNotModified if exchange.form == CacheForm::Ims200 => {
            "a 304 came though the object had changed since the date in If-Modified-Since".to_owned()
        }
        Wrong::FalseNotModified => "a 304 came though nothing was asked by a condition".to_owned(),
        Wrong::HitOnUncacheable => {
            format!("the origin forbids keeping it (no-store), and it came out of the cache, {maker}")
        }
        Wrong::HitOnReload => {
            let old_ms = exchange.requested_unix_ms.saturating_sub(exchange.generated_unix_ms);
            format!("no-cache was asked, and a copy came that was {} old, {maker}", seconds(old_ms))
        }
        Wrong::FalseHit => format!("{maker}, which did not ask for it"),
        Wrong::Stale => {
            let old_ms = exchange.requested_unix_ms.saturating_sub(exchange.generated_unix_ms);
            format!(
                "version {} came, {} old and beyond its lifetime; version {} was due, {maker}",
                exchange.response_version,
                seconds(old_ms),
                exchange.expected_version
            )
        }
        Wrong::FalseMiss => "fetched from the origin though an earlier answer could be kept".to_owned(),
    }
}

fn maker(exchange: &CacheExchange) -> String {
    match exchange.from_sequence {
        Some(sequence) if sequence == exchange.sequence && exchange.from_run == Some(exchange.run) => {
            "made for this request".to_owned()
        }
        Some(sequence) if exchange.from_run == Some(exchange.run) => format!("made for request {sequence}"),
        Some(_) => "made in an earlier run".to_owned(),
        None if exchange.renewed => "renewed by a 304".to_owned(),
        None => "made for a request that named no ask".to_owned(),
    }
}

fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}
