//! The protocol between a tap agent and the tap manager: messages as JSON over HTTP/1.1, headers and limits. No I/O.
//!
//! ```text
//!   programs ─rings─▶ agent: journal ─▶ rows ─▶ spool ══ HTTPS, batches in order ══▶ manager: ingest ─▶ index.sqlite
//!   (LD_PRELOAD)             (tap::standing)    (bounded)                               │  ─▶ days/DATE/part.parquet
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
//! **Exactly once.** A row that an agent made reaches the manager's files exactly once, whichever of the two is killed, and when.
//! An agent's spool is a *stream*, with a random name; its batches are numbered from 1 without a gap, and the agent keeps a batch
//! until the manager replies that the batch is stored. The manager takes number n + 1 after n, and no number twice: an agent that did
//! not receive the reply sends the batch again, and the reply says [`Refusal::stored_through`]. A sealed batch never changes; only
//! the header [`ZERO`] may differ from one attempt to the next. Rows that the agent dropped because of a limit are counted in the
//! next batch.
//!
//! **Time.** Moments of a batch are nanoseconds of the agent's CLOCK_MONOTONIC, counted from its zero (the boot). An
//! agent's wall clock may be wrong by minutes, so the agent measures the manager's clock against its own monotonic one with
//! every answer (as NTP does: the answer says when the request came and when it left), and says in [`ZERO`] what the manager's clock
//! showed, or would have shown, at the zero. Without it [`Batch::zero_own_unix_ns`] counts, the agent's own word.
//!
//! Start with [`Hello`] and [`Batch`]; [`TapRow`] is one exchange.

use schema::TapRow;
use serde::{Deserialize, Serialize};

/// Header of a batch: nanoseconds of the manager's Unix time at the zero of the batch's moments, as the agent measured it.
pub const ZERO: &str = "yamabiko-zero";
/// Header of a batch beside [`ZERO`]: by how many nanoseconds it may be off, half of the quickest round trip.
pub const ZERO_ERROR: &str = "yamabiko-zero-error";

/// Bytes of a body as sent, and of what it unpacks to. Beyond: 413.
pub const BODY_MAX: usize = 2 << 20;
/// See [`BODY_MAX`].
pub const UNPACKED_MAX: usize = 16 << 20;
/// Rows of a batch. An agent seals long before.
pub const ROWS_MAX: usize = 20_000;
/// Programs told of in a batch.
pub const PROGRAMS_MAX: usize = 500;

/// An agent's name: 1 to 63 of `a-z`, `0-9`, `-`, `.`, `_`, the first a letter or digit. The operator gives it with the token.
pub fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-._".contains(&byte);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first && text.len() <= 63 && text.bytes().all(plain)
}

/// Text from elsewhere for a message: without control characters, and at most 80 characters of it.
pub fn shown(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// What an agent says first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Its spool's name: 32 hexadecimal digits, drawn when the spool was made.
    pub stream: String,
    /// The machine's boot: /proc/sys/kernel/random/boot_id.
    pub boot: String,
    /// The machine's name, at most 255 bytes.
    pub host: String,
    /// Version of the agent's program.
    pub version: String,
    /// Kernel release.
    pub kernel: String,
    /// How the spool stands.
    pub spool: SpoolStand,
    /// The agent's monotonic clock, ns since its zero.
    pub now_ns: u64,
    /// Its wall clock at the zero, ns since 1970.
    pub zero_own_unix_ns: u64,
    /// Version of the settings that it goes by; 0: none.
    pub settings: u64,
}

/// How a spool stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpoolStand {
    /// Batches that wait.
    pub batches: u64,
    /// Rows in them.
    pub rows: u64,
    /// Their bytes on disk.
    pub bytes: u64,
    /// Its bound in bytes.
    pub bytes_max: u64,
    /// Number of the oldest batch that waits; 0: none.
    pub oldest: u64,
}

/// The answer to a [`Hello`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Highest number of the stream that is stored; 0: none.
    pub stored_through: u64,
    /// What the agent shall do.
    pub settings: Settings,
    /// The manager's clock when the request had come, ns since 1970.
    pub received_unix_ns: u64,
    /// The same when the answer left.
    pub answered_unix_ns: u64,
}

/// What the operator wants of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Rises with each change, from 1.
    pub version: u64,
    /// Connections that one of these means, as `tap --only` writes them (`443`, `192.0.2.0/24`, `192.0.2.7:80`); all where
    /// there is none.
    pub only: Vec<String>,
    /// Programs of these names; all where there is none.
    pub programs: Vec<String>,
    /// Share of the connections whose rows are sent, above 0 and at most 1. Whole connections, drawn by their number.
    pub share: f64,
}

impl Default for Settings {
    /// All of everything.
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
    /// Its number, from 1, without a gap.
    pub sequence: u64,
    /// The boot that its moments count from.
    pub boot: String,
    /// The agent's own wall clock at the zero of its moments, as it was when the batch was sealed; ns since 1970.
    pub zero_own_unix_ns: u64,
    /// When it was sealed.
    pub sealed_at_ns: u64,
    /// Version of the settings under which its rows were chosen.
    pub settings: u64,
    /// Share of the connections that it has: [`Settings::share`].
    pub share: f64,
    /// Levels when it was sealed.
    pub levels: Levels,
    /// What it lacks, since the batch before.
    pub lacks: Lacks,
    /// Programs about which something changed, with their counts since the batch before.
    pub programs: Vec<Program>,
    /// The rows. A batch may have none.
    pub rows: Vec<TapRow>,
}

/// Levels of a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Levels {
    /// Processes seen and not gone.
    pub processes: u64,
    /// Connections open.
    pub open: u64,
    /// Exchanges asked and not answered.
    pub in_flight: u64,
}

/// What a batch lacks, counted since the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lacks {
    /// Records that programs could not tell: their rings were full, or the agent was away for too long.
    pub records: u64,
    /// Rows that stood in batches which the spool's bound made the agent let go. Such a batch is sent without its rows.
    pub rows_dropped: u64,
    /// Connections that found no room, at the agent or in a program.
    pub connections_left_out: u64,
    /// Rows that the settings leave out: the filter's.
    pub rows_filtered: u64,
    /// Rows of connections that were not drawn.
    pub rows_not_drawn: u64,
}

/// A program of an agent's machine: whether it is seen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// Short name, at most 15 bytes.
    pub name: String,
    /// Processes that loaded the library.
    pub seen: u64,
    /// Processes that should have and did not.
    pub unseen: u64,
    /// Connections that ended.
    pub connections: u64,
    /// Bytes that TCP counted and no hook saw.
    pub unseen_bytes: u64,
    /// Why it is not seen, or not whole; empty: it is.
    pub why: String,
}

/// The answer to a [`Batch`] that is now stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    /// Highest number of the stream that is stored: this batch's.
    pub stored_through: u64,
    /// The settings, where the batch went by others.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub settings: Option<Settings>,
    /// See [`Welcome::received_unix_ns`].
    pub received_unix_ns: u64,
    /// See [`Welcome::answered_unix_ns`].
    pub answered_unix_ns: u64,
}

/// Why a request was not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// Which one, for programs.
    pub error: Why,
    /// In words, and what to do. Nothing of the request is repeated.
    pub message: String,
    /// Of a batch out of turn: highest number of its stream that is stored.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stored_through: Option<u64>,
}

/// Kinds of refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// 401: no token, or none that is known, or one that was revoked.
    Unauthorised,
    /// 403: a token of another agent, a stream of another agent, or a token that is not for this.
    Forbidden,
    /// 404: there is no such thing.
    NotFound,
    /// 405.
    Method,
    /// 413: too long, packed or unpacked, or too many rows.
    TooLarge,
    /// 415: neither JSON nor JSON in gzip.
    MediaType,
    /// 400: not JSON, or not of this shape.
    Malformed,
    /// 422: of this shape, and impossible: a row that ends before it begins, a moment far in the future.
    Impossible,
    /// 409: this number is stored already. An agent that did not hear so goes on with the next; nothing was stored now.
    Replayed,
    /// 409: this number is stored already, with other contents: somebody else sends under the same stream, from a copy of the agent's
    /// folder. An agent begins another stream.
    Other,
    /// 409: a number before it is missing.
    OutOfTurn,
    /// 429: too much at once; see `Retry-After`.
    TooMany,
    /// 503: it cannot be stored now (no room on disk); see `Retry-After`.
    Unavailable,
}

impl Why {
    /// Its status.
    pub const fn status(self) -> u16 {
        match self {
            Why::Unauthorised => 401,
            Why::Forbidden => 403,
            Why::NotFound => 404,
            Why::Method => 405,
            Why::TooLarge => 413,
            Why::MediaType => 415,
            Why::Malformed => 400,
            Why::Impossible => 422,
            Why::Replayed | Why::Other | Why::OutOfTurn => 409,
            Why::TooMany => 429,
            Why::Unavailable => 503,
        }
    }

    /// Its name in JSON and in the manager's index.
    pub const fn as_str(self) -> &'static str {
        match self {
            Why::Unauthorised => "unauthorised",
            Why::Forbidden => "forbidden",
            Why::NotFound => "not_found",
            Why::Method => "method",
            Why::TooLarge => "too_large",
            Why::MediaType => "media_type",
            Why::Malformed => "malformed",
            Why::Impossible => "impossible",
            Why::Replayed => "replayed",
            Why::Other => "other",
            Why::OutOfTurn => "out_of_turn",
            Why::TooMany => "too_many",
            Why::Unavailable => "unavailable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_refusal_have_their_json_names() {
        for why in [Why::Unauthorised, Why::NotFound, Why::TooLarge, Why::OutOfTurn, Why::Unavailable] {
            assert_eq!(serde_json::to_string(&why).unwrap(), format!("{:?}", why.as_str()));
        }
    }

    #[test]
    fn names() {
        for good in ["a", "shop-7", "db.example_1", "0"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "-a", ".", "A", "a b", "a/b", "é", &"a".repeat(64)] {
            assert!(!is_name(bad), "{bad}");
        }
    }

    #[test]
    fn a_batch_reads_back_and_strange_fields_are_refused() {
        let batch = Batch {
            stream: "0".repeat(32),
            sequence: 1,
            boot: "b".into(),
            zero_own_unix_ns: 1,
            sealed_at_ns: 2,
            settings: 1,
            share: 1.0,
            levels: Levels::default(),
            lacks: Lacks::default(),
            programs: Vec::new(),
            rows: vec![TapRow::of(&schema::TapExchange::BLANK, &|ip| schema::TapAddress::Plain(ip))],
        };
        let text = serde_json::to_string(&batch).unwrap();
        assert_eq!(serde_json::from_str::<Batch>(&text).unwrap(), batch);
        let strange = text.replacen('{', "{\"payload\":\"x\",", 1);
        assert!(serde_json::from_str::<Batch>(&strange).is_err());
    }
}
