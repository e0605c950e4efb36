//! Loads on a misbehaving server: the program neither hangs nor crashes, counts each failure under its cause, loses no
//! request, and prints no bytes of the server to the terminal.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::support::document::{check, count};
use crate::support::hostile::Hostile;
use crate::support::workspace::{Output, Workspace, concurrently};
use schema::RequestRecord;

/// A path of the hostile server, and the result of every request to it.
type Behaviour = (&'static str, Result<&'static str, &'static str>);

/// `Ok(status)` for a complete response, `Err(cause)` otherwise.
const BEHAVIOURS: [Behaviour; 24] = [
    ("/ok/1000", Ok("200")),
    ("/chunked/2500", Ok("200")),
    ("/trailers", Ok("200")),
    ("/close-delimited/3000", Ok("200")),
    ("/http10", Ok("200")),
    ("/continue", Ok("200")),
    ("/204", Ok("204")),
    ("/304", Ok("304")),
    ("/status/404", Ok("404")),
    ("/status/503", Ok("503")),
    ("/truncated", Err("closed_early")),
    ("/rst", Err("reset")),
    ("/early-close", Err("closed_before_response")),
    ("/silent", Err("response_timeout")),
    ("/stall", Err("response_timeout")),
    ("/slow", Err("response_timeout")),
    ("/trickle-head", Err("response_timeout")),
    ("/endless-body", Err("response_timeout")),
    ("/garbage", Err("malformed")),
    ("/switching", Err("malformed")),
    ("/conflicting-length", Err("malformed")),
    ("/bad-chunk", Err("malformed")),
    ("/extra-bytes", Err("unsolicited_data")),
    ("/endless-head", Err("head_too_large")),
];

const OPEN: &[&str] = &["--rate", "20/s", "--warmup", "0s"];
const CLOSED: &[&str] = &["-c", "4", "-n", "200"];

/// Maximum duration of a run of one second and its drain, on a machine with a hundred concurrent runs.
const MAX_DURATION: Duration = Duration::from_secs(60);

#[test]
fn each_hostile_behaviour_fails_with_its_cause() {
    let workspace = Workspace::concurrent();
    // Each behaviour has a server of its own.
    let cases = BEHAVIOURS.into_iter().flat_map(|behaviour| [(behaviour, OPEN), (behaviour, CLOSED)]);
    concurrently(8, cases, |(behaviour, shape)| {
        let server = Hostile::start();
        assert_outcome(&workspace.run(&arguments(&server.url(behaviour.0), behaviour, shape)), behaviour);
    });
}

#[test]
fn all_hostile_behaviours_together_fail_with_their_causes() {
    let workspace = Workspace::concurrent();
    let server = Hostile::start();
    let running: Vec<_> = BEHAVIOURS
        .into_iter()
        .flat_map(|behaviour| [(behaviour, OPEN), (behaviour, CLOSED)])
        .map(|(behaviour, shape)| (behaviour, workspace.start(&arguments(&server.url(behaviour.0), behaviour, shape))))
        .collect();
    for (behaviour, run) in running {
        assert_outcome(&run.finish(), behaviour);
    }
}

/// The head limit also applies to a head that arrives completely in one piece.
#[test]
fn a_response_head_of_one_megabyte_is_refused() {
    let (workspace, server) = (Workspace::concurrent(), Hostile::start());
    let behaviour = ("/huge-headers", Err("head_too_large"));
    assert_outcome(&workspace.run(&arguments(&server.url(behaviour.0), behaviour, CLOSED)), behaviour);
}

#[test]
fn hostile_responses_to_other_methods_and_versions_fail_with_their_cause() {
    let (workspace, server) = (Workspace::concurrent(), Hostile::start());
    let body = workspace.path().join("body");
    fs::write(&body, vec![b'b'; 200_000]).unwrap();
    for (path, status) in BEHAVIOURS.into_iter().filter_map(|(path, outcome)| Some((path, outcome.ok()?))) {
        for extra in [&["-m", "HEAD"][..], &["--body", "body"], &["--http", "1.0"], &["--close"]] {
            let behaviour = (path, Ok(status));
            let url = server.url(path);
            let mut arguments = arguments(&url, behaviour, &["-c", "2", "-n", "6"]);
            arguments.extend(extra);
            assert_outcome(&workspace.run(&arguments), behaviour);
        }
    }
}

fn arguments<'a>(url: &'a str, (_, outcome): Behaviour, shape: &[&'a str]) -> Vec<&'a str> {
    // Only servers that never respond get a short timeout: on a loaded machine other requests must not time out.
    let timeout = if outcome == Err("response_timeout") { "500ms" } else { "30s" };
    ["bench", url, "-d", "1s", "--timeout", timeout, "--json"].into_iter().chain(shape.iter().copied()).collect()
}

/// Asserts that every request had the expected result, and that the run reports exactly that.
fn assert_outcome(output: &Output, (path, outcome): Behaviour) {
    assert!(output.elapsed < MAX_DURATION, "{:?}: {output}", output.elapsed);
    assert!(!output.stderr.contains(|c: char| c.is_control() && c != '\n'), "{output}");
    let document = output.json();
    let offered = count(&document, "load.offered_requests");
    assert!(offered > 0, "{output}");
    assert_eq!(check(&document, "conservation")["state"], "ok", "{path}: {output}");
    let (what, which) = match outcome {
        Ok(status) => ("status", status),
        Err(cause) => ("failed", cause),
    };
    assert_eq!(document["load"][what], serde_json::json!({ which: offered }), "{path}: {output}");
    let failed = outcome.is_err();
    assert_eq!(count(&document, "load.completed"), if failed { 0 } else { offered }, "{path}: {output}");
    // A busy machine can make a run invalid; a run without a successful request is always invalid.
    assert!(output.code == Some(3) || !failed && output.code == Some(0), "{path}: {output}");
    let page = outcome.is_ok_and(|status| status.starts_with('2') || status == "304");
    let good = if failed {
        "not_applicable"
    } else if page {
        "ok"
    } else {
        "failed"
    };
    assert_eq!(check(&document, "error_rate")["state"], good, "{path}: {output}");
    assert_eq!(check(&document, "server_answers")["state"], if failed { "failed" } else { "ok" }, "{path}: {output}");

    let stored = stored_requests(Path::new(document["run"]["dir"].as_str().unwrap()));
    assert_eq!(stored.len() as u64, offered, "{path}: every request is stored");
    let cause = |request: &RequestRecord| request.failure.map(|cause| cause.name());
    assert!(stored.iter().all(|request| cause(request) == outcome.err()), "{path}");
}

fn stored_requests(dir: &Path) -> Vec<RequestRecord> {
    store::read_requests(dir).unwrap().collect::<Result<_, _>>().unwrap()
}

/// The text output contains no bytes that the server sent.
#[test]
fn escape_sequences_of_a_server_do_not_reach_the_terminal() {
    let (workspace, server) = (Workspace::concurrent(), Hostile::start());
    for path in ["/garbage", "/switching", "/bad-chunk"] {
        let output = workspace.run(&["bench", &server.url(path), "-n", "20"]);
        assert_eq!(output.code, Some(3), "{output}");
        for text in [&output.stdout, &output.stderr] {
            assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{output}");
        }
        assert!(output.stdout.contains("malformed"), "{output}");
    }
}
