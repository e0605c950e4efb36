//! Which loads are planned, and which loads figures are based on.

use super::load_result::pause_s;
use super::*;

#[test]
fn loads_are_evenly_spaced_between_their_ends() {
    assert_eq!(
        spread(SATURATED_SHARES, 4).iter().map(|part| (part * 10.0).round() as u32).collect::<Vec<_>>(),
        [5, 6, 8, 9]
    );
    assert_eq!(spread((0.0, 1.0), 1), [0.0, 1.0]);
    assert_eq!(share_of(0.2).unwrap().cores(), 0.2);
    // 1 ms of 5, 1 of 10; three halves of a core never pause.
    let pauses_ms = [0.2, 0.1, 1.5].map(|cores| (pause_s(share_of(cores)) * 1e3).round());
    assert_eq!((pauses_ms, pause_s(None)), ([4.0, 9.0, 0.0], 0.0));
    assert_eq!(core_list("0,2-4,7"), [0, 2, 3, 4, 7]);
    assert!(core_list("").is_empty());
}

#[test]
fn each_request_of_a_plan_is_a_class_with_a_share() {
    let text = "[load]\nurl = \"http://server/\"\nduration = \"1s\"\n\
                [[load.request]]\nurl = \"/a\"\nweight = 3\n[[load.request]]\nname = \"b\"\nurl = \"/b\"\n[server]\ncommand = \"true\"\n\
                [path]\nrtt = \"0ms\"\n";
    let plan = Plan::from_toml(text, "plan").unwrap();
    let classes = classes(&plan);
    let names: Vec<(&str, f64)> = classes.iter().map(|(class, share)| (class.name.as_str(), *share)).collect();
    assert_eq!(names, [("/a", 0.75), ("b", 0.25)]);
    assert!(classes.iter().all(|(class, _)| class.load.request.len() == 1 && class.load.request[0].weight.is_none()));
    let one = Plan::from_toml("[load]\nurl = \"http://127.0.0.1/x\"\nduration = \"1s\"\n", "plan").unwrap();
    assert_eq!(super::classes(&one)[0].0.name, "http://127.0.0.1/x");
}

fn load(rate_per_s: f64, busy: f64, failed: &[&str]) -> LoadResult {
    LoadResult {
        number: 0,
        part: MeasuredLoad {
            verdict: "valid".into(),
            rate_per_s,
            busy_processes: busy,
            busy_cores: busy * 1.5,
            handshakes_full: Some(25),
            handshakes_resumed: Some(75),
            connections_each: 1.0,
            failed: failed.iter().map(ToString::to_string).collect(),
            ..MeasuredLoad::default()
        },
        traffic: None,
        completed: 0,
        request_bytes: 0.0,
        rss_bytes: 0,
        descriptors: None,
        kernel_bytes_each: None,
        connection_s: 0.0,
        connect_s: 0.0,
        loop_busy: 0.0,
        longer_pause_s: 0.0,
    }
}

#[test]
fn disturbed_loads_are_excluded_while_enough_remain() {
    let of = |verdicts: &[&str]| -> Vec<LoadResult> {
        let load = |verdict: &&str| {
            let mut load_result = load(1.0, 0.1, &[]);
            load_result.part.verdict = (*verdict).into();
            load_result
        };
        verdicts.iter().map(load).collect()
    };
    let used_verdicts = |verdicts: &[&str], least: usize| -> Vec<String> {
        let (used, out) = counted(of(verdicts), least);
        assert_eq!(used.len() + out.len(), verdicts.len());
        used.into_iter().map(|load_result| load_result.part.verdict).collect()
    };
    let (v, s, i) = ("valid", "suspect", "invalid");
    assert_eq!(used_verdicts(&[v; 5], 3), [v; 5]);
    // At most a fifth may be excluded.
    assert_eq!(used_verdicts(&[v, s, v, v, v], 3), [v; 4]);
    assert_eq!(used_verdicts(&[v, s, s, v, v], 3), [v, s, s, v, v]);
    assert_eq!(used_verdicts(&[v, s, v, v], 3), [v, s, v, v]);
    // Invalid loads are excluded as long as enough remain.
    assert_eq!(used_verdicts(&[v, i, i, v, s], 3), [v, v, s]);
    assert_eq!(used_verdicts(&[v, i, i, i, s], 3), [v, i, i, i, s]);
    assert_eq!(used_verdicts(&[i, v, v], 2), [v; 2]);
    // Loads without information never count.
    let mut unsound = of(&[v, v]);
    unsound[0].part.failed = vec!["failures".into()];
    assert_eq!(counted(unsound, 3).0.len(), 1);
    assert!(counted(Vec::new(), 2).0.is_empty());
}

#[test]
fn failed_loads_give_no_cost() {
    let light = [1.0, 2.0, 3.0, 4.0].map(|rate| load(rate, rate * 0.01, &[]));
    let saturated = [
        load(5.0, 0.04, &[]),
        load(10.0, 0.08, &[]),
        load(10.0, 0.9, &["error_rate"]),
        load(20.0, 0.16, &["steady_state"]),
    ];
    let measured = measured(&light, &saturated);
    assert!((measured.processes.slope().unwrap().value - 0.01).abs() < 1e-9);
    assert!((measured.processes.saturated.unwrap().value - 0.008).abs() < 1e-9);
    assert!((measured.cores.saturated.unwrap().value - 0.012).abs() < 1e-9);
    assert_eq!((measured.points, measured.rate_max), ((4, 3), 20.0));
    // Half of receive processing may belong to other programs.
    let doubtful = |mut load_result: LoadResult| {
        load_result.part.busy_cores_interval = Some([load_result.part.busy_processes, load_result.part.busy_cores]);
        load_result
    };
    let (light, saturated) = (light.map(doubtful), saturated.map(doubtful));
    let doubted = super::measured(&light, &saturated);
    let half = |cost: &ClassCost| (cost.slope().unwrap().half, cost.saturated.unwrap().half);
    assert_eq!(half(&doubted.processes), half(&measured.processes));
    assert!((half(&doubted.cores).0 - half(&measured.cores).0 - 0.0025).abs() < 1e-9);
    assert!((half(&doubted.cores).1 - half(&measured.cores).1 - 0.002).abs() < 1e-9);
    assert_eq!(measured.resumed, (Some(0.75), Some(0.75)));
}
