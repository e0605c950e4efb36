//! The page of a reproduction: result, verdict, published and measured figures, plots of every setting.

use report::page::Page;
use report::page::Section;
use report::plot::Quantity;
use report::reproduction::{ExperimentView, Offered, SettingView, bars, page, page_with};
use schema::document::{Check, CheckState, Run, Weight};
use schema::{Reproduction, ReproductionDocument, ReproductionRow, Validity, WatchSecond};

fn document(state: CheckState) -> ReproductionDocument {
    let check = Check {
        name: "experiment 2, TCP of 2001: path_on_time".into(),
        state,
        weight: Weight::Invalid,
        value: Some(3e6),
        limit: Some(1e6),
        unit: "ns".into(),
        why: "packets left the path late".into(),
    };
    ReproductionDocument {
        schema: schema::document::SCHEMA.into(),
        run: Run { command: "yamabiko reproduce koshien </pre>".into(), ..Run::default() },
        validity: Validity::from_checks(vec![check]),
        reproduce: Reproduction {
            name: "koshien".into(),
            about: "P1 <b>about</b>".into(),
            answer: "21.1 & more".into(),
            notes: vec!["The hosts were slower.".into()],
            rows: vec![ReproductionRow {
                experiment: "2".into(),
                setting: "2001".into(),
                quantity: "concurrent connections, mean".into(),
                unit: "connections".into(),
                published: Some("about 25, steady".into()),
                measured: Some(21.1),
                note: "expected: 18 to 25".into(),
            }],
            runs: vec!["20261122-000000-koshien-2-2001-abcd".into()],
        },
    }
}

fn page_of(state: CheckState, settings: &[SettingView<'_>]) -> Page {
    let lines = [vec!["2, TCP of 2001".to_owned(), "about 25, steady".to_owned(), "21.1".to_owned()]];
    let offered = Offered { rate_per_s: 110.0, warmup_s: 8.0 };
    page("Koshien", &document(state), (&["experiment", "paper", "here"], &lines), offered, settings)
}

#[test]
fn reproduction_page_has_figures_for_every_setting() {
    let seconds: Vec<WatchSecond> = (3..20)
        .map(|second| WatchSecond { second, connections_mean: 21.0, requests: 110, ..WatchSecond::default() })
        .collect();
    let rtts_ns = [48_010_000, 48_020_000, 48_030_000];
    let setting = |name: &str| SettingView {
        name: name.into(),
        about: "A window of 2 segments.".into(),
        experiments: vec![ExperimentView {
            name: "2: RTT 48 ms <for all>".into(),
            color: 1,
            seconds: &seconds,
            rtts_ns: &rtts_ns,
            configured_rtts_ns: &rtts_ns,
        }],
    };
    let page = page_of(CheckState::Ok, &[setting("TCP of 2001"), setting("TCP of today")]);
    assert_eq!(page.figures().len(), 6, "connections, arrivals and RTTs of both");
    let html = page.into_html();
    for expected in ["TCP of 2001", "TCP of today", "about 25, steady", "The hosts were slower.", "koshien-2-2001-abcd"]
    {
        assert!(html.contains(expected), "{expected} is not on the page");
    }
    assert!(html.contains("21.1 &amp; more") && html.contains("P1 &lt;b&gt;about"), "text is escaped and never markup");
    assert!(!html.contains("<for all>") && !html.contains("koshien </pre>"), "text is escaped and never markup");
}

#[test]
fn reproduction_page_has_failed_checks_before_figures() {
    let page = page_of(CheckState::Failed, &[]);
    assert!(page.figures().is_empty());
    let html = page.into_html();
    let doubt = html.find("packets left the path late").expect("the failed check is on the page");
    assert!(doubt < html.find("Published vs. measured").unwrap());
}

fn figure(experiment: &str, setting: &str, paper: Option<&str>, here: Option<f64>) -> ReproductionRow {
    ReproductionRow {
        experiment: experiment.into(),
        setting: setting.into(),
        quantity: "requests per second".into(),
        unit: "1/s".into(),
        published: paper.map(str::to_owned),
        measured: here,
        note: String::new(),
    }
}

#[test]
fn bars_have_published_and_measured_values() {
    let mut document = document(CheckState::Ok);
    document.reproduce.rows = vec![
        figure("1 KB", "Apache", Some("123.46"), Some(4000.0)),
        figure("1 KB", "ours", Some("about 2"), None),
        figure("1 MB", "Apache", Some("11.02"), Some(11.5)),
        figure("2 MB", "of another setting", None, Some(1.0)),
    ];
    let series = [("paper", "Apache", true), ("here", "Apache", false), ("ours, paper", "ours", true)];
    let drawn = bars("Requests", &document, ("requests per second", Quantity::PerSecond), &series, true);
    let rows: Vec<_> = drawn.rows.iter().map(|row| (row.name.as_str(), row.values.clone())).collect();
    assert_eq!(rows, [("1 KB", vec![Some(123.46), Some(4000.0), None]), ("1 MB", vec![Some(11.02), Some(11.5), None])]);
    let head = ["size", "here"];
    let lines = [vec!["1 KB".to_owned(), "4000".to_owned()]];
    let page = page_with("Title", &document, (&head, &lines), &[], vec![Section::new("Figures").figure(drawn)]);
    assert_eq!(page.figures().len(), 1);
    let html = page.into_html();
    assert!(html.contains("<svg") && html.contains("123.46"), "every row is on the page");
    let nothing = bars("Requests", &document, ("something else", Quantity::Count), &series, false);
    assert!(nothing.is_empty());
}
