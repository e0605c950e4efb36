//! The page of a run: a section for each part of the document, no section for absent parts, well-formed markup for any
//! names, and no network requests.

#[path = "support/documents.rs"]
mod documents;
#[path = "support/markup.rs"]
mod markup;

use markup::{Element, elements};
use report::run_page::{Sources, page};
use schema::document::*;
use schema::{Bucket, DistributionRecord, Measure, SecondRecord, ServerSecond, WatchPart, WatchSecond};

fn html(sources: &Sources) -> (String, Vec<Element>) {
    let html = page(sources).into_html();
    let all = elements(&html);
    (html, all)
}

fn texts<'a>(elements: &'a [Element], name: &str) -> Vec<&'a str> {
    elements.iter().filter(|one| one.name == name).map(|one| one.text.as_str()).collect()
}

fn second(second: u32) -> SecondRecord {
    SecondRecord {
        second,
        measured: (6..65).contains(&second),
        offered: 110,
        completed: 108,
        connections_mean: 23.5,
        connections_max: 31,
        in_flight_mean: 22.0,
        response_p50_ns: 95_000_000,
        response_p99_ns: 1_600_000_000,
        response_max_ns: 2_700_000_000,
        ..SecondRecord::default()
    }
}

fn watched(second: u64) -> WatchSecond {
    WatchSecond { second, watched_ns: 1_000_000_000, connections_mean: 23.0, requests: 110, ..WatchSecond::default() }
}

fn served(second: u32) -> ServerSecond {
    ServerSecond {
        second,
        at_ns: u64::from(second + 6) * 1_000_000_000,
        elapsed_s: 1.0,
        cpu_user_s: 0.2,
        cpu_system_s: 0.1,
        rss_bytes: 14_000_000,
        ..ServerSecond::default()
    }
}

/// 110 requests of 2 ms to 1 s.
fn distributed(second: u32) -> impl Iterator<Item = DistributionRecord> {
    let first = Bucket::of(2_000_000).0;
    (0..70).map(move |at| {
        let bucket = Bucket(first + at);
        let count = if at < 40 { 2 } else { 1 };
        DistributionRecord {
            second,
            measure: Measure::ResponseTime,
            from_ns: bucket.from_ns(),
            to_ns: bucket.to_ns(),
            count,
        }
    })
}

/// A run with every part.
fn whole() -> Sources {
    let mut document = documents::document();
    document.watch = Some(WatchPart { requests: 6_600, source: "s0".into(), ..WatchPart::default() });
    let mut sources = Sources::of(document);
    sources.series = (0..70).map(second).collect();
    // The document's start, 2026-11-20T09:30:05Z, in seconds since 1970.
    sources.watch_series = (0..70).map(|at| watched(1_795_167_005 + at)).collect();
    sources.server_series = (0..60).map(served).collect();
    sources.distributions = (0..70).flat_map(distributed).collect();
    sources.response_time = documents::histogram();
    sources.connect = documents::histogram();
    sources.wire_rtt = documents::histogram();
    sources.configured_rtt_ns = vec![48_000_000; 100];
    sources.plan = "name = \"bench\"\n".into();
    sources
}

#[test]
fn run_page_has_a_section_for_every_part() {
    let (html, all) = html(&whole());
    assert_eq!(
        texts(&all, "h2"),
        ["Load", "Over time", "Times", "By distance", "Responses", "Wire", "Path", "Server", "Host", "Repeat this run"]
    );
    assert_eq!(
        texts(&all, "b"),
        [
            "Where the figures come from",
            "Concurrent connections",
            "Requests per second",
            "Requests in flight",
            "Response time",
            "Distribution of response times over time",
            "Server CPU",
            "Response time by percentile",
            "Distribution of response times",
            "Response time by distance",
            "Failures by cause",
            "Round-trip time, configured and measured",
            "Server memory",
        ]
    );
    for expected in [
        "109.8 requests/s achieved of 110.0 offered",
        "nginx -c /etc/nginx/one.conf",
        "name = &quot;bench&quot;",
        "AMD EPYC 9B14",
    ] {
        assert!(html.contains(expected), "{expected}");
    }
    // The verdict is before any figure, and passed checks are folded.
    let place = |what: &str| html.find(what).unwrap_or_else(|| panic!("{what} is missing"));
    assert!(place("class=\"verdict good\"") < place("<details>") && place("<details>") < place("generator on time"));
    assert!(place("generator on time") < place("<h2>"));
}

#[test]
fn load_and_packet_capture_share_the_time_axis() {
    let (_, all) = html(&whole());
    let data = all.iter().find(|one| one.get("id") == Some("plots")).expect("data for the charts");
    let data: serde_json::Value = serde_json::from_str(&data.text).unwrap();
    let connections = &data[0]["series"];
    let names: Vec<&str> = connections.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["load", "wire", "max"]);
    assert_eq!(connections[0]["x"], connections[1]["x"]);
    assert_eq!((&connections[0]["x"][0], &connections[0]["y"][0]), (&0.into(), &23.5.into()));
    assert_eq!(data[0]["bands"][0], serde_json::json!([0.0, 5.05, "warm-up"]));
}

#[test]
fn absent_part_has_no_section() {
    let mut document = documents::document();
    (document.path, document.server, document.watch) = (None, None, None);
    document.run.host = Host::default();
    document.load.as_mut().unwrap().by_distance.clear();
    document.load.as_mut().unwrap().failed.clear();
    let (html, all) = html(&Sources::of(document.clone()));
    assert_eq!(texts(&all, "h2"), ["Load", "Times", "Responses", "Repeat this run"]);
    assert!(!html.contains("<svg") && !html.contains("uPlot") && !html.contains("<script"));
    // A path alone, as of `net`.
    document.load = None;
    document.path = Some(documents::path());
    let (html, all) = self::html(&Sources::of(document.clone()));
    assert_eq!(texts(&all, "h2"), ["Path", "Repeat this run"]);
    assert!(html.contains("118,720 wire packets over koshien-2001; 0 dropped."));
    // A capture alone, as of `watch`.
    document.path = None;
    document.watch = Some(WatchPart { request_rate_per_s: 110.0, ..WatchPart::default() });
    let mut sources = Sources::of(document);
    sources.watch_series = (0..5).map(|at| watched(1_800_000_000 + at)).collect();
    let (html, all) = self::html(&sources);
    assert_eq!(texts(&all, "h2"), ["Over time", "Wire", "Repeat this run"]);
    assert!(html.contains("110.0 requests/s and"));
}

#[test]
fn failed_checks_come_first_with_value_limit_and_reason() {
    let mut sources = whole();
    let mut checks = documents::green();
    checks[0] = documents::check(
        "generator_on_time",
        CheckState::Failed,
        Weight::Invalid,
        Some((12_300_000.0, 1_000_000.0)),
        "ns",
        "lower the rate",
    );
    sources.document.validity = Validity::from_checks(checks);
    sources.document.run.interrupted = true;
    sources.missing = vec!["series could not be read to its end: disk".into()];
    let (html, all) = html(&sources);
    assert_eq!(texts(&all, "strong"), ["Invalid"]);
    let failed = html.split_once("class=\"verdict bad\"").unwrap().1.split_once("<details>").unwrap().0;
    for expected in ["generator on time", "failed", "12.3 ms", "1 ms", "lower the rate", "Do not use these figures"] {
        assert!(failed.contains(expected), "{expected}: {failed}");
    }
    assert!(html.contains(", interrupted: the figures cover that time only."));
    assert!(html.contains("series could not be read"));
}

/// Names, commands, URLs and plans come from users and servers: none becomes markup, in the page or in its data.
#[test]
fn run_page_escapes_foreign_text() {
    const WILD: &str = "</script></title><img src=x onerror=alert(1)><!--\u{2028}\" onload=\"'";
    let mut sources = whole();
    let document = &mut sources.document;
    document.run.id = WILD.into();
    document.run.command = WILD.into();
    document.run.dir = WILD.into();
    document.run.started_at = WILD.into();
    document.run.host.cpu = WILD.into();
    document.run.host.settings = [(WILD.to_owned(), WILD.to_owned())].into();
    document.validity.checks[0].why = WILD.into();
    document.validity.checks[0].name = WILD.into();
    document.validity.checks[0].unit = WILD.into();
    document.validity.checks[1].state = CheckState::Failed;
    document.slo = Some(Slo {
        objective: WILD.into(),
        met: false,
        terms: vec![SloTerm { term: WILD.into(), value: 1.0, limit: 2.0, unit: WILD.into(), met: false }],
    });
    let load = document.load.as_mut().unwrap();
    load.loop_kind = WILD.into();
    load.failed = [(WILD.to_owned(), 3)].into();
    load.status = [(WILD.to_owned(), 3)].into();
    load.by_url = vec![UrlPart { url: WILD.into(), completed: 1, failed: 0, response_time_ns: Default::default() }; 2];
    let path = document.path.as_mut().unwrap();
    (path.profile, path.measured_rtt_source) = (WILD.into(), WILD.into());
    path.drops = [(WILD.to_owned(), 3)].into();
    let server = document.server.as_mut().unwrap();
    (server.command, server.tcp, server.source) = (WILD.into(), WILD.into(), WILD.into());
    let watch = document.watch.as_mut().unwrap();
    watch.source = WILD.into();
    watch.connections.states = [(WILD.to_owned(), 3)].into();
    watch.status = [(WILD.to_owned(), 3)].into();
    sources.plan = WILD.into();
    sources.missing = vec![WILD.into()];

    let (html, all) = html(&sources);
    assert!(html.contains("&lt;img src=x onerror=alert(1)&gt;") && !html.contains("<img"));
    assert!(!all.iter().any(|one| one.attributes.iter().any(|(name, _)| name.starts_with("on"))));
    assert_eq!(texts(&all, "script").len(), 3, "data, chart library, own script");
    let data = all.iter().find(|one| one.get("id") == Some("plots")).unwrap();
    serde_json::from_str::<serde_json::Value>(&data.text).unwrap();
}

/// A page is one file without references to other files, and its content security policy forbids requests.
#[test]
fn run_page_makes_no_network_requests() {
    let (html, all) = html(&whole());
    for element in &all {
        for name in ["src", "href", "action", "srcset", "data", "poster", "xlink:href", "background"] {
            assert_eq!(element.get(name), None, "{element:?}");
        }
        assert!(!["link", "img", "iframe", "object", "embed", "base", "form", "a"].contains(&element.name.as_str()));
    }
    let policy = all.iter().find(|one| one.get("http-equiv") == Some("Content-Security-Policy")).unwrap();
    assert!(policy.get("content").unwrap().starts_with("default-src 'none';"));
    for asking in ["url(", "@import", "XMLHttpRequest", "fetch(", "WebSocket", "EventSource", "sendBeacon", "import("] {
        assert!(!html.contains(asking), "{asking}");
    }
    assert!(html.contains("The MIT License (MIT)") && html.contains("Leon Sorokin"));
    assert!(html.len() < 400_000, "{}", html.len());
}

/// Fifteen minutes of seconds stay small, as plots and as data.
#[test]
fn page_of_a_quarter_of_an_hour_is_small() {
    let mut sources = whole();
    sources.series =
        (0..915).map(|at| SecondRecord { connections_mean: f64::from(at % 17) * 1.37, ..second(at) }).collect();
    sources.watch_series = (0..915).map(|at| watched(1_795_167_005 + at)).collect();
    let (html, _) = html(&sources);
    assert!(html.len() < 900_000, "{}", html.len());
}

/// Markdown has the text of the page without plots; for any names, all lines of a table have the same number of cells.
#[test]
fn markdown_has_the_sections_of_the_page_without_plots() {
    let mut sources = whole();
    let wild = "<script>alert(1)</script>|`x`\n\n# [a](javascript:b)".to_owned();
    sources.document.load.as_mut().unwrap().failed.insert(wild.clone(), 3);
    sources.document.load.as_mut().unwrap().status.insert(wild.clone(), 7);
    sources.document.run.command = wild.clone();
    sources.plan = format!("{wild}\n````");
    let text = page(&sources).to_markdown();
    for heading in
        ["# 20261120-093005-bench-qzkv", "## Load", "## Times", "## Responses", "## Path", "## Repeat this run"]
    {
        assert!(text.lines().any(|line| line == heading), "{heading}\n{text}");
    }
    assert!(!text.lines().any(|line| line == "## Over time"), "a section of figures alone");
    assert!(text.contains("**Valid.** All 8 applicable validity checks passed.") && !text.contains("<svg"), "{text}");
    // Outside of code fences there is no markup.
    let mut fence: Option<usize> = None;
    for line in text.lines() {
        let ticks = line.chars().take_while(|&c| c == '`').count();
        match fence {
            Some(open) if ticks >= open && line.len() == ticks => fence = None,
            Some(_) => {}
            None if ticks >= 3 => fence = Some(ticks),
            None => assert!(!line.contains("<script") && !line.replace("\\]", "").contains("](javascript"), "{line}"),
        }
    }
    assert_eq!(fence, None, "every code fence is closed");
}

/// The size of the page of a day of seconds is bounded.
#[test]
fn page_of_a_day_has_a_bounded_size() {
    let mut sources = whole();
    sources.series = (0..86_400).map(second).collect();
    sources.watch_series = (0..86_400).map(|at| watched(1_795_167_005 + at)).collect();
    sources.server_series = (0..86_400).map(served).collect();
    sources.distributions = (0..900).flat_map(distributed).collect();
    let bytes = page(&sources).into_html().len();
    assert!(bytes < 4_000_000, "{bytes}");
}
