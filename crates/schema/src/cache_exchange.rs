//! One exchange with a cache: what was asked for, what came back, and what that says of the cache.
//!
//! The load writes everything but [`CacheExchange::hit`] and [`CacheExchange::wrong`]; those two are the judge's.

use units::Timestamp;

use crate::{FailureCause, Method};

/// One exchange of a mix: what was asked, whose answer came, and whether it was right.
///
/// Moments count from the run's zero on the monotonic clock; `.._unix_..` fields are wall clock, since HTTP's dates are.
/// What did not come is `None`, or 0 where the field says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CacheExchange {
    /// Number of the request in the run: [`crate::RequestRecord::sequence`] of the same exchange.
    pub sequence: u64,
    /// Index of the virtual client.
    pub client: u32,
    /// The run's mark, part of the identity of every ask.
    pub run: u32,
    /// The world in which objects were asked for.
    pub world: u32,
    /// Kind of the object: index into the mix's kinds.
    pub kind: u8,
    /// Number of the object in its kind.
    pub object: u64,
    /// Length of the body, in the variant asked for, as the origin makes it.
    pub object_bytes: u64,
    /// Whether the client accepts gzip.
    pub accepts_gzip: bool,
    /// Whether the variant asked for is the gzip one: the client accepts gzip and the object has it.
    pub variant_gzip: bool,
    /// How it was asked.
    pub form: CacheForm,
    /// Method.
    pub method: Method,
    /// Whether the stream drew it as a repeat: an object that was asked for before.
    pub repeat: bool,
    /// Whether a cache could have had it: a repeat of a cachable object, plainly asked, of which an earlier ask could fill a
    /// cache.
    pub offered: bool,
    /// Whether the origin lets caches keep the object.
    pub cachable: bool,
    /// Whether it went inside a CONNECT tunnel, so that no proxy could see it.
    pub secure: bool,
    /// Whether it was cut before its end as planned, by the client or by the origin.
    pub aborted: bool,
    /// When the schedule meant it to start.
    pub intended_at: Timestamp,
    /// Last byte of the request handed to the kernel.
    pub sent_at: Option<Timestamp>,
    /// Last byte of the response read, the planned leaving, or the failure.
    pub done_at: Timestamp,
    /// Wall clock when it was asked, in ms since 1970.
    pub asked_unix_ms: u64,
    /// Status code; 0 if no status line was read.
    pub status: u16,
    /// Why it failed; `None` if a whole answer of the object asked for came.
    pub failure: Option<FailureCause>,
    /// The ask that made the answer, by the answer's own identity; `None` where there was no identity, or one without an ask:
    /// the origin's 304, a copy whose head was renewed by one ([`Self::renewed`]), and what was made for a request that
    /// named no ask.
    pub from_sequence: Option<u64>,
    /// The run of that ask.
    pub from_run: Option<u32>,
    /// World of the object that came; 0 without an identity.
    pub got_world: u32,
    /// Number of the object that came; `None` without an identity.
    pub got_object: Option<u64>,
    /// Kind of the object that came.
    pub got_kind: u8,
    /// Version that came.
    pub got_version: u32,
    /// Wall clock when the origin made the answer, in ms since 1970; 0 without an identity.
    pub made_unix_ms: u64,
    /// Whether its identity is that of a 304 of the origin: such an answer itself, or a copy whose head one renewed, which was
    /// there before. `made_unix_ms` is then the moment of the renewal.
    pub renewed: bool,
    /// Value of Age: how old whoever sent the answer says that it is, in s. `None` where it was absent or no number.
    pub age_s: Option<u32>,
    /// Version that the origin had when it was asked.
    pub due_version: u32,
    /// Until when, in s since 1970, a cache may keep using what the origin would have answered when it was asked;
    /// `i64::MAX` where the origin does not say.
    pub expires_unix_s: i64,
    /// Whether the origin can renew a copy without sending the body again: the object has a Last-Modified or an ETag.
    pub renewable: bool,
    /// Whether the answer's head said that its body is gzip.
    pub came_gzip: bool,
    /// What the body was like.
    pub content: CacheContent,
    /// Bytes of the body that came, without the framing of chunks.
    pub body_bytes: u64,
    /// Whether it came out of a cache: the answer's ask is not this one, or it names none and was surely made before this one was
    /// asked. False where that cannot be told (no answer, no identity, 304).
    pub hit: bool,
    /// What was wrong with it; the gravest where there are several.
    pub wrong: Option<Wrong>,
}

impl CacheExchange {
    /// done - intended: as [`crate::RequestRecord::response_time_ns`].
    pub fn response_time_ns(&self) -> u64 {
        self.done_at.as_nanos().saturating_sub(self.intended_at.as_nanos())
    }

    /// A plain GET that a proxy could see: the hit ratios are of these.
    pub fn is_basic(&self) -> bool {
        self.method == Method::Get && self.form == CacheForm::Basic && !self.secure
    }

    /// Whether it is an object of the origin's that was made for a request which named no ask: whoever stands between does not
    /// pass `X-Yamabiko-Ask` on, or asked for itself.
    pub fn is_unnamed(&self) -> bool {
        self.status == 200 && self.got_object.is_some() && self.from_sequence.is_none() && !self.renewed
    }

    /// Whether it would fill an empty cache, if nothing failed: a GET of an object that may be kept, for which the origin sends
    /// a body, not in a tunnel and not cut before its end.
    pub fn could_fill(&self) -> bool {
        self.cachable && self.method == Method::Get && self.form != CacheForm::Ims304 && !self.secure && !self.aborted
    }
}

/// How an object is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheForm {
    /// Without a condition.
    #[default]
    Basic,
    /// If-Modified-Since, with a date before the object's last change: a 200 is due.
    Ims200,
    /// If-Modified-Since, with a date after it: a 304 is due.
    Ims304,
    /// Past every cache: `Cache-Control: no-cache`.
    Reload,
}

impl CacheForm {
    /// Every form, in the order of declaration.
    pub const ALL: [CacheForm; 4] = [CacheForm::Basic, CacheForm::Ims200, CacheForm::Ims304, CacheForm::Reload];

    /// The name in JSON, Parquet and on the terminal.
    pub const fn name(self) -> &'static str {
        match self {
            CacheForm::Basic => "basic",
            CacheForm::Ims200 => "ims200",
            CacheForm::Ims304 => "ims304",
            CacheForm::Reload => "reload",
        }
    }
}

/// What a body was like, held against the one that the identity in its head names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheContent {
    /// Byte for byte.
    Right,
    /// There was none to look at, or nothing to hold it against.
    #[default]
    NotLooked,
    /// Another byte somewhere.
    Differs,
    /// It ended too early.
    Short,
    /// It went on.
    Long,
    /// Compressed or decompressed by the proxy itself: not compared byte for byte.
    Recoded,
}

impl CacheContent {
    /// Every content, in the order of declaration.
    pub const ALL: [CacheContent; 6] = [
        CacheContent::Right,
        CacheContent::NotLooked,
        CacheContent::Differs,
        CacheContent::Short,
        CacheContent::Long,
        CacheContent::Recoded,
    ];

    /// The name in JSON, Parquet and on the terminal.
    pub const fn name(self) -> &'static str {
        match self {
            CacheContent::Right => "right",
            CacheContent::NotLooked => "not_looked",
            CacheContent::Differs => "differs",
            CacheContent::Short => "short",
            CacheContent::Long => "long",
            CacheContent::Recoded => "recoded",
        }
    }
}

/// What a cache did wrong. In the order of gravity: an exchange has the first that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// A 200 that is not of this origin and world: no identity, or another world's.
    Foreign,
    /// Another object than the one asked for.
    WrongObject,
    /// A gzip body for a client that does not take gzip.
    WrongVariant,
    /// The right head with a body that is not the object's.
    WrongBody,
    /// A body that ends too early and says that it is whole.
    Truncated,
    /// A 304 where the client had no copy, or an older one.
    FalseNotModified,
    /// Out of a cache, though the origin forbade keeping it.
    HitOnUncachable,
    /// Out of a cache, though the client asked to go past it.
    HitOnReload,
    /// Said to be made for an ask that asked for something else, or an answer to POST out of a cache.
    FalseHit,
    /// An older version than the origin's, whose lifetime was over.
    Stale,
    /// Fetched from the origin though a copy that could be used had been fetched whole before. No fault of correctness: a
    /// finite cache evicts.
    FalseMiss,
}

impl Wrong {
    /// Every kind, in the order of declaration (also the order of counter arrays).
    pub const ALL: [Wrong; 11] = [
        Wrong::Foreign,
        Wrong::WrongObject,
        Wrong::WrongVariant,
        Wrong::WrongBody,
        Wrong::Truncated,
        Wrong::FalseNotModified,
        Wrong::HitOnUncachable,
        Wrong::HitOnReload,
        Wrong::FalseHit,
        Wrong::Stale,
        Wrong::FalseMiss,
    ];

    /// The name in JSON, Parquet and on the terminal.
    pub const fn name(self) -> &'static str {
        match self {
            Wrong::Foreign => "foreign",
            Wrong::WrongObject => "wrong_object",
            Wrong::WrongVariant => "wrong_variant",
            Wrong::WrongBody => "wrong_body",
            Wrong::Truncated => "truncated",
            Wrong::FalseNotModified => "false_not_modified",
            Wrong::HitOnUncachable => "hit_on_uncachable",
            Wrong::HitOnReload => "hit_on_reload",
            Wrong::FalseHit => "false_hit",
            Wrong::Stale => "stale",
            Wrong::FalseMiss => "false_miss",
        }
    }

    /// Position in [`Wrong::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Whether the client got an answer that it must not get. A false miss only costs time.
    pub const fn is_incorrect(self) -> bool {
        !matches!(self, Wrong::FalseMiss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_those_of_the_list() {
        for (at, wrong) in Wrong::ALL.into_iter().enumerate() {
            assert_eq!(wrong.index(), at);
        }
        assert!(Wrong::ALL.is_sorted(), "the gravest first");
    }
}
