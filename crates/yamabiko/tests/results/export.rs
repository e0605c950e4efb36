//! Exports end to end: every format of `report --export`, and `export` to receivers that accept, refuse, stall and
//! redirect.

use std::fs;
use std::net::TcpListener;

use crate::support::scripted;
use crate::support::serving::Serving;
use crate::support::tls::Authority;
use crate::support::workspace::{Output, Workspace, set_mode, str_of};
use scripted::{ReceivedRequest, Scripted, response};
use serde_json::Value;

/// A workspace with one stored run of 200 requests, two of them with status 500; and its document.
fn with_a_run() -> (Workspace, Value) {
    let workspace = Workspace::concurrent();
    let server = Scripted::numbered(|at, _| match at {
        50 | 51 => response("500 Oh no", &[], b"<script>alert(1)</script>"),
        _ => response("200 OK", &[], b"page"),
    });
    let document = workspace.run_json(&[
        "bench",
        &server.url("/a?b=c"),
        "--rate",
        "100/s",
        "-n",
        "200",
        "--warmup",
        "0s",
        "--json",
    ]);
    assert_eq!(document["load"]["completed"], 200, "{document}");
    (workspace, document)
}

/// Exports the run to standard output. The machine's noise can make the run invalid, which does not affect the export.
fn exported(workspace: &Workspace, more: &[&str]) -> String {
    let output = workspace.run(&[&["report", "--export"], more].concat());
    output.assert_measured();
    output.stdout
}

/// The value of the last line of Prometheus text that begins with `beginning`.
fn sample(text: &str, beginning: &str) -> f64 {
    let line =
        text.lines().rfind(|line| line.starts_with(beginning)).unwrap_or_else(|| panic!("{beginning} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn every_export_format_contains_the_run() {
    let (workspace, document) = with_a_run();
    let csv = exported(&workspace, &["csv", "-", "--table", "requests"]);
    let rows: Vec<&str> = csv.trim_end().split("\r\n").collect();
    assert_eq!((rows.len(), rows[0].split(',').count()), (201, rows[200].split(',').count()));
    assert!(rows[0].starts_with("sequence,client,"), "{}", rows[0]);
    let lines: Vec<Value> =
        exported(&workspace, &["jsonl", "-"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let offered: i64 = lines.iter().map(|line| line["offered"].as_i64().unwrap()).sum();
    assert_eq!(offered, 200);

    let hgrm = exported(&workspace, &["hgrm", "-"]);
    assert!(hgrm.contains("Total count    =          200]") && hgrm.contains("1/(1-Percentile)"), "{hgrm}");

    let har: Value = serde_json::from_str(&exported(&workspace, &["har", "-"])).unwrap();
    let entries = har["log"]["entries"].as_array().unwrap();
    assert_eq!((entries.len(), &har["log"]["version"]), (200, &Value::from("1.2")));
    assert!(entries.iter().all(|entry| entry["request"]["url"].as_str().unwrap().ends_with("/a?b=c")));
    let failed = entries.iter().filter(|entry| entry["response"]["status"] == 500).count();
    assert_eq!(failed, 2);
    let longest = entries.iter().map(|entry| entry["time"].as_f64().unwrap()).fold(0.0, f64::max);
    let expected_ms = document["load"]["response_time_ns"]["max"].as_f64().unwrap() / 1e6;
    assert!((longest / expected_ms - 1.0).abs() < 1e-6, "{longest} {expected_ms}");

    let text = exported(&workspace, &["prometheus", "-"]);
    for (beginning, value) in [
        ("yamabiko_requests_offered_total{", 200.0),
        ("yamabiko_requests_total{outcome=\"completed\"", 200.0),
        ("yamabiko_response_time_seconds_count{", 200.0),
        ("yamabiko_measured_requests_completed{", 200.0),
        ("yamabiko_measured_responses{run=\"", 2.0),
    ] {
        assert_eq!(sample(&text, beginning), value, "{beginning}");
    }
    let p99 = sample(
        &text,
        &format!(
            "yamabiko_measured_response_time_percentile_seconds{{percentile=\"99\",run=\"{}\"",
            document["run"]["id"].as_str().unwrap()
        ),
    );
    assert!((p99 * 1e9 / document["load"]["response_time_ns"]["p99"].as_f64().unwrap() - 1.0).abs() < 1e-9);
    let history = exported(&workspace, &["openmetrics", "-"]);
    assert!(history.ends_with("# EOF\n") && history.matches("\nyamabiko_requests_offered_total{").count() >= 2);
    assert!(!history.contains("<script>"));

    let message = workspace.file("run.otlp");
    exported(&workspace, &["otlp", str_of(&message)]);
    let bytes = fs::read(&message).unwrap();
    let holds = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("http.client.request.duration") && holds("yamabiko.response_time") && holds("service.instance.id"));
}

#[test]
fn a_sampled_export_is_marked_and_invalid_options_are_refused() {
    let (workspace, _) = with_a_run();
    let output = workspace.run(&["report", "--export", "har", "-", "--limit", "50"]);
    let har: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(har["log"]["entries"].as_array().unwrap().len(), 50);
    assert!(output.stderr.contains("50 of 200 requests, an even sample"), "{output}");
    workspace.run(&["report", "--export", "xml", "-"]).refused(1, &["--export xml", "openmetrics"]);
    workspace.run(&["report", "--export", "csv", "-", "--table", "nosuch"]).refused(1, &["nosuch", "watch_series"]);
    workspace.run(&["report", "--export", "har", "-", "--table", "requests"]).refused(1, &["--table"]);
    workspace.run(&["report", "--export", "csv", "-", "--limit", "3"]).refused(1, &["--limit"]);
    workspace.run(&["report", "--export", "csv", "/no/such/folder/x"]).refused(2, &["cannot write"]);
    // A table that the run does not have is exported as a header without rows.
    assert_eq!(exported(&workspace, &["csv", "-", "--table", "taps"]).lines().count(), 1);
}

fn run_export(workspace: &Workspace, more: &[&str]) -> Output {
    workspace.run(&[&["export", "last"], more].concat())
}

#[test]
fn remote_write_sends_every_message_with_headers_and_retries_a_busy_receiver() {
    let (workspace, _) = with_a_run();
    let busy = Scripted::numbered(|at, _| match at {
        0 => response("503 Busy", &["Retry-After: 0"], b"later"),
        1 => response("429 Slow down", &["Retry-After: 0"], b""),
        _ => response("204 No Content", &[], b""),
    });
    let headers = workspace.file("headers");
    fs::write(&headers, "Authorization: Bearer of-secrets\n\nX-Scope-OrgID: one\n").unwrap();
    set_mode(&headers, 0o600);
    let url = busy.url("/api/v1/write?tenant=x");
    let output =
        run_export(&workspace, &["--remote-write", &url, "--header-file", str_of(&headers), "-H", "X-More: 2"])
            .success();
    assert!(output.stdout.contains("message") && output.stdout.contains("/api/v1/write in"), "{output}");
    assert!(output.stderr.contains("status 503 later; retry in"), "{output}");
    for secret in ["of-secrets", "tenant=x"] {
        assert!(!output.stdout.contains(secret) && !output.stderr.contains(secret), "{output}");
    }
    let requests = busy.requests();
    let is_complete = |request: &ReceivedRequest| {
        request.method == "POST"
            && request.target == "/api/v1/write?tenant=x"
            && request.field("content-encoding").as_deref() == Some("snappy")
            && request.field("content-type").as_deref() == Some("application/x-protobuf")
            && request.field("x-prometheus-remote-write-version").as_deref() == Some("0.1.0")
            && request.field("authorization").as_deref() == Some("Bearer of-secrets")
            && request.field("x-scope-orgid").as_deref() == Some("one")
            && request.field("x-more").as_deref() == Some("2")
    };
    assert!(requests.len() >= 3 && requests.iter().all(is_complete), "{requests:?}");
    // The retried messages equal the refused one.
    assert!(
        requests[0].body == requests[1].body && requests[1].body == requests[2].body && !requests[0].body.is_empty()
    );
}

#[test]
fn a_refused_message_is_not_retried_and_the_reason_is_printed_escaped() {
    let (workspace, _) = with_a_run();
    let refusing = Scripted::start(|_| response("400 Bad", &[], b"out of bounds \x1b[31mred\x1b[0m\nmore"));
    run_export(&workspace, &["--remote-write", &refusing.url("/w")])
        .refused(2, &["status 400 out of bounds", "create-blocks-from"]);
    assert_eq!(refusing.requests().len(), 1);
    let output = run_export(&workspace, &["--remote-write", &refusing.url("/w")]);
    assert!(!output.stderr.contains('\x1b'), "{output}");

    // A message is tried five times at most.
    let broken = Scripted::start(|_| response("500 No", &["Retry-After: 0"], b""));
    let output = run_export(&workspace, &["--remote-write", &broken.url("/w")]);
    assert_eq!((output.code, broken.requests().len()), (Some(2), 5), "{output}");
    // OTLP treats 500 as permanent.
    let broken = Scripted::start(|_| response("500 No", &["Retry-After: 0"], b""));
    run_export(&workspace, &["--otlp", &broken.url("")]).refused(2, &["status 500"]);
    assert_eq!((broken.requests().len(), broken.requests()[0].target.as_str()), (1, "/v1/metrics"));

    // A followed redirect would send the credentials to another server.
    let redirect_target = Scripted::start(|_| response("200 OK", &[], b""));
    let to = format!("Location: {}", redirect_target.url("/stolen"));
    let redirecting = Scripted::start(move |_| response("307 Elsewhere", &[&to], b""));
    run_export(&workspace, &["--otlp", &redirecting.url("/v1/metrics"), "-H", "Authorization: Bearer x"])
        .refused(2, &["it redirects"]);
    assert!(redirect_target.requests().is_empty());

    let unused = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let output = run_export(&workspace, &["--otlp", &format!("http://{unused}")]);
    assert_eq!(output.code, Some(2), "{output}");
    assert!(output.stderr.lines().count() == 5 && output.stderr.contains("retry in 0.2"), "{output}");
}

#[test]
fn rejected_points_are_reported() {
    let (workspace, _) = with_a_run();
    // ExportMetricsServiceResponse { partial_success { rejected_data_points: 3, error_message: "no room" } }
    let partial = b"\x0a\x0b\x08\x03\x12\x07no room";
    let receiver = Scripted::start(|_| response("200 OK", &["Content-Type: application/x-protobuf"], partial));
    run_export(&workspace, &["--otlp", &receiver.url("")]).refused(2, &["the receiver rejected 3 points: no room"]);
    let receiver = Scripted::start(|_| response("200 OK", &["Content-Type: application/x-protobuf"], b""));
    let output = run_export(&workspace, &["--otlp", &receiver.url("/")]).success();
    assert!(output.stdout.contains("of OTLP"), "{output}");
    assert!(
        receiver
            .requests()
            .iter()
            .all(|request| request.field("content-type").as_deref() == Some("application/x-protobuf"))
    );
}

#[test]
fn a_tls_receiver_needs_a_trusted_certificate() {
    let (workspace, _) = with_a_run();
    let (authority, other) = (Authority::new(&workspace, "own"), Authority::new(&workspace, "other"));
    let certificate = authority.sign(&["localhost", "127.0.0.1"], 2099);
    let server = Serving::start(&workspace, &["--tls", str_of(&certificate.cert), str_of(&certificate.key)]);
    let url = format!("https://{}/v1/metrics", server.address);
    // A file server gets the message over TLS and refuses it.
    run_export(&workspace, &["--otlp", &url, "--cacert", str_of(&authority.file())]).refused(2, &["status 405"]);
    run_export(&workspace, &["--otlp", &url, "-k"]).refused(2, &["status 405"]);
    let distrusted = run_export(&workspace, &["--otlp", &url, "--cacert", str_of(&other.file())]);
    distrusted.refused(2, &["ertificate"]);
    run_export(&workspace, &["--otlp", &url, "--cacert", "/no/such/file"]).refused(2, &["/no/such/file"]);
    let empty = workspace.file("empty");
    fs::write(&empty, "").unwrap();
    run_export(&workspace, &["--otlp", &url, "--cacert", str_of(&empty)]).refused(1, &["contains no certificate"]);
}

#[test]
fn invalid_export_options_are_refused_before_sending() {
    let (workspace, _) = with_a_run();
    run_export(&workspace, &[]).refused(1, &["--remote-write"]);
    run_export(&workspace, &["--otlp", "localhost:4318"]).refused(1, &["http://"]);
    run_export(&workspace, &["--otlp", "http://u:secret@h/"]).refused(1, &["--header-file"]);
    run_export(&workspace, &["--otlp", "http://h", "--remote-write", "http://h"]).refused(1, &["--remote-write"]);
    let output = run_export(&workspace, &["--otlp", "http://127.0.0.1:1", "-H", "Authorization Bearer-secret"]);
    output.refused(1, &["Name: value"]);
    assert!(!output.stderr.contains("secret"), "{output}");
    run_export(&workspace, &["--otlp", "http://127.0.0.1:1", "-H", "Host: x"]).refused(1, &["host"]);
    workspace.run(&["export", "nosuch", "--otlp", "http://127.0.0.1:1"]).refused(1, &["nosuch"]);
}
