//! Computes the result of a search from its trials: capacity, interval, limiting resource, findings. [`super::checks`]
//! judges validity.

use std::collections::BTreeMap;

use plan::Find;
use schema::{Bracket, CapacityPart, Finding, GeneratorLimit, TrialPart};

use super::bound::bound_by;
use super::growth::TOLERATED_SHARE_OF_WIDTH;
use super::sequence::{CONFIRMED_AT, End, Rules, TrialSequence};

/// A short-trial result that exceeds the capacity by more than this share is reported as a short-term peak.
const SHORT_TERM_PEAK_MIN: f64 = 1.05;
/// Achieved rate under overload over the highest achieved rate: `holds` from the first value, `collapses` below the
/// second.
const HOLDS_SHARE_MIN: f64 = 0.95;
const COLLAPSE_SHARE_MAX: f64 = 0.5;
/// A confirmation below the result is at no more than this share of it.
const OVERLOAD_SHARES: f64 = 0.95;
const CONFIDENCE: f64 = 0.95;
/// Responses up to this size fit into the first packets of a connection, so sending them costs little next to
/// connecting.
const SMALL_BYTES: f64 = 10_000.0;

/// The result as far as the search has come.
pub fn part(rules: &Rules, sequence: &TrialSequence<'_>, end: Option<&End>, objective: &str) -> CapacityPart {
    let trials = sequence.trials();
    let width = rules.plan.width.value();
    let found = matches!(end, Some(End::Found)) || confirmed_by_then(sequence);
    let searched = sequence.result().filter(|_| found);
    let result = searched.and_then(|searched| passed(rules, sequence, searched));
    let quantity = &rules.quantity;
    // The achieved rate has no relation to the number of idle open connections.
    let carries = quantity.find != Find::Connections;
    let brackets = sequence.brackets();
    let (interval, interval_of) = match result {
        Some(result) => interval(&brackets, result, searched == Some(result), rules),
        None => (None, ""),
    };
    let (lower, upper) = sequence.so_far();
    let open_loop: Vec<&TrialPart> =
        trials.iter().filter(|trial| is_about_server(trial) && trial.verdict != "void").collect();
    let saturation = open_loop.iter().map(|trial| trial.achieved_rate_per_s).reduce(f64::max).filter(|_| carries);
    let short =
        sequence.short_lower().filter(|short| result.is_some_and(|result| *short > SHORT_TERM_PEAK_MIN * result));
    let bound = match (brackets.first(), result, end) {
        (_, _, Some(End::ClientLimit { .. })) => schema::BoundBy {
            name: "client".into(),
            words: "the generator reached its limit".into(),
            figures: BTreeMap::new(),
        },
        (Some(&(lower, upper)), Some(result), _) => bound_by(trials, lower.min(result), upper),
        _ => schema::BoundBy { name: "unknown".into(), ..Default::default() },
    };
    let (warmup, _) = sequence.warmup();
    CapacityPart {
        objective: objective.into(),
        find: quantity.find.name().into(),
        unit: quantity.find.unit().into(),
        result,
        rate_per_s: result.and_then(|result| requests_at(rules, sequence, result)),
        short_trials_result: short,
        width,
        interval,
        interval_of: interval_of.into(),
        searches: brackets.iter().map(|&(lower, upper)| Bracket { lower: Some(lower), upper: Some(upper) }).collect(),
        partial_result: (result.is_none() && (lower.is_some() || upper.is_some())).then_some(Bracket { lower, upper }),
        bound_by: bound,
        trials: trials.to_vec(),
        saturation_rate_per_s: saturation,
        knee: knee(trials).filter(|_| carries),
        under_overload: result.and_then(|result| under_overload(trials, result, saturation?)),
        generator_limit: generator_limit(rules, sequence),
        warmup_s: warmup.as_secs_f64(),
        findings: findings(rules, sequence, result, short, end),
        converged: matches!(end, Some(End::Found)),
        notes: notes(rules, sequence, result, end),
        ..CapacityPart::default()
    }
}

/// Whether all searches and the confirmation are complete. Only overload trials may be missing.
fn confirmed_by_then(sequence: &TrialSequence<'_>) -> bool {
    sequence.trials().iter().any(|trial| trial.stage == "overload")
}

/// The result that passed its confirmation: the searches' median, or the highest lower load that passed for as long.
pub(super) fn passed(rules: &Rules, sequence: &TrialSequence<'_>, searched: f64) -> Option<f64> {
    let trials = sequence.trials();
    let of = |load: f64| {
        trials.iter().find(|trial| trial.stage == "confirmation" && trial.load == load && trial.verdict != "void")
    };
    match of(rules.quantity.load(CONFIRMED_AT[0] * searched)) {
        // Without a valid confirmation the searches' median stays the result, and a check reports it.
        None => return Some(searched),
        Some(trial) if trial.verdict != "bad" => return Some(searched),
        Some(_) => {}
    }
    let lost = |load: f64| {
        trials.iter().any(|trial| trial.stage == "confirmation" && trial.verdict == "bad" && trial.load <= load)
    };
    let long = trials
        .iter()
        .filter(|trial| trial.verdict == "good" && ["long", "confirmation"].contains(&trial.stage.as_str()));
    long.map(|trial| trial.load).filter(|load| *load < searched && !lost(*load)).reduce(f64::max)
}

/// Requests per second at the result: the result itself for a rate, otherwise the achieved rate of the longest trial
/// that passed there.
fn requests_at(rules: &Rules, sequence: &TrialSequence<'_>, result: f64) -> Option<f64> {
    if rules.quantity.find.is_rate() {
        return Some(result);
    }
    let at = sequence
        .trials()
        .iter()
        .filter(|trial| trial.load == result && trial.verdict == "good" && is_about_server(trial));
    at.max_by(|a, b| a.actual_s.total_cmp(&b.actual_s)).map(|trial| trial.achieved_rate_per_s)
}

/// Whether a trial's verdict is about the server (good or bad), not about the generator or a disturbance.
pub(super) fn is_about_server(trial: &TrialPart) -> bool {
    ["short", "long", "confirmation", "overload"].contains(&trial.stage.as_str())
}

/// Interval of the capacity: Student-t over the logarithms of the brackets' middles, half a bracket wider on each side,
/// and lower by the overload that a trial can miss.
fn interval(
    brackets: &[(f64, f64)],
    result: f64,
    is_searched: bool,
    rules: &Rules,
) -> (Option<[f64; 2]>, &'static str) {
    let width = rules.plan.width.value();
    // An open loop's queue grows throughout the trial; users and connections have a bounded number of requests waiting.
    let by_length = rules.response_limit.as_secs_f64() / rules.plan.trial.as_secs_f64();
    let passes = (TOLERATED_SHARE_OF_WIDTH * width).max(if rules.quantity.find.is_rate() { by_length } else { 0.0 });
    let Some(first) = brackets.first() else { return (None, "") };
    let (low, high, of) = if brackets.len() < 2 {
        (first.0, first.1, "bracket")
    } else {
        let middles: Vec<f64> = brackets.iter().map(|(lower, upper)| (lower * upper).sqrt().ln()).collect();
        let half =
            brackets.iter().map(|(lower, upper)| (upper / lower).ln() / 2.0).sum::<f64>() / brackets.len() as f64;
        let Some(mean) = stats::mean_interval(&middles, CONFIDENCE) else { return (None, "") };
        ((mean.low() - half).exp(), (mean.high() + half).exp(), "searches")
    };
    let low = low / (1.0 + passes);
    // Users and connections are whole numbers.
    let (low, high) = if rules.quantity.find.is_rate() { (low, high) } else { (low.floor(), high.ceil()) };
    // A load that failed its confirmation is above the capacity.
    if is_searched { (Some([low, high]), of) } else { (Some([result.min(low), high]), of) }
}

/// Knee: of the loads that passed, the one with the highest ratio of achieved rate to mean response time (Kleinrock).
fn knee(trials: &[TrialPart]) -> Option<f64> {
    let good = trials
        .iter()
        .filter(|trial| is_about_server(trial) && trial.verdict == "good" && trial.response_time_ns.mean > 0.0);
    let power = |trial: &TrialPart| trial.achieved_rate_per_s / trial.response_time_ns.mean;
    good.max_by(|a, b| power(a).total_cmp(&power(b))).map(|trial| trial.load)
}

/// Behaviour above the capacity.
fn under_overload(trials: &[TrialPart], result: f64, most: f64) -> Option<String> {
    let over = trials.iter().filter(|trial| {
        trial.stage == "overload" && trial.load > result && ["good", "bad"].contains(&trial.verdict.as_str())
    });
    let least = over.map(|trial| trial.achieved_rate_per_s).reduce(f64::min)?;
    Some(
        match least / most {
            share if share >= HOLDS_SHARE_MIN => "holds",
            share if share >= COLLAPSE_SHARE_MAX => "degrades",
            _ => "collapses",
        }
        .into(),
    )
}

fn generator_limit(rules: &Rules, sequence: &TrialSequence<'_>) -> Option<GeneratorLimit> {
    let quantity = &rules.quantity;
    if let Some((load, true)) = sequence.limit() {
        let words = "measured against `yamabiko serve --max`".to_owned();
        return Some(GeneratorLimit { load, how: "measured".into(), words });
    }
    let counted = quantity.most.as_ref().map(|most| GeneratorLimit {
        load: most.load,
        how: "counted".into(),
        words: most.words.clone(),
    });
    if sequence.generator_limit().is_some() {
        return counted;
    }
    let estimate =
        sequence.generator_estimate().and_then(|rate| quantity.of_requests(rate)).map(|load| GeneratorLimit {
            load,
            how: "estimated".into(),
            words: "estimated from the generator's busy share; the estimate is low rather than high".to_owned(),
        });
    match (estimate, counted) {
        (Some(estimate), Some(counted)) if estimate.load < counted.load => Some(estimate),
        (estimate, counted) => counted.or(estimate),
    }
}

/// Findings of the trials at the result, and findings that follow from several trials.
fn findings(
    rules: &Rules,
    sequence: &TrialSequence<'_>,
    result: Option<f64>,
    short: Option<f64>,
    end: Option<&End>,
) -> Vec<Finding> {
    let trials = sequence.trials();
    let mut found: Vec<Finding> = Vec::new();
    let mut add = |finding: &Finding| {
        if !found.iter().any(|known| known.name == finding.name) {
            found.push(finding.clone());
        }
    };
    // The confirmation is the longest trial at the result, so its findings come first.
    let searched = sequence.result().unwrap_or(0.0);
    for trial in trials.iter().filter(|trial| trial.stage == "confirmation") {
        // A load equal to the result may be slightly too high, so growing response times count only below it.
        let is_below = trial.load < OVERLOAD_SHARES * searched;
        trial.findings.iter().filter(|finding| finding.name != "slows_down" || is_below).for_each(&mut add);
    }
    if let (Some(End::MissedAtAny { .. }), None) = (end, result) {
        // The lowest load with this finding.
        let bad = trials.iter().filter(|trial| trial.verdict == "bad" && !trial.findings.is_empty());
        let lowest = bad.min_by(|a, b| a.load.total_cmp(&b.load));
        for finding in lowest.iter().flat_map(|trial| &trial.findings) {
            add(&Finding { words: format!("objective missed at every load: {}", finding.words), ..finding.clone() });
        }
    }
    let long_lost = trials.iter().filter(|trial| trial.stage == "long" && trial.verdict == "bad");
    long_lost.flat_map(|trial| &trial.findings).for_each(&mut add);
    if let (Some(short), Some(result)) = (short, result) {
        let why: Vec<&str> = found.iter().map(|finding| finding.words.as_str()).collect();
        let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
        let words = |load| rules.quantity.words(load);
        let words = format!("{} passed in short trials only, {} is sustained{why}", words(short), words(result));
        let figures = [("short_trials_result".to_owned(), short), ("result".to_owned(), result)];
        found.push(Finding { name: "not_sustained".into(), test: String::new(), figures: figures.into(), words });
    }
    found.extend(each_connection(rules, trials));
    found
}

/// Server memory per idle open connection, from the fewest and the most connections that passed.
fn each_connection(rules: &Rules, trials: &[TrialPart]) -> Option<Finding> {
    /// A smaller difference in connections is within the random variation of the server's memory.
    const BETWEEN_MIN: f64 = 50.0;
    if rules.quantity.find != Find::Connections {
        return None;
    }
    let passed = trials.iter().filter(|trial| is_about_server(trial) && trial.verdict == "good");
    let mut passed: Vec<(f64, u64)> =
        passed.filter_map(|trial| Some((trial.load, trial.server?.rss_bytes_max))).collect();
    passed.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (&(fewest, least), &(most, bytes)) = (passed.first()?, passed.last()?);
    let each = bytes.checked_sub(least)? as f64 / (most - fewest);
    let words = format!("each open connection takes about {:.1} KB of the server's memory", each / 1e3);
    (most - fewest >= BETWEEN_MIN).then(|| Finding {
        name: "connection_memory".into(),
        test: String::new(),
        figures: [("bytes_each".to_owned(), each)].into(),
        words,
    })
}

fn notes(rules: &Rules, sequence: &TrialSequence<'_>, result: Option<f64>, end: Option<&End>) -> Vec<String> {
    let mut notes = Vec::new();
    let least = |trial: &TrialPart| trial.load;
    let words = |load: f64| rules.quantity.words(load);
    match end {
        None => {
            let (lower, upper) = sequence.so_far();
            notes.push(match (lower, upper) {
                (Some(lower), Some(upper)) => {
                    format!(
                        "Stopped early: so far the capacity appears to be between {} and {}.",
                        words(lower),
                        words(upper)
                    )
                }
                (Some(lower), None) => {
                    format!("Stopped early: so far the capacity appears to be at least {}.", words(lower))
                }
                (None, Some(upper)) => {
                    format!("Stopped early: so far the capacity appears to be under {}.", words(upper))
                }
                (None, None) => "Stopped early: the capacity is unknown.".to_owned(),
            });
        }
        Some(End::MissedAtAny { at }) => {
            let trial = sequence.trials().iter().filter(|trial| trial.verdict == "bad" && is_about_server(trial));
            let why = trial
                .min_by(|a, b| least(a).total_cmp(&least(b)))
                .map(|trial| trial.why.join("; "))
                .unwrap_or_default();
            notes.push(format!("The objective is missed at the lowest load, {}, already ({why}).", words(*at)));
        }
        Some(End::NeverTooMuch { at }) => {
            notes.push(format!("Every load up to {} passed: raise --max, or omit it.", words(*at)))
        }
        Some(End::ClientLimit { passed }) => {
            let limit = generator_limit(rules, sequence)
                .map_or(String::new(), |limit| format!(" (about {} here: {})", words(limit.load), limit.words));
            notes.push(format!(
                "The client is the limit{limit}: the server passed at {} and the generator could not offer more. \
                 Limit the server (--server-cpu), give the client more cores (--threads), or generate the load on \
                 another machine.",
                words(*passed)
            ));
        }
        Some(End::Undecided { voids }) => notes.push(format!(
            "Undecided: {voids} trials of one search were disturbed. Repeat on a quieter machine (--resume continues \
             from here)."
        )),
        Some(End::Refused(why)) => notes.push(format!("{why}.")),
        Some(End::Found) => {}
    }
    let voids = sequence.trials().iter().filter(|trial| trial.verdict == "void").count();
    if voids > 0 && !matches!(end, Some(End::Undecided { .. })) {
        notes.push(format!(
            "{voids} of {} trials were disturbed, excluded from all figures and repeated.",
            sequence.trials().len()
        ));
    }
    let over = sequence.trials().iter().find(|trial| trial.stage == "overload" && trial.verdict == "good");
    if let (Some(trial), Some(result)) = (over, result) {
        notes.push(format!(
            "{}, {:.1} times the result, passed a trial of {:.0} s: short trials can pass at such a load, but if the \
             server was less disturbed in that trial than in earlier ones, the result is too low.",
            words(trial.load),
            trial.load / result,
            trial.actual_s
        ));
    }
    let bytes = sequence.response_bytes();
    if rules.quantity.find == Find::NewConnections && result.is_some() && bytes > SMALL_BYTES {
        notes.push(format!(
            "Mean response size was {:.0} KB: part of the measured cost of a new connection is sending it. Request a \
             small object to measure connections alone.",
            bytes / 1e3
        ));
    }
    // Where random variation exceeds the growth that the width allows, only the objective decides.
    let width = rules.plan.width.value();
    if !rules.quantity.find.is_rate() {
        return notes;
    }
    let judged =
        sequence.trials().iter().filter(|trial| trial.stage == "long" && trial.verdict == "good" && trial.load > 0.0);
    let overload_share = judged.map(|trial| trial.growth_bound_per_s / trial.load).reduce(f64::max);
    if let Some(overload_share) = overload_share.filter(|overload_share| result.is_some() && *overload_share > width) {
        notes.push(format!(
            "Near the result a trial detects an overload of {:.1} % or more by growth, which exceeds the width of \
             {:.1} %: the objective decided, not growth.",
            100.0 * overload_share,
            100.0 * width
        ));
    }
    notes
}
