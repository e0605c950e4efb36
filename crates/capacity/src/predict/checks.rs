//! Validity checks of a prediction.

use schema::document::{Check, CheckState, Weight};
use schema::{ComponentSum, MeasuredLoad, PredictPart, Verdict};
use stats::mean_interval;

use super::model::{CONFIDENCE, WorkloadDemand};
use super::{BEYOND_MAX, ERROR_MAX, PredictPlan};
use experiment::verdict::{JudgedPart, of_parts};

/// Relative half width of a demand from which on the result is suspect.
const DEMAND_HALF_MAX: f64 = 0.1;

/// Change of the rate within saturated loads, from first to second half, that counts if significant at 95 %.
const GROWTH_MAX: f64 = 0.05;

/// All checks of a prediction.
pub fn checks(
    predict: &PredictPart,
    loads: &[MeasuredLoad],
    processes: Option<&WorkloadDemand>,
    input: &PredictPlan,
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
    let state_of = |passes: bool| if passes { CheckState::Ok } else { CheckState::Failed };
    let mut checks = Vec::new();
    let is_known = predict.rate_per_s.is_some();
    checks.push(check(
        "demand_known",
        state_of(is_known),
        Weight::Invalid,
        None,
        if is_known {
            "the cost of a request stands out from the server's idle work".into()
        } else {
            "the cost of a request cannot be distinguished from zero: use longer loads (--load-time), or more of \
             them (--loads)"
                .into()
        },
    ));
    if let Some(half) =
        processes.map(|workload_demand| workload_demand.at_saturation.relative()).filter(|half| half.is_finite())
    {
        let why = format!(
            "half width of the demand's interval over the demand: {:.1} %; --loads and --load-time narrow it",
            half * 100.0
        );
        checks.push(check(
            "demand_narrow",
            state_of(half <= DEMAND_HALF_MAX),
            Weight::Suspect,
            Some((half, DEMAND_HALF_MAX)),
            why,
        ));
    }
    let is_saturated = processes.is_some_and(|workload_demand| workload_demand.saturated);
    let (state, why) = match (is_saturated, input.plan.server.is_some()) {
        (true, _) => (CheckState::Ok, "demands are of a saturated server, as at its capacity"),
        (false, true) => (
            CheckState::Failed,
            "the server could not be saturated: demands are of light loads, and the predicted rate is too low",
        ),
        (false, false) => (
            CheckState::CouldNotRun,
            "only a server started by Yamabiko (--server) can be limited: demands are of light loads, and the \
             predicted rate is too low for a server that is cheaper when busy",
        ),
    };
    checks.push(check("demand_when_behind", state, Weight::Suspect, None, why.into()));
    if is_known {
        let why = format!(
            "CPU time at the predicted rate over the most measured; beyond {BEYOND_MAX} it is an extrapolation"
        );
        checks.push(check(
            "not_beyond_twice",
            state_of(predict.beyond <= BEYOND_MAX),
            Weight::Suspect,
            Some((predict.beyond, BEYOND_MAX)),
            why,
        ));
    }
    checks.extend(settled(loads));
    checks.push(loads_valid("loads_valid", loads, false));
    checks
}

/// Whether throughput was constant in saturated loads: the CPU limit is constant, so throughput shows the cost of a
/// request. `None` without a limit.
fn settled(loads: &[MeasuredLoad]) -> Option<Check> {
    let saturated = loads.iter().filter(|load| load.kind == "saturated" && !load.left_out);
    let growth: Vec<f64> = saturated.filter_map(|load| Some(load.second_half?.ln())).collect();
    let interval = mean_interval(&growth, CONFIDENCE)?;
    let is_trend = interval.low() > 0.0 || interval.high() < 0.0;
    let grew = interval.mean.exp() - 1.0;
    let is_settled = !is_trend || grew.abs() <= GROWTH_MAX;
    let why = match (is_settled, grew > 0.0) {
        (true, _) => "throughput in the second half of the saturated loads over that in the first, less 1",
        (false, true) => {
            "requests became cheaper during the saturated loads, so the predicted rate is too low: give a longer \
             warm-up (--warmup)"
        }
        (false, false) => {
            "requests became dearer during the saturated loads: the server slows down, and no figure is lasting"
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

/// Whether the loads on which the figures are based were valid: loads of components, or all others. The prediction is
/// as valid as the worst of these loads.
fn loads_valid(name: &str, loads: &[MeasuredLoad], of_parts_alone: bool) -> Check {
    let of_these = || loads.iter().filter(|load| (load.kind == "component") == of_parts_alone);
    // The closed loop for scale does not count as disturbed.
    let left_out = of_these().filter(|load| load.left_out && load.kind != "rough").count();
    let counted: Vec<_> =
        of_these().filter(|load| !load.left_out).map(|load| (load, relevant_failures(load))).collect();
    let parts = counted.iter().map(|(load, doubts)| {
        let only_irrelevant = doubts.is_empty() && !load.failed.is_empty();
        JudgedPart { verdict: if only_irrelevant { Verdict::Valid.name() } else { &load.verdict }, doubts }
    });
    of_parts(name, "loads", parts, left_out)
}

/// Failed checks of a load that affect its figures. Saturated loads and loads of components give only the CPU time per
/// request, so their send times and response times do not matter.
fn relevant_failures(load: &MeasuredLoad) -> Vec<String> {
    let cost_only = load.kind == "component" || load.kind == "saturated";
    let matters = |check: &&String| !cost_only || !TIME_CHECKS.contains(&check.as_str());
    load.failed.iter().filter(matters).cloned().collect()
}

/// Checks of response times and send times.
const TIME_CHECKS: [&str; 11] = [
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

/// Checks of a sum of components.
pub fn of_sum(sum: &ComponentSum, loads: &[MeasuredLoad], cold: Option<bool>) -> Vec<Check> {
    let half = (sum.processes_interval[1] - sum.processes_interval[0]) / 2.0 / sum.processes_s;
    let narrow = half.is_finite() && half <= DEMAND_HALF_MAX;
    let mut checks = vec![
        loads_valid("component_loads_valid", loads, true),
        Check {
            name: "components_narrow".into(),
            state: if narrow { CheckState::Ok } else { CheckState::Failed },
            weight: Weight::Suspect,
            value: half.is_finite().then_some(half),
            limit: Some(DEMAND_HALF_MAX),
            unit: "ratio".into(),
            why: "half width of the sum's interval over the sum; --load-time narrows it".into(),
        },
    ];
    if let Some(is_cold) = cold {
        checks.push(Check {
            name: "components_cold".into(),
            state: if is_cold { CheckState::Ok } else { CheckState::CouldNotRun },
            weight: Weight::Suspect,
            value: None,
            limit: None,
            unit: String::new(),
            why: if is_cold {
                "files dropped from the page cache were read from a device"
            } else {
                "files were dropped from the page cache, and no device was read: the file system is in memory, or \
                 another program keeps them cached; give another folder (--components-folder)"
            }
            .into(),
        });
    }
    checks
}

/// Whether the prediction agrees with the search.
pub fn as_measured(predict: &PredictPart) -> Vec<Check> {
    let (state, why) = match predict.error {
        None => (CheckState::CouldNotRun, "the search found no capacity to compare with"),
        Some(error) if error.abs() <= ERROR_MAX => (CheckState::Ok, "predicted over measured, less 1"),
        Some(_) => (CheckState::Failed, "predicted over measured, less 1: possible reasons are listed with the result"),
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
