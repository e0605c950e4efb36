//! Failures that end ab: its words, and its exit status.

use report::ab::Failed;
use schema::{FailureCause, RequestRecord};

use super::progress::FAILURES_BORNE;
use crate::args::ab::Options;

/// The end of a run without a report.
#[derive(Debug, PartialEq, Eq)]
pub struct Fatal {
    /// As ab says it.
    pub message: String,
    /// As ab ends.
    pub status: u8,
    /// Requests answered before.
    pub completed: u64,
}

/// ab's four kinds of failure.
pub fn count(failed: &mut Failed, cause: FailureCause) {
    let kind = match cause {
        FailureCause::ConnectTimeout
        | FailureCause::ConnectRefused
        | FailureCause::ConnectFailed
        | FailureCause::TlsHandshake
        | FailureCause::TlsCertificate
        | FailureCause::NoPorts
        | FailureCause::NoDescriptors => &mut failed.connect,
        FailureCause::ResponseTimeout
        | FailureCause::ClosedBeforeResponse
        | FailureCause::Reset
        | FailureCause::TlsBroken
        | FailureCause::TlsTruncated => &mut failed.receive,
        FailureCause::ClosedEarly => &mut failed.length,
        _ => &mut failed.exceptions,
    };
    *kind += 1;
}

/// Whether these requests ended as ab would not have gone on from: an error of the network, unless -r was given; then
/// only if nothing at all was answered.
pub fn fatal(records: &[RequestRecord], options: &Options) -> Option<Fatal> {
    let completed = records.iter().filter(|record| record.failure.is_none()).count() as u64;
    let failed = records.len() as u64 - completed;
    let (call, words, number) = records.iter().find_map(|record| system_error(record.failure?))?;
    let aborted = failed > FAILURES_BORNE && completed == 0;
    if options.survives_receive_errors && !aborted {
        return None;
    }
    let before = if aborted { "\nTest aborted after 10 failures\n\n" } else { "" };
    // The kernel keeps the low byte of a status.
    Some(Fatal { message: format!("{before}{call}: {words} ({number})"), status: number as u8, completed })
}

/// The call, the system's words and the number that ab would have shown.
fn system_error(cause: FailureCause) -> Option<(&'static str, &'static str, u32)> {
    let timeout = ("apr_pollset_poll", "The timeout specified has expired", 70_007);
    match cause {
        FailureCause::ConnectRefused => Some(("apr_socket_connect()", "Connection refused", 111)),
        FailureCause::ConnectFailed => Some(("apr_socket_connect()", "No route to host", 113)),
        FailureCause::NoPorts => Some(("apr_socket_connect()", "Cannot assign requested address", 99)),
        FailureCause::NoDescriptors => Some(("socket", "Too many open files", 24)),
        FailureCause::Reset => Some(("apr_socket_recv", "Connection reset by peer", 104)),
        FailureCause::ConnectTimeout | FailureCause::ResponseTimeout => Some(timeout),
        FailureCause::TlsHandshake | FailureCause::TlsCertificate => Some(("SSL handshake", "failed", 1)),
        _ => None,
    }
}
