//! Reports in the layout of ApacheBench 2.3, for scripts that parse ab's output.
//!
//! ```text
//!   Report (figures) --> text    ab's standard output  \
//!                    --> html    ab -w                  > pure functions, snapshot-tested
//!                    --> files   ab -g and ab -e       /
//! ```
//!
//! Every line, label, column and number format is that of ab. Where ab counts or computes wrongly, this report has the
//! correct figure; docs/concepts/ab.md lists the differences. [`times`] has the arithmetic.

mod files;
mod html;
mod text;
pub mod times;

use std::time::{Duration, SystemTime};

pub use self::files::{gnuplot, percentages};
pub use self::html::{Attributes, html};
pub use self::text::{Shown, text};
pub use self::times::{RequestTimes, Times};

/// Figures of a report.
#[derive(Clone, Debug)]
pub struct Report {
    /// Value of the Server header in the first response; empty without the header.
    pub software: String,
    /// The URL's host.
    pub hostname: String,
    /// The URL's port.
    pub port: u16,
    /// TLS; `None` for http.
    pub tls: Option<Secured>,
    /// Path and query of the URL.
    pub path: String,
    /// Body length of the first complete response in bytes; `None` if lengths may vary.
    pub document_bytes: Option<u64>,
    /// Connections of the closed loop.
    pub concurrency: u32,
    /// Time from the first connect to the last byte.
    pub taken: Duration,
    /// Requests that ended, including failed ones.
    pub complete: u64,
    /// Failed requests, each counted once.
    pub failed: Failed,
    /// Requests that could not be written completely; included in the failed requests.
    pub write_errors: u64,
    /// Responses with a status outside 200 to 299.
    pub non_2xx: u64,
    /// Responses after which the connection stayed open; `None` if keep-alive was not requested.
    pub kept_alive: Option<u64>,
    /// Bytes of responses, including heads.
    pub bytes_received: u64,
    /// Bytes of requests, including heads; `None` for requests without a body.
    pub bytes_sent: Option<u64>,
    /// Bytes of response bodies.
    pub body_bytes: u64,
    /// Times of every request that ended.
    pub times: Times,
    /// Wall clock at the zero of these times.
    pub zero_at: SystemTime,
}

/// Failed requests by ab's four kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Failed {
    /// No connection: refused, timed out, no free port, or a failed TLS handshake.
    pub connect: u64,
    /// Connection reset, timed out, or closed before the first byte.
    pub receive: u64,
    /// The body is truncated, or its length differs from that of the first response.
    pub length: u64,
    /// Other failures: the response was not valid HTTP.
    pub exceptions: u64,
}

/// Negotiated TLS parameters.
#[derive(Clone, Debug)]
pub struct Secured {
    /// Version and cipher suite, such as `TLSv1.3,TLS_AES_256_GCM_SHA384`.
    pub protocol: String,
    /// The name sent in SNI; `None` for an address.
    pub server_name: Option<String>,
}

impl Failed {
    /// Number of failed requests of all kinds.
    pub fn all(&self) -> u64 {
        self.connect + self.receive + self.length + self.exceptions
    }
}

impl Report {
    /// Ended requests per second; `None` without requests or elapsed time.
    fn requests_per_s(&self) -> Option<f64> {
        let rate = self.complete as f64 / self.taken.as_secs_f64();
        (self.complete > 0 && rate.is_finite()).then_some(rate)
    }

    /// A number of bytes of the run as a rate in KiB per second.
    fn kib_per_s(&self, bytes: u64) -> f64 {
        bytes as f64 / 1024.0 / self.taken.as_secs_f64()
    }
}
