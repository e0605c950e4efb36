//! Prints every page of this crate from synthetic figures, for work on the layout:
//! `cargo run -p report --example look`.

#[path = "../tests/support/documents.rs"]
mod support;

use report::{ProfileView, Style, terminal};
use schema::document::{CheckState, Slo, SloTerm, Validity, Weight};

fn main() {
    let style = Style { color: true, width: 100, unicode: true };
    println!("{}", terminal::render(&support::document(), Some(&support::histogram()), style));
    let mut doubtful = support::document();
    let mut checks = support::green();
    let (failed, not_run) = (CheckState::Failed, CheckState::CouldNotRun);
    checks[0] = support::check(
        "generator_on_time",
        failed,
        Weight::Invalid,
        Some((12_300_000.0, 1_000_000.0)),
        "ns",
        "99 % of the requests started within 12.3 ms of their scheduled time. This machine is too busy for this rate: lower --rate or give it more cores.",
    );
    checks[7] = support::check(
        "steady_state",
        not_run,
        Weight::Suspect,
        None,
        "",
        "the run is too short to tell; make it 10 s or longer.",
    );
    doubtful.validity = Validity::from_checks(checks);
    doubtful.run.interrupted = true;
    doubtful.slo = Some(Slo {
        objective: "p99 < 200ms, errors < 1%".into(),
        met: false,
        terms: vec![
            SloTerm { term: "p99 < 200ms".into(), value: 1.5e9, limit: 2e8, unit: "ns".into(), met: false },
            SloTerm { term: "errors < 1%".into(), value: 0.001, limit: 0.01, unit: "ratio".into(), met: true },
        ],
    });
    println!("{}", terminal::render(&doubtful, None, Style { width: 80, ..style }));
    let view = ProfileView {
        name: "koshien-2001".into(),
        about: "RTTs of visitors of the 2001 Koshien site, cut into steps".into(),
        rtts_ns: support::response_times().into_iter().map(|time| time / 2).collect(),
        lines: vec!["100 % of clients: no rate limit, no loss".into()],
        ..ProfileView::default()
    };
    println!("{}", terminal::profile(&view, style));
    println!("{}", terminal::profile(&view, Style::PLAIN));
}
