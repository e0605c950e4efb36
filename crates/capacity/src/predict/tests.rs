//! Refused options, combined costs, and checks.

use schema::MeasuredLoad;
use schema::document::CheckState;

use super::checks::{as_measured, checks};
use super::class_costs::WorkloadClass;
use super::demands::ClassMeasurement;
use super::model::{Estimate, ItemCost, WorkloadDemand};
use super::path::Traffic;
use super::real_server::{RealServer, demand_rows};
use super::*;

fn plan(more: &str) -> PredictPlan {
    let text = format!(
        "[load]\nurl = \"http://server:8080/\"\nduration = \"1s\"\n{more}[server]\ncommand = \"true\"\n[path]\nrtt = \"0ms\"\n"
    );
    PredictPlan { plan: Plan::from_toml(&text, "plan").unwrap(), options: PredictOptions::default() }
}

#[test]
fn options_that_predict_chooses_are_refused() {
    assert!(plan("").check().is_ok());
    let refused = |plan: &PredictPlan| plan.check().unwrap_err().to_string();
    assert!(refused(&plan("rate = \"10/s\"\n")).contains("chooses its own rates"));
    assert!(refused(&plan("requests = 10\n")).contains("-n"));
    let without = PredictPlan { plan: Plan { server: None, ..plan("").plan }, ..plan("") };
    assert!(refused(&without).contains("--server-pid"));
    assert!(
        PredictPlan { options: PredictOptions { pid: Some(1), ..PredictOptions::default() }, ..without }
            .check()
            .is_ok()
    );
    let refused_with = |options: PredictOptions| refused(&PredictPlan { options, ..plan("") });
    let usual = PredictOptions::default;
    assert!(refused_with(PredictOptions { loads: 2, ..usual() }).contains("--loads"));
    assert!(refused_with(PredictOptions { each: Duration::from_millis(100), ..usual() }).contains("--load-time"));
    assert!(refused_with(PredictOptions { users: Some(0), ..usual() }).contains("--users"));
    assert!(refused_with(PredictOptions { workers: Some(0), ..usual() }).contains("--workers"));
    assert!(
        refused_with(PredictOptions { headroom: Probability::new(1.0).unwrap(), ..usual() }).contains("--headroom")
    );
    assert!(refused_with(PredictOptions { peak_to_mean: 0.5, ..usual() }).contains("--peak-to-mean"));
    assert!(refused_with(PredictOptions { hit_ratio: Probability::new(0.5), ..usual() }).contains("--miss"));
    assert!(refused_with(PredictOptions { pid: Some(1), ..usual() }).contains("--server-pid"));
    assert!(refused_with(PredictOptions { check: true, ..usual() }).contains("--slo"));
    assert!(refused_with(PredictOptions { disk: true, ..usual() }).contains("--components"));
    let with_objective = |trial: u64| {
        let options = PredictOptions { check: true, check_trial: Duration::from_millis(trial), ..usual() };
        PredictPlan { plan: Plan { slo: "p99 < 1s".parse().ok(), ..plan("").plan }, options }
    };
    assert!(with_objective(2000).check().is_ok());
    assert!(refused(&with_objective(1999)).contains("--check-trial"));
}

#[test]
fn prediction_duration_is_estimated_in_advance() {
    let keep = plan("").time();
    let close = plan("close = true\n").time();
    // One class: a second, then five loads of 4 s and five of 2 s, and the testbed's own time.
    assert!(keep > Duration::from_secs(38) && keep < Duration::from_secs(55), "{keep:?}");
    assert!(close > keep + Duration::from_secs(30));
}

fn costing(value: f64) -> ClassMeasurement {
    let light = [10.0, 20.0, 30.0].map(|rate| (rate, rate * value * 1.5));
    let saturated = [(50.0, 50.0 * value * 0.99), (80.0, 80.0 * value * 1.01), (90.0, 90.0 * value)];
    let saturated = saturated.map(|(rate_per_s, busy)| model::SaturatedLoad { rate_per_s, busy, longer_pause_s: 0.0 });
    let cost = model::ClassCost::of(&light, &saturated);
    let traffic =
        Traffic { up_bytes: 100.0, down_bytes: 1000.0, up_packets: 3.0, down_packets: 4.0, response_body_bytes: 900.0 };
    ClassMeasurement {
        processes: cost.clone(),
        cores: cost,
        traffic: Some(traffic),
        rate_max: 90.0,
        points: (3, 3),
        ..ClassMeasurement::default()
    }
}

#[test]
fn workload_with_connections_adds_up() {
    let plan = plan("close = true\n");
    let (page, search) = (costing(0.001), costing(0.010));
    let with = costing(0.0013);
    let connection = [ItemCost::of(&with.processes).less(&ItemCost::of(&page.processes)); 2];
    let parts = vec![
        WorkloadClass::of("page", Some(0.8), page),
        WorkloadClass::of("search", Some(0.2), search),
        WorkloadClass { measured: Some(with), ..WorkloadClass::derived("new connection", Some(1.0), connection) },
        WorkloadClass::derived("connection, full TLS handshake", None, connection),
    ];
    let whole = RealServer { input: &plan, parts, memory: None };
    let workload_demand = whole.workload_demand(|part| part.processes, |it| &it.processes).unwrap();
    // 0.8 of 1 ms, 0.2 of 10 ms, 0.3 ms for the connection.
    assert!((workload_demand.at_saturation.value - 0.0031).abs() < 1e-9, "{workload_demand:?}");
    assert!((workload_demand.light.unwrap().value - 0.00465).abs() < 1e-9, "{workload_demand:?}");
    // For a single class the cost is that measured with connections, without further error.
    let with = costing(0.0013);
    let one = RealServer {
        input: &plan,
        parts: vec![
            WorkloadClass::of("page", Some(1.0), costing(0.001)),
            WorkloadClass {
                measured: Some(with.clone()),
                ..WorkloadClass::derived("new connection", Some(1.0), connection)
            },
        ],
        memory: None,
    };
    let alone = one.workload_demand(|part| part.processes, |it| &it.processes).unwrap();
    assert_eq!(Some(alone.at_saturation), with.processes.saturated);
    // In the simulation each class includes the connection, and the mean is that of the workload.
    let classes = whole.classes(workload_demand.at_saturation.value);
    assert_eq!(classes.len(), 2);
    assert!(
        (classes[0].1 - 0.0013 / 0.0031).abs() < 1e-6 && (classes[1].1 - 0.0103 / 0.0031).abs() < 1e-6,
        "{classes:?}"
    );
    assert!((classes.iter().map(|(share, of)| share * of).sum::<f64>() - 1.0).abs() < 1e-9);
    // Traffic of a connection is in the traffic of its own load.
    assert_eq!(
        whole.traffic(),
        Some(Traffic {
            up_bytes: 100.0,
            down_bytes: 1000.0,
            up_packets: 3.0,
            down_packets: 4.0,
            response_body_bytes: 900.0
        })
    );
    let rows: Vec<(String, String)> =
        whole.parts.iter().flat_map(demand_rows).map(|row| (row.class, row.loads)).collect();
    assert!(
        rows.contains(&("page".into(), "saturated".into()))
            && rows.contains(&("new connection".into(), "derived, saturated".into())),
        "{rows:?}"
    );
    let traffic = whole.traffic().unwrap();
    assert!(whole.connection_use().close);
    assert!(traffic.down_bytes > 0.0);
}

fn verdict(predict: &PredictPart, processes: &WorkloadDemand, input: &PredictPlan) -> Vec<(String, CheckState)> {
    checks(predict, &predict.loads, Some(processes), input).into_iter().map(|check| (check.name, check.state)).collect()
}

#[test]
fn each_check_fails_just_outside_its_limit() {
    let input = plan("");
    let sound = WorkloadDemand {
        light: None,
        at_saturation: Estimate { value: 0.002, half: 0.0002 },
        saturated: true,
        idle: 0.0,
    };
    let predict = PredictPart { rate_per_s: Some(100.0), beyond: 2.0, ..PredictPart::default() };
    let all = verdict(&predict, &sound, &input);
    assert!(all.iter().all(|(_, state)| *state == CheckState::Ok), "{all:?}");
    assert_eq!(all.len(), 5);
    let failed = |predict: &PredictPart, workload_demand: &WorkloadDemand| -> Vec<String> {
        verdict(predict, workload_demand, &input)
            .into_iter()
            .filter(|(_, state)| *state == CheckState::Failed)
            .map(|(name, _)| name)
            .collect()
    };
    // Just outside of each limit.
    assert_eq!(failed(&PredictPart { beyond: 2.01, ..predict.clone() }, &sound), ["not_beyond_twice"]);
    let measured = |error: Option<f64>| as_measured(&PredictPart { error, ..predict.clone() })[0].state;
    let states = [Some(0.15), Some(-0.16), None].map(measured);
    assert_eq!(states, [CheckState::Ok, CheckState::Failed, CheckState::CouldNotRun]);
    assert_eq!(
        failed(&predict, &WorkloadDemand { at_saturation: Estimate { value: 0.002, half: 0.000_21 }, ..sound }),
        ["demand_narrow"]
    );
    assert_eq!(failed(&predict, &WorkloadDemand { saturated: false, ..sound }), ["demand_when_behind"]);
    let load = |verdict: &str| MeasuredLoad {
        kind: "light".into(),
        verdict: verdict.into(),
        failed: vec!["client_cpu".into()],
        ..MeasuredLoad::default()
    };
    let loads = |bad: usize| [vec![load("invalid"); bad], vec![load("valid"); 5 - bad]].concat();
    // The verdict is that of the worst load on which a figure is based.
    let of_loads = |loads: Vec<MeasuredLoad>| {
        let predict = PredictPart { loads, ..predict.clone() };
        let all = checks(&predict, &predict.loads, Some(&sound), &input);
        schema::Validity::from_checks(all)
    };
    assert_eq!(failed(&PredictPart { loads: loads(1), ..predict.clone() }, &sound), ["loads_valid"]);
    assert_eq!(of_loads(loads(1)).verdict, schema::Verdict::Invalid);
    assert_eq!(of_loads(vec![load("valid"), load("suspect")]).verdict, schema::Verdict::Suspect);
    // For loads that only give the cost of a request, send times do not matter.
    let of_cost = |kind: &str, failed: &[&str]| MeasuredLoad {
        kind: kind.into(),
        verdict: "invalid".into(),
        failed: failed.iter().map(|&name| name.to_owned()).collect(),
        ..MeasuredLoad::default()
    };
    assert_eq!(
        of_loads(vec![of_cost("saturated", &["generator_on_time", "client_cpu"])]).verdict,
        schema::Verdict::Valid
    );
    let more = of_loads(vec![of_cost("saturated", &["generator_on_time", "conservation"])]);
    assert_eq!(more.verdict, schema::Verdict::Invalid);
    assert!(more.checks.iter().any(|check| check.why.ends_with("1 of 1: conservation")), "{more:?}");
    assert_eq!(of_loads(vec![of_cost("light", &["generator_on_time"])]).verdict, schema::Verdict::Invalid);
    // An excluded load is counted and reported, and affects nothing.
    let left_out = MeasuredLoad { left_out: true, ..load("invalid") };
    let without = of_loads(vec![load("valid"), left_out]);
    assert_eq!(without.verdict, schema::Verdict::Valid);
    assert!(without.checks.iter().any(|check| check.why.contains("1 more are left out")), "{without:?}");
    let saturated = |halves: [f64; 4]| {
        let load = |second_half: &f64| MeasuredLoad {
            kind: "saturated".into(),
            second_half: Some(*second_half),
            verdict: "valid".into(),
            ..MeasuredLoad::default()
        };
        PredictPart { loads: halves.iter().map(load).collect(), ..predict.clone() }
    };
    // Noise; a change below significance; a server that warms up during the measurement, and one that slows down.
    for (halves, text) in [
        ([0.8, 1.3, 0.7, 1.2], &[][..]),
        ([1.03, 1.04, 1.03, 1.04], &[]),
        ([1.2, 1.3, 1.4, 1.3], &["loads_settled"]),
        ([0.9, 0.8, 0.85, 0.9], &["loads_settled"]),
    ] {
        assert_eq!(failed(&saturated(halves), &sound), text, "{halves:?}");
    }
    assert_eq!(failed(&PredictPart { rate_per_s: None, ..predict }, &sound), ["demand_known"]);
    // A running service cannot be limited: the check could not run, and has not failed.
    let service = PredictPlan {
        plan: Plan { server: None, ..input.plan.clone() },
        options: PredictOptions { pid: Some(1), ..PredictOptions::default() },
    };
    let all = verdict(&PredictPart::default(), &WorkloadDemand { saturated: false, ..sound }, &service);
    assert!(all.contains(&("demand_when_behind".into(), CheckState::CouldNotRun)), "{all:?}");
}

#[test]
fn extra_time_ignores_loads_that_waited_for_workers() {
    let load = |class: &str, rate_per_s: f64, p50_ms: u64, failed: &[&str]| MeasuredLoad {
        class: class.into(),
        kind: "light".into(),
        rate_per_s,
        response_p50_ns: p50_ms * 1_000_000,
        failed: failed.iter().map(ToString::to_string).collect(),
        ..MeasuredLoad::default()
    };
    // Keep-alive connections occupied all of the server's workers: that load has no information, although it is
    // slowest.
    let loads = [
        load("/", 300.0, 10_000, &["achieved_as_offered", "failures"]),
        load("/", 500.0, 5_000, &["achieved_as_offered"]),
        load("/", 900.0, 3, &["rtt_as_configured"]),
        load("/, a connection per request", 600.0, 7, &[]),
        load("/, a connection per request", 1200.0, 6, &[]),
    ];
    let near = |actual: f64, expected: f64| assert!((actual - expected).abs() < 1e-9, "{actual}");
    near(real_server::extra_time(&loads, true, 0.001), 0.006);
    near(real_server::extra_time(&loads, false, 0.001), 0.002);
    near(real_server::extra_time(&loads[..2], false, 0.001), 0.0);
}

#[test]
fn rate_of_the_path_load_is_light_for_workers() {
    let near = |actual: f64, expected: f64| assert!((actual / expected - 1.0).abs() < 1e-9, "{actual}");
    near(real_server::rate_of_path_load(2000.0, None, Some(0.4)), 600.0);
    near(real_server::rate_of_path_load(20_000.0, None, None), PATH_RATE_MAX);
    // 256 workers, 0.4 s each: 640 a second.
    near(real_server::rate_of_path_load(5000.0, Some(256), Some(0.4)), 192.0);
    near(real_server::rate_of_path_load(100.0, Some(256), Some(0.4)), 30.0);
    near(real_server::rate_of_path_load(100.0, Some(256), Some(0.0)), 30.0);
}
