//! The protocol between a tap agent and the tap manager: messages as JSON over HTTP/1.1, headers and limits. No I/O.
//!
//! ```text
//!   programs ─rings─▶ agent: journal ─▶ rows ─▶ spool ══ HTTPS, batches in order ══▶ manager: ingest ─▶ index.sqlite
//!   (LD_PRELOAD)             (tap::daemon_state) (bounded)                               │  ─▶ days/DATE/part.parquet
//!                                                                                       └─▶ quality, alerts, OTLP, page
//! ```
//!
//! The requests, and the message that answers each:
//!
//! ```text
//!   agent                                                   manager
//!   POST /api/1/agents/NAME/hello     Hello      ─────────▶ Welcome        at the start, and after each absence
//!   POST /api/1/agents/NAME/batches   Batch      ─────────▶ Stored         one after another, in order
//!                                                 ◀──────── Refusal        any status from 400
//! ```
//!
//! Each request has `Authorization: Bearer TOKEN`, a token of NAME and of no other agent. A body may be compressed
//! (`Content-Encoding: gzip`).
//!
//! **Exactly once.** Each row that an agent records reaches the manager's files exactly once, even if either side is
//! killed at any time. An agent's spool is a *stream* with a random name. Its batches are numbered from 1 without a
//! gap, and the agent stores a batch until the manager confirms it. The manager accepts number n + 1 after n, and no
//! number twice. An agent that did not receive the response sends the batch again; the response then has
//! [`Refusal::stored_through`]. A sealed batch never changes; only the header [`ZERO`] may differ between attempts.
//! Rows that the agent dropped because of a limit are counted in the next batch.
//!
//! **Time.** Times of a batch are nanoseconds of the agent's CLOCK_MONOTONIC since its zero (the boot). An agent's
//! wall clock may be wrong by minutes. The agent therefore measures the manager's clock with every response, as NTP
//! does, and sends in [`ZERO`] the manager's time at that zero. Without this header, [`Batch::zero_own_unix_ns`] is
//! used, which is the agent's wall clock.
//!
//! **Through a log.** An agent may publish its batches to a stream of NATS instead, from which managers read: [`log`].
//!
//! Start with [`Hello`] and [`Batch`]; [`TapRow`] is one exchange.

pub mod log;

use schema::TapRow;
use serde::{Deserialize, Serialize};

/// Header of a batch: the manager's Unix time at the zero of the batch's times, in ns, as measured by the agent.
pub const ZERO: &str = "yamabiko-zero";
/// Header of a batch, together with [`ZERO`]: the maximum error of that time in ns, half of the fastest round trip.
pub const ZERO_ERROR: &str = "yamabiko-zero-error";

/// Maximum bytes of a body as sent, and after decompression. More gives status 413.
pub const BODY_MAX: usize = 2 << 20;
/// See [`BODY_MAX`].
pub const UNPACKED_MAX: usize = 16 << 20;
/// Maximum rows of a batch. An agent seals a batch long before.
pub const ROWS_MAX: usize = 20_000;
/// Maximum programs in a batch.
pub const PROGRAMS_MAX: usize = 500;

/// Whether this is a valid agent name: 1 to 63 of `a-z`, `0-9`, `-`, `.`, `_`, the first a letter or digit. The
/// operator chooses it with the token.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first && text.len() <= 63 && text.bytes().all(plain)
}

/// Makes text of another program printable: no control characters, at most 80 characters.
pub fn printable(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The first message of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Stream name of its spool: 32 hexadecimal digits, generated with the spool.
    pub stream: String,
    /// Boot identifier of the machine: /proc/sys/kernel/random/boot_id.
    pub boot: String,
    /// Host name of the machine, at most 255 bytes.
    pub host: String,
    /// Version of the agent's program.
    pub version: String,
    /// Kernel release.
    pub kernel: String,
    /// Usage of the spool.
    pub spool: SpoolUsage,
    /// The agent's monotonic clock, ns since its zero.
    pub now_ns: u64,
    /// The agent's wall clock at that zero, ns since 1970.
    pub zero_own_unix_ns: u64,
    /// Version of the settings that the agent applies; 0: none.
    pub settings: u64,
}

/// Usage of a spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpoolUsage {
    /// Waiting batches.
    pub batches: u64,
    /// Rows in the waiting batches.
    pub rows: u64,
    /// Bytes of the waiting batches on disk.
    pub bytes: u64,
    /// Limit of the spool in bytes.
    pub bytes_max: u64,
    /// Number of the oldest waiting batch; 0: none.
    pub oldest: u64,
}

/// The response to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Highest stored number of the stream; 0: none.
    pub stored_through: u64,
    /// Settings that the agent must apply.
    pub settings: Settings,
    /// The manager's clock when it received the request, ns since 1970.
    pub received_unix_ns: u64,
    /// The manager's clock when it sent the response, ns since 1970.
    pub answered_unix_ns: u64,
}

/// What the operator configured for an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Rises by one with each change, from 1.
    pub version: u64,
    /// Record connections that match one of these, written as in `tap --only` (`443`, `192.0.2.0/24`,
    /// `192.0.2.7:80`). Empty: all.
    pub only: Vec<String>,
    /// Record programs of these names. Empty: all.
    pub programs: Vec<String>,
    /// Share of the connections whose rows are sent, above 0 and at most 1. Connections are sampled whole, by their
    /// number.
    pub share: f64,
}

impl Default for Settings {
    /// All connections of all programs.
    fn default() -> Self {
        Settings { version: 1, only: Vec::new(), programs: Vec::new(), share: 1.0 }
    }
}

/// Rows that an agent sealed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Batch {
    /// [`Hello::stream`].
    pub stream: String,
    /// Number of the batch, from 1, without a gap.
    pub sequence: u64,
    /// Boot whose zero the times count from.
    pub boot: String,
    /// The agent's wall clock at the zero of the times, as it was when the batch was sealed; ns since 1970.
    pub zero_own_unix_ns: u64,
    /// When the batch was sealed.
    pub sealed_at_ns: u64,
    /// Version of the settings under which its rows were selected.
    pub settings: u64,
    /// Share of the connections whose rows it has: [`Settings::share`].
    pub share: f64,
    /// Gauges when the batch was sealed.
    pub gauges: Gauges,
    /// Losses since the previous batch.
    pub losses: Losses,
    /// Programs that changed since the previous batch, with their counts since then.
    pub programs: Vec<Program>,
    /// The rows. A batch may have no rows.
    pub rows: Vec<TapRow>,
}

/// Gauges of a point in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gauges {
    /// Processes that loaded the library and still run.
    pub processes: u64,
    /// Open connections.
    pub open: u64,
    /// Exchanges whose request has begun and whose response has not ended.
    pub in_flight: u64,
}

/// Losses, counted since the previous batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Losses {
    /// Records that programs dropped: their rings were full, or the agent was away for too long.
    pub records: u64,
    /// Rows of batches that the agent dropped because of the spool's limit. Such a batch is sent without its rows.
    pub rows_dropped: u64,
    /// Connections beyond the capacity of the agent or of a program.
    pub connections_left_out: u64,
    /// Rows that the settings filter out.
    pub rows_filtered: u64,
    /// Rows of connections that were not sampled.
    pub rows_not_drawn: u64,
}

/// A program of an agent's machine, and whether the tap records it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Short name, at most 15 bytes.
    pub name: String,
    /// Processes that loaded the library since the previous batch.
    pub seen: u64,
    /// Processes that should have loaded the library and did not.
    pub unseen: u64,
    /// Connections that ended.
    pub connections: u64,
    /// Bytes that TCP counted and no hook recorded.
    pub unseen_bytes: u64,
    /// Why the program is unseen or only partly recorded; empty: it is recorded.
    pub why: String,
}

/// The response to a stored [`Batch`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Highest stored number of the stream: that of this batch.
    pub stored_through: u64,
    /// The current settings, if the batch used older ones.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub settings: Option<Settings>,
    /// See [`Welcome::received_unix_ns`].
    pub received_unix_ns: u64,
    /// See [`Welcome::answered_unix_ns`].
    pub answered_unix_ns: u64,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, for programs.
    pub error: RefusalReason,
    /// The reason and what to do, for people. The text repeats nothing of the request.
    pub message: String,
    /// For a gap in the sequence: the highest stored number of the stream.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stored_through: Option<u64>,
}

/// Reasons for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// 401: no token, an unknown one, or a revoked one.
    Unauthenticated,
    /// 403: a token or stream of another agent, or a token of another role.
    Forbidden,
    /// 404: unknown path or name.
    NotFound,
    /// 405: method not allowed.
    MethodNotAllowed,
    /// 413: the body is too large, compressed or decompressed, or has too many rows.
    TooLarge,
    /// 415: neither JSON nor gzip of JSON.
    UnsupportedMediaType,
    /// 400: not JSON, or of another structure.
    Malformed,
    /// 422: valid structure with impossible values: a row that ends before it begins, a time far in the future.
    InvalidValue,
    /// 409: this number is already stored. Nothing was stored now; an agent that missed the response continues with
    /// the next.
    AlreadyStored,
    /// 409: this number is already stored with other contents, because a copy of the agent's data directory sends
    /// under the same stream. The agent starts a new stream.
    Conflict,
    /// 409: the previous number is missing.
    SequenceGap,
    /// 429: too many requests at the same time; see `Retry-After`.
    TooManyRequests,
    /// 503: cannot be stored now (no space on the disk); see `Retry-After`.
    Unavailable,
}

impl RefusalReason {
    /// HTTP status of the refusal.
    pub const fn status(self) -> u16 {
        match self {
            RefusalReason::Unauthenticated => 401,
            RefusalReason::Forbidden => 403,
            RefusalReason::NotFound => 404,
            RefusalReason::MethodNotAllowed => 405,
            RefusalReason::TooLarge => 413,
            RefusalReason::UnsupportedMediaType => 415,
            RefusalReason::Malformed => 400,
            RefusalReason::InvalidValue => 422,
            RefusalReason::AlreadyStored | RefusalReason::Conflict | RefusalReason::SequenceGap => 409,
            RefusalReason::TooManyRequests => 429,
            RefusalReason::Unavailable => 503,
        }
    }

    /// Name of the reason in JSON and in the manager's index.
    pub const fn as_str(self) -> &'static str {
        match self {
            RefusalReason::Unauthenticated => "unauthenticated",
            RefusalReason::Forbidden => "forbidden",
            RefusalReason::NotFound => "not_found",
            RefusalReason::MethodNotAllowed => "method_not_allowed",
            RefusalReason::TooLarge => "too_large",
            RefusalReason::UnsupportedMediaType => "unsupported_media_type",
            RefusalReason::Malformed => "malformed",
            RefusalReason::InvalidValue => "invalid_value",
            RefusalReason::AlreadyStored => "already_stored",
            RefusalReason::Conflict => "conflict",
            RefusalReason::SequenceGap => "sequence_gap",
            RefusalReason::TooManyRequests => "too_many_requests",
            RefusalReason::Unavailable => "unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_reasons_serialize_to_their_json_names() {
        for why in [
            RefusalReason::Unauthenticated,
            RefusalReason::NotFound,
            RefusalReason::TooLarge,
            RefusalReason::SequenceGap,
            RefusalReason::Unavailable,
        ] {
            assert_eq!(serde_json::to_string(&why).unwrap(), format!("{:?}", why.as_str()));
        }
    }

    #[test]
    fn agent_names_are_validated() {
        for valid in ["a", "shop-7", "db.example_1", "0"] {
            assert!(is_name(valid), "{valid}");
        }
        for bad in ["", "-a", ".", "A", "a b", "a/b", "é", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_batch_round_trips_through_json_and_unknown_fields_are_rejected() {
        let batch = Batch {
            stream: "0".repeat(32),
            sequence: 1,
            boot: "b".into(),
            zero_own_unix_ns: 1,
            sealed_at_ns: 2,
            settings: 1,
            share: 1.0,
            gauges: Gauges::default(),
            losses: Losses::default(),
            programs: Vec::new(),
            rows: vec![TapRow::of(&schema::TapExchange::BLANK, &|ip| schema::TapAddress::Plain(ip))],
        };
        let text = serde_json::to_string(&batch).unwrap();
        assert_eq!(serde_json::from_str::<Batch>(&text).unwrap(), batch);
        let strange = text.replacen('{', "{\"payload\":\"x\",", 1);
        assert!(serde_json::from_str::<Batch>(&strange).is_err());
    }
}
