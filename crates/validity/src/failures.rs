//! Outcomes of requests: failures, error statuses, retries, and responses that do not match their request.

use schema::document::{Check, CheckState, Document, Load, Weight};

use super::draft::Draft;
use plan::Plan;

/// With a larger share of failed requests, response times are no longer those of the requested pages.
const ERROR_SHARE: f64 = 0.01;
/// With a larger share of responses on connections with unsolicited data, requests may be paired with the wrong
/// responses throughout.
const UNSOLICITED_SHARE: f64 = 0.001;
/// With a larger share of early responses, bytes sent and work of the server differ from the plan.
const EARLY_SHARE: f64 = 0.01;
/// With a larger share of retries, response times include the time of failed attempts.
const RETRIED_SHARE: f64 = 0.01;
/// Most causes or status codes in a message.
const NAMED_CAUSES_MAX: usize = 4;

/// Truncated or malformed responses show a defect of the server, not its limit: one is enough for doubt.
pub(super) fn responses_whole(document: &Document) -> Check {
    let check = Draft::new("responses_whole", Weight::Suspect, "requests");
    let Some(load) = &document.load else { return check.not_applicable("there is no load") };
    let count = |cause: &str| load.failed.get(cause).copied().unwrap_or(0);
    let (early, before, reset, malformed) = (
        count("closed_early") + count("tls_truncated"),
        count("closed_before_response"),
        count("reset") + count("tls_broken"),
        count("malformed") + count("head_too_large"),
    );
    check.at_most(
        (early + before + reset + malformed) as f64,
        0.0,
        "truncated or malformed responses",
        &format!(
            "the server closed connections {early} times during a response and {before} times before one, reset or broke {reset} \
             connections, and sent {malformed} malformed responses: the figures are those of a failing server"
        ),
    )
}

/// One rule for all bad responses: a failure of any cause, or a status other than success. An error page is short and
/// served fast, and a timeout hides the true response time.
pub(super) fn error_rate(document: &Document, plan: &Plan) -> Check {
    let check = Draft::new("error_rate", Weight::Suspect, "ratio");
    let Some(load) = document.load.as_ref().filter(|load| load.completed > 0) else {
        return check.not_applicable("there is no complete response (see server_answers)");
    };
    let followed = plan.load.follows_redirects();
    // If the plan expects statuses, requests with other statuses have failed already.
    let expected = plan.load.expects_statuses();
    let good = |status: &str| expected || is_success(status) || followed && status.starts_with('3');
    // Requests that Ctrl-C interrupted do not count against the server.
    let counts = |cause: &str| !(document.run.interrupted && cause == "aborted");
    let failed = load.failed.iter().filter(|(cause, _)| counts(cause));
    let failed: Vec<(String, u64)> = failed.map(|(cause, &count)| (cause.replace('_', " "), count)).collect();
    let bad = load.status.iter().filter(|(status, _)| !good(status));
    let bad: Vec<(String, u64)> = bad.map(|(status, &count)| (format!("status {status}"), count)).collect();
    let ended = load.completed + failed.iter().map(|(_, count)| count).sum::<u64>();
    let mut errors: Vec<(String, u64)> = failed.into_iter().chain(bad).collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let count: u64 = errors.iter().map(|(_, count)| count).sum();
    let more = if errors.len() > NAMED_CAUSES_MAX { ", .." } else { "" };
    let named: Vec<String> =
        errors.iter().take(NAMED_CAUSES_MAX).map(|(what, count)| format!("{what} x {count}")).collect();
    check.at_most(
        count as f64 / ended as f64,
        ERROR_SHARE,
        "share of the requests that failed, or got a status other than 2xx or 304",
        &format!(
            "{count} of {ended} requests failed or got an error status ({}{more}): check the URL and the server. Error \
             pages are often served faster than pages, and failed requests count in the response \
             times until their failure",
            named.join(", ")
        ),
    )
}

/// Whether a status counts as success.
fn is_success(status: &str) -> bool {
    status.starts_with('2') || status == "304"
}

/// A server that sends more responses than requests shifts the pairing of requests and responses on a connection: a
/// response may have been sent before its request was read.
pub(super) fn responses_solicited(document: &Document) -> Check {
    let name = "responses_solicited";
    let Some(load) = &document.load else {
        return Draft::new(name, Weight::Invalid, "ratio").not_applicable("there is no load");
    };
    let Some(unsolicited) = &load.unsolicited else {
        let check = Draft::new(name, Weight::Invalid, "ratio");
        return check.end(
            CheckState::Ok,
            Some(0.0),
            Some(UNSOLICITED_SHARE),
            "share of responses on connections with unsolicited data",
        );
    };
    // Unsolicited data counts over the whole run, like the count of connections.
    let share = unsolicited.responses as f64 / responses(load).max(unsolicited.responses).max(1) as f64;
    let weight = if share > UNSOLICITED_SHARE { Weight::Invalid } else { Weight::Suspect };
    Draft::new(name, weight, "ratio").end(
        CheckState::Failed,
        Some(share),
        Some(UNSOLICITED_SHARE),
        &format!(
            "{} connections received unsolicited data after {} responses: these responses may belong to other requests \
             than they were paired with, so that their times are wrong. The server sends more responses than requests",
            unsolicited.connections, unsolicited.responses
        ),
    )
}

/// Received responses of any status.
fn responses(load: &Load) -> u64 {
    load.completed + load.failed.get("unsolicited_data").copied().unwrap_or(0)
}

/// A response before the complete request was received: the server did not process the whole request.
pub(super) fn early_responses(document: &Document) -> Check {
    let check = Draft::new("early_responses", Weight::Suspect, "ratio");
    let Some(load) = document.load.as_ref().filter(|load| load.completed > 0) else {
        return check.not_applicable("there is no complete response");
    };
    check.at_most(
        load.early_responses as f64 / load.completed as f64,
        EARLY_SHARE,
        "share of the responses that were complete before the server had received the complete request",
        &format!(
            "{} of {} responses were complete before the server had received the complete request: it responded without reading \
             the request, so these are not the figures of a server that processes such requests",
            load.early_responses, load.completed
        ),
    )
}

/// A retried request includes the time of a failed attempt.
pub(super) fn retries(document: &Document) -> Check {
    let check = Draft::new("requests_retried", Weight::Suspect, "ratio");
    let Some(load) = document.load.as_ref().filter(|load| load.offered_requests > 0) else {
        return check.not_applicable("there is no load");
    };
    check.at_most(
        load.requests_retried as f64 / load.offered_requests as f64,
        RETRIED_SHARE,
        "share of the requests that were retried, because the server closed the connection without handling them",
        &format!(
            "{} of {} requests were retried, because the server had closed their connections when they arrived, or refused \
             them while closing (HTTP/2 GOAWAY): raise its keep-alive timeout and its requests per connection (nginx: \
             keepalive_timeout, keepalive_requests), or count each as a failure (--retry never)",
            load.requests_retried, load.offered_requests
        ),
    )
}
