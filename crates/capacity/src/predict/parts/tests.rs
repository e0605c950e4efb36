//! Sums with what follows from them, and what is refused.

use plan::Plan;
use schema::PartPoint;
use sys::signal::Interrupts;

use super::*;
use crate::predict::PredictOptions;

fn asked(more: &str) -> PredictPlan {
    let text = format!("[load]\nurl = \"http://server:8080/\"\nduration = \"1s\"\n{more}");
    PredictPlan {
        plan: Plan::from_toml(&text, "plan").unwrap(),
        asked: PredictOptions { parts: true, ..PredictOptions::default() },
    }
}

#[test]
fn a_server_that_is_only_described_is_enough() {
    assert!(asked("").check().is_ok());
    assert!(asked("[parts]\nlog = \"line\"\nwaits = \"threads\"\n").check().is_ok());
    let refused = |plan: &PredictPlan| plan.check().unwrap_err().to_string();
    let mut without = asked("");
    without.asked.parts = false;
    assert!(refused(&without).contains("--parts"));
    let with = |change: fn(&mut PredictPlan)| {
        let mut plan = asked("");
        change(&mut plan);
        refused(&plan)
    };
    assert!(with(|plan| plan.asked.disk = true).contains("--cold"));
    assert!(with(|plan| plan.asked.parts_folder = Some("/nowhere/at all".into())).contains("no such folder"));
    assert!(with(|plan| plan.plan.load.http = HttpVersion::Http2).contains("HTTP/1"));
    assert!(with(|plan| plan.asked.check = true).contains("--server"));
    assert!(
        Plan::from_toml("[load]\nurl = \"http://server/\"\nduration = \"1s\"\n[parts]\nthreads = 0\n", "x").is_err()
    );
    assert!(
        Plan::from_toml("[load]\nurl = \"http://server/\"\nduration = \"1s\"\n[parts]\nthread = 1\n", "x").is_err()
    );
}

#[test]
fn its_time_is_told_beforehand() {
    let kept = asked("").time();
    let close = asked("close = true\n").time();
    // Six loads of three runs of 2 s, and what each takes besides.
    assert!(kept > Duration::from_secs(36) && kept < Duration::from_secs(75), "{kept:?}");
    assert!(close > kept + Duration::from_secs(6), "{close:?}");
}

#[test]
fn only_parts_that_a_request_has_are_measured() {
    let names = |parts: &PartsPlan, shape: &Shape| -> Vec<&'static str> {
        wanted(parts, shape).into_iter().map(|(name, ..)| name).collect()
    };
    let shape = Shape { request_bytes: 50.0, ..Shape::default() };
    assert_eq!(names(&PartsPlan::default(), &shape), ["parse"]);
    assert!(names(&PartsPlan { parse: false, ..PartsPlan::default() }, &shape).is_empty());
    let plan = asked("close = true\n[parts]\nbody = \"sendfile\"\nlog = \"buffered\"\ncold = \"10%\"\n").plan;
    let secure = Shape { tls: true, close: true, ..shape };
    let all = names(&plan.parts.clone().unwrap(), &secure);
    let wanted_names = [
        "parse",
        "open-read",
        "open",
        "open-read-cold",
        "log-buffered",
        "records",
        "handshake-full",
        "handshake-resumed",
    ];
    assert_eq!(all, wanted_names);
    // Whatever is added up was measured, or comes from the network.
    for terms in [sum::terms(&plan.parts.unwrap(), &secure, 1e4), sum::terms(&PartsPlan::default(), &shape, 1e4)] {
        for (name, ..) in terms {
            let of_network = [part::RECEIVE, part::SEND, part::CONNECTION].contains(&name);
            assert!(of_network || all.contains(&name), "{name}");
        }
    }
    // A head that is shorter than any that can be read is taken as the shortest.
    let (_, _, sizes) = &wanted(&PartsPlan::default(), &shape)[0];
    assert_eq!(sizes[..], [96]);
}

struct Silent;

impl experiment::Stage for Silent {
    fn begin(&mut self, _: &str) -> Box<dyn testbed::Observer> {
        unreachable!("nothing is measured here")
    }
}

/// Parts that are made up: receiving 10 us, sending 30 us, a connection 60 us; the path as it is in the plan.
fn add_up(plan: &PredictPlan) -> PredictPart {
    let priced = |name: &str, us: f64| {
        let point = PartPoint { bytes: 0, count: 1, processes_s: us * 1e-6, cores_s: us * 2e-6, elapsed_s: None };
        Priced::of(name, "made up", vec![point; 3]).unwrap()
    };
    let measured = PartsMeasured {
        described: PartsPlan { parse: false, ..described(plan) },
        shape: Shape { close: true, request_bytes: 100.0, head_bytes: 100.0, ..Shape::default() },
        parts: vec![priced(part::RECEIVE, 10.0), priced(part::SEND, 30.0), priced(part::CONNECTION, 60.0)],
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
fn a_sum_is_answered_like_any_other_cost() {
    let near = |got: f64, wanted: f64| assert!((got / wanted - 1.0).abs() < 1e-6, "{got} {wanted}");
    // 100 us for a request, 200 with receiving: a core takes 5,000, a tenth of one 1,000.
    let whole = add_up(&asked("close = true\n"));
    near(whole.rate_per_s.unwrap(), 5000.0);
    assert_eq!(whole.bound_by, "cores");
    let tenth = add_up(&asked("close = true\n[parts]\ncpu = \"10%\"\n"));
    near(tenth.rate_per_s.unwrap(), 1000.0);
    assert_eq!(tenth.bound_by, "cpu_quota");
    near(add_up(&asked("close = true\n[parts]\nthreads = 2\n")).rate_per_s.unwrap(), 10_000.0);
    // 100 ms away, a request and its answer in the first window: a worker is held for one round trip after it was accepted.
    let far = "close = true\n[path]\nrtt = \"100ms\"\n[parts]\nworkers = 5\n";
    let far = add_up(&asked(far));
    assert_eq!(far.bound_by, "workers");
    near(far.rate_per_s.unwrap(), 5.0 / (0.1 + 100e-6));
    // A link of 80 kbit/s that 100 clients have each: 100 x 10 kB/s for 10 kB and what packets add.
    let narrow = add_up(&asked("close = true\nclients = 100\n[path]\nrtt = \"10ms\"\ndown = \"80kbit\"\n"));
    assert_eq!(narrow.bound_by, "link_down");
    near(narrow.rate_per_s.unwrap(), 100.0 * 10_000.0 / 10_100.0);
    let sum = whole.sum.unwrap();
    near(sum.processes_s, 100e-6);
    near(sum.cores_s, 200e-6);
    assert!(sum.described.contains("a connection for each request") && sum.assumes[0].contains("P3"), "{sum:?}");
    assert!(!whole.parts.is_empty() && whole.assumes == sum.assumes && sum.cost_error.is_none());
}

#[test]
fn both_predictions_stand_beside_what_was_measured() {
    let mut predict = add_up(&asked("close = true\n"));
    beside(&mut predict, Some(4000.0));
    let sum = predict.sum.as_ref().unwrap();
    assert!((sum.error.unwrap() - 0.25).abs() < 1e-9);
    assert!(predict.notes[0].contains("25.0 % too high"), "{:?}", predict.notes);
    beside(&mut predict, None);
    assert_eq!(predict.sum.unwrap().error, None);
}

#[test]
fn the_example_is_one() {
    let text = include_str!("../../../../../plans/parts-directory.toml");
    let plan = Plan::from_toml(text, "plans/parts-directory.toml").unwrap();
    let plan = PredictPlan { plan, asked: PredictOptions { parts: true, ..PredictOptions::default() } };
    plan.check().unwrap();
    assert!(plan.plan.parts.is_some_and(|parts| parts.workers == Some(50)));
}
