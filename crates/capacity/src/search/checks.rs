//! Validity checks of a search, over all its trials. The checks of `validity` judged each trial before.

use schema::document::{Check, CheckState, Weight};
use schema::{CapacityPart, TrialPart};
use stats::materiality::material_ns;

use super::result::{is_about_server, passed};
use super::sequence::{CONFIRMED_AT, Rules, TrialSequence, VOID_IN_SEARCH};
use experiment::verdict::{JudgedPart, of_parts};

/// Share of the generator's limit up to which a result counts as the server's.
const GENERATOR_HEADROOM_SHARE: f64 = 0.9;
/// Busy share of the generator at the result from which on it is too near its limit.
const GENERATOR_BUSY_MAX: f64 = 0.8;
/// Generator delay, as a multiple of what is material (1 % of the response time, or 50 us), from which on the result
/// may be the generator's.
const GENERATOR_ERROR_MAX: f64 = 1.0;

/// All checks of a search.
pub fn all(rules: &Rules, sequence: &TrialSequence<'_>, part: &CapacityPart) -> Vec<Check> {
    vec![
        generator_headroom(rules, sequence, part),
        bracket_found(part),
        confirmed(rules, sequence),
        trials_valid(sequence),
        answer_trials_valid(sequence, part),
        warmup_enough(sequence),
        searches_alike(rules, sequence),
        host_undisturbed(rules, sequence),
        cost_steady(rules, sequence),
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

fn generator_headroom(rules: &Rules, sequence: &TrialSequence<'_>, part: &CapacityPart) -> Check {
    let make = |state, value, limit, unit: &str, why: &str| {
        check("generator_headroom", Weight::Invalid, state, value, limit, unit, why.to_owned())
    };
    let Some(result) = part.result else {
        return make(
            CheckState::NotApplicable,
            None,
            None,
            "ratio",
            "there is no result to compare with the generator's limit",
        );
    };
    if let Some((limit, measured)) = sequence.limit() {
        let share = result / limit;
        if share > GENERATOR_HEADROOM_SHARE {
            let of = rules.quantity.most.as_ref().filter(|_| !measured).map(|most| format!(" ({})", most.words));
            let why = format!(
                "the result is near the generator's limit on this machine, {}{}: the client is the limit",
                rules.quantity.words(limit),
                of.unwrap_or_default()
            );
            return make(CheckState::Failed, Some(share), Some(GENERATOR_HEADROOM_SHARE), "ratio", &why);
        }
    }
    // The trials at the result, by the generator's own figures.
    let at = |trial: &&TrialPart| trial.load == result && trial.verdict == "good" && is_about_server(trial);
    let busy = sequence.trials().iter().filter(at).map(|trial| trial.loop_busy).fold(0.0, f64::max);
    let error = sequence.trials().iter().filter(at).map(|trial| trial.generator_error).fold(0.0, f64::max);
    if busy > GENERATOR_BUSY_MAX {
        let why = "at the result the generator was busy nearly all of the time: the client is the limit";
        return make(CheckState::Failed, Some(busy), Some(GENERATOR_BUSY_MAX), "ratio", why);
    }
    if error > GENERATOR_ERROR_MAX {
        let why = "at the result the generator was late; the response time may be too high by this multiple of what \
                   is material (1 % of it, or 50 us), and the capacity too low: give the generator more cores, or \
                   repeat on a quieter machine";
        let weight = if busy > 0.5 { Weight::Invalid } else { Weight::Suspect };
        return Check { weight, ..make(CheckState::Failed, Some(error), Some(GENERATOR_ERROR_MAX), "ratio", why) };
    }
    make(CheckState::Ok, Some(busy), Some(GENERATOR_BUSY_MAX), "ratio", "busy share of the generator at the result")
}

/// The check `search_converged`: whether every search ended with a passed load and a failed load within the width.
fn bracket_found(part: &CapacityPart) -> Check {
    let (state, why) = if part.converged {
        (CheckState::Ok, "a load that passed and one that failed are within the width".to_owned())
    } else {
        let why = part.notes.first().cloned().unwrap_or_default();
        (CheckState::Failed, if why.is_empty() { "the search did not finish".to_owned() } else { why })
    };
    check("search_converged", Weight::Invalid, state, None, None, "", why)
}

fn confirmed(rules: &Rules, sequence: &TrialSequence<'_>) -> Check {
    let quantity = &rules.quantity;
    let make = |state, why: String| check("confirmed", Weight::Suspect, state, None, None, "", why);
    let Some(searched) = sequence.result() else {
        return make(CheckState::NotApplicable, "there is no result to confirm".into());
    };
    if rules.plan.confirm.is_zero() {
        return make(CheckState::NotApplicable, "confirmation is switched off (--confirm 0s)".into());
    }
    let at = |share: f64| {
        let load = quantity.load(share * searched);
        sequence
            .trials()
            .iter()
            .find(move |trial| trial.stage == "confirmation" && trial.load == load && trial.verdict != "void")
    };
    match (at(CONFIRMED_AT[0]), at(CONFIRMED_AT[1])) {
        (Some(first), Some(second)) if first.verdict == "good" && second.verdict == "good" => make(
            CheckState::Ok,
            format!(
                "{} passed again for {} s, and so did nine tenths of it",
                quantity.words(searched),
                first.actual_s.round()
            ),
        ),
        (Some(first), _) if first.verdict == "client" => make(
            CheckState::CouldNotRun,
            format!("the client could not generate {} again ({})", quantity.words(searched), first.why.join("; ")),
        ),
        (Some(first), _) if first.verdict != "good" => {
            let so = match passed(rules, sequence, searched) {
                Some(_) => "the result is the next lower load that passed",
                None => "no lower load passed for as long, so there is no result",
            };
            make(
                CheckState::Failed,
                format!("{} did not pass again ({}); {so}", quantity.words(searched), first.why.join("; ")),
            )
        }
        (Some(_), Some(second)) if second.verdict == "client" => make(
            CheckState::CouldNotRun,
            format!(
                "the client could not generate nine tenths of the result, {} ({})",
                quantity.words(second.load),
                second.why.join("; ")
            ),
        ),
        (Some(_), Some(second)) => make(
            CheckState::Failed,
            format!("nine tenths of the result, {}, failed ({})", quantity.words(second.load), second.why.join("; ")),
        ),
        _ => make(CheckState::CouldNotRun, "the confirmation was not made, or was disturbed each time".into()),
    }
}

fn trials_valid(sequence: &TrialSequence<'_>) -> Check {
    let voids = sequence.trials().iter().filter(|trial| trial.verdict == "void").count();
    let state = if voids <= VOID_IN_SEARCH { CheckState::Ok } else { CheckState::Failed };
    let why = if voids == 0 {
        "no trial was disturbed".to_owned()
    } else {
        format!("{voids} of {} trials were disturbed, excluded and repeated", sequence.trials().len())
    };
    check("trials_valid", Weight::Suspect, state, Some(voids as f64), Some(VOID_IN_SEARCH as f64), "trials", why)
}

/// Whether the runs behind the printed figures were valid: those at the result and its confirmation, at the lower end
/// of each bracket, and at the knee. A load that failed also fails checks of its run, so only the rules for trials
/// judge it.
fn answer_trials_valid(sequence: &TrialSequence<'_>, part: &CapacityPart) -> Check {
    let Some(result) = part.result else {
        let why = "no result depends on trials".to_owned();
        return check("answer_trials_valid", Weight::Suspect, CheckState::NotApplicable, None, None, "trials", why);
    };
    let lowers = part.searches.iter().filter_map(|bracket| bracket.lower);
    let loads: Vec<f64> = [Some(result), part.knee].into_iter().flatten().chain(lowers).collect();
    let counts = |trial: &&TrialPart| {
        let is_at = loads.contains(&trial.load) || trial.stage == "confirmation";
        trial.verdict == "good" && is_about_server(trial) && is_at
    };
    let parts = sequence.trials().iter().filter(counts);
    of_parts(
        "answer_trials_valid",
        "trials",
        parts.map(|trial| JudgedPart { verdict: &trial.run_verdict, doubts: &trial.run_doubts }),
        0,
    )
}

fn warmup_enough(sequence: &TrialSequence<'_>) -> Check {
    let (warmup, settled) = sequence.warmup();
    let (state, why) = if sequence.trials().iter().all(|trial| trial.stage == "guess" || trial.stage == "limit") {
        (CheckState::NotApplicable, "no trial was made".to_owned())
    } else if settled {
        (CheckState::Ok, "the server had settled by then, or --warmup was given".to_owned())
    } else {
        let why = "the server did not settle within 60 s of light load: give --warmup, or check for background work \
                   of the server";
        (CheckState::Failed, why.to_owned())
    };
    check("warmup_enough", Weight::Suspect, state, Some(warmup.as_secs_f64()), None, "s", why)
}

fn searches_alike(rules: &Rules, sequence: &TrialSequence<'_>) -> Check {
    let lowers: Vec<f64> = sequence.brackets().into_iter().map(|(lower, _)| lower).collect();
    let limit = 2.0 * rules.plan.width.value();
    if lowers.len() < 2 {
        let why = "a single search cannot be compared".to_owned();
        return check("searches_alike", Weight::Suspect, CheckState::NotApplicable, None, None, "ratio", why);
    }
    let (low, high) =
        lowers.iter().fold((f64::INFINITY, 0.0_f64), |(low, high), &lower| (low.min(lower), high.max(lower)));
    let spread = high / low - 1.0;
    // Allows for rounded loads.
    let alike = spread <= limit * 1.01 || !rules.quantity.find.is_rate() && high - low <= 2.0;
    let state = if alike { CheckState::Ok } else { CheckState::Failed };
    let why = if alike {
        "ratio between the searches' results"
    } else {
        "the searches' results differ by more than twice the width: the server or the machine changed between searches"
    };
    check("searches_alike", Weight::Suspect, state, Some(spread), Some(limit), "ratio", why.to_owned())
}

/// CPU steal slows the server by about the stolen share, so the capacity cannot be known to a smaller width. A load
/// that failed during a stall of the machine may pass without it.
fn host_undisturbed(rules: &Rules, sequence: &TrialSequence<'_>) -> Check {
    let width = rules.plan.width.value();
    let make =
        |state, value, why: String| check("host_undisturbed", Weight::Suspect, state, value, Some(width), "ratio", why);
    let decides = |trial: &&TrialPart| {
        ["long", "confirmation"].contains(&trial.stage.as_str()) && ["good", "bad"].contains(&trial.verdict.as_str())
    };
    let trials: Vec<&TrialPart> = sequence.trials().iter().filter(decides).collect();
    if trials.is_empty() {
        return make(CheckState::NotApplicable, None, "no long trial was made".into());
    }
    // Weighted by the trials' lengths.
    let known: Vec<(f64, f64)> =
        trials.iter().filter_map(|trial| Some((trial.steal_share?, trial.actual_s.max(1e-3)))).collect();
    let actual_s: f64 = known.iter().map(|(_, actual_s)| actual_s).sum();
    if known.is_empty() {
        return make(CheckState::CouldNotRun, None, "/proc/stat could not be read".into());
    }
    let share = known.iter().map(|(share, actual_s)| share * actual_s).sum::<f64>() / actual_s;
    // Stalls longer than what is material at the tail of the response times.
    let stood = |trial: &&&TrialPart| {
        trial.verdict == "bad" && trial.stall_ns as f64 > material_ns(trial.response_time_ns.p99 as f64)
    };
    let still = trials.iter().filter(stood).count();
    if share > width {
        return make(
            CheckState::Failed,
            Some(share),
            "CPU steal exceeds the width: the result is too low by about that share; repeat on a quieter machine, or \
             with a larger --width"
                .into(),
        );
    }
    if still > 0 {
        let why = format!(
            "in {still} of the failed long trials generator and path stalled for longer than 1 % of the response \
             time: the failures may be this machine's, and the result too low; repeat on a quieter machine"
        );
        return make(CheckState::Failed, Some(share), why);
    }
    make(CheckState::Ok, Some(share), "share of CPU time stolen by the hypervisor in the long trials".into())
}

/// Where the CPU is the limit, the capacity is as steady as the CPU cost of a request: on a machine whose speed changes
/// by a tenth between minutes, no capacity is known to 2 %.
fn cost_steady(rules: &Rules, sequence: &TrialSequence<'_>) -> Check {
    let limit = COST_SPREAD_WIDTHS * rules.plan.width.value();
    let make = |state, value, why: &str| {
        check("cost_steady", Weight::Suspect, state, value, Some(limit), "ratio", why.to_owned())
    };
    match sequence.result().and_then(|searched| cost_spread(sequence.trials(), searched)) {
        None => make(
            CheckState::NotApplicable,
            None,
            "fewer than two long trials with the same verdict and a similar load used all of the server's CPU",
        ),
        Some(spread) if spread <= limit => make(
            CheckState::Ok,
            Some(spread),
            "variation of the CPU cost per request between long trials near the result",
        ),
        Some(spread) => {
            let probe_spread = sequence.result().and_then(|searched| cpu_probe_spread(sequence.trials(), searched));
            let cause = spread_cause(spread, probe_spread);
            let why = format!(
                "the CPU cost per request varies between long trials near the result: {cause}; the capacity is known \
                 no better than this; repeat on a quieter machine, or with more searches (--searches)"
            );
            make(CheckState::Failed, Some(spread), &why)
        }
    }
}

/// Attributes the variation `spread` of the cost per request to machine or server, from the variation
/// `probe_spread` of the CPU speed probe.
pub(super) fn spread_cause(spread: f64, probe_spread: Option<f64>) -> String {
    match probe_spread {
        None => "the speed of the machine or of the server changes between trials".to_owned(),
        // A server uses more cache than the probe and loses more when caches are shared.
        Some(probe_spread) if probe_spread > spread / 4.0 => format!(
            "the machine's speed changes between trials (the CPU speed probe took up to {:.1} % longer)",
            100.0 * probe_spread
        ),
        Some(probe_spread) => format!(
            "the server's speed changes between starts (the CPU speed probe took at most {:.1} % longer)",
            100.0 * probe_spread
        ),
    }
}

/// Largest over smallest CPU cost per request in saturated long trials near `searched`, less 1. Trials that passed and
/// trials that failed are compared separately, since a request costs less in a server with a backlog.
pub(super) fn cost_spread(trials: &[TrialPart], searched: f64) -> Option<f64> {
    let of = |verdict: &str| {
        let near = near(trials, searched).filter(|trial| trial.verdict == verdict);
        let costs: Vec<f64> = near
            .filter_map(|trial| {
                let server = trial.server.as_ref()?;
                let used_up =
                    server.cpu_cores >= SATURATED_SHARE_MIN * server.may_use_cores && trial.achieved_rate_per_s > 0.0;
                used_up.then(|| server.cpu_cores / trial.achieved_rate_per_s)
            })
            .collect();
        let least = costs.iter().copied().reduce(f64::min)?;
        let most = costs.iter().copied().reduce(f64::max)?;
        (costs.len() >= 2).then(|| most / least - 1.0)
    };
    of("good").into_iter().chain(of("bad")).reduce(f64::max)
}

/// Slowest over fastest CPU speed probe of the long trials near `searched`, less 1. `None`: fewer than two are known.
pub(super) fn cpu_probe_spread(trials: &[TrialPart], searched: f64) -> Option<f64> {
    let decided = near(trials, searched).filter(|trial| ["good", "bad"].contains(&trial.verdict.as_str()));
    let paces: Vec<f64> = decided.filter_map(|trial| trial.cpu_probe_ns).map(|ns| ns as f64).collect();
    let (least, most) = (paces.iter().copied().reduce(f64::min)?, paces.iter().copied().reduce(f64::max)?);
    (paces.len() >= 2 && least > 0.0).then(|| most / least - 1.0)
}

/// Long trials at about the load `searched`.
fn near(trials: &[TrialPart], searched: f64) -> impl Iterator<Item = &TrialPart> {
    let long = trials.iter().filter(|trial| ["long", "confirmation"].contains(&trial.stage.as_str()));
    long.filter(move |trial| (trial.load / searched - 1.0).abs() <= SIMILAR_LOAD_DISTANCE_MAX)
}

/// Relative distance up to which loads count as similar.
const SIMILAR_LOAD_DISTANCE_MAX: f64 = 0.1;
/// Used share of the available CPU from which on a trial counts as saturated.
const SATURATED_SHARE_MIN: f64 = 0.98;
/// Multiple of the width by which costs may differ: results of two searches may differ by as much.
const COST_SPREAD_WIDTHS: f64 = 3.0;
