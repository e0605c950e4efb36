//! The explanation as text: sentence, table of shares, waterfall of the slowest responses.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use explain::{Cause, Explained, Group, Summary};
use schema::WireRequest;
use units::figures::duration;
use units::printable;

/// Characters of a waterfall's bar.
const BAR: u64 = 40;

/// The whole page.
pub fn render(summary: &Summary, requests: &[WireRequest], explained: &[Explained]) -> String {
    let mut text = format!("{}\n\n", summary.sentence);
    table(&mut text, summary);
    let slowest = summary.slowest.len();
    writeln!(text, "\nThe {slowest} slowest of {} responses", summary.responses).expect("text");
    for place in &summary.slowest {
        waterfall(&mut text, &requests[*place], &explained[*place]);
    }
    text
}

/// Method and target of a request, as far as they were captured.
pub fn target(request: &WireRequest) -> String {
    let word = |bytes: &Option<std::sync::Arc<[u8]>>| {
        bytes.as_ref().map_or(String::from("?"), |bytes| printable(&String::from_utf8_lossy(bytes)).to_string())
    };
    format!("{} {}", word(&request.method), word(&request.path))
}

/// Shares by percentile: a row for each cause with at least half a percent somewhere.
fn table(text: &mut String, summary: &Summary) {
    let groups = &summary.percentiles;
    write!(text, "{:36}", "Share of the response time").expect("text");
    for group in groups {
        write!(text, "{:>8}", format!("p{}", group.percentile / 100)).expect("text");
    }
    writeln!(text, "  confidence at p50").expect("text");
    write!(text, "{:36}", "response time").expect("text");
    groups.iter().for_each(|group| write!(text, "{:>8}", duration(group.response_time_ns)).expect("text"));
    text.push('\n');
    let shown = |group: &Group| -> Vec<Cause> {
        let shares = group.shares.iter().filter(|share| share.time_ns * 200 >= group.response_time_ns);
        shares.map(|share| share.cause).collect()
    };
    let causes: BTreeSet<Cause> = groups.iter().flat_map(shown).collect();
    for cause in causes {
        write!(text, "  {:34}", cause.name()).expect("text");
        let share = |group: &Group| group.shares.iter().find(|share| share.cause == cause).copied();
        for group in groups {
            let percent = share(group).map_or(0, |share| {
                let total = group.response_time_ns.max(1);
                (share.time_ns * 100 + total / 2) / total
            });
            write!(text, "{:>8}", format!("{percent} %")).expect("text");
        }
        let confidence = groups.first().and_then(share).map_or("", |share| share.confidence.as_str());
        writeln!(text, "  {confidence}").expect("text");
    }
}

/// One response: each cause's time in order, as bars on the response's time.
fn waterfall(text: &mut String, request: &WireRequest, explained: &Explained) {
    let explanation = &explained.explanation;
    let whole = explanation.response_time_ns().max(1);
    writeln!(text, "\n  {}  {}", duration(whole), target(request)).expect("text");
    let Some(start) = explanation.intervals.first().map(|part| part.from_ns) else { return };
    for share in explanation.shares().iter().filter(|share| share.time_ns * 50 >= whole) {
        let mut bar = vec![b' '; BAR as usize];
        for part in explanation.intervals.iter().filter(|part| part.cause == share.cause) {
            let column = |at: u64| ((u128::from(at - start) * u128::from(BAR)) / u128::from(whole)) as usize;
            let (from, to) = (column(part.from_ns).min(BAR as usize - 1), column(part.to_ns));
            bar[from..to.max(from + 1)].fill(b'#');
        }
        let bar = String::from_utf8_lossy(&bar);
        let (name, confidence) = (share.cause.name(), share.confidence.as_str());
        writeln!(text, "    |{bar}| {:>7} {name} ({confidence}: {})", duration(share.time_ns), share.rule.text())
            .expect("text");
    }
}
