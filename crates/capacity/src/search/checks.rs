//! Whether to believe the answer of a course: its own checks, over all its trials. Each trial was judged by the gate's before.

use schema::document::{Check, CheckState, Weight};
use schema::{CapacityPart, TrialPart};
use stats::materiality::material_ns;

use super::answer::{held, is_of_server};
use super::course::{CONFIRMED_AT, Course, Rules, VOID_IN_SEARCH};
use experiment::verdict::{JudgedPart, of_parts};

/// Of the generator's limit, the share up to which an answer is the server's.
const HEADROOM: f64 = 0.9;
/// A generator as busy as this at the answer is too near its limit.
const BUSY: f64 = 0.8;
/// And one that may have raised the response time by more than is material (1 % of it, or 50 us).
const ERROR: f64 = 1.0;

/// Whether to believe the answer.
pub fn all(rules: &Rules, course: &Course<'_>, part: &CapacityPart) -> Vec<Check> {
    vec![
        generator_headroom(rules, course, part),
        search_regular(part),
        confirmed(rules, course),
        trials_valid(course),
        answer_trials_valid(course, part),
        warmup_enough(course),
        searches_alike(rules, course),
        host_undisturbed(rules, course),
        cost_steady(rules, course),
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

fn generator_headroom(rules: &Rules, course: &Course<'_>, part: &CapacityPart) -> Check {
    let make = |state, value, limit, unit: &str, why: &str| {
        check("generator_headroom", Weight::Invalid, state, value, limit, unit, why.to_owned())
    };
    let Some(answer) = part.answer else {
        return make(
            CheckState::NotApplicable,
            None,
            None,
            "ratio",
            "there is no answer to hold against the generator's limit",
        );
    };
    if let Some((limit, measured)) = course.limit() {
        let share = answer / limit;
        if share > HEADROOM {
            let of = rules.question.most.as_ref().filter(|_| !measured).map(|most| format!(" ({})", most.words));
            let why = format!(
                "the answer is near what the generator itself can make here, {}{}: the client is the limit",
                rules.question.words(limit),
                of.unwrap_or_default()
            );
            return make(CheckState::Failed, Some(share), Some(HEADROOM), "ratio", &why);
        }
    }
    // Of the trials at the answer, by what the generator itself said.
    let at = |trial: &&TrialPart| trial.load == answer && trial.verdict == "good" && is_of_server(trial);
    let busy = course.made().iter().filter(at).map(|trial| trial.loop_busy).fold(0.0, f64::max);
    let error = course.made().iter().filter(at).map(|trial| trial.generator_error).fold(0.0, f64::max);
    if busy > BUSY {
        let why = "at the answer the generator had work nearly all of the time: the client is the limit";
        return make(CheckState::Failed, Some(busy), Some(BUSY), "ratio", why);
    }
    if error > ERROR {
        let why = "at the answer the generator was late, and may have raised the response time by so many times what is material (1 % of it, or \
                   50 us), so that the answer may be too low: repeat with more cores for it, or on a quieter machine";
        let weight = if busy > 0.5 { Weight::Invalid } else { Weight::Suspect };
        return Check { weight, ..make(CheckState::Failed, Some(error), Some(ERROR), "ratio", why) };
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
    let question = &rules.question;
    let make = |state, why: String| check("confirmed", Weight::Suspect, state, None, None, "", why);
    let Some(sought) = course.answer() else {
        return make(CheckState::NotApplicable, "there is no answer to confirm".into());
    };
    if rules.plan.confirm.is_zero() {
        return make(CheckState::NotApplicable, "no confirmation was asked for (--confirm 0s)".into());
    }
    let at = |share: f64| {
        let load = question.load(share * sought);
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
                question.words(sought),
                first.actual_s.round()
            ),
        ),
        (Some(first), _) if first.verdict == "client" => make(
            CheckState::CouldNotRun,
            format!("the client could not make {} once more ({})", question.words(sought), first.why.join("; ")),
        ),
        (Some(first), _) if first.verdict != "good" => {
            let so = match held(rules, course, sought) {
                Some(_) => "the answer is the next lower load that did",
                None => "nor did a lower load for as long, so that there is no answer",
            };
            make(
                CheckState::Failed,
                format!("{} did not hold once more ({}); {so}", question.words(sought), first.why.join("; ")),
            )
        }
        (Some(_), Some(second)) if second.verdict == "client" => make(
            CheckState::CouldNotRun,
            format!(
                "the client could not make nine tenths of the answer, {} ({})",
                question.words(second.load),
                second.why.join("; ")
            ),
        ),
        (Some(_), Some(second)) => make(
            CheckState::Failed,
            format!(
                "nine tenths of the answer, {}, did not hold ({})",
                question.words(second.load),
                second.why.join("; ")
            ),
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

/// Whether the trials that the printed figures rest on were valid runs: those at the answer and at its confirmation, at the lower end of each
/// bracket, and at the knee. A load that was too much fails checks of its run for that reason, and is judged by the rules of a trial alone.
fn answer_trials_valid(course: &Course<'_>, part: &CapacityPart) -> Check {
    let Some(answer) = part.answer else {
        let why = "there is no answer that rests on trials".to_owned();
        return check("answer_trials_valid", Weight::Suspect, CheckState::NotApplicable, None, None, "trials", why);
    };
    let lowers = part.searches.iter().filter_map(|bracket| bracket.lower);
    let loads: Vec<f64> = [Some(answer), part.knee].into_iter().flatten().chain(lowers).collect();
    let counts = |trial: &&TrialPart| {
        let is_at = loads.contains(&trial.load) || trial.stage == "confirmation";
        trial.verdict == "good" && is_of_server(trial) && is_at
    };
    let parts = course.made().iter().filter(counts);
    of_parts(
        "answer_trials_valid",
        "trials",
        parts.map(|trial| JudgedPart { verdict: &trial.run_verdict, doubts: &trial.run_doubts }),
        0,
    )
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
    let alike = spread <= limit * 1.01 || !rules.question.find.is_rate() && high - low <= 2.0;
    let state = if alike { CheckState::Ok } else { CheckState::Failed };
    let why = if alike {
        "how far apart the searches' answers are"
    } else {
        "the searches' answers are far apart: the server, or the machine, is not the same from one to the other"
    };
    check("searches_alike", Weight::Suspect, state, Some(spread), Some(limit), "ratio", why.to_owned())
}

/// Stolen time slows the server down by about as much as was stolen, and nobody can know its capacity to a width that is less. A load that
/// was too much while the machine stood still may be one that holds.
fn host_undisturbed(rules: &Rules, course: &Course<'_>) -> Check {
    let width = rules.plan.width.value();
    let make =
        |state, value, why: String| check("host_undisturbed", Weight::Suspect, state, value, Some(width), "ratio", why);
    let decides = |trial: &&TrialPart| {
        ["long", "confirmation"].contains(&trial.stage.as_str()) && ["good", "bad"].contains(&trial.verdict.as_str())
    };
    let trials: Vec<&TrialPart> = course.made().iter().filter(decides).collect();
    if trials.is_empty() {
        return make(CheckState::NotApplicable, None, "no long trial was made".into());
    }
    // By their length.
    let known: Vec<(f64, f64)> =
        trials.iter().filter_map(|trial| Some((trial.steal_share?, trial.actual_s.max(1e-3)))).collect();
    let actual_s: f64 = known.iter().map(|(_, actual_s)| actual_s).sum();
    if known.is_empty() {
        return make(CheckState::CouldNotRun, None, "/proc/stat could not be read".into());
    }
    let share = known.iter().map(|(share, actual_s)| share * actual_s).sum::<f64>() / actual_s;
    // Longer than what is material at the tail of its response times.
    let stood = |trial: &&&TrialPart| {
        trial.verdict == "bad" && trial.stall_ns as f64 > material_ns(trial.response_time_ns.p99 as f64)
    };
    let still = trials.iter().filter(stood).count();
    if share > width {
        return make(
            CheckState::Failed,
            Some(share),
            "the hypervisor took more of the processors' time than the width that was sought: the answer is too low by about as much; repeat \
             on a quieter machine, or with a larger --width"
                .into(),
        );
    }
    if still > 0 {
        let why = format!(
            "in {still} of the long trials that were too much generator and path stalled for longer than 1 % of the response time: what they say \
             may be this machine's doing, and the answer too low; repeat on a quieter machine"
        );
        return make(CheckState::Failed, Some(share), why);
    }
    make(
        CheckState::Ok,
        Some(share),
        "share of the processors' time that the hypervisor took in the long trials".into(),
    )
}

/// Where the processor is what binds, the capacity is as steady as what a request costs: a machine whose speed changes by a tenth from one
/// minute to the next, as one that is shared may, has no capacity that is known to a fiftieth.
fn cost_steady(rules: &Rules, course: &Course<'_>) -> Check {
    let limit = COST_SPREAD_WIDTHS * rules.plan.width.value();
    let make = |state, value, why: &str| {
        check("cost_steady", Weight::Suspect, state, value, Some(limit), "ratio", why.to_owned())
    };
    match course.answer().and_then(|sought| cost_spread(course.made(), sought)) {
        None => make(
            CheckState::NotApplicable,
            None,
            "fewer than two long trials of the same verdict and about the same load used all that the server may use",
        ),
        Some(spread) if spread <= limit => make(
            CheckState::Ok,
            Some(spread),
            "how much more a request cost in one long trial near the answer than in another",
        ),
        Some(spread) => {
            let pace = course.answer().and_then(|sought| pace_spread(course.made(), sought));
            let whose = whose(spread, pace);
            let why = format!(
                "a request cost more in one long trial near the answer than in another: {whose}, and the capacity is known to no less; repeat on a \
                 quieter machine, or with more searches (--searches)"
            );
            make(CheckState::Failed, Some(spread), &why)
        }
    }
}

/// What is not equally fast, if what a request cost differed by `spread`, and a fixed piece of work by `pace`.
pub(super) fn whose(spread: f64, pace: Option<f64>) -> String {
    match pace {
        None => "this machine, or the server, is not equally fast from minute to minute".to_owned(),
        // A server has more in the caches than a byte in a pipe, and loses more with them.
        Some(pace) if pace > spread / 4.0 => format!(
            "this machine is not equally fast from minute to minute (a fixed piece of work took its processors up to {:.1} % longer)",
            100.0 * pace
        ),
        Some(pace) => format!(
            "the server is not equally fast from start to start (a fixed piece of work took the processors at most {:.1} % longer)",
            100.0 * pace
        ),
    }
}

/// By how much the dearest request of the long trials near `sought` that used the processor up cost more than the cheapest. Loads that held and
/// loads that did not each among themselves, since a server that is behind is cheaper.
pub(super) fn cost_spread(made: &[TrialPart], sought: f64) -> Option<f64> {
    let of = |verdict: &str| {
        let near = near(made, sought).filter(|trial| trial.verdict == verdict);
        let costs: Vec<f64> = near
            .filter_map(|trial| {
                let server = trial.server.as_ref()?;
                let used_up = server.cpu_cores >= USED_UP * server.may_use_cores && trial.achieved_rate_per_s > 0.0;
                used_up.then(|| server.cpu_cores / trial.achieved_rate_per_s)
            })
            .collect();
        let least = costs.iter().copied().reduce(f64::min)?;
        let most = costs.iter().copied().reduce(f64::max)?;
        (costs.len() >= 2).then(|| most / least - 1.0)
    };
    of("good").into_iter().chain(of("bad")).reduce(f64::max)
}

/// By how much a fixed piece of work took the server's processors longer in the slowest of the long trials near `sought` than in the fastest. `None`
/// where it is known of fewer than two.
pub(super) fn pace_spread(made: &[TrialPart], sought: f64) -> Option<f64> {
    let decided = near(made, sought).filter(|trial| ["good", "bad"].contains(&trial.verdict.as_str()));
    let paces: Vec<f64> = decided.filter_map(|trial| trial.cpu_probe_ns).map(|ns| ns as f64).collect();
    let (least, most) = (paces.iter().copied().reduce(f64::min)?, paces.iter().copied().reduce(f64::max)?);
    (paces.len() >= 2 && least > 0.0).then(|| most / least - 1.0)
}

/// The long trials of about the load `sought`.
fn near(made: &[TrialPart], sought: f64) -> impl Iterator<Item = &TrialPart> {
    let long = made.iter().filter(|trial| ["long", "confirmation"].contains(&trial.stage.as_str()));
    long.filter(move |trial| (trial.load / sought - 1.0).abs() <= NEAR)
}

/// Loads so near the answer are as if they were alike.
const NEAR: f64 = 0.1;
/// From this part of what it may use on, a server has used it up.
const USED_UP: f64 = 0.98;
/// So many widths may costs be apart: of two searches whose answers are within two widths they are hardly nearer.
const COST_SPREAD_WIDTHS: f64 = 3.0;
