//! The JSON document of a run: design section 4, field for field.
//!
//! Absent parts are absent, never zero. Every `_ns` field is nanoseconds. Reading accepts exactly what writing writes.

mod distribution;
mod load;
mod path;
mod run;
mod server;
mod validity;

use serde::{Deserialize, Serialize};

pub use self::distribution::{Level, Quantiles};
pub use self::load::{
    DistanceBand, GeneratorDelay, Har, Load, MalformedResponses, OpenConnections, PhasePart, Replay, Sessions, Tls,
    Unsolicited, UrlPart, UrlsLeftOut,
};
pub use self::path::{Path, PathDirection, PathFromOutside};
pub use self::run::{Host, Recorded, Run};
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
    /// What was run, where and when.
    pub run: Run,
    /// Whether to believe it.
    pub validity: Validity,
    /// The load's own clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Load>,
    /// The path's figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Path>,
    /// What the wire showed at the server's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<WatchPart>,
    /// What programs saw through their own sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<TapPart>,
    /// The server's processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Server>,
    /// The objective and whether it held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// What a cache between the clients and the origin did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<CachePart>,
}

impl Document {
    /// One made of a load alone, `duration_s` seconds long: no checks, nothing else. For what is judged by a load without a run, and to
    /// begin another with.
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
