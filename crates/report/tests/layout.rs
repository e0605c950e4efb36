//! Layout of the screens. The figures are synthetic (`support`), so that a changed snapshot is a change of layout only;
//! the arithmetic of figures is tested in `figures`.

#[path = "support/documents.rs"]
mod support;

use std::path::PathBuf;

use report::{ProfileEntry, ProfileView, Series, Spread, SpreadUnit, Style, terminal};
use schema::document::{CheckState, Slo, SloTerm, Validity, Weight};
use store::{Brief, RunEntry, RunState};

const SCREEN: Style = Style { color: false, width: 100, unicode: true };

#[test]
fn screen_of_a_valid_run() {
    insta::assert_snapshot!(terminal::render(&support::document(), Some(&support::histogram()), SCREEN));
}

#[test]
fn screen_of_an_invalid_run_begins_with_the_failed_checks() {
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
fn list_of_runs_has_one_line_per_run() {
    let entry =
        |id: &str, state| RunEntry { id: id.into(), dir: PathBuf::from("/runs").join(id), state, tags: Vec::new() };
    let plan = "[load]\nurl = \"http://server:8080/\"\n";
    let search = Brief { load: None, ..Brief::of("", &support::document(), "", plan) };
    insta::assert_snapshot!(terminal::runs(
        &[
            entry(
                "20261120-093005-bench-qzkv",
                RunState::Finished(Box::new(Brief::of("", &support::document(), "", "")))
            ),
            entry("20261120-094100-demo-abcd", RunState::Unfinished { parts: 3, rows: 1_330 }),
            entry("20261120-095900-bench-efgh", RunState::Running { parts: 1, rows: 110 }),
            entry("20261120-100100-capacity-ijkl", RunState::Finished(Box::new(search))),
        ],
        |_| Some("2,134/s with p99 < 200ms (95 % interval 2,100/s to 2,160/s).".into()),
        SCREEN
    ));
}

#[test]
fn screen_of_a_profile() {
    let view = ProfileView {
        name: "koshien-2001".into(),
        about: "made up for this test".into(),
        rtts_ns: support::response_times().into_iter().map(|time| time / 2).collect(),
        lines: vec!["no rate limit, no loss".into()],
        ..ProfileView::default()
    };
    insta::assert_snapshot!(terminal::profile(&view, SCREEN));
}

/// A profile with two classes of clients, packet loss, and a periodic delay.
fn mixed() -> ProfileView {
    let rate = |client: usize| if client < 7 { Some(8e6) } else { None };
    let swing = |at: usize| (40e6 + 20e6 * (at as f64 / 100.0 * std::f64::consts::TAU).sin()) as u64;
    ProfileView {
        name: "mixed".into(),
        about: "made up for this test".into(),
        rtts_ns: vec![20_000_000; 10],
        lines: vec!["70% of clients: RTT 20ms; down 8Mbit, queue 200ms".into()],
        spreads: vec![
            Spread { label: "rate down".into(), unit: SpreadUnit::BitsPerSecond, values: (0..10).map(rate).collect() },
            Spread { label: "rate up".into(), unit: SpreadUnit::BitsPerSecond, values: vec![None; 10] },
            Spread { label: "loss down".into(), unit: SpreadUnit::Share, values: vec![Some(0.01); 10] },
        ],
        series: vec![Series {
            label: "RTT over time".into(),
            length_ns: 60_000_000_000,
            delays_ns: (0..=200).map(swing).collect(),
        }],
    }
}

#[test]
fn screen_of_a_profile_with_classes() {
    for width in [60, 80, 120] {
        for unicode in [true, false] {
            let text = terminal::profile(&mixed(), Style { width, unicode, color: false });
            assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}\n{text}");
            assert!(unicode || text.is_ascii(), "{text}");
        }
    }
    insta::assert_snapshot!(terminal::profile(&mixed(), Style { width: 80, unicode: true, color: false }));
}

#[test]
fn list_of_profiles() {
    let entry = |name: &str, rtt_ns, down| ProfileEntry {
        name: name.into(),
        rtt_ns,
        down_bits_per_s: down,
        up_bits_per_s: None,
        loss: 0.002,
        about: "made up for this test, to see how a sentence that is longer than a line is laid out below the table"
            .into(),
    };
    let entries = [
        entry("fiber", [5_000_000, 9_000_000, 14_000_000], Some(300e6)),
        entry("country-middle-income", [9_000_000, 55_000_000, 300_000_000], None),
    ];
    let text = terminal::profiles(&entries, Style { width: 80, unicode: true, color: false });
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn lines_fit_the_width_except_verbatim_ones() {
    for width in [60, 80, 100, 120] {
        let text = terminal::render(&support::document(), Some(&support::histogram()), Style { width, ..SCREEN });
        for line in text.lines().filter(|line| !line.starts_with("  command") && !line.starts_with("  stored in")) {
            // The widest table, by RTT, cannot be narrower than its figures.
            assert!(line.chars().count() <= usize::from(width.max(80)), "{width}: {line}");
        }
    }
}

#[test]
fn coloured_screen_differs_by_colour_codes_only() {
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
