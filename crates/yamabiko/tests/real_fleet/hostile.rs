//! An agent with a valid token sends well-formed batches with impossible values: none of them is stored, and valid
//! batches between them are. Names that contain markup are shown as text.

use serde_json::{Value, json};

use super::refusals::{ExpectedRefusals, at};
use super::site::{SimulatedAgent, Site, now_ns};

const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// Impossible values: description, place in the batch, and value.
fn impossible_values() -> Vec<(&'static str, &'static str, Value)> {
    let long = |bytes: usize| json!("x".repeat(bytes));
    vec![
        ("a batch before the first", "sequence", json!(0)),
        ("an invalid stream", "stream", json!("../../etc/passwd")),
        ("a stream in capitals", "stream", json!("A".repeat(32))),
        ("an oversized boot id", "boot", long(10_000)),
        ("a boot id of control characters", "boot", json!("\u{1b}[2J\u{7}")),
        ("a share of 0", "share", json!(0.0)),
        ("a share whose inverse is infinite", "share", json!(1e-310)),
        ("a share above 1", "share", json!(1.5)),
        ("a negative share", "share", json!(-0.5)),
        ("sealed at the largest time", "sealed_at_ns", json!(u64::MAX)),
        ("sealed before its rows", "sealed_at_ns", json!(1)),
        ("too many open connections", "gauges.open", json!(u64::MAX)),
        ("too many lost records", "losses.records", json!(u64::MAX)),
        ("too many filtered rows", "losses.rows_filtered", json!(u64::MAX)),
        ("a program's name that is too long", "programs.0.name", long(65)),
        ("a program without a name", "programs.0.name", json!("")),
        ("an oversized reason", "programs.0.why", long(100_000)),
        ("too many processes", "programs.0.seen", json!(u64::MAX)),
        ("neither client nor server", "rows.0.side", json!("sideways")),
        ("an unknown outcome", "rows.0.outcome", json!("great")),
        ("an unknown error", "rows.0.error", json!("E<script>alert(1)</script>")),
        ("an error of a success", "rows.0.error", json!("ECONNRESET")),
        ("a row's name that is too long", "rows.0.program", long(10_000)),
        ("opened a year ahead", "rows.0.opened_at_ns", json!(YEAR_NS)),
        ("ended an hour ahead", "rows.0.received_last_at_ns", json!(2 * 3_600_000_000_000_u64)),
        ("opened at the largest time", "rows.0.opened_at_ns", json!(u64::MAX)),
        ("the first byte after the last", "rows.0.received_first_at_ns", json!(3_599_999_999_000_u64)),
        ("the last byte before the first", "rows.0.received_last_at_ns", json!(1)),
        ("sent to its end before its beginning", "rows.0.sent_last_at_ns", json!(1)),
        ("closed before it was opened", "rows.0.closed_at_ns", json!(1)),
        ("too long a set-up", "rows.0.setup_ns", json!(u64::MAX)),
        ("too long a lookup", "rows.0.lookup_ns", json!(u64::MAX)),
        ("too many bytes", "rows.0.received_bytes", json!(u64::MAX)),
        ("too many bytes", "rows.0.connection_bytes", json!(u64::MAX)),
        ("too many calls", "rows.0.calls", json!(u64::MAX)),
        ("too long in calls", "rows.0.blocked_ns", json!(u64::MAX)),
        ("too many segments", "rows.0.retransmits", json!(u64::MAX)),
    ]
}

/// JSON values of a wrong type, which are refused as malformed: description, place in the batch, and value.
fn malformed_values() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("a negative number", "sequence", json!(-1)),
        ("a fraction", "sequence", json!(1.5)),
        ("a share that is not a number", "share", json!("all")),
        ("an invalid address", "rows.0.peer.address", json!("example.com")),
        ("an invalid hash", "rows.0.peer.address", json!("h:XYZ")),
        ("a hash that is too long", "rows.0.peer.address", json!("h:00000000000000000")),
        ("an invalid port", "rows.0.peer.port", json!(65_536)),
        ("a negative process number", "rows.0.pid", json!(-5)),
        ("null as a row", "rows.0", json!(null)),
    ]
}

#[test]
fn impossible_records_are_refused_and_not_stored() {
    let site = Site::start(&[]);
    let mut invalid_agent = SimulatedAgent::known(&site, "invalid", "a");
    invalid_agent.sends_next_batch(&site);
    let (boss, before) = (site.token("boss", "operator"), site.index_state());
    let (mut refusals, mut wrong) = (ExpectedRefusals::of(&site), Vec::new());
    for (values, status, why) in [(impossible_values(), 422, "invalid_value"), (malformed_values(), 400, "malformed")] {
        for (what, place, value) in values {
            let mut batch = invalid_agent.batch();
            *at(&mut batch, &place.split('.').collect::<Vec<_>>()) = value;
            let response = invalid_agent.send(&site, &batch);
            if (response.status, &response.body["error"]) == (status, &json!(why)) {
                refusals.count(why);
            } else {
                wrong.push(format!("{what} ({place}): {} {}", response.status, response.body));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(site.index_state(), before);
    refusals.settle(&boss);

    // More programs than the limit.
    let program = invalid_agent.batch()["programs"][0].clone();
    let mut many = invalid_agent.batch();
    many["programs"] = Value::Array(vec![program; 501]);
    let response = invalid_agent.send(&site, &many);
    assert!(matches!(response.status, 413 | 422), "{response:?}");

    // Zeros by the manager's clock that put the sealing into the future, and invalid ones.
    let body = invalid_agent.batch().to_string();
    for zero in [now_ns(), now_ns() + 3 * 86_400_000_000_000, u64::MAX] {
        let response = site.post(
            &invalid_agent.token,
            &invalid_agent.route("batches"),
            &["-H", &format!("yamabiko-zero: {zero}")],
            body.as_bytes(),
        );
        assert!(matches!(response.status, 400 | 422), "{zero}: {response:?}");
    }
    for zero in ["soon", "-1", "1e18", ""] {
        let response = site.post(
            &invalid_agent.token,
            &invalid_agent.route("batches"),
            &["-H", &format!("yamabiko-zero: {zero}")],
            body.as_bytes(),
        );
        // curl omits a header without a value; then the agent's own value counts.
        assert!(zero.is_empty() || matches!(response.status, 400 | 422), "{zero}: {response:?}");
        if zero.is_empty() {
            assert_eq!(response.status, 200, "{response:?}");
            invalid_agent.sequence += 1;
        }
    }
    // A hello with impossible values.
    for (what, place, value) in [
        ("an invalid stream", "stream", json!("a")),
        ("an oversized host name", "host", json!("x".repeat(256))),
        ("a host name of control characters", "host", json!("\u{1b}]0;owned\u{7}")),
        ("an oversized version", "version", json!("9".repeat(10_000))),
        ("an oversized kernel version", "kernel", json!("9".repeat(10_000))),
        ("an oversized spool", "spool.bytes", json!(u64::MAX)),
        ("the largest time", "now_ns", json!(u64::MAX)),
    ] {
        let mut hello = invalid_agent.hello();
        *at(&mut hello, &place.split('.').collect::<Vec<_>>()) = value;
        let response =
            site.post(&invalid_agent.token, &invalid_agent.route("hello"), &[], hello.to_string().as_bytes());
        assert_eq!(response.status, 422, "{what}: {response:?}");
    }
    invalid_agent.sends_next_batch(&site);
}

/// Markup and control characters from an agent have no effect on a terminal or a page.
#[test]
fn hostile_names_are_escaped_on_the_page() {
    let site = Site::start(&[]);
    let mut agent = SimulatedAgent::known(&site, "other", "a");
    let boss = site.token("boss", "operator");
    let mut hello = agent.hello();
    hello["host"] = json!("<script>alert(1)</script>");
    assert_eq!(site.post(&agent.token, &agent.route("hello"), &[], hello.to_string().as_bytes()).status, 200);
    let mut batch = agent.batch();
    batch["programs"][0]["name"] = json!("<b>x</b>\"'&");
    batch["rows"][0]["program"] = json!("<b>x</b>\"'&");
    let response = agent.send(&site, &batch);
    assert_eq!(response.status, 200, "{response:?}");
    agent.sequence += 1;
    let agents = site.get(&boss, "/agents");
    assert_eq!(agents.status, 200);
    assert!(agents.body.to_string().contains("<script>alert(1)</script>"), "JSON contains it unescaped: {agents:?}");
    // Control characters of a path are escaped in the log.
    let (bearer, url) = (format!("Authorization: Bearer {boss}"), site.url("/agents/%1b%5b2J%0aforged"));
    assert!(matches!(site.curl(&["-H", &bearer, &url]).status, 400 | 404));
    let log = site.serving.running.stderr();
    assert!(log.chars().all(|letter| letter == '\n' || !letter.is_control()), "{log:?}");
    assert!(!log.lines().any(|line| line.starts_with("forged")), "{log}");
    agent.sends_next_batch(&site);
}
