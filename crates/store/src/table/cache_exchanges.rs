//! cache_exchanges.parquet: one row a request of a cache benchmark, and what the judge says of it.

use std::borrow::Cow;

use schema::{CacheContent, CacheExchange, CacheForm, FailureCause, Method, Wrong};
use units::Timestamp;

use super::{Cell, Column, Field, Kind, Row, Shape, signed, unsigned};

/// A number that always has a value.
macro_rules! number {
    ($field:ident, $kind:ty, $unit:literal, $about:literal) => {
        Field::integer(
            stringify!($field),
            $unit,
            $about,
            |row: &CacheExchange| Some(signed(u64::from(row.$field))),
            |row, value| row.$field = value as $kind,
        )
    };
}

/// A moment that always has a value.
macro_rules! moment {
    ($name:literal, $field:ident, $about:literal) => {
        Field::integer(
            $name,
            "ns",
            $about,
            |row: &CacheExchange| Some(signed(row.$field.as_nanos())),
            |row, value| row.$field = Timestamp::from_nanos(unsigned(value)),
        )
    };
}

/// Part of the identity that came.
macro_rules! came {
    ($field:ident, $kind:ty, $about:literal) => {
        Field::integer(
            stringify!($field),
            "",
            $about,
            |row: &CacheExchange| row.got_object.map(|_| i64::from(row.$field)),
            |row, value| row.$field = value as $kind,
        )
        .nullable()
        .few()
    };
}

macro_rules! flag {
    ($field:ident, $about:literal) => {
        Field {
            column: Column { name: stringify!($field), kind: Kind::Flag, unit: "", nullable: false, about: $about },
            cell: Cell::Flag(|row: &CacheExchange| row.$field, |row, value| row.$field = value),
            shape: Shape::Any,
        }
    };
}

impl Row for CacheExchange {
    const TABLE: &'static str = "cache_exchanges";
    const ROW: &'static str = "One request of a cache benchmark, in order of completion: what was asked for, whose answer came \
        and whether it was right. Its times are in requests.parquet under the same sequence. The object's path is \
        /y/<world>/<letter of its kind><object>, in hexadecimal.";
    // Some 250 bytes a row.
    const ROWS_A_PART: usize = 32_768;

    const BLANK: CacheExchange = CacheExchange {
        sequence: 0,
        client: 0,
        run: 0,
        world: 0,
        kind: 0,
        object: 0,
        object_bytes: 0,
        accepts_gzip: false,
        variant_gzip: false,
        form: CacheForm::Basic,
        method: Method::Get,
        repeat: false,
        offered: false,
        cachable: false,
        secure: false,
        aborted: false,
        intended_at: Timestamp::ZERO,
        sent_at: None,
        done_at: Timestamp::ZERO,
        asked_unix_ms: 0,
        status: 0,
        failure: None,
        from_sequence: None,
        from_run: None,
        got_world: 0,
        got_object: None,
        got_kind: 0,
        got_version: 0,
        made_unix_ms: 0,
        renewed: false,
        age_s: None,
        due_version: 0,
        expires_unix_s: i64::MAX,
        renewable: false,
        came_gzip: false,
        content: CacheContent::NotLooked,
        body_bytes: 0,
        hit: false,
        wrong: None,
    };

    const FIELDS: &'static [Field<CacheExchange>] = &[
        number!(sequence, u64, "", "Number of the request in the run: that of requests.parquet."),
        number!(client, u32, "", "Index of the virtual client; its address is the client base plus this."),
        number!(run, u32, "", "The run's mark in the identity of its asks.").few(),
        number!(world, u32, "", "World whose objects were asked for.").few(),
        number!(kind, u8, "", "Kind of the object: index into the mix's kinds.").few(),
        number!(object, u64, "", "Number of the object in its kind."),
        number!(
            object_bytes,
            u64,
            "bytes",
            "Length of the body as the origin makes it, in the variant asked for: hit ratios in bytes are of this."
        ),
        flag!(accepts_gzip, "Whether the client accepts gzip."),
        flag!(variant_gzip, "Whether the origin would send gzip: the client accepts it and the object has it."),
        Field::text(
            "form",
            "How it was asked: basic; ims200, by a date before the last change; ims304, by one after it; reload, past caches.",
            |row: &CacheExchange| Some(Cow::Borrowed(row.form.name())),
            |row, name| {
                let known = CacheForm::ALL.into_iter().find(|form| form.name() == name);
                row.form = known.unwrap_or_default();
                known.is_some()
            },
        ),
        Field::text(
            "method",
            "GET, HEAD or POST.",
            |row: &CacheExchange| Some(Cow::Borrowed(row.method.as_str())),
            |row, name| {
                let known = Method::ALL.into_iter().find(|method| method.as_str() == name);
                row.method = known.unwrap_or_default();
                known.is_some()
            },
        ),
        flag!(repeat, "Whether it was drawn as a repeat of an object asked for before."),
        flag!(offered, "Whether a cache could have had it: see docs/concepts/cache-bench.md."),
        flag!(cachable, "Whether the origin lets caches keep the object."),
        flag!(secure, "Whether it went inside a CONNECT tunnel, so that no proxy could see it."),
        flag!(aborted, "Whether it was cut before its end as planned, by the client or by the origin."),
        moment!("intended_at_ns", intended_at, "When the schedule meant it to start."),
        Field::integer(
            "sent_at_ns",
            "ns",
            "Last byte of the request handed to the kernel. Null if it never was.",
            |row: &CacheExchange| row.sent_at.map(|moment| signed(moment.as_nanos())),
            |row, value| row.sent_at = Some(Timestamp::from_nanos(unsigned(value))),
        )
        .nullable(),
        moment!("done_at_ns", done_at, "Last byte of the response read, the planned end, or the failure."),
        number!(asked_unix_ms, u64, "ms", "Wall clock when it was asked, since 1970 (UTC): HTTP's dates are of this clock."),
        Field::integer(
            "status",
            "",
            "HTTP status code. Null if no status line was read.",
            |row: &CacheExchange| (row.status != 0).then_some(i64::from(row.status)),
            |row, value| row.status = value as u16,
        )
        .nullable()
        .few(),
        Field::text(
            "cause",
            "Why it failed, such as unexpected_body. Null if the object asked for came.",
            |row: &CacheExchange| row.failure.map(|cause| Cow::Borrowed(cause.name())),
            |row, name| {
                row.failure = FailureCause::ALL.into_iter().find(|cause| cause.name() == name);
                row.failure.is_some()
            },
        )
        .nullable(),
        Field::integer(
            "from_sequence",
            "",
            "Number of the request for which the origin made the answer: a hit if it is another. Null if none is named: by no \
             identity, a 304 of the origin, a copy that one renewed, an answer to a request without an ask.",
            |row: &CacheExchange| row.from_sequence.map(signed),
            |row, value| row.from_sequence = Some(unsigned(value)),
        )
        .nullable(),
        Field::integer(
            "from_run",
            "",
            "Mark of the run of that request. Null where from_sequence is.",
            |row: &CacheExchange| row.from_run.map(i64::from),
            |row, value| row.from_run = Some(value as u32),
        )
        .nullable()
        .few(),
        Field::integer(
            "got_object",
            "",
            "Number of the object that came. Null without an identity.",
            |row: &CacheExchange| row.got_object.map(signed),
            |row, value| row.got_object = Some(unsigned(value)),
        )
        .nullable(),
        came!(got_world, u32, "Its world. Null without an identity."),
        came!(got_kind, u8, "Its kind. Null without an identity."),
        came!(got_version, u32, "Its version. Null without an identity."),
        Field::integer(
            "made_unix_ms",
            "ms",
            "Wall clock when the origin made it, since 1970 (UTC). Null without an identity.",
            |row: &CacheExchange| (row.made_unix_ms != 0).then_some(signed(row.made_unix_ms)),
            |row, value| row.made_unix_ms = unsigned(value),
        )
        .nullable(),
        flag!(renewed, "Whether its identity is that of a 304 of the origin, sent on or taken over by a copy that it renewed."),
        Field::integer(
            "age_s",
            "s",
            "Age, as whoever sent the answer says. Null where it says nothing.",
            |row: &CacheExchange| row.age_s.map(i64::from),
            |row, value| row.age_s = Some(value as u32),
        )
        .nullable()
        .few(),
        number!(due_version, u32, "", "Version that the origin had when it was asked.").few(),
        Field::integer(
            "expires_unix_s",
            "s",
            "Until when, since 1970 (UTC), a cache may use what the origin would have answered then. Null where it says nothing.",
            |row: &CacheExchange| (row.expires_unix_s != i64::MAX).then_some(row.expires_unix_s),
            |row, value| row.expires_unix_s = value,
        )
        .nullable(),
        flag!(renewable, "Whether the origin can renew a copy without its body: the object has a Last-Modified or an ETag."),
        flag!(came_gzip, "Whether the answer said Content-Encoding: gzip."),
        Field::text(
            "content",
            "The body against the one its identity names: right, not_looked, differs, short, long, or recoded by the proxy.",
            |row: &CacheExchange| Some(Cow::Borrowed(row.content.name())),
            |row, name| {
                let known = CacheContent::ALL.into_iter().find(|content| content.name() == name);
                row.content = known.unwrap_or_default();
                known.is_some()
            },
        ),
        number!(body_bytes, u64, "bytes", "Bytes of the body that came, without the framing of chunks."),
        flag!(
            hit,
            "Whether it came out of a cache: an identity, and not this request's; without a request, one made before this was \
             asked. Never for a 304."
        ),
        Field::text(
            "wrong",
            "What was wrong with it, the gravest: foreign, wrong_object, wrong_variant, wrong_body, truncated, \
             false_not_modified, hit_on_uncachable, hit_on_reload, false_hit, stale, false_miss. Null if nothing.",
            |row: &CacheExchange| row.wrong.map(|wrong| Cow::Borrowed(wrong.name())),
            |row, name| {
                row.wrong = Wrong::ALL.into_iter().find(|wrong| wrong.name() == name);
                row.wrong.is_some()
            },
        )
        .nullable(),
    ];
}
