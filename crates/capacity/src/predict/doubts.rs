//! Whether to believe a prediction: its own checks.

use schema::document::{Check, CheckState, Weight};
use schema::{MeasuredLoad, PredictPart, SumPart, Verdict};
use stats::mean_interval;

use super::model::{CONFIDENCE, Mixed};
use super::{BEYOND_MAX, ERROR_MAX, PredictPlan};
use experiment::verdict::{JudgedPart, of_parts};

/// A demand that is known less well than this makes the answer suspect.
const DEMAND_HALF_MAX: f64 = 0.1;

/// Growth of the rate within held loads, from their first half to their second, that is no longer noise if it is shown at 95 %.
const GROWTH_MAX: f64 = 0.05;

/// What is doubtful of a prediction.
pub fn checks(
    predict: &PredictPart,
    loads: &[MeasuredLoad],
    processes: Option<&Mixed>,
    asked: &PredictPlan,
) -> Vec<Check> {
    let check = |name: &str, state: CheckState, weight: Weight, figure: Option<(f64, f64)>, why: String| Check {
        name: name.into(),
        state,
        weight,
        value: figure.map(|(value, _)| value),
        limit: figure.map(|(_, limit)| limit),
        unit: "ratio".into(),
        why,
    };
    let told = |held: bool| if held { CheckState::Ok } else { CheckState::Failed };
    let mut checks = Vec::new();
    let is_known = predict.rate_per_s.is_some();
    checks.push(check(
        "demand_known",
        told(is_known),
        Weight::Invalid,
        None,
        if is_known {
            "what a request costs is told from what the server does anyway".into()
        } else {
            "what a request costs cannot be told from nothing: longer loads (--load-time), or more of them (--loads)"
                .into()
        },
    ));
    if let Some(half) = processes.map(|mixed| mixed.behind.relative()).filter(|half| half.is_finite()) {
        let why = format!(
            "half the width of the demand's interval over the demand: {:.1} %; --loads and --load-time narrow it",
            half * 100.0
        );
        checks.push(check(
            "demand_narrow",
            told(half <= DEMAND_HALF_MAX),
            Weight::Suspect,
            Some((half, DEMAND_HALF_MAX)),
            why,
        ));
    }
    let is_held = processes.is_some_and(|mixed| mixed.held);
    let (state, why) = match (is_held, asked.plan.server.is_some()) {
        (true, _) => (CheckState::Ok, "demands are of a server that is always behind, as at its capacity"),
        (false, true) => (
            CheckState::Failed,
            "the server could not be kept behind: demands are of light loads, and the answer is too low",
        ),
        (false, false) => (
            CheckState::CouldNotRun,
            "only a server of the lab (--server) can be held back: demands are of light loads, and the answer is too low for a server that \
             is cheaper when it is busy",
        ),
    };
    checks.push(check("demand_when_behind", state, Weight::Suspect, None, why.into()));
    if is_known {
        let why = format!(
            "processor time at the answer over the most that was measured; beyond {BEYOND_MAX} it is an extrapolation"
        );
        checks.push(check(
            "not_beyond_twice",
            told(predict.beyond <= BEYOND_MAX),
            Weight::Suspect,
            Some((predict.beyond, BEYOND_MAX)),
            why,
        ));
    }
    checks.extend(settled(loads));
    checks.push(loads_valid("loads_valid", loads, false));
    checks
}

/// Whether the server was itself when it was held: it is given the same processor time throughout, so that its requests a second say
/// what one costs. `None` where it was not held.
fn settled(loads: &[MeasuredLoad]) -> Option<Check> {
    let held = loads.iter().filter(|load| load.kind == "held" && !load.left_out);
    let growth: Vec<f64> = held.filter_map(|load| Some(load.second_half?.ln())).collect();
    let interval = mean_interval(&growth, CONFIDENCE)?;
    let is_trend = interval.low() > 0.0 || interval.high() < 0.0;
    let grew = interval.mean.exp() - 1.0;
    let is_settled = !is_trend || grew.abs() <= GROWTH_MAX;
    let why = match (is_settled, grew > 0.0) {
        (true, _) => "requests a second in the second half of the held loads over those in the first, less 1",
        (false, true) => {
            "under held loads requests became cheaper while they were measured, so that the answer is too low: a longer warm-up (--warmup)"
        }
        (false, false) => {
            "under held loads requests became dearer while they were measured: the server slows down, and no figure lasts"
        }
    };
    Some(Check {
        name: "loads_settled".into(),
        state: if is_settled { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(grew),
        limit: Some(GROWTH_MAX),
        unit: "ratio".into(),
        why: why.into(),
    })
}

/// Whether the loads that figures rest on were valid: of parts alone, or all others. The prediction is no better than the worst of them.
fn loads_valid(name: &str, loads: &[MeasuredLoad], of_parts_alone: bool) -> Check {
    let of_these = || loads.iter().filter(|load| (load.kind == "part") == of_parts_alone);
    // A load that only says where to begin is none that was disturbed.
    let left_out = of_these().filter(|load| load.left_out && load.kind != "rough").count();
    let counted: Vec<_> =
        of_these().filter(|load| !load.left_out).map(|load| (load, relevant_failures(load))).collect();
    let parts = counted.iter().map(|(load, doubts)| {
        let only_irrelevant = doubts.is_empty() && !load.failed.is_empty();
        JudgedPart { verdict: if only_irrelevant { Verdict::Valid.name() } else { &load.verdict }, doubts }
    });
    of_parts(name, "loads", parts, left_out)
}

/// The failed checks of a load that affect what is taken from it. From a held load, or a part's, only CPU time per request is taken: when
/// requests were sent and how long they took does not matter.
fn relevant_failures(load: &MeasuredLoad) -> Vec<String> {
    let cost_only = load.kind == "part" || load.kind == "held";
    let matters = |check: &&String| !cost_only || !OF_TIMES.contains(&check.as_str());
    load.failed.iter().filter(matters).cloned().collect()
}

/// Checks of response times and of when requests were sent.
const OF_TIMES: [&str; 11] = [
    "client_cpu",
    "generator_on_time",
    "loop_not_stalled",
    "path_on_time",
    "path_on_time_in_capture",
    "rtt_as_configured",
    "rtt_at_server_as_configured",
    "rtt_tail_as_configured",
    "rtt_tail_at_server_as_configured",
    "server_cores_undisturbed",
    "vantage_points_agree_service_time_tail",
];

/// What is doubtful of a sum of parts.
pub fn of_sum(sum: &SumPart, loads: &[MeasuredLoad], cold: Option<bool>) -> Vec<Check> {
    let half = (sum.processes_interval[1] - sum.processes_interval[0]) / 2.0 / sum.processes_s;
    let narrow = half.is_finite() && half <= DEMAND_HALF_MAX;
    let mut checks = vec![
        loads_valid("part_loads_valid", loads, true),
        Check {
            name: "parts_narrow".into(),
            state: if narrow { CheckState::Ok } else { CheckState::Failed },
            weight: Weight::Suspect,
            value: half.is_finite().then_some(half),
            limit: Some(DEMAND_HALF_MAX),
            unit: "ratio".into(),
            why: "half the width of the sum's interval over the sum; --load-time narrows it".into(),
        },
    ];
    if let Some(is_cold) = cold {
        checks.push(Check {
            name: "parts_cold".into(),
            state: if is_cold { CheckState::Ok } else { CheckState::CouldNotRun },
            weight: Weight::Suspect,
            value: None,
            limit: None,
            unit: String::new(),
            why: if is_cold {
                "files that were taken out of the page cache came from a device"
            } else {
                "files were taken out of the page cache, and no device was read: they are on a file system in memory, or somebody keeps them;                  name another folder (--parts-folder)"
            }
            .into(),
        });
    }
    checks
}

/// Whether the prediction came true.
pub fn as_measured(predict: &PredictPart) -> Vec<Check> {
    let (state, why) = match predict.error {
        None => (CheckState::CouldNotRun, "the search came to no answer that could be held against the prediction"),
        Some(error) if error.abs() <= ERROR_MAX => (CheckState::Ok, "foretold over measured, less 1"),
        Some(_) => (CheckState::Failed, "foretold over measured, less 1: what may be behind it stands with the result"),
    };
    vec![Check {
        name: "as_measured".into(),
        state,
        weight: Weight::Suspect,
        value: predict.error,
        limit: Some(ERROR_MAX),
        unit: "ratio".into(),
        why: why.into(),
    }]
}
