//! The JSON document of a run, field for field (docs/concepts/json.md).
//!
//! A figure that was not measured is absent, never zero. Every `_ns` field is nanoseconds. Reading accepts exactly what
//! writing writes.

mod distribution;
mod load;
mod path;
mod run;
mod server;
mod validity;

use serde::{Deserialize, Serialize};

pub use self::distribution::{Level, Quantiles};
pub use self::load::{
    DistanceBand, GeneratorDelay, Har, Load, MalformedResponses, OpenConnections, PhasePart, Quic, Replay, Sessions,
    Tls, Unsolicited, UrlPart, UrlsLeftOut,
};
pub use self::path::{Path, PathDirection, PathInCapture};
pub use self::run::{ClockOffset, ClockOffsets, Host, MergedShard, Recorded, Run, Shard, ShardCoordination, WallClock};
pub use self::server::Server;
pub use self::validity::{Check, CheckState, Slo, SloTerm, Validity, Verdict, Weight};
use crate::cache_part::CachePart;
use crate::tap_part::TapPart;
use crate::watch_part::WatchPart;

/// The value of [`Document::schema`].
pub const SCHEMA: &str = "yamabiko.run/2";

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Command, place and time of the run.
    pub run: Run,
    /// Validity checks and verdict.
    pub validity: Validity,
    /// Results of the load generator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The path's figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// Results of the packet capture at the server's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchPart>,
    /// Records of programs' own socket calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<TapPart>,
    /// The server's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// The objective and whether it is met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// Results of a cache between the clients and the origin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CachePart>,
}

impl Document {
    /// A document of a load alone, `duration_s` seconds long, without checks: to evaluate a load without a run, and as
    /// a start for other documents.
    pub fn of_load(load: Load, duration_s: f64) -> Self {
        Document {
            schema: SCHEMA.into(),
            run: Run { duration_s, ..Run::default() },
            validity: Validity::from_checks(Vec::new()),
            load: Some(load),
            path: None,
            watch: None,
            tap: None,
            server: None,
            slo: None,
            cache: None,
        }
    }
}
