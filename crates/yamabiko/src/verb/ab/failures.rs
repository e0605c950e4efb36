//! Failures at which ab exits without a report: its messages and exit statuses.

use report::ab::Failed;
use schema::{FailureCause, RequestRecord};

use super::progress::FAILURES_MAX;
use crate::args::ab::Options;

/// A failure that ends ab without a report.
#[derive(Debug, PartialEq, Eq)]
pub struct FatalFailure {
    /// ab's message.
    pub message: String,
    /// ab's exit status.
    pub status: u8,
    /// Requests completed before the failure.
    pub completed: u64,
}

/// Counts a failure in one of ab's four kinds.
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

/// The failure at which ab would have exited, if there is one: an error of the network. With -r only if no request was
/// completed.
pub fn fatal(records: &[RequestRecord], options: &Options) -> Option<FatalFailure> {
    let completed = records.iter().filter(|record| record.failure.is_none()).count() as u64;
    let failed = records.len() as u64 - completed;
    let (call, text, number) = records.iter().find_map(|record| system_error(record.failure?))?;
    let aborted = failed > FAILURES_MAX && completed == 0;
    if options.survives_receive_errors && !aborted {
        return None;
    }
    let before = if aborted { "\nTest aborted after 10 failures\n\n" } else { "" };
    // An exit status is one byte: the kernel truncates the number.
    Some(FatalFailure { message: format!("{before}{call}: {text} ({number})"), status: number as u8, completed })
}

/// The system call, error text and error number that ab would have printed.
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
