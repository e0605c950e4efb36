//! How the pages look. The figures are made up in `support`, so a change here is a change of layout and of nothing
//! else; the arithmetic of each figure has its own test in `figures`.

#[path = "support/documents.rs"]
mod support;

use std::path::PathBuf;

use ledger::document::{CheckState, Slo, SloTerm, Validity, Weight};
use report::{ProfileView, Style, terminal};
use store::{RunEntry, RunState};

const SCREEN: Style = Style { color: false, width: 100, unicode: true };

#[test]
fn a_valid_run() {
    insta::assert_snapshot!(terminal::render(&support::document(), Some(&support::histogram()), SCREEN));
}

#[test]
fn an_invalid_run_says_why_before_anything_else() {
    let mut document = support::document();
    let mut checks = support::green();
    checks[0] = support::check(
        "generator_on_time",
        CheckState::Failed,
        Weight::Invalid,
        Some((12_300_000.0, 1_000_000.0)),
        "ns",
        "the machine is too busy for this rate: lower --rate or give the generator a core of its own.",
    );
    checks[7] = support::check(
        "steady_state",
        CheckState::CouldNotRun,
        Weight::Suspect,
        None,
        "",
        "the run is too short to tell: make it 10 s or longer.",
    );
    document.validity = Validity::from_checks(checks);
    document.run.interrupted = true;
    document.slo = Some(Slo {
        objective: "p99 < 200ms, errors < 1%".into(),
        met: false,
        terms: vec![
            SloTerm { term: "p99 < 200ms".into(), value: 1.5e9, limit: 2e8, unit: "ns".into(), met: false },
            SloTerm { term: "errors < 1%".into(), value: 0.001, limit: 0.01, unit: "ratio".into(), met: true },
        ],
    });
    (document.load, document.path, document.server) = (None, None, None);
    insta::assert_snapshot!(terminal::render(&document, None, Style { width: 80, ..SCREEN }));
}

#[test]
fn a_list_of_runs() {
    let entry = |id: &str, state| RunEntry { id: id.into(), dir: PathBuf::from("/runs").join(id), state };
    insta::assert_snapshot!(terminal::runs(
        &[
            entry("20261120-093005-bench-qzkv", RunState::Finished(Box::new(support::document()))),
            entry("20261120-094100-demo-abcd", RunState::Unfinished { parts: 3, rows: 1_330 }),
            entry("20261120-095900-bench-efgh", RunState::Running { parts: 1, rows: 110 }),
        ],
        SCREEN
    ));
}

#[test]
fn a_profile() {
    let view = ProfileView {
        name: "koshien-2001".into(),
        about: "made up for this test".into(),
        rtts_ns: support::response_times().into_iter().map(|time| time / 2).collect(),
        lines: vec!["no rate limit, no loss".into()],
    };
    insta::assert_snapshot!(terminal::profile(&view, SCREEN));
}

#[test]
fn every_line_but_the_ones_to_copy_fits_the_width() {
    for width in [60, 80, 100, 120] {
        let text = terminal::render(&support::document(), Some(&support::histogram()), Style { width, ..SCREEN });
        for line in text.lines().filter(|line| !line.starts_with("  again") && !line.starts_with("  kept in")) {
            // The widest table, by distance, cannot be narrower than its figures.
            assert!(line.chars().count() <= usize::from(width.max(80)), "{width}: {line}");
        }
    }
}

#[test]
fn colour_adds_nothing_but_colour() {
    let document = support::document();
    let bare = terminal::render(&document, None, SCREEN);
    let coloured = terminal::render(&document, None, Style { color: true, ..SCREEN });
    let mut stripped = String::new();
    let mut rest = coloured.as_str();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        stripped.push_str(before);
        rest = after.split_once('m').expect("a colour ends in m").1;
    }
    assert_eq!(stripped + rest, bare);
}
