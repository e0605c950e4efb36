//! The layout of ApacheBench 2.3, so that scripts which read its report read this one.
//!
//! ```text
//!   Report (figures) --> text    what ab prints        \
//!                    --> html    ab -w                  > pure functions, snapshot-tested
//!                    --> files   ab -g and ab -e       /
//! ```
//!
//! Every line, label, column and number format is ab's. Where ab counts or computes wrongly the figure is the right one,
//! and docs/concepts/ab.md says how they differ. [`times`] has the arithmetic.

mod files;
mod html;
mod text;
pub mod times;

use std::time::{Duration, SystemTime};

pub use self::files::{gnuplot, percentages};
pub use self::html::{Attributes, html};
pub use self::text::{Shown, text};
pub use self::times::{RequestTimes, Times};

/// What a report shows.
#[derive(Clone, Debug)]
pub struct Report {
    /// Value of the Server header in the first response; empty where there was none.
    pub software: String,
    /// The URL's host.
    pub hostname: String,
    /// Its port.
    pub port: u16,
    /// TLS; `None` for http.
    pub tls: Option<Secured>,
    /// Path and query of the URL.
    pub path: String,
    /// Body of the first response that was whole, in bytes; `None` where lengths may vary.
    pub document_bytes: Option<u64>,
    /// Connections of the closed loop.
    pub concurrency: u32,
    /// From the first connect to the last byte.
    pub taken: Duration,
    /// Requests that ended, failed ones included.
    pub complete: u64,
    /// Those that failed, each counted once.
    pub failed: Failed,
    /// Those whose request could not be written whole; among the failed.
    pub write_errors: u64,
    /// Responses with a status outside 200 to 299.
    pub non_2xx: u64,
    /// Responses that left their connection open; `None` where that was not asked for.
    pub kept_alive: Option<u64>,
    /// Bytes of responses, heads included.
    pub bytes_received: u64,
    /// Bytes of requests, heads included; `None` where they have no body.
    pub bytes_sent: Option<u64>,
    /// Bytes of bodies.
    pub body_bytes: u64,
    /// Times of every request that ended.
    pub times: Times,
    /// The wall clock at the zero of those times.
    pub zero_at: SystemTime,
}

/// Requests that failed, by ab's four kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// No connection: refused, timed out, no port, a TLS handshake that failed.
    pub connect: u64,
    /// Reset, timed out, or closed before the first byte.
    pub receive: u64,
    /// A body of another length than the first response's, or cut short.
    pub length: u64,
    /// Anything else: what came was no HTTP.
    pub exceptions: u64,
}

/// What TLS settled.
#[derive(Clone, Debug)]
pub struct Secured {
    /// Version and cipher suite, such as `TLSv1.3,TLS_AES_256_GCM_SHA384`.
    pub protocol: String,
    /// The name sent in SNI; none for an address.
    pub server_name: Option<String>,
}

impl Failed {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.connect + self.receive + self.length + self.exceptions
    }
}

impl Report {
    /// Requests that ended a second; `None` where nothing ended or no time passed.
    fn requests_per_s(&self) -> Option<f64> {
        let rate = self.complete as f64 / self.taken.as_secs_f64();
        (self.complete > 0 && rate.is_finite()).then_some(rate)
    }

    /// So many bytes over the run, in KiB a second.
    fn kib_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / 1024.0 / self.taken.as_secs_f64()
    }
}
