use std::collections::{HashMap, HashSet};

use super::*;
use crate::cache::{Finding, Outcome, Reason};
use crate::dynamic::{ProgramUsage, RouteCounters};
use crate::figures::Kind;
use crate::request::{Parsed, parse_within};

fn status_sources(spec: StatusSpec) -> StatusSources {
    let figures = Figures::new();
    let counters = figures.worker();
    counters.runs_here();
    counters.began();
    counters.answered(Kind::Static, 200, 100, Finding::NONE, true);
    counters.began();
    counters.answered(Kind::Dynamic, 200, 7, Finding::new(Outcome::Hit, Reason::Fresh), true);
    counters.began();
    counters.tick(Timestamp::from_nanos(1));
    StatusSources { spec, figures, cache: None, log: None, usage_reader: None }
}

/// A report with every section.
fn full() -> Report {
    let hostile = "/a\"b\\c\nd=http://x:1".to_owned();
    Report {
        uptime: Duration::from_millis(120_500),
        last_minute: 600,
        relay_cpu: Some((Duration::from_millis(10), Duration::from_millis(20))),
        cache: Some(Usage { responses: 3, ..Usage::default() }),
        log: Some(LogSummary { written: 9, dropped: 2, failed: 1 }),
        dynamic: Some(DynamicUsage {
            routes: vec![RouteCounters { route: hostile, answered: 5, ..RouteCounters::default() }],
            program: Some(ProgramUsage { up: true, starts: 2, usage: Some(Default::default()), ..Default::default() }),
        }),
        ..status_sources(StatusSpec::All).collect_report(Timestamp::from_nanos(120_500_000_000))
    }
}

fn ask(status_sources: &StatusSources, request: &str, peer: &str) -> Option<(u16, String)> {
    let Parsed::Complete(request) = parse_within(request.as_bytes(), 8192, 100) else { panic!("{request}") };
    let mut out = Vec::new();
    let is_status_request = status_sources.matches(&request, peer.parse().unwrap());
    let reply = is_status_request.then(|| {
        status_sources.answer(&request, Timestamp::from_nanos(1), b"Date: x\r\n", Persistence::KeepAlive, &mut out)
    });
    let text = String::from_utf8(out).unwrap();
    reply.map(|reply| (reply.status, text))
}

fn get(more: &str) -> String {
    format!("GET /-/status HTTP/1.1\r\nHost: x\r\n{more}\r\n")
}

#[test]
fn status_is_readable_for_the_configured_clients_only() {
    let local = status_sources(StatusSpec::Local);
    for near in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
        assert_eq!(ask(&local, &get(""), near).unwrap().0, 200, "{near}");
    }
    assert_eq!(ask(&local, &get(""), "192.0.2.1"), None);
    assert_eq!(ask(&local, &get("X-Forwarded-For: 192.0.2.1\r\n"), "127.0.0.1"), None);
    assert_eq!(ask(&local, &get("Forwarded: for=192.0.2.1\r\n"), "127.0.0.1"), None);
    assert_eq!(ask(&status_sources(StatusSpec::All), &get(""), "192.0.2.1").unwrap().0, 200);
    assert_eq!(ask(&status_sources(StatusSpec::Off), &get(""), "127.0.0.1"), None);
    assert_eq!(ask(&local, "GET /-/other HTTP/1.1\r\nHost: x\r\n\r\n", "127.0.0.1"), None);
}

#[test]
fn format_follows_the_query_or_the_accept_field() {
    let status_sources = status_sources(StatusSpec::Local);
    let is_prometheus = |request: &str| {
        let (_, text) = ask(&status_sources, request, "::1").unwrap();
        text.contains("Content-Type: text/plain; version=0.0.4")
    };
    for json in [
        "",
        "Accept: */*\r\n",
        "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n",
        "Accept: application/json, text/plain\r\n",
    ] {
        assert!(!is_prometheus(&get(json)), "{json}");
    }
    let scraper =
        "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1\r\n";
    assert!(is_prometheus(&get(scraper)) && is_prometheus(&get("Accept: text/plain\r\n")));
    assert!(is_prometheus("GET /-/status?format=prometheus HTTP/1.1\r\nHost: x\r\n\r\n"));
    assert!(!is_prometheus(&get(scraper).replace("status", "status?a&format=json")));
}

#[test]
fn status_supports_get_and_head_only() {
    let status_sources = status_sources(StatusSpec::Local);
    let (status, text) = ask(&status_sources, &get("").replace("GET", "HEAD"), "::1").unwrap();
    assert!(status == 200 && text.ends_with("\r\n\r\n") && text.contains("Content-Length: "), "{text}");
    let (status, text) = ask(&status_sources, &get("").replace("GET", "DELETE"), "::1").unwrap();
    assert!(status == 405 && text.contains("Allow: GET, HEAD\r\n"), "{text}");
}

#[test]
fn the_json_document_omits_sections_that_do_not_apply() {
    let (_, text) = ask(&status_sources(StatusSpec::Local), &get(""), "::1").unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("Content-Length: {}", body.len())) && head.contains("Cache-Control: no-store"));
    let document: serde_json::Value = serde_json::from_str(body).unwrap();
    assert_eq!(document["schema"], "yamabiko.status/2");
    assert_eq!(document["requests"]["total"], 2);
    assert_eq!(document["requests"]["in_flight"], 1);
    assert_eq!(document["requests"]["by_kind"]["static"]["2xx"], 1);
    assert!(
        document["cpu"]["workers"]["user_s"].is_number() && document["memory"]["rss_bytes"].as_u64().unwrap() > 100_000
    );
    for absent in ["cache", "dynamic", "log"] {
        assert!(document.get(absent).is_none(), "{absent}");
    }
    assert!(document["cpu"].get("relay").is_none());

    let document: serde_json::Value = serde_json::from_str(&json::text(&full())).unwrap();
    assert_eq!(document["cache"]["outcomes"]["hit"], serde_json::json!({ "total": 1, "fresh": 1 }));
    assert_eq!(document["request_rate"]["last_minute_requests_per_day"], 864_000.0);
    assert_eq!(document["dynamic"]["routes"][0]["answered"], 5);
    assert_eq!(document["dynamic"]["program"]["up"], true);
    assert_eq!(document["log"]["dropped"], 2);
}

#[test]
fn the_prometheus_text_is_valid_exposition_format() {
    let families = read(&prometheus::text(&full())).unwrap();
    let value = |name: &str, labels: &str| families[name].1[labels];
    assert_eq!(value("yamabiko_requests_total", "kind=\"static\",class=\"2xx\""), 1.0);
    assert_eq!(value("yamabiko_requests_in_flight", ""), 1.0);
    assert_eq!(value("yamabiko_requests_per_day", "over=\"last_minute\""), 864_000.0);
    assert_eq!(
        value("yamabiko_dynamic_exchanges_total", "route=\"/a\\\"b\\\\c\\nd=http://x:1\",result=\"answered\""),
        5.0
    );
    assert_eq!(value("yamabiko_log_lines_total", "result=\"dropped\""), 2.0);
    assert_eq!(value("yamabiko_cache_responses_total", "outcome=\"hit\",reason=\"fresh\""), 1.0);
    for (name, (kind, _)) in &families {
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        assert!(!name.contains("_ms") && !name.contains("milli") && !name.ends_with("_s"), "{name}: base units");
    }
}

type Families = HashMap<String, (String, HashMap<String, f64>)>;

/// A strict parser of text format 0.0.4: each family once, HELP and TYPE before its samples, no sample twice.
fn read(text: &str) -> Result<Families, String> {
    let mut families = Families::new();
    let mut helped = HashSet::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        let wrong = |what: &str| Err(format!("{what}: {line}"));
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, about) = help.split_once(' ').ok_or(format!("no text: {line}"))?;
            if !helped.insert(name.to_owned()) || about.is_empty() {
                return wrong("HELP");
            }
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').ok_or(format!("no type: {line}"))?;
            if !matches!(kind, "counter" | "gauge") || !helped.contains(name) {
                return wrong("TYPE");
            }
            if families.insert(name.to_owned(), (kind.to_owned(), HashMap::new())).is_some() {
                return wrong("a duplicate family");
            }
            current = name.to_owned();
        } else {
            let (series, value) = line.rsplit_once(' ').ok_or(format!("no value: {line}"))?;
            let (name, labels) = match series.split_once('{') {
                Some((name, labels)) => (name, labels.strip_suffix('}').ok_or(format!("no brace: {line}"))?),
                None => (series, ""),
            };
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            if name != current || !name.bytes().all(legal) || !labels_are_legal(labels) {
                return wrong("sample");
            }
            let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
            let samples = &mut families.get_mut(name).ok_or("unknown")?.1;
            if !value.is_finite() || samples.insert(labels.to_owned(), value).is_some() {
                return wrong("a duplicate or not finite sample");
            }
        }
    }
    Ok(families)
}

fn labels_are_legal(labels: &str) -> bool {
    let mut rest = labels;
    while !rest.is_empty() {
        let Some((name, after)) = rest.split_once("=\"") else { return false };
        let mut escaped = false;
        let end = after.find(|letter| {
            let ends = letter == '"' && !escaped;
            escaped = letter == '\\' && !escaped;
            ends
        });
        let Some(end) = end else { return false };
        if name.is_empty()
            || !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
            || after.contains('\n')
        {
            return false;
        }
        rest = &after[end + 1..];
        rest = match rest.strip_prefix(',') {
            Some(more) if !more.is_empty() => more,
            None if rest.is_empty() => rest,
            _ => return false,
        };
    }
    true
}
