//! What became of the requests: failures, error statuses, retries, and responses that answer something else.

use schema::document::{Check, CheckState, Document, Load, Weight};

use super::draft::Draft;
use plan::Plan;

/// With a larger share of requests that ended otherwise than well, response times are no longer those of the pages asked for.
const ERROR_SHARE: f64 = 0.01;
/// With a larger share of responses on connections that brought data unasked, requests may be paired with the wrong responses
/// throughout.
const UNSOLICITED_SHARE: f64 = 0.001;
/// With a larger share of early responses, the bytes sent and the work of the server are not those of the plan.
const EARLY_SHARE: f64 = 0.01;
/// With a larger share of retried requests, response times include the time of attempts in vain.
const RETRIED_SHARE: f64 = 0.01;
/// So many causes or status codes are named.
const NAMED: usize = 4;

/// Responses that were cut short or break HTTP show a defect of the server, not its limit: one is enough for a doubt.
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
        "responses cut short or not understood",
        &format!(
            "the server closed {early} times in mid-response and {before} times before one, reset or broke {reset} \
             connections, and sent {malformed} responses that break HTTP: its figures are those of a server that fails"
        ),
    )
}

/// One rule for everything that is no good response: a failure of any cause, or a status that is none of success. An error
/// page is short and served fast, and a timeout hides how long the response would have taken.
pub(super) fn error_rate(document: &Document, plan: &Plan) -> Check {
    let check = Draft::new("error_rate", Weight::Suspect, "ratio");
    let Some(load) = document.load.as_ref().filter(|load| load.completed > 0) else {
        return check.not_applicable("there is no whole response, as server_answers says");
    };
    let followed = plan.load.follows_redirects();
    // A plan that expects statuses has failed the requests that got others.
    let expected = plan.load.expects_statuses();
    let good = |status: &str| expected || is_success(status) || followed && status.starts_with('3');
    // Requests that a user's Ctrl-C cut off say nothing of the server.
    let told = |cause: &str| !(document.run.interrupted && cause == "aborted");
    let failed = load.failed.iter().filter(|(cause, _)| told(cause));
    let failed: Vec<(String, u64)> = failed.map(|(cause, &count)| (cause.replace('_', " "), count)).collect();
    let bad = load.status.iter().filter(|(status, _)| !good(status));
    let bad: Vec<(String, u64)> = bad.map(|(status, &count)| (format!("status {status}"), count)).collect();
    let ended = load.completed + failed.iter().map(|(_, count)| count).sum::<u64>();
    let mut errors: Vec<(String, u64)> = failed.into_iter().chain(bad).collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let count: u64 = errors.iter().map(|(_, count)| count).sum();
    let more = if errors.len() > NAMED { ", .." } else { "" };
    let named: Vec<String> = errors.iter().take(NAMED).map(|(what, count)| format!("{what} x {count}")).collect();
    check.at_most(
        count as f64 / ended as f64,
        ERROR_SHARE,
        "share of the requests that failed, or got a status other than 2xx or 304",
        &format!(
            "{count} of {ended} requests got no good response ({}{more}): is the URL right, and is the server well? Error \
             pages are often served faster than pages, and a request that fails early or times out is in the response \
             times at its failure",
            named.join(", ")
        ),
    )
}

/// A status that answers what was asked for.
fn is_success(status: &str) -> bool {
    status.starts_with('2') || status == "304"
}

/// A server that sends more responses than it was asked for shifts the pairing of requests and responses on a connection:
/// a response may have been sent before its request was read.
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
            "share of responses on connections that brought data unasked",
        );
    };
    // Of the whole run, as the count of connections is.
    let share = unsolicited.responses as f64 / responses(load).max(unsolicited.responses).max(1) as f64;
    let weight = if share > UNSOLICITED_SHARE { Weight::Invalid } else { Weight::Suspect };
    Draft::new(name, weight, "ratio").end(
        CheckState::Failed,
        Some(share),
        Some(UNSOLICITED_SHARE),
        &format!(
            "{} connections brought data that no request had asked for, after {} responses: these may answer other requests \
             than they were paired with, so that their times mean nothing. The server sends more than it is asked for",
            unsolicited.connections, unsolicited.responses
        ),
    )
}

/// Responses that came, good or not.
fn responses(load: &Load) -> u64 {
    load.completed + load.failed.get("unsolicited_data").copied().unwrap_or(0)
}

/// A response before the whole request was received: the server did not do what the request asks, or not with all of it.
pub(super) fn early_responses(document: &Document) -> Check {
    let check = Draft::new("early_responses", Weight::Suspect, "ratio");
    let Some(load) = document.load.as_ref().filter(|load| load.completed > 0) else {
        return check.not_applicable("there is no whole response");
    };
    check.at_most(
        load.early_responses as f64 / load.completed as f64,
        EARLY_SHARE,
        "share of the responses that were whole before the server had received the whole request",
        &format!(
            "{} of {} responses were whole before the server had received the whole request: it answered without reading \
             what was sent, so these are not the figures of a server that takes such requests in",
            load.early_responses, load.completed
        ),
    )
}

/// A retried request has waited for an attempt in vain.
pub(super) fn retries(document: &Document) -> Check {
    let check = Draft::new("requests_retried", Weight::Suspect, "ratio");
    let Some(load) = document.load.as_ref().filter(|load| load.offered_requests > 0) else {
        return check.not_applicable("there is no load");
    };
    check.at_most(
        load.requests_retried as f64 / load.offered_requests as f64,
        RETRIED_SHARE,
        "share of the requests that were sent again, since the server ended the connection without handling them",
        &format!(
            "{} of {} requests were sent again, since the server had closed their connections when they arrived, or refused \
             them as it closed (HTTP/2 GOAWAY): raise its keep-alive timeout and its requests per connection (nginx: \
             keepalive_timeout, keepalive_requests), or count each as a failure (--retry never)",
            load.requests_retried, load.offered_requests
        ),
    )
}
