//! Typed phases and sweeps become rates over time, and a plan writes them out.

use super::*;
use crate::Plan;

fn phases(typed: &[&str]) -> Result<LoadPlan, String> {
    let mut load = LoadPlan::get("http://h/");
    load.phases = typed.iter().map(|phase| phase.parse()).collect::<Result<_, _>>()?;
    load.settle_phases();
    load.check_arrivals()?;
    Ok(load)
}

#[test]
fn phases_as_typed_become_a_rate_over_time() {
    let load = phases(&[
        "30s at 100/s",
        "10s ramp to 1000/s",
        "spike 5s at 2000/s",
        "20s",
        "down: 5s to 0/s",
        "step 1s at 600/m",
    ])
    .unwrap();
    let names: Vec<&str> = load.phases.iter().map(|phase| phase.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["100/s", "100/s to 1000/s", "spike 2000/s", "1000/s", "down", "10/s"]);
    assert_eq!(load.duration, Some(Duration::from_secs(71)));
    let rate = load.rate_over_time().unwrap().unwrap();
    let at = |second: f64| rate.per_second(Duration::from_secs_f64(second));
    assert_eq!(
        [0.0, 29.9, 35.0, 42.0, 46.0, 64.9, 67.5, 70.0].map(at),
        [100.0, 100.0, 550.0, 2000.0, 1000.0, 1000.0, 500.0, 10.0]
    );
    let steady: Vec<bool> = load.phases.iter().map(PhasePlan::is_steady).collect();
    assert_eq!(steady, [true, false, true, true, false, true]);
}

#[test]
fn equal_phases_get_different_names() {
    let load = phases(&["1s at 5/s", "1s", "5/s (2): 1s", "1s"]).unwrap();
    let names: Vec<&str> = load.phases.iter().map(|phase| phase.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["5/s", "5/s (3)", "5/s (2)", "5/s (4)"]);
}

#[test]
fn contradicting_phases_are_refused_with_the_grammar() {
    for (typed, why) in [
        (vec!["at 100/s"], "has no duration"),
        (vec!["10s 5s at 1/s"], "second duration"),
        (vec!["10s at"], "rate is missing"),
        (vec!["10s at 5"], "110/s"),
        (vec!["10s at 1/s to 2/s"], "one rate"),
        (vec!["10s at 1/s at 2/s"], "twice"),
        (vec!["ramp 10s at 1/s"], "needs its end rate"),
        (vec!["spike 10s to 5/s"], "only a ramp"),
        (vec!["hold step 10s at 5/s"], "second kind"),
        (vec!["10s from 5/s"], "needs its end rate"),
        (vec!["10s"], "has no rate"),
        (vec!["10s to 5/s"], "has no rate"),
        (vec!["0s at 5/s"], "duration is 0"),
        (vec!["5s at 0/s"], "all phases offer 0/s"),
        (vec!["a: 5s at 1/s", "a: 5s at 2/s"], "same name"),
    ] {
        let error = phases(&typed).unwrap_err();
        assert!(error.contains(why), "{typed:?}: {error}");
    }
    assert!("10s at".parse::<PhasePlan>().unwrap_err().contains("such as '30s at 100/s'"));
}

#[test]
fn a_sweep_becomes_steps() {
    let texts = |typed: &str| -> Vec<String> {
        let steps = sweep(typed, Duration::from_secs(2)).unwrap();
        steps.iter().map(|step| step.rate.unwrap().to_string()).collect()
    };
    assert_eq!(texts("100..400/s:100/s"), ["100/s", "200/s", "300/s", "400/s"]);
    assert_eq!(texts("300/s..100/s:150"), ["300/s", "150/s"]);
    assert_eq!(texts("1..1.35/s:0.1").len(), 4);
    assert_eq!(texts("60/m..240:60"), ["1/s", "2/s", "3/s", "4/s"]);
    for bad in ["100", "1..2", "1..5:1", "0..5/s:1/s", "1..5/s:0", "1..100000/s:1", "a..b:c"] {
        assert!(sweep(bad, Duration::from_secs(1)).is_err(), "{bad}");
    }
}

const PLAN: &str = r#"
[load]
url = "http://h/"
arrivals = { bursts = { factor = 3.0, on = "2s", off = "6s" } }

[[load.phases]]
duration = "10s"
rate = "100/s"

[[load.phases]]
name = "up"
duration = "5s"
to = "300/s"
"#;

#[test]
fn phases_are_written_out_in_full_and_read_back() {
    let plan = Plan::from_toml(PLAN, "x").unwrap();
    let expected =
        ArrivalKind::Bursts(BurstsPlan { factor: 3.0, on: Duration::from_secs(2), off: Duration::from_secs(6) });
    assert_eq!(plan.load.arrivals, expected);
    assert_eq!(plan.load.duration, Some(Duration::from_secs(15)));
    let text = plan.to_toml();
    assert!(text.contains("kind = \"ramp\"") && text.contains("from = \"100/s\""), "{text}");
    assert_eq!(Plan::from_toml(&text, "again").unwrap(), plan);
}

#[test]
fn contradicting_arrivals_are_refused_with_a_hint() {
    let message = |extra: &str| {
        let text = format!("[load]\nurl = \"http://h/\"\n{extra}");
        Plan::from_toml(&text, "x").unwrap_err().to_string()
    };
    let phase = "[[load.phases]]\nduration = \"5s\"\nrate = \"1/s\"\n";
    for (extra, why) in [
        (format!("rate = \"1/s\"\n{phase}"), "rate and phases both"),
        (format!("duration = \"9s\"\n{phase}"), "5s together"),
        ("duration = \"9s\"\narrivals = \"poisson\"".to_owned(), "needs a rate"),
        ("rate = \"1/s\"\nduration = \"1s\"\narrivals = { bursts = { factor = 11.0 } }".to_owned(), "from 1 to 10"),
        ("rate = \"1/s\"\nduration = \"1s\"\narrivals = { self_similar = { alpha = 2.0 } }".to_owned(), "alpha"),
        ("rate = \"1/s\"\nduration = \"1s\"\narrivals = { bursts = { factr = 2.0 } }".to_owned(), "factr"),
        (format!("rate_file = \"x\"\n{phase}"), "phases and rate_file"),
        ("arrivals = \"poisson\"\n[load.replay]\nfile = \"x\"".to_owned(), "the log's own arrivals"),
        ("[load.replay]\nfile = \"x\"\ntime_scale = 0.0".to_owned(), "time_scale"),
        ("[load.replay]\nfile = \"x\"\nloops = 0".to_owned(), "loops"),
    ] {
        let message = message(&extra);
        assert!(message.contains(why), "{extra}: {message}");
    }
}
