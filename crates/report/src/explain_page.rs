//! The result of `explain` as one page: the sentence, response times divided among causes by percentile and by
//! distance, and time-sequence diagrams of single responses.

use std::collections::BTreeMap;

use explain::{Cause, Explanation, Group, Share, Summary, TimeSequence};
use schema::Validity;

use crate::figures::duration;
use crate::page::{Page, Section, Table};
use crate::plot::{Axis, Bars, Chart, Quantity, Series, Shape};

/// What the page shows.
pub struct ExplainSources<'a> {
    /// Name of the run or of the file.
    pub title: String,
    /// The command that repeats it; empty of a file.
    pub command: String,
    /// The run's checks; none of a file.
    pub validity: Option<&'a Validity>,
    /// Figures of all responses.
    pub summary: &'a Summary,
    /// Responses of which diagrams are drawn: the median one first, then the slowest.
    pub examples: Vec<ExplainedResponse<'a>>,
    /// What limits the explanation.
    pub notes: &'a [String],
    /// What came of trying the sentence's remedy; `None` where it was not asked for.
    pub tried: Option<String>,
}

/// A response on the page.
pub struct ExplainedResponse<'a> {
    /// Its name.
    pub label: String,
    /// Its division.
    pub explanation: &'a Explanation,
    /// Its packets' times; `None` without packets.
    pub sequence: Option<TimeSequence>,
}

/// Parts of a stacked bar; the causes with the least time share the last.
const PARTS_MAX: usize = 6;

/// Builds the page.
pub fn explain_page(sources: &ExplainSources<'_>) -> Page {
    let summary = sources.summary;
    let mut page = Page::new(&sources.title).lead(&summary.sentence).subject("", &sources.command);
    if let Some(validity) = sources.validity {
        page = page.judged("", validity);
    }
    let percentiles: Vec<(String, &Group)> =
        summary.percentiles.iter().map(|group| (format!("p{}", group.percentile / 100), group)).collect();
    let distances: Vec<(String, &Group)> = summary
        .distances
        .iter()
        .filter_map(|group| Some((format!("RTT {}", duration(group.distance_ns?)), group)))
        .collect();
    let mut shares = Section::new("Where the time goes");
    if let Some(tried) = &sources.tried {
        shares = shares.text(tried);
    }
    let causes = largest(summary.percentiles.iter().chain(&summary.distances));
    if let Some(bars) = stacked("Response time by percentile", &percentiles, &causes) {
        shares = shares.figure(bars);
    }
    if distances.len() > 1
        && let Some(bars) = stacked("Median response time by distance", &distances, &causes)
    {
        shares = shares.figure(bars);
    }
    shares = shares.table(table(&percentiles));
    if distances.len() > 1 {
        shares = shares.table(table(&distances));
    }
    let responses = sources.examples.iter().fold(Section::new("Single responses"), response);
    let notes = sources.notes.iter().fold(Section::new("Notes"), Section::text);
    page.section(shares).section(responses).section(notes)
}

/// The causes with the most time over the groups; of more than fit, the last stands for the rest.
fn largest<'a>(groups: impl Iterator<Item = &'a Group>) -> Vec<Cause> {
    let mut times = BTreeMap::<Cause, f64>::new();
    for group in groups {
        for share in &group.shares {
            *times.entry(share.cause).or_default() += share.time_ns as f64 / group.response_time_ns.max(1) as f64;
        }
    }
    let mut causes: Vec<(Cause, f64)> = times.into_iter().collect();
    causes.sort_by(|one, other| other.1.total_cmp(&one.1));
    let most = if causes.len() > PARTS_MAX { PARTS_MAX - 1 } else { PARTS_MAX };
    let mut causes: Vec<Cause> = causes.into_iter().take(most).map(|(cause, _)| cause).collect();
    // In the order of a response's time.
    causes.sort_unstable();
    causes
}

fn stacked(title: &str, groups: &[(String, &Group)], causes: &[Cause]) -> Option<Bars> {
    let is_shown = |share: &&Share| causes.contains(&share.cause);
    let other = groups.iter().any(|(_, group)| group.shares.iter().any(|share| !is_shown(&share)));
    let mut names: Vec<&str> = causes.iter().map(|cause| cause.name()).collect();
    if other {
        names.push("other");
    }
    let mut bars = Bars::stacked(title, Quantity::Nanoseconds, &names);
    for (name, group) in groups {
        let time =
            |cause: &Cause| group.shares.iter().find(|share| share.cause == *cause).map(|share| share.time_ns as f64);
        let mut values: Vec<Option<f64>> = causes.iter().map(time).collect();
        if other {
            let rest = group.shares.iter().filter(|share| !is_shown(share)).map(|share| share.time_ns as f64).sum();
            values.push(Some(rest));
        }
        bars = bars.row(name, &values);
    }
    (!groups.is_empty()).then_some(bars)
}

/// Shares by group, a row for each cause with at least half a percent somewhere.
fn table(groups: &[(String, &Group)]) -> Table {
    let mut head = vec!["cause"];
    head.extend(groups.iter().map(|(name, _)| name.as_str()));
    head.push("rule");
    let rule_at = head.len() - 1;
    let mut causes: Vec<Cause> = groups
        .iter()
        .flat_map(|(_, group)| {
            group.shares.iter().filter(|share| share.time_ns * 200 >= group.response_time_ns).map(|share| share.cause)
        })
        .collect();
    causes.sort_unstable();
    causes.dedup();
    let total = groups.iter().map(|(_, group)| duration(group.response_time_ns));
    let first = std::iter::once("response time".to_owned()).chain(total).chain([String::new()]);
    causes.iter().fold(Table::new(&head).left(&[rule_at]).row(first), |table, cause| {
        let share = |group: &Group| group.shares.iter().find(|share| share.cause == *cause).copied();
        let cells = groups.iter().map(|(_, group)| {
            share(group).map_or("-".to_owned(), |share| {
                let percent = match group.response_time_ns.max(1) {
                    total if share.time_ns * 200 < total => "<0.5".to_owned(),
                    total => format!("{:.0}", share.time_ns as f64 * 100.0 / total as f64),
                };
                format!("{percent} % ({})", share.confidence.as_str())
            })
        });
        let rule = groups.iter().find_map(|(_, group)| share(group)).map_or("", |share| share.rule.text());
        table.row(std::iter::once(cause.name().to_owned()).chain(cells).chain([rule.to_owned()]))
    })
}

/// Adds a response: its shares and its diagram.
fn response(section: Section, response: &ExplainedResponse<'_>) -> Section {
    let explanation = response.explanation;
    let whole = explanation.response_time_ns();
    let parts: Vec<String> = explanation
        .shares()
        .iter()
        .filter(|share| share.time_ns * 50 >= whole)
        .map(|share| format!("{} {}", share.cause.name(), duration(share.time_ns)))
        .collect();
    let section = section.text(format!("{}: {}: {}.", response.label, duration(whole), parts.join(", ")));
    match &response.sequence {
        Some(sequence) => section.figure(diagram(&response.label, sequence)),
        None => section.text("No packets of this response were kept, so it has no diagram."),
    }
}

/// A curve that is zero until its first point. It begins at `from`, when the curve before it rises, so that neither
/// hides the other.
fn from_zero(from: u64, curve: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let begin = curve.first().map(|(at, _)| (from.min(*at), 0));
    begin.into_iter().chain(curve.iter().copied()).collect()
}

/// The response's bytes over time.
fn diagram(label: &str, sequence: &TimeSequence) -> Chart {
    let seconds = |at: u64| at as f64 / 1e9;
    let points = |curve: &[(u64, u64)]| -> Vec<[f64; 2]> {
        curve.iter().map(|(at, byte)| [seconds(*at), *byte as f64]).collect()
    };
    let step = |name: &str, curve: &[(u64, u64)], color: usize| Series {
        name: name.into(),
        shape: Shape::Step,
        points: points(curve),
        dashed: false,
        color: Some(color),
    };
    let x = Axis::from_zero("seconds since the scheduled start", Quantity::Seconds);
    let begin = |curve: &[(u64, u64)]| curve.first().map_or(0, |(at, _)| *at);
    // The axis begins at the scheduled start.
    let sent = from_zero(0, &sequence.sent);
    let arrived = from_zero(begin(&sequence.sent), &sequence.arrived);
    let acknowledged = from_zero(begin(&sequence.arrived), &sequence.acknowledged);
    let mut chart = Chart::new(label, x, Axis::from_zero("bytes of the response", Quantity::Bytes))
        .about("Bytes of the response by the time at which they were sent, arrived and were acknowledged.")
        .series(step("sent by the server", &sent, 0))
        .series(step("arrived at the client", &arrived, 1))
        .series(step("acknowledged at the server", &acknowledged, 2));
    if !sequence.window.is_empty() {
        chart = chart.series(Series { dashed: true, ..step("receive window", &sequence.window, 3) });
    }
    if !sequence.sent_again.is_empty() {
        // Single points: a gap follows each.
        let again = points(&sequence.sent_again).into_iter().flat_map(|[at, byte]| [[at, byte], [at, f64::NAN]]);
        let points = again.collect();
        chart = chart.series(Series {
            name: "sent again".into(),
            shape: Shape::Dotted,
            points,
            dashed: false,
            color: Some(4),
        });
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::from_zero;

    #[test]
    fn a_curve_is_zero_before_its_first_point_and_never_goes_back_in_time() {
        assert_eq!(from_zero(3, &[(5, 9), (6, 20)]), [(3, 0), (5, 9), (6, 20)]);
        assert_eq!(from_zero(7, &[(5, 9)]), [(5, 0), (5, 9)]);
        assert!(from_zero(3, &[]).is_empty());
    }
}
