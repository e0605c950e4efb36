//! Interim responses (1xx) of an upstream: forwarded before the final response, and limited.
//!
//! ```text
//!   upstream --1xx--> Interim: counted --within the bound--> Hints --> client (not 100: this server sends its own; not 101)
//!                              '--beyond it--> the exchange ends with 502
//! ```
//!
//! Without a limit an upstream that sends `100 Continue` endlessly would occupy its slot and the thread until the
//! timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Request;
use tokio::sync::Notify;

use super::client::Hints;
use super::fields::end_to_end;

/// The interim responses to one request, over all attempts to send it.
#[derive(Clone, Debug)]
pub(super) struct Interim {
    hints: Option<Hints>,
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    responses: AtomicUsize,
    /// Bytes of field names and values.
    bytes: AtomicUsize,
    bytes_max: usize,
    exceeded: Notify,
}

impl Interim {
    /// `bytes_max`: limit of the fields of all interim responses together. `hints`: their client.
    pub(super) fn new(hints: Option<Hints>, bytes_max: usize) -> Self {
        let counts =
            Counts { responses: AtomicUsize::new(0), bytes: AtomicUsize::new(0), bytes_max, exceeded: Notify::new() };
        Interim { hints, counts: Arc::new(counts) }
    }

    /// Observes the interim responses to `request`.
    pub(super) fn watch<B>(&self, request: &mut Request<B>) {
        let this = self.clone();
        hyper::ext::on_informational(request, move |response| this.take(response.status(), response.headers()));
    }

    /// Returns when [`RESPONSES_MAX`] or the byte limit is exceeded.
    pub(super) async fn exceeded(&self) {
        self.counts.exceeded.notified().await;
    }

    fn take(&self, status: http::StatusCode, fields: &http::HeaderMap) {
        let bytes: usize = fields.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        let responses = self.counts.responses.fetch_add(1, Ordering::Relaxed) + 1;
        let bytes = self.counts.bytes.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if responses > RESPONSES_MAX || bytes > self.counts.bytes_max {
            self.counts.exceeded.notify_one();
            return;
        }
        // 100 answers an expectation, which is not forwarded: this server sends its own. 101 would end HTTP.
        if let Some(hints) = &self.hints
            && !matches!(status.as_u16(), 100 | 101)
        {
            hints.send_interim(status.as_u16(), end_to_end(fields).into());
        }
    }
}

/// Interim responses per request. A program that reports progress by 102 every 10 s needs 60 in the 10 minutes of a
/// response.
pub(super) const RESPONSES_MAX: usize = 64;
