//! The page of a comparison: detected and undetected differences are stated, both sides are in one chart, and no name
//! of a run, plan or machine becomes markup.

#[path = "support/markup.rs"]
mod markup;

use markup::{Element, elements};
use report::{CompareSources, SideRun, compare_page, junit};
use schema::compare_part::{
    CompareSide, ComparedBlock, ComparedMetric, ComparedRun, FailCertainty, FailTerm, HostDifference, PlanDifference,
};
use schema::document::Run;
use schema::{CompareDocument, ComparePart, CompareVerdict, SecondRecord, Validity};
use stats::Histogram;

const WILD: &str = "</script><img src=x onerror=alert(1)>\u{1b}[31m`|`";

fn metric(short: &str, difference: f64, half: f64) -> ComparedMetric {
    let verdict = match difference {
        d if d - half > 0.0 => CompareVerdict::More,
        d if d + half < 0.0 => CompareVerdict::Less,
        _ => CompareVerdict::NoDifferenceShown,
    };
    ComparedMetric {
        name: short.into(),
        short: short.into(),
        unit: "ns".into(),
        a: Some(1e6),
        b: Some(1e6 * (1.0 + difference)),
        relative: true,
        difference: Some(difference),
        interval: Some([difference - half, difference + half]),
        confidence: Some(0.95),
        p: None,
        verdict,
        detectable_difference: Some(half),
    }
}

fn side(slower: f64) -> SideRun {
    let mut times = Histogram::new();
    (1..=5_000u64).for_each(|at| times.record((at as f64 * 1e4 * slower) as u64));
    let second = |second: u32| SecondRecord {
        second,
        measured: second >= 5,
        completed: 100,
        response_p99_ns: (50e6 * slower) as u64,
        connections_mean: 12.0 * slower,
        ..SecondRecord::default()
    };
    SideRun { id: WILD.into(), warmup_s: 5.0, series: (0..30).map(second).collect(), response_time: times }
}

fn sources(metrics: Vec<ComparedMetric>) -> CompareSources {
    let what = |runs: usize| CompareSide { what: WILD.into(), runs: vec![WILD.into(); runs], counted: runs as u64 };
    let run = |side: &str, figure: f64| ComparedRun {
        side: side.into(),
        run: String::new(),
        verdict: "valid".into(),
        figures: [("mean".to_owned(), figure)].into(),
    };
    let block = |counted: bool| ComparedBlock {
        order: "ABBA".into(),
        counted,
        why: if counted { String::new() } else { WILD.into() },
        runs: vec![run("A", 100.0), run("B", 110.0), run("B", 110.0), run("A", 100.0)],
    };
    let term = |failed| FailTerm {
        term: WILD.into(),
        failed,
        sure: FailCertainty::Likely,
        why: WILD.into(),
        ..FailTerm::default()
    };
    let part = ComparePart {
        method: "blocks".into(),
        confidence: 0.95,
        by: "mean".into(),
        a: what(1),
        b: what(1),
        plans_differ: vec![PlanDifference { field: WILD.into(), a: Some(WILD.into()), b: None, subject: true }],
        hosts_differ: vec![HostDifference {
            fact: "kernel".into(),
            a: Some("6.1".into()),
            b: Some(WILD.into()),
            machine: true,
        }],
        metrics,
        blocks: vec![block(false), block(true)],
        fail_if: vec![term(Some(true)), term(None)],
        notes: vec![WILD.into()],
    };
    let document = CompareDocument {
        schema: String::new(),
        run: Run { command: WILD.into(), ..Run::default() },
        validity: Validity::from_checks(Vec::new()),
        compare: part,
    };
    let mut sources = CompareSources::of(document);
    sources.sides = [vec![side(1.0)], vec![side(1.1)]];
    sources.plan = WILD.into();
    sources
}

fn texts<'a>(elements: &'a [Element], name: &str) -> Vec<&'a str> {
    elements.iter().filter(|one| one.name == name).map(|one| one.text.as_str()).collect()
}

#[test]
fn detected_difference_has_its_interval_and_both_curves() {
    let page = compare_page(&sources(vec![metric("mean", 0.1, 0.02), metric("p99", 0.01, 0.05)]));
    let html = page.into_html();
    let all = elements(&html);
    assert_eq!(
        texts(&all, "h2"),
        [
            "Failure conditions",
            "Differences",
            "Distributions",
            "Over time",
            "Blocks",
            "Differences of plans and hosts",
            "Notes",
            "Repeat this run"
        ]
    );
    assert_eq!(
        texts(&all, "b"),
        [
            "B compared with A",
            "Response time by percentile",
            "Response times",
            "B compared with A by percentile",
            "Response time, p99",
            "Achieved rate",
            "Concurrent connections",
            "Difference of mean response time in each block",
        ]
    );
    for expected in [
        "B compared with A: mean response time: B is 10.0 % higher than A (8.0 % to 12.0 %).",
        "Different: mean response time. No difference detected: p99 response time (detectable from 5.0 %).",
        "FAILED, likely",
        "unknown",
    ] {
        assert!(html.contains(expected), "{expected}\n{html}");
    }
    // The plots have the ranges of both sides' seconds, from the start of the measured phase.
    let data = all.iter().find(|one| one.get("id") == Some("plots")).expect("data for the charts");
    let data: serde_json::Value = serde_json::from_str(&data.text).unwrap();
    let names: Vec<&str> =
        data[0]["series"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!((names, &data[0]["series"][0]["x"][0]), (vec!["A", "B"], &0.into()));
    assert_eq!(data[0]["series"][1]["y"][0], 55_000_000);
}

#[test]
fn undetected_difference_states_the_detectable_one() {
    let page = compare_page(&sources(vec![metric("mean", 0.002, 0.014)]));
    let html = page.into_html();
    assert!(html.contains("mean response time: no difference detected; detectable from 1.4 %."), "{html}");
    assert!(html.contains("<p>No difference was detected.</p>"), "{html}");
}

#[test]
fn comparison_escapes_text_in_html_markdown_and_junit() {
    let sources = sources(vec![metric("mean", 0.1, 0.02)]);
    let page = compare_page(&sources);
    let html = page.clone().into_html();
    assert!(!html.contains("<img") && !html.contains('\u{1b}'));
    for figure in page.figures() {
        let svg = figure.standalone();
        elements(&svg);
        assert!(!svg.contains("<img") && !svg.contains('\u{1b}'), "{svg}");
    }
    let text = page.to_markdown();
    let outside: String = text.split("```").step_by(2).collect();
    assert!(!outside.contains("<img") && !text.contains('\u{1b}'), "{text}");
    let xml = junit(&sources.document, true);
    elements(xml.split_once("?>").unwrap().1);
    assert!(!xml.contains("<img") && !xml.contains('\u{1b}'), "{xml}");
}

/// Only plain names are searched: a document of unknown origin must not cause reads of other folders.
#[test]
fn compared_runs_are_found_by_name_never_by_path() {
    let mut document = sources(vec![]).document;
    document.compare.a.runs = ["../up", "/etc", "a/b", "..", ".", "", "fine"].map(String::from).to_vec();
    document.compare.b.runs.clear();
    let requested = std::cell::RefCell::new(Vec::new());
    let read = CompareSources::read(document, String::new(), &|name| {
        requested.borrow_mut().push(name.to_owned());
        None
    });
    assert_eq!(*requested.borrow(), ["fine"]);
    assert_eq!(read.missing.len(), 7);
    let html = compare_page(&read).into_html();
    assert!(html.contains("fine is no longer stored"), "{html}");
}
