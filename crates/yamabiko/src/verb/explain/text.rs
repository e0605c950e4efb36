//! The explanation as text: sentence, table of shares, waterfall of the slowest responses.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use explain::{Cause, Group};
use schema::Verdict;
use units::figures::duration;

use super::Explained;

/// Characters of a waterfall's bar.
const BAR: u64 = 40;

/// Distances that fit a line.
const DISTANCES_MAX: usize = 6;

/// The whole page.
pub fn render(result: &Explained) -> String {
    let summary = &result.summary;
    let mut text = String::new();
    // Notes about capture files were printed when the files were read.
    let notes: Vec<&String> = result.notes.iter().filter(|_| result.document.is_some()).collect();
    // Why a run is not valid comes before its figures.
    let is_valid = result.document.as_ref().is_none_or(|run| run.validity.verdict == Verdict::Valid);
    if !is_valid {
        notes.iter().for_each(|note| writeln!(text, "note: {note}\n").expect("text"));
    }
    writeln!(text, "{}\n", summary.sentence).expect("text");
    if let Some(tried) = &result.tried {
        writeln!(text, "{}\n", tried.text()).expect("text");
    }
    let percentiles: Vec<(String, &Group)> =
        summary.percentiles.iter().map(|group| (format!("p{}", group.percentile / 100), group)).collect();
    table(&mut text, "Share of the response time", &percentiles, "confidence at p50");
    if summary.distances.len() > 1 {
        text.push('\n');
        let distances: Vec<(String, &Group)> = summary
            .distances
            .iter()
            .take(DISTANCES_MAX)
            .map(|group| (duration(group.distance_ns.unwrap_or_default()), group))
            .collect();
        table(&mut text, "Median response, by distance (RTT)", &distances, "confidence at the nearest");
    }
    let slowest = summary.slowest.len();
    writeln!(text, "\nThe {slowest} slowest of {} responses", summary.responses).expect("text");
    for place in &summary.slowest {
        waterfall(&mut text, &result.labels[*place].text, &result.responses[*place]);
    }
    if is_valid {
        notes.iter().for_each(|note| writeln!(text, "\nnote: {note}").expect("text"));
    }
    text
}

/// Shares by group: a row for each cause with at least half a percent somewhere.
fn table(text: &mut String, title: &str, groups: &[(String, &Group)], confidence_of: &str) {
    write!(text, "{title:36}").expect("text");
    groups.iter().for_each(|(name, _)| write!(text, "{name:>9}").expect("text"));
    writeln!(text, "  {confidence_of}").expect("text");
    write!(text, "{:36}", "response time").expect("text");
    groups.iter().for_each(|(_, group)| write!(text, "{:>9}", duration(group.response_time_ns)).expect("text"));
    text.push('\n');
    let shown = |(_, group): &(String, &Group)| -> Vec<Cause> {
        let shares = group.shares.iter().filter(|share| share.time_ns * 200 >= group.response_time_ns);
        shares.map(|share| share.cause).collect()
    };
    let causes: BTreeSet<Cause> = groups.iter().flat_map(shown).collect();
    for cause in causes {
        write!(text, "  {:34}", cause.name()).expect("text");
        let share = |group: &Group| group.shares.iter().find(|share| share.cause == cause).copied();
        for (_, group) in groups {
            let percent = share(group).map_or(String::from("-"), |share| match group.response_time_ns.max(1) {
                total if share.time_ns * 200 < total => String::from("<0.5 %"),
                total => format!("{} %", (share.time_ns * 100 + total / 2) / total),
            });
            write!(text, "{percent:>9}").expect("text");
        }
        let first = groups.first().and_then(|(_, group)| share(group));
        writeln!(text, "  {}", first.map_or("", |share| share.confidence.as_str())).expect("text");
    }
}

/// One response: each cause's time in order, as bars on the response's time.
fn waterfall(text: &mut String, label: &str, explained: &explain::Explained) {
    let explanation = &explained.explanation;
    let whole = explanation.response_time_ns().max(1);
    writeln!(text, "\n  {}  {}", duration(whole), label).expect("text");
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
