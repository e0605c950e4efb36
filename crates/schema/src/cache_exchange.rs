//! One exchange with a cache: the request, the response, and whether it was a hit and correct.
//!
//! The load writes everything but [`CacheExchange::hit`] and [`CacheExchange::wrong`]; those two are set by the verification.

use units::Timestamp;

use crate::{FailureCause, Method, record};

record! {
    // Some 250 bytes a row. The load writes everything but `hit` and `wrong`.
    /// One request of a cache benchmark, in order of completion: the object requested, the object received, and whether
    /// the response was correct. Its times are in requests.parquet under the same sequence. The object's path is /y/<world>/<letter of
    /// its kind><object>, in hexadecimal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub struct CacheExchange in "cache_exchanges", 32_768 rows a part {
        /// Number of the request in the run, as in requests.parquet.
        pub sequence: u64,
        /// Index of the virtual user; its address is the first client address plus this.
        pub client: u32,
        /// The run's mark in its request ids.
        pub run: u32 [few],
        /// World of the object requested.
        pub world: u32 [few],
        /// Kind of the object: index into the workload's kinds.
        pub kind: u8 [few],
        /// Number of the object within its kind.
        pub object: u64,
        /// Length of the body as the origin makes it, in the variant requested: hit ratios in bytes are of this.
        pub object_bytes: u64 [unit "bytes"],
        /// Whether the client accepts gzip.
        pub accepts_gzip: bool,
        /// Whether the origin would send gzip: the client accepts it and the object has a gzip variant.
        pub variant_gzip: bool,
        /// Form of the request: basic; ims200, by a date before the last change; ims304, by one after it; reload, which
        /// bypasses caches.
        pub form: CacheForm,
        /// GET, HEAD or POST.
        pub method: Method,
        /// Whether the object had been requested before.
        pub repeat: bool,
        // A plain repeat of a cacheable object whose earlier request could fill a cache.
        /// Whether an unlimited cache could have had a copy: see docs/concepts/cache-bench.md.
        pub offered: bool,
        /// Whether the origin lets caches store the object.
        pub cacheable: bool,
        /// Whether it was inside a CONNECT tunnel, invisible to the proxy.
        pub secure: bool,
        /// Whether client or origin aborted the response as planned.
        pub aborted: bool,
        /// Scheduled start.
        pub scheduled_at: Timestamp,
        /// Last byte of the request written to the kernel. Null if it never was.
        pub sent_at: Option<Timestamp>,
        /// Last byte of the response read, the planned end, or the failure.
        pub done_at: Timestamp,
        /// Wall clock at the request, since 1970 (UTC): HTTP's dates are of this clock.
        pub requested_unix_ms: u64 [unit "ms"],
        /// HTTP status code. Null if no status line was read.
        pub status: u16 [few, null if |row| row.status == 0],
        /// Why it failed, such as unexpected_body. Null if the requested object came.
        pub failure: Option<FailureCause> [name "cause"],
        /// Number of the request for which the origin made the response: a hit if it is another. Null without one: no
        /// identity, a 304 of the origin, a copy renewed by a 304, a response to a request without an id.
        pub from_sequence: Option<u64>,
        /// Run of that request. Null if from_sequence is.
        pub from_run: Option<u32> [few],
        /// Number of the object received. Null without an identity.
        pub response_object: Option<u64>,
        /// Its world. Null without an identity.
        pub response_world: u32 [few, null if |row| row.response_object.is_none()],
        /// Its kind. Null without an identity.
        pub response_kind: u8 [few, null if |row| row.response_object.is_none()],
        /// Its version. Null without an identity.
        pub response_version: u32 [few, null if |row| row.response_object.is_none()],
        /// Wall clock when the origin generated it, since 1970 (UTC). Null without an identity.
        pub generated_unix_ms: u64 [unit "ms", null if |row| row.generated_unix_ms == 0],
        // `generated_unix_ms` is then the time of the renewal.
        /// Whether its identity is that of a 304 of the origin, forwarded, or adopted by a copy that it renewed.
        pub renewed: bool,
        /// Value of the Age header of the response. Null without a valid one.
        pub age_s: Option<u32> [unit "s", few],
        /// Version that the origin had at the time of the request.
        pub expected_version: u32 [few],
        /// Until when, since 1970 (UTC), a cache may use the origin's response of that time. Null where it says
        /// nothing.
        pub expires_unix_s: i64 [unit "s", null if |row| row.expires_unix_s == i64::MAX, blank (i64::MAX)],
        /// Whether a copy can be validated: the object has Last-Modified or ETag.
        pub renewable: bool,
        /// Whether the response had Content-Encoding: gzip.
        pub body_gzip: bool,
        /// The body compared with the one of its identity: right, not_looked, differs, short, long, or recoded by the
        /// proxy.
        pub content: CacheContent,
        /// Body bytes received, without chunk framing.
        pub body_bytes: u64 [unit "bytes"],
        // Set by the verification, as is `wrong`. False where it is unknown: no response, no identity, 304.
        /// Whether it is a response from a cache: its identity names another request, or an earlier time. Never for a 304.
        pub hit: bool,
        /// The most severe error of the response: foreign, wrong_object, wrong_variant, wrong_body, truncated,
        /// false_not_modified, hit_on_uncacheable, hit_on_reload, false_hit, stale, false_miss. Null if nothing.
        pub wrong: Option<Wrong>,
    }
}

impl CacheExchange {
    /// done - scheduled: as [`crate::RequestRecord::response_time_ns`].
    pub fn response_time_ns(&self) -> u64 {
        self.done_at.as_nanos().saturating_sub(self.scheduled_at.as_nanos())
    }

    /// A plain GET visible to a proxy. Hit ratios cover these.
    pub fn is_basic(&self) -> bool {
        self.method == Method::Get && self.form == CacheForm::Basic && !self.secure
    }

    /// Whether it is an object of the origin's that was made for a request without an id: a proxy does not
    /// forward `X-Yamabiko-Request-Id`, or made the request itself.
    pub fn is_without_identity(&self) -> bool {
        self.status == 200 && self.response_object.is_some() && self.from_sequence.is_none() && !self.renewed
    }

    /// Whether the response would fill an empty cache: a GET of a cacheable object with a body, outside a tunnel and not
    /// aborted.
    pub fn could_fill(&self) -> bool {
        self.cacheable && self.method == Method::Get && self.form != CacheForm::Ims304 && !self.secure && !self.aborted
    }
}

/// Form of a request for an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheForm {
    /// Without a condition.
    #[default]
    Basic,
    /// If-Modified-Since, with a date before the object's last change: a 200 is expected.
    Ims200,
    /// If-Modified-Since, with a date after it: a 304 is expected.
    Ims304,
    /// Bypasses every cache: `Cache-Control: no-cache`.
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

/// A body compared with the one that the identity in its head names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheContent {
    /// Equal byte for byte.
    Right,
    /// Not compared: no body, or no identity.
    #[default]
    NotLooked,
    /// A byte differs.
    Differs,
    /// Shorter.
    Short,
    /// Longer.
    Long,
    /// Compressed or decompressed by the proxy: not compared.
    Recoded,
}

impl CacheContent {
    /// Every result, in the order of declaration.
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

/// Kind of incorrect response, in order of severity: an exchange has the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// A 200 not from this origin and world: no identity, or that of another world.
    Foreign,
    /// Another object than the one requested.
    WrongObject,
    /// A gzip body for a client that does not accept gzip.
    WrongVariant,
    /// The correct head with other body bytes.
    WrongBody,
    /// A short body declared complete.
    Truncated,
    /// A 304 to a client without a current copy.
    FalseNotModified,
    /// Served from a cache although the origin forbade storing it.
    HitOnUncacheable,
    /// Served from a cache although the client sent no-cache.
    HitOnReload,
    /// Generated for a request for another object, or a cached response to POST.
    FalseHit,
    /// An older version after its lifetime.
    Stale,
    /// Fetched from the origin although a complete usable copy had been fetched before. Not incorrect: a finite cache evicts.
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
        Wrong::HitOnUncacheable,
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
            Wrong::HitOnUncacheable => "hit_on_uncacheable",
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

    /// Whether the client got a response that it must not get. A false miss only costs time.
    pub const fn is_incorrect(self) -> bool {
        !matches!(self, Wrong::FalseMiss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_follow_the_order_of_severity() {
        for (at, wrong) in Wrong::ALL.into_iter().enumerate() {
            assert_eq!(wrong.index(), at);
        }
        assert!(Wrong::ALL.is_sorted(), "the most severe first");
    }
}
