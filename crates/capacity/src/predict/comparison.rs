//! Comparison of a prediction with a capacity search of the same plan.

use plan::{CapacityPlan, Plan};
use schema::document::Check;
use schema::{CapacityPart, PredictPart, TrialPart};
use store::RunStore;
use sys::signal::Interrupts;

use super::limits::seconds;
use super::real_server::usl;
use super::{ERROR_MAX, PredictPlan, components};
use crate::search::trial::Purpose;
use crate::search::trial_run::ThisMachine;
use crate::search::{self, CapacityOptions};
use experiment::ExperimentError;
use experiment::verdict::of_run;
use experiment::{Order, Stage};

/// The plan of the search: short, with a single search.
pub fn plan(input: &PredictPlan) -> Plan {
    let trial = input.options.check_trial;
    let mut plan = Plan {
        name: format!("{}-check", input.plan.name),
        capacity: Some(CapacityPlan {
            short: (trial / 4).max(CapacityPlan::SHORT_MIN),
            trial,
            confirm: trial,
            overload: false,
            ..CapacityPlan::quick()
        }),
        ..input.plan.clone()
    };
    (plan.load.rate, plan.load.duration, plan.load.requests) = (None, None, None);
    plan
}

/// Runs the search, adds its result to the prediction, and returns checks that affect the comparison. An interrupt
/// leaves the prediction unchanged.
///
/// # Errors
/// Errors of the search.
pub fn make(
    input: &PredictPlan,
    predict: &mut PredictPart,
    order: &Order,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Vec<Check>, ExperimentError> {
    let order = CapacityOptions { order: order.clone(), resume: None };
    let done = search::run(&plan(input), &order, run_store, interrupts, (&mut ThisMachine, stage))?;
    add_measured(predict, &done.document.capacity, input.plan.seed);
    if !done.document.run.id.is_empty() {
        predict.notes.push(format!("the capacity search is a separate run: {}", done.document.run.id));
    }
    let is_printed = predict.measured_rate_per_s.is_some();
    Ok(if is_printed { of_run("capacity search", &done.document.validity) } else { Vec::new() })
}

/// Adds measured figures and the error.
fn add_measured(predict: &mut PredictPart, found: &CapacityPart, seed: u64) {
    predict.measured_rate_per_s = found.rate_per_s;
    predict.measured_interval = found.interval;
    predict.measured_bound_by = Some(found.bound_by.name.clone());
    predict.error = predict.rate_per_s.zip(found.rate_per_s).map(|(predicted, measured)| predicted / measured - 1.0);
    components::add_measured(predict, found.rate_per_s);
    // Generator trials use another server, and the initial estimate is a closed loop.
    let of_it =
        |trial: &&TrialPart| ![Purpose::Guess, Purpose::Limit].map(Purpose::name).contains(&trial.stage.as_str());
    let passed = || found.trials.iter().filter(of_it).filter(|trial| trial.verdict == "good");
    let points: Vec<(f64, f64)> = passed()
        .filter(|trial| trial.in_flight.mean >= 1.0)
        .map(|trial| (trial.in_flight.mean, trial.achieved_rate_per_s))
        .collect();
    predict.usl = usl(&points, seed).or(predict.usl);
    if predict.error.is_some_and(|error| error.abs() > ERROR_MAX) {
        let highest = passed().max_by(|a, b| a.load.total_cmp(&b.load));
        predict.reasons = reasons(predict, found, highest);
    }
    if found.rate_per_s.is_none() {
        // The search may have ended for another reason than the server, after loads that passed.
        let highest = passed().map(|trial| trial.load).reduce(f64::max);
        let passed =
            highest.map_or("no load passed".to_owned(), |load| format!("{load:.0}/s was the highest load that passed"));
        let why = if found.bound_by.words.is_empty() { String::new() } else { format!("; {}", found.bound_by.words) };
        predict.notes.push(format!("the search found no capacity, so there is no comparison: {passed}{why}"));
    }
}

/// Possible reasons for an error, with figures.
fn reasons(predict: &PredictPart, found: &CapacityPart, highest: Option<&TrialPart>) -> Vec<String> {
    let mut reasons = Vec::new();
    if found.bound_by.name != predict.bound_by {
        reasons.push(format!(
            "the predicted limit is {}, the measured limit {}: {}",
            predict.bound_by, found.bound_by.name, found.bound_by.words
        ));
    }
    let demand = |loads: &str| -> Option<f64> {
        let of_mix =
            predict.demands.iter().filter(|demand| demand.resource == "processes" && demand.loads.ends_with(loads));
        let sum: f64 = of_mix.filter_map(|demand| Some(demand.each? * demand.seconds)).sum();
        (sum > 0.0).then_some(sum)
    };
    if let Some((highest, server)) = highest.and_then(|trial| Some((trial, trial.server?))) {
        let cost = server.cpu_cores / highest.achieved_rate_per_s.max(1e-9);
        for (loads, words) in [("saturated", "in saturated loads"), ("light", "in light loads")] {
            if let Some(predicted) = demand(loads) {
                reasons.push(format!(
                    "at {:.0}/s a request cost {}, {words} {} ({:+.0} %)",
                    highest.achieved_rate_per_s,
                    seconds(cost),
                    seconds(predicted),
                    (predicted / cost - 1.0) * 100.0
                ));
            }
        }
        let mut paces: Vec<u64> =
            predict.loads.iter().filter(|load| load.kind == "saturated").filter_map(|load| load.cpu_probe_ns).collect();
        paces.sort_unstable();
        if let Some((before, there)) = paces.get(paces.len() / 2).zip(highest.cpu_probe_ns) {
            reasons.push(format!(
                "the CPU speed probe took {} there, and {} in the saturated loads ({:+.1} %): the cost of a request \
                 changes with it, usually by more",
                seconds(there as f64 / 1e9),
                seconds(*before as f64 / 1e9),
                (*before as f64 / there as f64 - 1.0) * 100.0
            ));
        }
        reasons.push(format!(
            "there the server used {:.1} % of a core; its CPU limit is {:.0} % of a core",
            server.cpu_cores * 100.0,
            server.may_use_cores * 100.0
        ));
    }
    for demand in predict.demands.iter().filter(|demand| demand.curvature_t.is_some_and(|t| t.abs() > 4.0)) {
        reasons.push(format!(
            "{}: light loads are not linear (t = {:.1}), so the cost of a request depends on the load",
            demand.class,
            demand.curvature_t.unwrap_or_default()
        ));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use schema::document::Level;
    use schema::{BoundBy, Demand, MeasuredLoad, TrialServer};

    use super::*;

    fn predicted(rate_per_s: f64) -> PredictPart {
        let demand = |loads: &str, seconds: f64| Demand {
            class: "page".into(),
            each: Some(1.0),
            resource: "processes".into(),
            loads: loads.into(),
            seconds,
            ..Demand::default()
        };
        PredictPart {
            rate_per_s: Some(rate_per_s),
            bound_by: "cpu_quota".into(),
            demands: vec![demand("saturated", 0.002), demand("light", 0.003)],
            ..PredictPart::default()
        }
    }

    fn found(rate_per_s: f64) -> CapacityPart {
        let trial = |load: f64| TrialPart {
            load,
            verdict: "good".into(),
            achieved_rate_per_s: load,
            in_flight: Level { mean: load / 10.0, ..Level::default() },
            server: Some(TrialServer { cpu_cores: load * 0.0025, may_use_cores: 0.2, ..TrialServer::default() }),
            ..TrialPart::default()
        };
        CapacityPart {
            rate_per_s: Some(rate_per_s),
            interval: Some([rate_per_s * 0.98, rate_per_s * 1.02]),
            bound_by: BoundBy { name: "workers".into(), words: "all workers were busy".into(), ..BoundBy::default() },
            trials: [0.3, 0.5, 0.6, 0.7, 0.9, 1.0].map(|part| trial(part * rate_per_s)).to_vec(),
            ..CapacityPart::default()
        }
    }

    #[test]
    fn prediction_error_above_its_limit_has_reasons_with_figures() {
        let mut near = predicted(114.0);
        add_measured(&mut near, &found(100.0), 1);
        assert!((near.error.unwrap() - 0.14).abs() < 1e-9 && near.reasons.is_empty(), "{near:?}");
        assert_eq!((near.measured_rate_per_s, near.measured_bound_by.as_deref()), (Some(100.0), Some("workers")));
        assert!(near.usl.is_some(), "six loads have a request or more in flight");
        let mut far = predicted(120.0);
        add_measured(&mut far, &found(100.0), 1);
        let text = far.reasons.join("\n");
        assert!(text.contains("the predicted limit is cpu_quota, the measured limit workers"), "{text}");
        assert!(
            text.contains("a request cost 2.50 ms, in saturated loads 2.00 ms (-20 %)") || text.contains("2.50 ms"),
            "{text}"
        );
        assert!(text.contains("used 25.0 % of a core; its CPU limit is 20 % of a core"), "{text}");
        // The CPU speed probe is compared where it is known.
        assert!(!text.contains("the CPU speed probe"), "{text}");
        let probed = |cpu_probe_ns| MeasuredLoad { kind: "saturated".into(), cpu_probe_ns, ..MeasuredLoad::default() };
        let mut slower = found(100.0);
        slower.trials.iter_mut().for_each(|trial| trial.cpu_probe_ns = Some(12_500));
        let mut far = PredictPart {
            loads: [Some(9_900), Some(10_000), Some(11_000), None].map(probed).to_vec(),
            ..predicted(120.0)
        };
        add_measured(&mut far, &slower, 1);
        let text = far.reasons.join("\n");
        assert!(text.contains("probe took 12.5 us there, and 10.0 us in the saturated loads (-20.0 %)"), "{text}");
        // A search that ended at the generator's limit reports the highest load that passed.
        let mut client = predicted(120.0);
        add_measured(&mut client, &CapacityPart { rate_per_s: None, ..found(100.0) }, 1);
        assert!(
            client.notes[0].contains("100/s was the highest load that passed; all workers were busy"),
            "{client:?}"
        );
        // Loads that passed against the generator trials' server do not count.
        let limit = TrialPart { stage: "limit".into(), load: 500.0, verdict: "good".into(), ..TrialPart::default() };
        let mut limited = CapacityPart { rate_per_s: None, ..found(100.0) };
        limited.trials.push(limit);
        let mut client = predicted(120.0);
        add_measured(&mut client, &limited, 1);
        assert!(client.notes[0].contains("100/s was the highest load that passed"), "{client:?}");
        let mut none = predicted(120.0);
        add_measured(&mut none, &CapacityPart::default(), 1);
        assert!(none.error.is_none() && none.notes[0].contains("no load passed"), "{none:?}");
    }
}
