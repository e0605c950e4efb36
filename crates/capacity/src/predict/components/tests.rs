//! Sums with derived figures, and refused options.

use plan::{HttpVersion, Plan};
use schema::ComponentPoint;
use sys::signal::Interrupts;

use super::*;
use crate::predict::PredictOptions;

fn plan_with(more: &str) -> PredictPlan {
    let text = format!("[load]\nurl = \"http://server:8080/\"\nduration = \"1s\"\n{more}");
    PredictPlan {
        plan: Plan::from_toml(&text, "plan").unwrap(),
        options: PredictOptions { components: true, ..PredictOptions::default() },
    }
}

#[test]
fn server_model_needs_no_server() {
    assert!(plan_with("").check().is_ok());
    assert!(plan_with("[components]\nlog = \"line\"\nwaits = \"threads\"\n").check().is_ok());
    let refused = |plan: &PredictPlan| plan.check().unwrap_err().to_string();
    let mut without = plan_with("");
    without.options.components = false;
    assert!(refused(&without).contains("--components"));
    let with = |change: fn(&mut PredictPlan)| {
        let mut plan = plan_with("");
        change(&mut plan);
        refused(&plan)
    };
    assert!(with(|plan| plan.options.disk = true).contains("--cold"));
    assert!(with(|plan| plan.options.components_folder = Some("/nowhere/at all".into())).contains("no such folder"));
    assert!(with(|plan| plan.plan.load.http = HttpVersion::Http2).contains("HTTP/1"));
    assert!(with(|plan| plan.options.check = true).contains("--server"));
    assert!(
        Plan::from_toml("[load]\nurl = \"http://server/\"\nduration = \"1s\"\n[components]\nthreads = 0\n", "x")
            .is_err()
    );
    assert!(
        Plan::from_toml("[load]\nurl = \"http://server/\"\nduration = \"1s\"\n[components]\nthread = 1\n", "x")
            .is_err()
    );
}

#[test]
fn prediction_duration_is_estimated_in_advance() {
    let keep_alive = plan_with("").time();
    let close = plan_with("close = true\n").time();
    // Six loads of three runs of 2 s, and the testbed's own time.
    assert!(keep_alive > Duration::from_secs(36) && keep_alive < Duration::from_secs(75), "{keep_alive:?}");
    assert!(close > keep_alive + Duration::from_secs(6), "{close:?}");
}

#[test]
fn only_components_of_the_model_are_measured() {
    let names = |parts: &ComponentsPlan, shape: &Shape| -> Vec<&'static str> {
        expected(parts, shape).into_iter().map(|(name, ..)| name).collect()
    };
    let shape = Shape { request_bytes: 50.0, ..Shape::default() };
    assert_eq!(names(&ComponentsPlan::default(), &shape), ["parse"]);
    assert!(names(&ComponentsPlan { parse: false, ..ComponentsPlan::default() }, &shape).is_empty());
    let plan = plan_with("close = true\n[components]\nbody = \"sendfile\"\nlog = \"buffered\"\ncold = \"10%\"\n").plan;
    let secure = Shape { tls: true, close: true, ..shape };
    let all = names(&plan.components.clone().unwrap(), &secure);
    let expected_names = [
        "parse",
        "open-read",
        "open",
        "open-read-cold",
        "log-buffered",
        "records",
        "handshake-full",
        "handshake-resumed",
    ];
    assert_eq!(all, expected_names);
    // Every component of a sum was measured, here or in the network.
    for terms in
        [sum::terms(&plan.components.unwrap(), &secure, 1e4), sum::terms(&ComponentsPlan::default(), &shape, 1e4)]
    {
        for (name, ..) in terms {
            let of_network = [part::RECEIVE, part::SEND, part::CONNECTION].contains(&name);
            assert!(of_network || all.contains(&name), "{name}");
        }
    }
    // A head below the shortest that can be measured counts as the shortest.
    let (_, _, sizes) = &expected(&ComponentsPlan::default(), &shape)[0];
    assert_eq!(sizes[..], [96]);
}

struct Silent;

impl experiment::Stage for Silent {
    fn begin(&mut self, _: &str) -> Box<dyn testbed::Observer> {
        unreachable!("nothing is measured here")
    }
}

/// Invented components: receiving 10 us, sending 30 us, a connection 60 us; the path as in the plan.
fn add_up(plan: &PredictPlan) -> PredictPart {
    let measured_component = |name: &str, us: f64| {
        let point = ComponentPoint { bytes: 0, count: 1, processes_s: us * 1e-6, cores_s: us * 2e-6, elapsed_s: None };
        MeasuredComponent::of(name, "invented", vec![point; 3]).unwrap()
    };
    let measured = MeasuredComponents {
        described: ComponentsPlan { parse: false, ..described(plan) },
        shape: Shape { close: true, request_bytes: 100.0, head_bytes: 100.0, ..Shape::default() },
        parts: vec![
            measured_component(part::RECEIVE, 10.0),
            measured_component(part::SEND, 30.0),
            measured_component(part::CONNECTION, 60.0),
        ],
        network: Network::of_tests(),
        cold: None,
        disk: None,
    };
    let interrupts = Interrupts::install().unwrap();
    let mut stage = Silent;
    let mut measuring = Measuring::new(plan, "", &interrupts, &mut stage, None);
    let mut predict = PredictPart::default();
    let checks = measured.add_up(plan, &mut measuring, &mut predict, true).unwrap();
    assert!(checks.iter().all(|check| check.state == schema::CheckState::Ok), "{checks:?}");
    predict
}

#[test]
fn sum_of_components_gives_limits_like_a_measured_cost() {
    let near = |actual: f64, expected: f64| assert!((actual / expected - 1.0).abs() < 1e-6, "{actual} {expected}");
    // 100 us per request, 200 with receive processing: a core does 5,000, a tenth of one 1,000.
    let whole = add_up(&plan_with("close = true\n"));
    near(whole.rate_per_s.unwrap(), 5000.0);
    assert_eq!(whole.bound_by, "cores");
    let tenth = add_up(&plan_with("close = true\n[components]\ncpu = \"10%\"\n"));
    near(tenth.rate_per_s.unwrap(), 1000.0);
    assert_eq!(tenth.bound_by, "cpu_quota");
    near(add_up(&plan_with("close = true\n[components]\nthreads = 2\n")).rate_per_s.unwrap(), 10_000.0);
    // 100 ms away, request and response in the first window: a worker is occupied for one round trip after accepting.
    let far = "close = true\n[path]\nrtt = \"100ms\"\n[components]\nworkers = 5\n";
    let far = add_up(&plan_with(far));
    assert_eq!(far.bound_by, "workers");
    near(far.rate_per_s.unwrap(), 5.0 / (0.1 + 100e-6));
    // A link of 80 kbit/s for each of 100 clients: 100 x 10 kB/s for 10 kB and packet headers.
    let narrow = add_up(&plan_with("close = true\nclients = 100\n[path]\nrtt = \"10ms\"\ndown = \"80kbit\"\n"));
    assert_eq!(narrow.bound_by, "link_down");
    near(narrow.rate_per_s.unwrap(), 100.0 * 10_000.0 / 10_100.0);
    let sum = whole.component_sum.unwrap();
    near(sum.processes_s, 100e-6);
    near(sum.cores_s, 200e-6);
    assert!(
        sum.described.contains("one connection per request") && sum.assumes[0].contains("NTT DIRECTORY"),
        "{sum:?}"
    );
    assert!(!whole.components.is_empty() && whole.assumes == sum.assumes && sum.cost_error.is_none());
}

#[test]
fn both_predictions_are_compared_with_the_measured_rate() {
    let mut predict = add_up(&plan_with("close = true\n"));
    add_measured(&mut predict, Some(4000.0));
    let sum = predict.component_sum.as_ref().unwrap();
    assert!((sum.error.unwrap() - 0.25).abs() < 1e-9);
    assert!(predict.notes[0].contains("25.0 % too high"), "{:?}", predict.notes);
    add_measured(&mut predict, None);
    assert_eq!(predict.component_sum.unwrap().error, None);
}

#[test]
fn example_plan_of_components_is_valid() {
    let text = include_str!("../../../../../plans/components-directory.toml");
    let plan = Plan::from_toml(text, "plans/components-directory.toml").unwrap();
    let plan = PredictPlan { plan, options: PredictOptions { components: true, ..PredictOptions::default() } };
    plan.check().unwrap();
    assert!(plan.plan.components.is_some_and(|parts| parts.workers == Some(50)));
}
