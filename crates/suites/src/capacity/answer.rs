//! From the trials of a course to what is said of it: the answer, how well it is known, and whether to believe it.

use std::collections::BTreeMap;

use ledger::document::{Check, CheckState, Weight};
use ledger::{Bracket, CapacityPart, Finding, GeneratorLimit, TrialPart};

use super::bound::bound_by;
use super::growth::TOLERATED;
use super::search::{CONFIRMED_AT, Course, End, Rules, VOID_IN_SEARCH, rounded};

/// Of the generator's limit, the share up to which an answer is the server's.
const HEADROOM: f64 = 0.9;
/// A generator as busy as this at the answer, or as late, is too near its limit.
const BUSY: f64 = 0.8;
const LAG_NS: f64 = 500_000.0;
/// What holds in the short stage and is more than this above the answer does not last.
const SHORT_ABOVE: f64 = 1.05;
/// Carried at an overload, over the most that was ever carried: `holds` from the first, `collapses` below the second.
const HOLDS: f64 = 0.95;
const COLLAPSES: f64 = 0.5;
/// A confirmation below the answer is at no more than this share of it.
const BELOW: f64 = 0.95;
const CONFIDENCE: f64 = 0.95;

/// What a course came to, as far as it went.
pub fn part(rules: &Rules, course: &Course<'_>, end: Option<&End>, objective: &str) -> CapacityPart {
    let made = course.made();
    let width = rules.plan.width.value();
    let found = matches!(end, Some(End::Found)) || confirmed_by_then(course);
    let sought = course.answer().filter(|_| found);
    let answer = sought.and_then(|sought| held(course, sought));
    let brackets = course.brackets();
    let (interval, interval_of) = match answer {
        Some(answer) => interval(&brackets, answer, sought == Some(answer), rules),
        None => (None, ""),
    };
    let (lower, upper) = course.so_far();
    let open_loop: Vec<&TrialPart> =
        made.iter().filter(|trial| is_of_server(trial) && trial.verdict != "void").collect();
    let saturation = open_loop.iter().map(|trial| trial.carried_rate_per_s).reduce(f64::max);
    let short = course.short_lower().filter(|short| answer.is_some_and(|answer| *short > SHORT_ABOVE * answer));
    let bound = match (brackets.first(), answer, end) {
        (_, _, Some(End::ClientLimit { .. })) => ledger::BoundBy {
            name: "client".into(),
            words: "the generator can make no more".into(),
            figures: BTreeMap::new(),
        },
        (Some(&(lower, upper)), Some(answer), _) => bound_by(made, lower.min(answer), upper),
        _ => ledger::BoundBy { name: "unknown".into(), ..Default::default() },
    };
    let (warmup, _) = course.warmup();
    CapacityPart {
        objective: objective.into(),
        find: "rate".into(),
        rate_per_s: answer,
        short_rate_per_s: short,
        width,
        interval,
        interval_of: interval_of.into(),
        searches: brackets.iter().map(|&(lower, upper)| Bracket { lower: Some(lower), upper: Some(upper) }).collect(),
        so_far: (answer.is_none() && (lower.is_some() || upper.is_some())).then_some(Bracket { lower, upper }),
        bound_by: bound,
        trials: made.to_vec(),
        saturation_rate_per_s: saturation,
        knee_rate_per_s: knee(made),
        under_overload: answer.and_then(|answer| under_overload(made, answer, saturation?)),
        generator_limit: generator_limit(course),
        warmup_s: warmup.as_secs_f64(),
        findings: findings(course, answer, short, end),
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
fn held(course: &Course<'_>, sought: f64) -> Option<f64> {
    let made = course.made();
    let of = |load: f64| {
        made.iter().find(|trial| trial.stage == "confirmation" && trial.load == load && trial.verdict != "void")
    };
    match of(rounded(CONFIRMED_AT[0] * sought)) {
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

fn is_of_server(trial: &TrialPart) -> bool {
    ["short", "long", "confirmation", "overload"].contains(&trial.stage.as_str())
}

/// Between which loads the capacity lies: a Student-t interval of the logarithms of the brackets' middles, half a bracket wider on each
/// side, and lower by what a trial may let pass.
fn interval(brackets: &[(f64, f64)], answer: f64, is_sought: bool, rules: &Rules) -> (Option<[f64; 2]>, &'static str) {
    let width = rules.plan.width.value();
    let passes = (TOLERATED * width).max(rules.response_limit.as_secs_f64() / rules.plan.trial.as_secs_f64());
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
    // A load that did not hold in its confirmation is above the capacity.
    if is_sought { (Some([low, high]), of) } else { (Some([answer.min(low), high]), of) }
}

/// The load of greatest power, carried rate over mean response time (Kleinrock), among those that held.
fn knee(made: &[TrialPart]) -> Option<f64> {
    let good =
        made.iter().filter(|trial| is_of_server(trial) && trial.verdict == "good" && trial.response_time_ns.mean > 0.0);
    let power = |trial: &TrialPart| trial.carried_rate_per_s / trial.response_time_ns.mean;
    good.max_by(|a, b| power(a).total_cmp(&power(b))).map(|trial| trial.load)
}

/// What the server does beyond its answer.
fn under_overload(made: &[TrialPart], answer: f64, most: f64) -> Option<String> {
    let over = made.iter().filter(|trial| {
        trial.stage == "overload" && trial.load > answer && ["good", "bad"].contains(&trial.verdict.as_str())
    });
    let least = over.map(|trial| trial.carried_rate_per_s).reduce(f64::min)?;
    Some(
        match least / most {
            share if share >= HOLDS => "holds",
            share if share >= COLLAPSES => "degrades",
            _ => "collapses",
        }
        .into(),
    )
}

fn generator_limit(course: &Course<'_>) -> Option<GeneratorLimit> {
    if let Some(rate) = course.generator_limit() {
        let words = "measured against this program's fastest answers".to_owned();
        return Some(GeneratorLimit { rate_per_s: rate, how: "measured".into(), words });
    }
    let rate = course.generator_estimate()?;
    let words = "estimated from how busy it was, which errs low".to_owned();
    Some(GeneratorLimit { rate_per_s: rate, how: "estimated".into(), words })
}

/// What the trials came upon at the answer, and what follows from them together.
fn findings(course: &Course<'_>, answer: Option<f64>, short: Option<f64>, end: Option<&End>) -> Vec<Finding> {
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
        let words = format!("{} held for seconds, {} is what lasts{why}", per_second(short), per_second(answer));
        let figures = [("short_rate_per_s".to_owned(), short), ("rate_per_s".to_owned(), answer)];
        found.push(Finding { name: "does_not_last".into(), test: String::new(), figures: figures.into(), words });
    }
    found
}

fn notes(rules: &Rules, course: &Course<'_>, answer: Option<f64>, end: Option<&End>) -> Vec<String> {
    let mut notes = Vec::new();
    let least = |trial: &TrialPart| trial.load;
    match end {
        None => {
            let (lower, upper) = course.so_far();
            notes.push(match (lower, upper) {
                (Some(lower), Some(upper)) => format!("Stopped early: so far between {} and {}.", per_second(lower), per_second(upper)),
                (Some(lower), None) => format!("Stopped early: so far at least {}.", per_second(lower)),
                (None, Some(upper)) => format!("Stopped early: so far under {}.", per_second(upper)),
                (None, None) => "Stopped early: nothing is known of the capacity yet.".to_owned(),
            });
        }
        Some(End::MissedAtAny { at }) => {
            let trial = course.made().iter().filter(|trial| trial.verdict == "bad" && is_of_server(trial));
            let why = trial.min_by(|a, b| least(a).total_cmp(&least(b))).map(|trial| trial.why.join("; ")).unwrap_or_default();
            notes.push(format!("The objective is missed already at {}, without any load to speak of ({why}).", per_second(*at)));
        }
        Some(End::NeverTooMuch { at }) => notes.push(format!(
            "No load up to {} was too much: raise --max, or leave it out.",
            per_second(*at)
        )),
        Some(End::ClientLimit { held }) => {
            let limit = generator_limit(course).map_or(String::new(), |limit| format!(" (about {} here)", per_second(limit.rate_per_s)));
            notes.push(format!(
                "The client is the limit{limit}: the server still held at {}, and more could not be offered. Hold the server \
                 (--server-cpu), give the client more cores (--threads), or make the load from another machine.",
                per_second(*held)
            ));
        }
        Some(End::Undecided { voids }) => notes.push(format!(
            "Undecided: {voids} trials of one search were disturbed. Repeat on a quieter machine (--resume goes on from here)."
        )),
        Some(End::Refused(why)) => notes.push(format!("{why}.")),
        Some(End::Found) => {}
    }
    let over = course.made().iter().find(|trial| trial.stage == "overload" && trial.verdict == "good");
    if let (Some(trial), Some(answer)) = (over, answer) {
        notes.push(format!(
            "{}, {:.1} times the answer, held for {:.0} s in the end: at such a length it may, but if the server was less disturbed then than \
             before, the answer is too low.",
            per_second(trial.load),
            trial.load / answer,
            trial.lasted_s
        ));
    }
    // Where chance is larger than the growth that the width allows, the objective alone decided.
    let width = rules.plan.width.value();
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

/// Whether to believe the answer.
pub fn checks(rules: &Rules, course: &Course<'_>, part: &CapacityPart) -> Vec<Check> {
    vec![
        generator_headroom(course, part),
        search_regular(part),
        confirmed(rules, course),
        trials_valid(course),
        warmup_enough(course),
        searches_alike(rules, course),
    ]
}

fn check(
    name: &str,
    weight: Weight,
    state: CheckState,
    value: Option<f64>,
    limit: Option<f64>,
    unit: &str,
    why: String,
) -> Check {
    Check { name: name.into(), state, weight, value, limit, unit: unit.into(), why }
}

fn generator_headroom(course: &Course<'_>, part: &CapacityPart) -> Check {
    let make = |state, value, limit, unit: &str, why: &str| {
        check("generator_headroom", Weight::Invalid, state, value, limit, unit, why.to_owned())
    };
    let Some(answer) = part.rate_per_s else {
        return make(
            CheckState::NotApplicable,
            None,
            None,
            "ratio",
            "there is no answer to hold against the generator's limit",
        );
    };
    if let Some(limit) = course.generator_limit() {
        let share = answer / limit;
        if share > HEADROOM {
            let why = "the answer is near what the generator itself can make here: the client is the limit";
            return make(CheckState::Failed, Some(share), Some(HEADROOM), "ratio", why);
        }
    }
    // Of the trials at the answer, by what the generator itself said.
    let at = |trial: &&TrialPart| trial.load == answer && trial.verdict == "good" && is_of_server(trial);
    let busy = course.made().iter().filter(at).map(|trial| trial.loop_busy).fold(0.0, f64::max);
    let lag = course.made().iter().filter(at).map(|trial| trial.send_lag_p99_ns as f64).fold(0.0, f64::max);
    if busy > BUSY {
        let why = "at the answer the generator had work nearly all of the time: the client is the limit";
        return make(CheckState::Failed, Some(busy), Some(BUSY), "ratio", why);
    }
    if lag > LAG_NS {
        let why = "at the answer the generator was late: repeat with more cores for it, or on a quieter machine";
        let weight = if busy > 0.5 { Weight::Invalid } else { Weight::Suspect };
        return Check { weight, ..make(CheckState::Failed, Some(lag), Some(LAG_NS), "ns", why) };
    }
    make(
        CheckState::Ok,
        Some(busy),
        Some(BUSY),
        "ratio",
        "share of the time in which the generator had work, at the answer",
    )
}

fn search_regular(part: &CapacityPart) -> Check {
    let (state, why) = if part.regular {
        (CheckState::Ok, "a load that held and one that was too much, as near as asked".to_owned())
    } else {
        let why = part.notes.first().cloned().unwrap_or_default();
        (CheckState::Failed, if why.is_empty() { "the search did not come to its end".to_owned() } else { why })
    };
    check("search_regular", Weight::Invalid, state, None, None, "", why)
}

fn confirmed(rules: &Rules, course: &Course<'_>) -> Check {
    let make = |state, why: String| check("confirmed", Weight::Suspect, state, None, None, "", why);
    let Some(sought) = course.answer() else {
        return make(CheckState::NotApplicable, "there is no answer to confirm".into());
    };
    if rules.plan.confirm.is_zero() {
        return make(CheckState::NotApplicable, "no confirmation was asked for (--confirm 0s)".into());
    }
    let at = |share: f64| {
        let load = rounded(share * sought);
        course
            .made()
            .iter()
            .find(move |trial| trial.stage == "confirmation" && trial.load == load && trial.verdict != "void")
    };
    match (at(CONFIRMED_AT[0]), at(CONFIRMED_AT[1])) {
        (Some(first), Some(second)) if first.verdict == "good" && second.verdict == "good" => make(
            CheckState::Ok,
            format!(
                "{} held once more for {} s, and so did nine tenths of it",
                per_second(sought),
                first.lasted_s.round()
            ),
        ),
        (Some(first), _) if first.verdict != "good" => make(
            CheckState::Failed,
            format!(
                "{} did not hold once more ({}); the answer is the next lower load that did",
                per_second(sought),
                first.why.join("; ")
            ),
        ),
        (Some(_), Some(second)) => make(
            CheckState::Failed,
            format!("nine tenths of the answer, {}, did not hold ({})", per_second(second.load), second.why.join("; ")),
        ),
        _ => make(CheckState::CouldNotRun, "the confirmation was not made, or disturbed each time".into()),
    }
}

fn trials_valid(course: &Course<'_>) -> Check {
    let voids = course.made().iter().filter(|trial| trial.verdict == "void").count();
    let state = if voids <= VOID_IN_SEARCH { CheckState::Ok } else { CheckState::Failed };
    let why = if voids == 0 {
        "no trial was disturbed".to_owned()
    } else {
        format!("{voids} of {} trials were disturbed, count for nothing, and were made again", course.made().len())
    };
    check("trials_valid", Weight::Suspect, state, Some(voids as f64), Some(VOID_IN_SEARCH as f64), "trials", why)
}

fn warmup_enough(course: &Course<'_>) -> Check {
    let (warmup, settled) = course.warmup();
    let (state, why) = if course.made().iter().all(|trial| trial.stage == "guess" || trial.stage == "limit") {
        (CheckState::NotApplicable, "no trial was made".to_owned())
    } else if settled {
        (CheckState::Ok, "the server had settled by then, or the warm-up was given".to_owned())
    } else {
        let why = "the server did not settle in 60 s at a light load: give --warmup, or look for what it does in the background";
        (CheckState::Failed, why.to_owned())
    };
    check("warmup_enough", Weight::Suspect, state, Some(warmup.as_secs_f64()), None, "s", why)
}

fn searches_alike(rules: &Rules, course: &Course<'_>) -> Check {
    let lowers: Vec<f64> = course.brackets().into_iter().map(|(lower, _)| lower).collect();
    let limit = 2.0 * rules.plan.width.value();
    if lowers.len() < 2 {
        let why = "one search has nothing to be compared with".to_owned();
        return check("searches_alike", Weight::Suspect, CheckState::NotApplicable, None, None, "ratio", why);
    }
    let (low, high) =
        lowers.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &lower| (low.min(lower), high.max(lower)));
    let spread = high / low - 1.0;
    // Loads are rounded.
    let alike = spread <= limit * 1.01;
    let state = if alike { CheckState::Ok } else { CheckState::Failed };
    let why = if alike {
        "how far apart the searches' answers are"
    } else {
        "the searches' answers are far apart: the server, or the machine, is not the same from one to the other"
    };
    check("searches_alike", Weight::Suspect, state, Some(spread), Some(limit), "ratio", why.to_owned())
}

/// A rate for people.
pub fn per_second(rate: f64) -> String {
    match rate {
        r if r < 9.995 => format!("{r:.2}/s"),
        r if r < 999.95 => format!("{r:.1}/s"),
        r => format!("{r:.0}/s"),
    }
}
