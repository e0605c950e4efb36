//! `yamabiko predict` without privilege: prediction for a running service, and refused options.

use std::fs;

use crate::support::serving::Serving;
use crate::support::workspace::{Workspace, str_of};
use serde_json::Value;

#[test]
fn capacity_of_a_local_service_is_predicted_from_light_loads() {
    let workspace = Workspace::concurrent();
    let server = Serving::start(&workspace, &[]);
    let (url, pid) = (format!("http://{}/10k.bin", server.address), server.running.pid().to_string());
    let page = workspace.file("page.html");
    let words =
        ["--loads", "3", "--load-time", "400ms", "--warmup", "100ms", "--peak", "1000/s", "--users", "100", "--json"];
    let arguments = [&["predict", &url, "--server-pid", &pid, "--html", str_of(&page)], &words[..]].concat();
    let output = workspace.run(&arguments);
    output.assert_measured();
    assert_eq!(output.stderr, "", "{output}");
    let document = output.json();
    assert_eq!(document["schema"], "yamabiko.run/2");
    let predict = &document["predict"];
    let loads = predict["loads"].as_array().unwrap();
    assert_eq!(
        loads.iter().map(|load| load["kind"].as_str().unwrap()).collect::<Vec<_>>(),
        ["rough", "light", "light", "light"]
    );
    for load in loads {
        assert!(
            load["rate_per_s"].as_f64().unwrap() > 0.0 && load["busy_processes"].as_f64().unwrap() >= 0.0,
            "{load}"
        );
    }
    // Only the testbed can limit a server, and the error message states that.
    let checks = document["validity"]["checks"].as_array().unwrap();
    let behind = checks.iter().find(|check| check["name"] == "demand_when_behind").unwrap();
    assert_eq!(behind["state"], "could_not_run");
    // CPU time is counted in ticks, too coarse for such short runs: without a prediction the result states the reason.
    let known = checks.iter().find(|check| check["name"] == "demand_known").unwrap();
    if known["state"] == "ok" {
        let rate = predict["rate_per_s"].as_f64().unwrap();
        assert!(rate > 0.0 && predict["per_day"].as_f64().unwrap() > rate, "{predict}");
        assert_eq!(predict["bound_by"], "cores");
        assert!(predict["machines"]["with_headroom"].as_u64() > predict["machines"]["at_peak"].as_u64(), "{predict}");
        assert_eq!(predict["closed"].as_array().unwrap().last().unwrap()["users"], 100);
        assert!(predict["assumes"].as_array().unwrap().len() > 3, "{predict}");
        assert!(!predict["curve"].as_array().unwrap().is_empty());
    } else {
        assert_eq!(output.code, Some(3), "{output}");
        assert!(predict["rate_per_s"].is_null(), "{predict}");
    }
    // The run store, the screen and the page contain the same.
    let dir = document["run"]["dir"].as_str().unwrap();
    let stored: Value = serde_json::from_str(&fs::read_to_string(format!("{dir}/summary.json")).unwrap()).unwrap();
    assert_eq!(stored, document);
    let again = workspace.run(&["report", "last", "--json"]);
    assert_eq!((again.json(), again.code), (document, output.code));
    let screen = workspace.run(&["report", "last"]);
    assert!(screen.stdout.contains("predicted"), "{screen}");
    assert!(fs::read_to_string(page).unwrap().contains("<html"));
}

/// The command that `predict --components` starts for each component that needs no network.
#[test]
fn one_component_prints_its_service_demand() {
    let workspace = Workspace::concurrent();
    let folder = workspace.www();
    let words = ["--component-bytes", "1KB", "--component-rounds", "3", "--component-time", "1ms"];
    for part in ["parse", "open-read", "open", "open-read-cold", "log-line", "log-buffered"] {
        let output = workspace.run(&[&["serve", str_of(&folder), "--component", part], &words[..]].concat());
        assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""), "{part}: {output}");
        let rounds = output.json()["rounds"].as_array().unwrap().clone();
        assert_eq!(rounds.len(), 3, "{part}");
        for round in rounds {
            assert!(round["count"].as_u64().unwrap() > 0 && round["cpu_s"].as_f64().unwrap() > 0.0, "{part}: {round}");
        }
    }
    workspace.run(&["serve", str_of(&folder), "--component", "records"]).refused(2, &["certificate"]);
    // Its temporary files are removed.
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
}

#[test]
fn contradictory_predict_options_are_refused() {
    let workspace = Workspace::concurrent();
    let predict = |words: &[&str]| workspace.run(&[&["predict", "http://127.0.0.1:9/"], words].concat());
    predict(&[]).refused(1, &["--server", "--server-pid"]);
    let with = |words: &[&str]| predict(&[&["--server-pid", "1"], words].concat());
    with(&["--rate", "10/s"]).refused(1, &["--rate", "its own rates"]);
    with(&["-d", "10s"]).refused(1, &["--load-time"]);
    with(&["--loads", "2"]).refused(1, &["--loads", "3 to 20"]);
    with(&["--load-time", "10ms"]).refused(1, &["--load-time"]);
    with(&["--peak-to-mean", "0.5"]).refused(1, &["--peak-to-mean"]);
    assert_eq!(with(&["--hit", "http://127.0.0.1:9/"]).code, Some(1));
    // All components of a modelled server are modelled, or none.
    let parts = |words: &[&str]| predict(&[&["--components"], words].concat());
    parts(&["--object", "3KB:0"]).refused(1, &["--object", "share"]);
    parts(&["--object", "65MiB"]).refused(1, &["--object", "64MiB"]);
    parts(&["--cold", "10%"]).refused(1, &["--cold", "--model-body"]);
    parts(&["--model-waits", "io_uring", "--model-body", "sendfile"]).refused(1, &["sendfile", "--model-waits"]);
    parts(&["--model-threads", "0"]).refused(1, &["--model-threads"]);
    parts(&["--disk"]).refused(1, &["--cold"]);
    parts(&["--check", "--slo", "p99 < 1s"]).refused(1, &["--server"]);
    parts(&["--components-folder", "/nowhere/at/all"]).refused(1, &["--components-folder", "no such folder"]);
    assert_eq!(predict(&["--object", "3KB"]).code, Some(1), "--object needs --components");
    let plan = parts(&["--object", "3KB:3", "--object", "100KB", "--model-log", "line", "--print-plan"]);
    assert!(
        plan.code == Some(0) && plan.stdout.contains("[components]") && plan.stdout.contains("log = \"line\""),
        "{plan}"
    );
    // The printed plan reads back as the same plan.
    let file = workspace.file("described.toml");
    fs::write(&file, &plan.stdout).unwrap();
    let again = workspace.run(&["predict", str_of(&file), "--components", "--print-plan"]);
    assert!(again.code == Some(0) && again.stdout.contains("size = \"100KB\""), "{again}");
    // The run store is empty.
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
    let plan = with(&["--print-plan"]);
    assert!(plan.code == Some(0) && plan.stdout.contains("http://127.0.0.1:9/"), "{plan}");
}
