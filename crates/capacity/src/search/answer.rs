//! From the trials of a course to what is said of it: the answer, how well it is known, and what was come upon. Whether to believe it is said
//! by [`super::checks`].

use std::collections::BTreeMap;

use plan::Find;
use schema::{Bracket, CapacityPart, Finding, GeneratorLimit, TrialPart};

use super::bound::bound_by;
use super::course::{CONFIRMED_AT, Course, End, Rules};
use super::growth::TOLERATED;

/// What holds in the short stage and is more than this above the answer does not last.
const SHORT_ABOVE: f64 = 1.05;
/// Carried at an overload, over the most that was ever carried: `holds` from the first, `collapses` below the second.
const HOLDS: f64 = 0.95;
const COLLAPSES: f64 = 0.5;
/// A confirmation below the answer is at no more than this share of it.
const BELOW: f64 = 0.95;
const CONFIDENCE: f64 = 0.95;
/// An object whose sending is no matter beside its connection: a few packets of the first window.
const SMALL_BYTES: f64 = 10_000.0;

/// What a course came to, as far as it went.
pub fn part(rules: &Rules, course: &Course<'_>, end: Option<&End>, objective: &str) -> CapacityPart {
    let made = course.made();
    let width = rules.plan.width.value();
    let found = matches!(end, Some(End::Found)) || confirmed_by_then(course);
    let sought = course.answer().filter(|_| found);
    let answer = sought.and_then(|sought| held(rules, course, sought));
    let question = &rules.question;
    // Of connections that are held, what is carried over them says nothing.
    let carries = question.find != Find::Connections;
    let brackets = course.brackets();
    let (interval, interval_of) = match answer {
        Some(answer) => interval(&brackets, answer, sought == Some(answer), rules),
        None => (None, ""),
    };
    let (lower, upper) = course.so_far();
    let open_loop: Vec<&TrialPart> =
        made.iter().filter(|trial| is_of_server(trial) && trial.verdict != "void").collect();
    let saturation = open_loop.iter().map(|trial| trial.achieved_rate_per_s).reduce(f64::max).filter(|_| carries);
    let short = course.short_lower().filter(|short| answer.is_some_and(|answer| *short > SHORT_ABOVE * answer));
    let bound = match (brackets.first(), answer, end) {
        (_, _, Some(End::ClientLimit { .. })) => schema::BoundBy {
            name: "client".into(),
            words: "the generator can make no more".into(),
            figures: BTreeMap::new(),
        },
        (Some(&(lower, upper)), Some(answer), _) => bound_by(made, lower.min(answer), upper),
        _ => schema::BoundBy { name: "unknown".into(), ..Default::default() },
    };
    let (warmup, _) = course.warmup();
    CapacityPart {
        objective: objective.into(),
        find: question.find.name().into(),
        unit: question.find.unit().into(),
        answer,
        rate_per_s: answer.and_then(|answer| requests_at(rules, course, answer)),
        short_trials_result: short,
        width,
        interval,
        interval_of: interval_of.into(),
        searches: brackets.iter().map(|&(lower, upper)| Bracket { lower: Some(lower), upper: Some(upper) }).collect(),
        so_far: (answer.is_none() && (lower.is_some() || upper.is_some())).then_some(Bracket { lower, upper }),
        bound_by: bound,
        trials: made.to_vec(),
        saturation_rate_per_s: saturation,
        knee: knee(made).filter(|_| carries),
        under_overload: answer.and_then(|answer| under_overload(made, answer, saturation?)),
        generator_limit: generator_limit(rules, course),
        warmup_s: warmup.as_secs_f64(),
        findings: findings(rules, course, answer, short, end),
        regular: matches!(end, Some(End::Found)),
        notes: notes(rules, course, answer, end),
        ..CapacityPart::default()
    }
}

/// Whether every search and its confirmation is made, so that an answer may be given though an overload is missing.
fn confirmed_by_then(course: &Course<'_>) -> bool {
    course.made().iter().any(|trial| trial.stage == "overload")
}

/// The answer that held in its confirmation: the one that was sought, or the highest below it that held as long.
pub(super) fn held(rules: &Rules, course: &Course<'_>, sought: f64) -> Option<f64> {
    let made = course.made();
    let of = |load: f64| {
        made.iter().find(|trial| trial.stage == "confirmation" && trial.load == load && trial.verdict != "void")
    };
    match of(rules.question.load(CONFIRMED_AT[0] * sought)) {
        // Not confirmed at all, or disturbed: the searches stand, and a check says so.
        None => return Some(sought),
        Some(trial) if trial.verdict != "bad" => return Some(sought),
        Some(_) => {}
    }
    let lost = |load: f64| {
        made.iter().any(|trial| trial.stage == "confirmation" && trial.verdict == "bad" && trial.load <= load)
    };
    let long =
        made.iter().filter(|trial| trial.verdict == "good" && ["long", "confirmation"].contains(&trial.stage.as_str()));
    long.map(|trial| trial.load).filter(|load| *load < sought && !lost(*load)).reduce(f64::max)
}

/// Requests a second at the answer: the answer itself where it is a rate, and elsewhere what the longest trial that held there carried.
fn requests_at(rules: &Rules, course: &Course<'_>, answer: f64) -> Option<f64> {
    if rules.question.find.is_rate() {
        return Some(answer);
    }
    let at =
        course.made().iter().filter(|trial| trial.load == answer && trial.verdict == "good" && is_of_server(trial));
    at.max_by(|a, b| a.actual_s.total_cmp(&b.actual_s)).map(|trial| trial.achieved_rate_per_s)
}

/// Whether a trial says something of the server's answer.
pub(super) fn is_of_server(trial: &TrialPart) -> bool {
    ["short", "long", "confirmation", "overload"].contains(&trial.stage.as_str())
}

/// Between which loads the capacity lies: a Student-t interval of the logarithms of the brackets' middles, half a bracket wider on each
/// side, and lower by what a trial may let pass.
fn interval(brackets: &[(f64, f64)], answer: f64, is_sought: bool, rules: &Rules) -> (Option<[f64; 2]>, &'static str) {
    let width = rules.plan.width.value();
    // An open loop's queue grows for as long as the trial lasts; users and connections wait in their own places.
    let by_length = rules.response_limit.as_secs_f64() / rules.plan.trial.as_secs_f64();
    let passes = (TOLERATED * width).max(if rules.question.find.is_rate() { by_length } else { 0.0 });
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
    // Of users and connections there are only whole ones.
    let (low, high) = if rules.question.find.is_rate() { (low, high) } else { (low.floor(), high.ceil()) };
    // A load that did not hold in its confirmation is above the capacity.
    if is_sought { (Some([low, high]), of) } else { (Some([answer.min(low), high]), of) }
}

/// The load of greatest power, carried rate over mean response time (Kleinrock), among those that held.
fn knee(made: &[TrialPart]) -> Option<f64> {
    let good =
        made.iter().filter(|trial| is_of_server(trial) && trial.verdict == "good" && trial.response_time_ns.mean > 0.0);
    let power = |trial: &TrialPart| trial.achieved_rate_per_s / trial.response_time_ns.mean;
    good.max_by(|a, b| power(a).total_cmp(&power(b))).map(|trial| trial.load)
}

/// What the server does beyond its answer.
fn under_overload(made: &[TrialPart], answer: f64, most: f64) -> Option<String> {
    let over = made.iter().filter(|trial| {
        trial.stage == "overload" && trial.load > answer && ["good", "bad"].contains(&trial.verdict.as_str())
    });
    let least = over.map(|trial| trial.achieved_rate_per_s).reduce(f64::min)?;
    Some(
        match least / most {
            share if share >= HOLDS => "holds",
            share if share >= COLLAPSES => "degrades",
            _ => "collapses",
        }
        .into(),
    )
}

fn generator_limit(rules: &Rules, course: &Course<'_>) -> Option<GeneratorLimit> {
    let question = &rules.question;
    if let Some((load, true)) = course.limit() {
        let words = "measured against this program's fastest answers".to_owned();
        return Some(GeneratorLimit { load, how: "measured".into(), words });
    }
    let counted = question.most.as_ref().map(|most| GeneratorLimit {
        load: most.load,
        how: "counted".into(),
        words: most.words.clone(),
    });
    if course.generator_limit().is_some() {
        return counted;
    }
    let estimate = course.generator_estimate().and_then(|rate| question.of_requests(rate)).map(|load| GeneratorLimit {
        load,
        how: "estimated".into(),
        words: "estimated from how busy it was, which errs low".to_owned(),
    });
    match (estimate, counted) {
        (Some(estimate), Some(counted)) if estimate.load < counted.load => Some(estimate),
        (estimate, counted) => counted.or(estimate),
    }
}

/// What the trials came upon at the answer, and what follows from them together.
fn findings(
    rules: &Rules,
    course: &Course<'_>,
    answer: Option<f64>,
    short: Option<f64>,
    end: Option<&End>,
) -> Vec<Finding> {
    let made = course.made();
    let mut found: Vec<Finding> = Vec::new();
    let mut add = |finding: &Finding| {
        if !found.iter().any(|known| known.name == finding.name) {
            found.push(finding.clone());
        }
    };
    // Of several trials the confirmation is the longest, and what it shows is at the answer.
    let sought = course.answer().unwrap_or(0.0);
    for trial in made.iter().filter(|trial| trial.stage == "confirmation") {
        // At the answer itself a load may be too high by a little, and response times grow with it; below it they must not.
        let is_below = trial.load < BELOW * sought;
        trial.findings.iter().filter(|finding| finding.name != "slows_down" || is_below).for_each(&mut add);
    }
    if let (Some(End::MissedAtAny { .. }), None) = (end, answer) {
        // The lowest load that shows why.
        let bad = made.iter().filter(|trial| trial.verdict == "bad" && !trial.findings.is_empty());
        let lowest = bad.min_by(|a, b| a.load.total_cmp(&b.load));
        for finding in lowest.iter().flat_map(|trial| &trial.findings) {
            add(&Finding { words: format!("missed at any load: {}", finding.words), ..finding.clone() });
        }
    }
    let long_lost = made.iter().filter(|trial| trial.stage == "long" && trial.verdict == "bad");
    long_lost.flat_map(|trial| &trial.findings).for_each(&mut add);
    if let (Some(short), Some(answer)) = (short, answer) {
        let why: Vec<&str> = found.iter().map(|finding| finding.words.as_str()).collect();
        let why = if why.is_empty() { String::new() } else { format!(": {}", why.join("; ")) };
        let words = |load| rules.question.words(load);
        let words = format!("{} held for seconds, {} is what lasts{why}", words(short), words(answer));
        let figures = [("short_trials_result".to_owned(), short), ("answer".to_owned(), answer)];
        found.push(Finding { name: "does_not_last".into(), test: String::new(), figures: figures.into(), words });
    }
    found.extend(each_connection(rules, made));
    found
}

/// What memory of the server a connection takes that is held: between the fewest and the most of which it held.
fn each_connection(rules: &Rules, made: &[TrialPart]) -> Option<Finding> {
    /// Fewer connections in between do not stand out from what a server takes by chance.
    const BETWEEN_MIN: f64 = 50.0;
    if rules.question.find != Find::Connections {
        return None;
    }
    let held = made.iter().filter(|trial| is_of_server(trial) && trial.verdict == "good");
    let mut held: Vec<(f64, u64)> = held.filter_map(|trial| Some((trial.load, trial.server?.rss_bytes_max))).collect();
    held.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (&(fewest, least), &(most, bytes)) = (held.first()?, held.last()?);
    let each = bytes.checked_sub(least)? as f64 / (most - fewest);
    let words = format!("each connection that is held takes about {:.1} KB of the server's own memory", each / 1e3);
    (most - fewest >= BETWEEN_MIN).then(|| Finding {
        name: "connection_memory".into(),
        test: String::new(),
        figures: [("bytes_each".to_owned(), each)].into(),
        words,
    })
}

fn notes(rules: &Rules, course: &Course<'_>, answer: Option<f64>, end: Option<&End>) -> Vec<String> {
    let mut notes = Vec::new();
    let least = |trial: &TrialPart| trial.load;
    let words = |load: f64| rules.question.words(load);
    match end {
        None => {
            let (lower, upper) = course.so_far();
            notes.push(match (lower, upper) {
                (Some(lower), Some(upper)) => format!("Stopped early: so far between {} and {}.", words(lower), words(upper)),
                (Some(lower), None) => format!("Stopped early: so far at least {}.", words(lower)),
                (None, Some(upper)) => format!("Stopped early: so far under {}.", words(upper)),
                (None, None) => "Stopped early: nothing is known of the capacity yet.".to_owned(),
            });
        }
        Some(End::MissedAtAny { at }) => {
            let trial = course.made().iter().filter(|trial| trial.verdict == "bad" && is_of_server(trial));
            let why = trial.min_by(|a, b| least(a).total_cmp(&least(b))).map(|trial| trial.why.join("; ")).unwrap_or_default();
            notes.push(format!("The objective is missed already at {}, without any load to speak of ({why}).", words(*at)));
        }
        Some(End::NeverTooMuch { at }) => notes.push(format!(
            "No load up to {} was too much: raise --max, or leave it out.",
            words(*at)
        )),
        Some(End::ClientLimit { held }) => {
            let limit = generator_limit(rules, course).map_or(String::new(), |limit| format!(" (about {} here: {})", words(limit.load), limit.words));
            notes.push(format!(
                "The client is the limit{limit}: the server still held at {}, and more could not be offered. Hold the server \
                 (--server-cpu), give the client more cores (--threads), or make the load from another machine.",
                words(*held)
            ));
        }
        Some(End::Undecided { voids }) => notes.push(format!(
            "Undecided: {voids} trials of one search were disturbed. Repeat on a quieter machine (--resume goes on from here)."
        )),
        Some(End::Refused(why)) => notes.push(format!("{why}.")),
        Some(End::Found) => {}
    }
    let voids = course.made().iter().filter(|trial| trial.verdict == "void").count();
    if voids > 0 && !matches!(end, Some(End::Undecided { .. })) {
        notes.push(format!(
            "{voids} of {} trials were disturbed: no figure rests on them, and they were made again.",
            course.made().len()
        ));
    }
    let over = course.made().iter().find(|trial| trial.stage == "overload" && trial.verdict == "good");
    if let (Some(trial), Some(answer)) = (over, answer) {
        notes.push(format!(
            "{}, {:.1} times the answer, held for {:.0} s in the end: at such a length it may, but if the server was less disturbed then than \
             before, the answer is too low.",
            words(trial.load),
            trial.load / answer,
            trial.actual_s
        ));
    }
    let bytes = course.response_bytes();
    if rules.question.find == Find::NewConnections && answer.is_some() && bytes > SMALL_BYTES {
        notes.push(format!(
            "Answers had {:.0} KB in the mean: a part of what a new connection cost here is sending them. A small object shows the rest alone.",
            bytes / 1e3
        ));
    }
    // Where chance is larger than the growth that the width allows, the objective alone decided.
    let width = rules.plan.width.value();
    if !rules.question.find.is_rate() {
        return notes;
    }
    let judged =
        course.made().iter().filter(|trial| trial.stage == "long" && trial.verdict == "good" && trial.load > 0.0);
    let seen = judged.map(|trial| trial.growth_bound_per_s / trial.load).reduce(f64::max);
    if let Some(seen) = seen.filter(|seen| answer.is_some() && *seen > width) {
        notes.push(format!(
            "Near the answer a trial would have shown an overload of {:.1} % by requests piling up, which is more than the width of {:.1} %: \
             the objective decided, not growth.",
            100.0 * seen,
            100.0 * width
        ));
    }
    notes
}
