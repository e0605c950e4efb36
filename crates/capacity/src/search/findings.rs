//! Findings of a trial in addition to its verdict: stalls, growing memory, rising response times, throttling.
//!
//! Each finding has a name and figures, since a single capacity figure would hide it.

use std::collections::BTreeMap;

use load::Span;
use plan::Plan;
use schema::{Finding, ServerSecond};
use units::figures::duration_f64;

use super::trial::Purpose;

/// A span is a stall if it completes less than this share of the mean.
const STILL_SHARE: f64 = 0.2;
/// Mean completions per span that are necessary to detect a stall.
const COMPLETIONS_MIN: f64 = 5.0;
/// Number of stalls that may have a period; their gaps vary by less than [`PERIOD_SCATTER`] of their mean.
const STALLS_MIN: usize = 3;
const PERIOD_SCATTER: f64 = 0.2;
/// Least growth of memory to report, as a share per minute.
const MEMORY_SHARE: f64 = 0.01;
/// Least growth of response times to report, as a share per minute.
const SLOWER_SHARE: f64 = 0.01;
/// Standard errors from which on a slope is significant. Response times enter as means of five seconds, since
/// consecutive seconds are correlated.
const STANDARD_ERRORS_MIN: f64 = 3.0;
/// Seconds per mean of response times.
const SECONDS_TOGETHER: usize = 5;
/// Share of the CPU quota periods with throttling from which on the CPU limit is the limiting resource.
pub const THROTTLED_SHARE: f64 = 0.9;

/// All findings of a trial. Trends are detected in long trials only.
pub fn of_trial(spans: &[Span], server: &[ServerSecond], purpose: Purpose, plan: &Plan) -> Vec<Finding> {
    let test = purpose.name();
    let mut found: Vec<Finding> = stalls(spans).into_iter().collect();
    if purpose == Purpose::Confirmation {
        let memory = plan.server.as_ref().and_then(|server| server.memory).map(|memory| memory.0);
        found.extend(memory_grows(server, memory));
        found.extend(slows_down(spans));
    }
    found.extend(throttled(server));
    found.into_iter().map(|finding| Finding { test: test.into(), ..finding }).collect()
}

fn finding<const N: usize>(name: &str, figures: [(&str, f64); N], words: String) -> Finding {
    let figures: BTreeMap<String, f64> = figures.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Finding { name: name.into(), test: String::new(), figures, words }
}

/// Stalls of the server.
pub fn stalls(spans: &[Span]) -> Option<Finding> {
    let mean = spans.iter().map(|span| span.completed as f64).sum::<f64>() / spans.len().max(1) as f64;
    if mean < COMPLETIONS_MIN {
        return None;
    }
    // Runs of stalled spans, as first span and length. A stalled run at the trial's end is not counted.
    let mut stalls: Vec<(usize, usize)> = Vec::new();
    for (at, span) in spans.iter().enumerate() {
        if span.completed as f64 >= STILL_SHARE * mean {
            continue;
        }
        match stalls.last_mut() {
            Some((from, length)) if *from + *length == at => *length += 1,
            _ => stalls.push((at, 1)),
        }
    }
    stalls.retain(|(from, length)| from + length < spans.len());
    let longest = stalls.iter().map(|(_, length)| *length).max()?;
    let span_s = Span::LENGTH.as_secs_f64();
    let gaps: Vec<f64> = stalls.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64 * span_s).collect();
    let period_s = gaps.iter().sum::<f64>() / gaps.len().max(1) as f64;
    let scatter = (gaps.iter().map(|gap| (gap - period_s).powi(2)).sum::<f64>() / gaps.len().max(1) as f64).sqrt();
    let is_periodic = stalls.len() >= STALLS_MIN && scatter < PERIOD_SCATTER * period_s;
    let longest_s = longest as f64 * span_s;
    let figures = [("count", stalls.len() as f64), ("longest_s", longest_s)];
    let stood = format!("{:.0} ms", longest_s * 1e3);
    Some(if is_periodic {
        let mut found =
            finding("stalls", figures, format!("the server stalls for up to {stood} every {period_s:.1} s"));
        found.figures.insert("period_s".into(), period_s);
        found
    } else {
        let times = if stalls.len() == 1 { "once".to_owned() } else { format!("{} times", stalls.len()) };
        finding("stalls", figures, format!("the server stalled {times}, for up to {stood}"))
    })
}

/// Resident memory that grows throughout at a constant load. `most`: the memory limit.
pub fn memory_grows(server: &[ServerSecond], most: Option<u64>) -> Option<Finding> {
    let points: Vec<(f64, f64)> =
        server.iter().map(|second| (f64::from(second.second), second.rss_bytes as f64)).collect();
    let line = stats::trend(&points)?;
    let last = server.last()?.rss_bytes as f64;
    let a_minute = line.slope * 60.0;
    // Memory that stopped growing was filled and is not a leak.
    let still_grows = stats::trend(&points[points.len() / 2..]).is_some_and(|late| late.slope >= line.slope / 2.0);
    if a_minute < MEMORY_SHARE * last || line.slope <= STANDARD_ERRORS_MIN * line.slope_error || !still_grows {
        return None;
    }
    let fills = most.map(|most| (most as f64 - last).max(0.0) / line.slope);
    let words = match fills {
        Some(fills_s) => format!(
            "server memory grows by {:.1} MB a minute and fills its limit of {:.0} MB in {}",
            a_minute / 1e6,
            most.unwrap_or(0) as f64 / 1e6,
            span(fills_s)
        ),
        None => format!(
            "server memory grows by {:.1} MB a minute, {:.0} % of its size",
            a_minute / 1e6,
            100.0 * a_minute / last
        ),
    };
    let mut found = finding("memory_grows", [("bytes_per_s", line.slope), ("rss_bytes", last)], words);
    found.figures.extend(fills.map(|fills_s| ("fills_in_s".to_owned(), fills_s)));
    Some(found)
}

/// Response times that grow at a constant load which the server achieves.
pub fn slows_down(spans: &[Span]) -> Option<Finding> {
    let together = SECONDS_TOGETHER * (1.0 / Span::LENGTH.as_secs_f64()) as usize;
    let point = |(at, spans): (usize, &[Span])| {
        let completed: u64 = spans.iter().map(|span| span.completed).sum();
        let time: f64 = spans.iter().map(|span| span.response_mean_ns * span.completed as f64).sum();
        (completed > 0).then(|| ((at * SECONDS_TOGETHER) as f64, time / completed as f64))
    };
    let points: Vec<(f64, f64)> = spans.chunks_exact(together).enumerate().filter_map(point).collect();
    let line = stats::trend(&points)?;
    let mean = points.iter().map(|(_, time)| time).sum::<f64>() / points.len() as f64;
    let a_minute = line.slope * 60.0;
    if a_minute < SLOWER_SHARE * mean || line.slope <= STANDARD_ERRORS_MIN * line.slope_error {
        return None;
    }
    let words = format!(
        "at a constant load the mean response time, {}, grows by {:.1} % a minute",
        duration_f64(mean),
        100.0 * a_minute / mean
    );
    Some(finding("slows_down", [("share_per_minute", a_minute / mean), ("mean_ns", mean)], words))
}

/// Throttled by the CPU limit.
pub fn throttled(server: &[ServerSecond]) -> Option<Finding> {
    let periods: u64 = server.iter().filter_map(|second| second.periods).sum();
    let throttled_periods: u64 = server.iter().filter_map(|second| second.periods_throttled).sum();
    let share = throttled_periods as f64 / periods as f64;
    (periods > 0 && share > THROTTLED_SHARE).then(|| {
        let words = format!("the CPU limit throttled the server in {:.0} % of the quota periods", 100.0 * share);
        finding("throttled", [("share", share)], words)
    })
}

fn span(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(count: usize, completed: impl Fn(usize) -> u64, time_ns: impl Fn(usize) -> f64) -> Vec<Span> {
        (0..count)
            .map(|at| Span { completed: completed(at), response_mean_ns: time_ns(at), ..Span::default() })
            .collect()
    }

    #[test]
    fn stalls_are_counted_with_their_period() {
        // A stall of 300 ms every 5 s.
        let found = stalls(&spans(300, |at| if at % 50 < 3 { 0 } else { 20 }, |_| 1e6)).unwrap();
        assert_eq!((found.figures["count"], found.figures["period_s"]), (6.0, 5.0));
        assert!(found.words.contains("300 ms every 5.0 s"), "{}", found.words);
        // Two stalls have no period.
        let twice = stalls(&spans(300, |at| if at == 30 || at == 200 { 0 } else { 20 }, |_| 1e6)).unwrap();
        assert!(!twice.figures.contains_key("period_s") && twice.words.contains("2 times"), "{}", twice.words);
    }

    #[test]
    fn span_just_above_the_stall_share_is_no_stall() {
        // Boundary values: a fifth of the mean, and slightly less. All other spans have 20.
        let at = |low: u64| stalls(&spans(10_000, |at| if at == 500 { low } else { 20 }, |_| 1e6));
        assert!(at(4).is_none());
        assert!(at(3).is_some());
        // Few completions have gaps by chance.
        assert!(stalls(&spans(300, |at| u64::from(at % 3 == 0), |_| 1e6)).is_none());
        // The end of the trial is not a stall.
        assert!(stalls(&spans(300, |at| if at > 297 { 0 } else { 20 }, |_| 1e6)).is_none());
    }

    fn seconds(rss: impl Fn(u32) -> u64) -> Vec<ServerSecond> {
        (0..60).map(|second| ServerSecond { second, rss_bytes: rss(second), ..ServerSecond::default() }).collect()
    }

    #[test]
    fn memory_growth_of_one_percent_a_minute_is_found() {
        const MB: u64 = 1_000_000;
        let found = memory_grows(&seconds(|s| 100 * MB + u64::from(s) * MB), Some(460 * MB)).unwrap();
        assert!((found.figures["bytes_per_s"] - 1e6).abs() < 1.0, "{found:?}");
        assert!((found.figures["fills_in_s"] - 301.0).abs() < 0.5, "{found:?}");
        assert!(found.words.contains("60.0 MB a minute"), "{}", found.words);
        // Boundary value: 1 % of the final size per minute.
        let by = |bytes: u64| memory_grows(&seconds(|s| 100 * MB + u64::from(s) * bytes), None);
        assert!(by(16_000).is_none());
        assert!(by(17_000).is_some());
        // Neither oscillation nor a fall nor memory that was filled and stays is growth.
        assert!(memory_grows(&seconds(|s| 100 * MB + u64::from(s.min(25)) * MB), None).is_none());
        assert!(memory_grows(&seconds(|s| 100 * MB + u64::from(s % 2) * 50 * MB), None).is_none());
        assert!(memory_grows(&seconds(|s| 200 * MB - u64::from(s) * MB), None).is_none());
        assert!(memory_grows(&[], None).is_none());
    }

    #[test]
    fn growing_response_time_is_found() {
        let by = |share_per_minute: f64| {
            slows_down(&spans(600, |_| 20, |at| 1e6 * (1.0 + share_per_minute * at as f64 / 600.0)))
        };
        assert!(by(0.009).is_none());
        let found = by(0.02).unwrap();
        assert!((found.figures["share_per_minute"] - 0.02).abs() < 0.001, "{found:?}");
        // Random variation alone.
        assert!(slows_down(&spans(600, |_| 20, |at| 1e6 + (at / 50 * 7 % 5) as f64 * 1e5)).is_none());
    }

    #[test]
    fn throttling_in_nine_of_ten_periods_is_found() {
        let of = |periods_throttled| {
            let second = ServerSecond {
                periods: Some(200),
                periods_throttled: Some(periods_throttled),
                ..ServerSecond::default()
            };
            throttled(&[second, second])
        };
        assert!(of(180).is_none());
        assert_eq!(of(190).unwrap().figures["share"], 0.95);
        assert!(throttled(&[ServerSecond::default()]).is_none());
    }
}
