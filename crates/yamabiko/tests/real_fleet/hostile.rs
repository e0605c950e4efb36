//! An agent with a valid token that sends impossible batches of valid form. None is stored, and the valid one between
//! them is. And names that contain markup are shown as text.

use serde_json::{Value, json};

use super::refusals::{Refusals, at};
use super::site::{Paper, Site, now_ns};

const YEAR_NS: u64 = 365 * 86_400 * 1_000_000_000;

/// What is put where, and what for.
fn lies() -> Vec<(&'static str, &'static str, Value)> {
    let long = |bytes: usize| json!("x".repeat(bytes));
    vec![
        ("a batch before the first", "sequence", json!(0)),
        ("a stream that is none", "stream", json!("../../etc/passwd")),
        ("a stream in capitals", "stream", json!("A".repeat(32))),
        ("a boot without end", "boot", long(10_000)),
        ("a boot of control characters", "boot", json!("\u{1b}[2J\u{7}")),
        ("a share of nothing", "share", json!(0.0)),
        ("a share whose inverse is no number", "share", json!(1e-310)),
        ("a share of more than all", "share", json!(1.5)),
        ("a share below nothing", "share", json!(-0.5)),
        ("sealed at the end of time", "sealed_at_ns", json!(u64::MAX)),
        ("sealed before its rows", "sealed_at_ns", json!(1)),
        ("more open than there can be", "gauges.open", json!(u64::MAX)),
        ("more lost than there can be", "losses.records", json!(u64::MAX)),
        ("more filtered than there can be", "losses.rows_filtered", json!(u64::MAX)),
        ("a program's name that is too long", "programs.0.name", long(65)),
        ("a program without a name", "programs.0.name", json!("")),
        ("a reason without end", "programs.0.why", long(100_000)),
        ("more processes than there can be", "programs.0.seen", json!(u64::MAX)),
        ("neither client nor server", "rows.0.side", json!("sideways")),
        ("an outcome that is none", "rows.0.outcome", json!("great")),
        ("an error that is none", "rows.0.error", json!("E<script>alert(1)</script>")),
        ("an error of a success", "rows.0.error", json!("ECONNRESET")),
        ("a row's name that is too long", "rows.0.program", long(10_000)),
        ("opened a year ahead", "rows.0.opened_at_ns", json!(YEAR_NS)),
        ("ended an hour ahead", "rows.0.received_last_at_ns", json!(2 * 3_600_000_000_000_u64)),
        ("opened at the end of time", "rows.0.opened_at_ns", json!(u64::MAX)),
        ("the first byte after the last", "rows.0.received_first_at_ns", json!(3_599_999_999_000_u64)),
        ("the last byte before the first", "rows.0.received_last_at_ns", json!(1)),
        ("sent to its end before its beginning", "rows.0.sent_last_at_ns", json!(1)),
        ("closed before it was opened", "rows.0.closed_at_ns", json!(1)),
        ("a set-up of an age", "rows.0.setup_ns", json!(u64::MAX)),
        ("a lookup of an age", "rows.0.lookup_ns", json!(u64::MAX)),
        ("more bytes than there are", "rows.0.received_bytes", json!(u64::MAX)),
        ("more bytes than there are", "rows.0.connection_bytes", json!(u64::MAX)),
        ("more calls than there can be", "rows.0.calls", json!(u64::MAX)),
        ("in calls for an age", "rows.0.blocked_ns", json!(u64::MAX)),
        ("more segments than there can be", "rows.0.retransmits", json!(u64::MAX)),
    ]
}

/// What is no JSON of these types: refused as malformed, where the others are impossible.
fn nonsense() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        ("a number below zero", "sequence", json!(-1)),
        ("a broken number", "sequence", json!(1.5)),
        ("a share that is no number", "share", json!("all")),
        ("an address that is none", "rows.0.peer.address", json!("example.com")),
        ("a hash that is none", "rows.0.peer.address", json!("h:XYZ")),
        ("a hash that is too long", "rows.0.peer.address", json!("h:00000000000000000")),
        ("a port that is none", "rows.0.peer.port", json!(65_536)),
        ("a process below zero", "rows.0.pid", json!(-5)),
        ("rows that are none", "rows.0", json!(null)),
    ]
}

#[test]
fn impossible_records_are_refused_and_not_stored() {
    let site = Site::start(&[]);
    let mut liar = Paper::known(&site, "liar", "a");
    liar.goes_on(&site);
    let (boss, kept) = (site.token("boss", "operator"), site.kept());
    let (mut refusals, mut wrong) = (Refusals::of(&site), Vec::new());
    for (lies, status, why) in [(lies(), 422, "invalid_value"), (nonsense(), 400, "malformed")] {
        for (what, place, value) in lies {
            let mut batch = liar.batch();
            *at(&mut batch, &place.split('.').collect::<Vec<_>>()) = value;
            let answer = liar.send(&site, &batch);
            if (answer.status, &answer.body["error"]) == (status, &json!(why)) {
                refusals.made(why);
            } else {
                wrong.push(format!("{what} ({place}): {} {}", answer.status, answer.body));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(site.kept(), kept);
    refusals.settle(&boss);

    // Too much of what may be some.
    let program = liar.batch()["programs"][0].clone();
    let mut many = liar.batch();
    many["programs"] = Value::Array(vec![program; 501]);
    let answer = liar.send(&site, &many);
    assert!(matches!(answer.status, 413 | 422), "{answer:?}");

    // A zero by the manager's clock that puts the sealing into the future, and one that is no number.
    let body = liar.batch().to_string();
    for zero in [now_ns(), now_ns() + 3 * 86_400_000_000_000, u64::MAX] {
        let answer =
            site.post(&liar.token, &liar.route("batches"), &["-H", &format!("yamabiko-zero: {zero}")], body.as_bytes());
        assert!(matches!(answer.status, 400 | 422), "{zero}: {answer:?}");
    }
    for zero in ["soon", "-1", "1e18", ""] {
        let answer =
            site.post(&liar.token, &liar.route("batches"), &["-H", &format!("yamabiko-zero: {zero}")], body.as_bytes());
        // Curl omits a header without a value: the agent's own value counts then.
        assert!(zero.is_empty() || matches!(answer.status, 400 | 422), "{zero}: {answer:?}");
        if zero.is_empty() {
            assert_eq!(answer.status, 200, "{answer:?}");
            liar.sequence += 1;
        }
    }
    // The hello lies as well.
    for (what, place, value) in [
        ("a stream that is none", "stream", json!("a")),
        ("a host without end", "host", json!("x".repeat(256))),
        ("a host of control characters", "host", json!("\u{1b}]0;owned\u{7}")),
        ("a version without end", "version", json!("9".repeat(10_000))),
        ("a kernel without end", "kernel", json!("9".repeat(10_000))),
        ("a spool without end", "spool.bytes", json!(u64::MAX)),
        ("a clock at the end of time", "now_ns", json!(u64::MAX)),
    ] {
        let mut hello = liar.hello();
        *at(&mut hello, &place.split('.').collect::<Vec<_>>()) = value;
        let answer = site.post(&liar.token, &liar.route("hello"), &[], hello.to_string().as_bytes());
        assert_eq!(answer.status, 422, "{what}: {answer:?}");
    }
    liar.goes_on(&site);
}

/// What an agent may say and a terminal or a page must not do.
#[test]
fn hostile_names_are_escaped_on_the_page() {
    let site = Site::start(&[]);
    let mut odd = Paper::known(&site, "odd", "a");
    let boss = site.token("boss", "operator");
    let mut hello = odd.hello();
    hello["host"] = json!("<script>alert(1)</script>");
    assert_eq!(site.post(&odd.token, &odd.route("hello"), &[], hello.to_string().as_bytes()).status, 200);
    let mut batch = odd.batch();
    batch["programs"][0]["name"] = json!("<b>x</b>\"'&");
    batch["rows"][0]["program"] = json!("<b>x</b>\"'&");
    let answer = odd.send(&site, &batch);
    assert_eq!(answer.status, 200, "{answer:?}");
    odd.sequence += 1;
    let agents = site.get(&boss, "/agents");
    assert_eq!(agents.status, 200);
    assert!(agents.body.to_string().contains("<script>alert(1)</script>"), "JSON has it as it is: {agents:?}");
    // A path of control characters in a log.
    let (bearer, url) = (format!("Authorization: Bearer {boss}"), site.url("/agents/%1b%5b2J%0aforged"));
    assert!(matches!(site.curl(&["-H", &bearer, &url]).status, 400 | 404));
    let log = site.serving.running.stderr();
    assert!(log.chars().all(|letter| letter == '\n' || !letter.is_control()), "{log:?}");
    assert!(!log.lines().any(|line| line.starts_with("forged")), "{log}");
    odd.goes_on(&site);
}
