//! The prediction held against the search for the capacity on the same plan.

use plan::{CapacityPlan, Plan};
use schema::document::Check;
use schema::{CapacityPart, PredictPart, TrialPart};
use store::RunStore;
use sys::signal::Interrupts;

use super::answer::seconds;
use super::whole::usl;
use super::{ERROR_MAX, PredictPlan, parts};
use crate::search::trial::Purpose;
use crate::search::{self, CapacityOrder};
use experiment::ExperimentError;
use experiment::verdict::of_run;
use experiment::{Order, Stage};

/// The plan of the search: short, one search.
pub fn plan(asked: &PredictPlan) -> Plan {
    let trial = asked.asked.check_trial;
    let mut plan = Plan {
        name: format!("{}-check", asked.plan.name),
        capacity: Some(CapacityPlan {
            short: (trial / 4).max(CapacityPlan::SHORT_MIN),
            trial,
            confirm: trial,
            overload: false,
            ..CapacityPlan::quick()
        }),
        ..asked.plan.clone()
    };
    (plan.load.rate, plan.load.duration, plan.load.requests) = (None, None, None);
    plan
}

/// Searches, and writes what was found beside what was foretold; what is doubtful of the search, where a figure rests on it. Interrupted, it
/// leaves the prediction as it is.
///
/// # Errors
/// Those of the search.
pub fn make(
    asked: &PredictPlan,
    predict: &mut PredictPart,
    order: &Order,
    book: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<Vec<Check>, ExperimentError> {
    let order = CapacityOrder { order: order.clone(), resume: None };
    let done = search::run(&plan(asked), &order, book, interrupts, stage)?;
    beside(predict, &done.document.capacity, asked.plan.seed);
    if !done.document.run.id.is_empty() {
        predict.notes.push(format!("the search is a run of its own: {}", done.document.run.id));
    }
    let is_printed = predict.measured_rate_per_s.is_some();
    Ok(if is_printed { of_run("the search", &done.document.validity) } else { Vec::new() })
}

/// Puts the two beside each other.
fn beside(predict: &mut PredictPart, found: &CapacityPart, seed: u64) {
    predict.measured_rate_per_s = found.rate_per_s;
    predict.measured_interval = found.interval;
    predict.measured_bound_by = Some(found.bound_by.name.clone());
    predict.error = predict.rate_per_s.zip(found.rate_per_s).map(|(foretold, measured)| foretold / measured - 1.0);
    parts::beside(predict, found.rate_per_s);
    // Of a limit the server is another, and a guess is a closed loop.
    let of_it =
        |trial: &&TrialPart| ![Purpose::Guess, Purpose::Limit].map(Purpose::name).contains(&trial.stage.as_str());
    let held = || found.trials.iter().filter(of_it).filter(|trial| trial.verdict == "good");
    let points: Vec<(f64, f64)> = held()
        .filter(|trial| trial.in_flight.mean >= 1.0)
        .map(|trial| (trial.in_flight.mean, trial.achieved_rate_per_s))
        .collect();
    predict.usl = usl(&points, seed).or(predict.usl);
    if predict.error.is_some_and(|error| error.abs() > ERROR_MAX) {
        let highest = held().max_by(|a, b| a.load.total_cmp(&b.load));
        predict.reasons = reasons(predict, found, highest);
    }
    if found.rate_per_s.is_none() {
        // It may have ended for another reason than the server, with loads that held.
        let highest = held().map(|trial| trial.load).reduce(f64::max);
        let held =
            highest.map_or("no load held".to_owned(), |load| format!("{load:.0}/s was the highest load that held"));
        let why = if found.bound_by.words.is_empty() { String::new() } else { format!("; {}", found.bound_by.words) };
        predict
            .notes
            .push(format!("the search came to no answer, so that nothing is held against the prediction: {held}{why}"));
    }
}

/// What may be behind an error, with figures.
fn reasons(predict: &PredictPart, found: &CapacityPart, highest: Option<&TrialPart>) -> Vec<String> {
    let mut reasons = Vec::new();
    if found.bound_by.name != predict.bound_by {
        reasons.push(format!(
            "foretold was {}, and what bound it was {}: {}",
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
        for (loads, words) in [("held", "under held loads"), ("light", "over light loads")] {
            if let Some(foretold) = demand(loads) {
                reasons.push(format!(
                    "at {:.0}/s a request cost {}, {words} {} ({:+.0} %)",
                    highest.achieved_rate_per_s,
                    seconds(cost),
                    seconds(foretold),
                    (foretold / cost - 1.0) * 100.0
                ));
            }
        }
        let mut paces: Vec<u64> =
            predict.loads.iter().filter(|load| load.kind == "held").filter_map(|load| load.cpu_probe_ns).collect();
        paces.sort_unstable();
        if let Some((before, there)) = paces.get(paces.len() / 2).zip(highest.cpu_probe_ns) {
            reasons.push(format!(
                "a fixed piece of work took this machine's processors {} there, and {} under the held loads ({:+.1} %): what a request costs moves with it, \
                 mostly by more",
                seconds(there as f64 / 1e9),
                seconds(*before as f64 / 1e9),
                (*before as f64 / there as f64 - 1.0) * 100.0
            ));
        }
        reasons.push(format!(
            "there the server used {:.1} % of the {:.0} % of a core that it may use",
            server.cpu_cores * 100.0,
            server.may_use_cores * 100.0
        ));
    }
    for demand in predict.demands.iter().filter(|demand| demand.curvature_t.is_some_and(|t| t.abs() > 4.0)) {
        reasons.push(format!(
            "{}: light loads bend (t = {:.1}), so that a request does not cost the same at every load",
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

    fn foretold(rate_per_s: f64) -> PredictPart {
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
            demands: vec![demand("held", 0.002), demand("light", 0.003)],
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
            bound_by: BoundBy { name: "workers".into(), words: "they were all held".into(), ..BoundBy::default() },
            trials: [0.3, 0.5, 0.6, 0.7, 0.9, 1.0].map(|part| trial(part * rate_per_s)).to_vec(),
            ..CapacityPart::default()
        }
    }

    #[test]
    fn an_error_beyond_its_bound_has_reasons_with_figures() {
        let mut near = foretold(114.0);
        beside(&mut near, &found(100.0), 1);
        assert!((near.error.unwrap() - 0.14).abs() < 1e-9 && near.reasons.is_empty(), "{near:?}");
        assert_eq!((near.measured_rate_per_s, near.measured_bound_by.as_deref()), (Some(100.0), Some("workers")));
        assert!(near.usl.is_some(), "six loads have a request or more in flight");
        let mut far = foretold(120.0);
        beside(&mut far, &found(100.0), 1);
        let said = far.reasons.join("\n");
        assert!(said.contains("foretold was cpu_quota, and what bound it was workers"), "{said}");
        assert!(
            said.contains("a request cost 2.500 ms, under held loads 2.000 ms (-20 %)") || said.contains("2.500 ms"),
            "{said}"
        );
        assert!(said.contains("25.0 % of the 20 %"), "{said}");
        // Whether the machine itself was as fast is told, where it is known.
        assert!(!said.contains("a fixed piece of work"), "{said}");
        let held = |cpu_probe_ns| MeasuredLoad { kind: "held".into(), cpu_probe_ns, ..MeasuredLoad::default() };
        let mut slower = found(100.0);
        slower.trials.iter_mut().for_each(|trial| trial.cpu_probe_ns = Some(12_500));
        let mut far = PredictPart {
            loads: [Some(9_900), Some(10_000), Some(11_000), None].map(held).to_vec(),
            ..foretold(120.0)
        };
        beside(&mut far, &slower, 1);
        let said = far.reasons.join("\n");
        assert!(said.contains("processors 12.500 us there, and 10 us under the held loads (-20.0 %)"), "{said}");
        // One that ended for want of a faster generator says what did hold.
        let mut client = foretold(120.0);
        beside(&mut client, &CapacityPart { rate_per_s: None, ..found(100.0) }, 1);
        assert!(client.notes[0].contains("100/s was the highest load that held; they were all held"), "{client:?}");
        // What another server held in its place, to find the generator's limit, it did not.
        let limit = TrialPart { stage: "limit".into(), load: 500.0, verdict: "good".into(), ..TrialPart::default() };
        let mut limited = CapacityPart { rate_per_s: None, ..found(100.0) };
        limited.trials.push(limit);
        let mut client = foretold(120.0);
        beside(&mut client, &limited, 1);
        assert!(client.notes[0].contains("100/s was the highest load that held"), "{client:?}");
        let mut none = foretold(120.0);
        beside(&mut none, &CapacityPart::default(), 1);
        assert!(none.error.is_none() && none.notes[0].contains("no load held"), "{none:?}");
    }
}
