//! Small runs of `reproduce emulators`. On a busy machine figures are meaningless; every part must run, and a peer that
//! is not found must be stated.

use std::fs;

use serde_json::Value;

use crate::support::workspace::Workspace;

/// The figures of yamabiko by experiment and quantity.
fn measured(document: &Value, setting: &str) -> Vec<(String, String, Option<f64>)> {
    let rows = document["reproduce"]["rows"].as_array().unwrap();
    let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let of = rows.iter().filter(|row| row["setting"] == setting);
    of.map(|row| (text(row, "experiment"), text(row, "quantity"), row["measured"].as_f64())).collect()
}

#[test]
fn reproduce_emulators_measures_every_part_without_peers() {
    let workspace = Workspace::new();
    let page = workspace.file("emulators.html");
    let mut words = vec!["reproduce", "emulators", "--rounds", "1", "-d", "1s", "--json", "--html"];
    words.push(page.to_str().unwrap());
    words.extend(["--only", "rtt,loss,trace,flow,depth,density"]);
    words.extend(["--rates", "10Mbit", "--depths", "2", "--paths", "4"]);
    let document = workspace.run_json(&words);
    let ours = measured(&document, "yamabiko");
    for (experiment, quantity, value) in &ours {
        assert!(value.is_some(), "{experiment}, {quantity}: {document:#}");
    }
    for part in [
        "RTT 48 ms, 500",
        "RTT 48 ms, 20000",
        "loss 1 %",
        "loss by Gilbert",
        "trace of",
        "figure 5",
        "figure 6",
        "figure 7",
    ] {
        assert!(ours.iter().any(|(experiment, ..)| experiment.starts_with(part)), "{part}: {document:#}");
    }
    let figure = |experiment: &str, quantity: &str| {
        let is = |row: &&(String, String, Option<f64>)| row.0.starts_with(experiment) && row.1 == quantity;
        ours.iter().find(is).and_then(|row| row.2).unwrap_or_else(|| panic!("{experiment}, {quantity}: {document:#}"))
    };
    assert!(figure("RTT 48 ms, 500", "RTT error p50") >= 0.0, "a delay is never shorter than configured");
    assert!(figure("figure 5", "throughput, of the links") < 101.0, "a rate is never exceeded");
    assert!((0.5..1.5).contains(&figure("loss 1 %", "loss")));
    // The test's machine may have the peers on PATH.
    for peer in ["mahimahi", "rattan"] {
        assert!(!measured(&document, peer).is_empty(), "a peer is measured, or stated as not run: {document:#}");
    }
    assert!(fs::read_to_string(&page).unwrap().contains("<figure"));
    let id = document["run"]["id"].as_str().unwrap();
    assert_eq!(workspace.run_json(&["report", id, "--json"]), document);
}

#[test]
fn invalid_options_of_reproduce_emulators_are_refused() {
    let workspace = Workspace::concurrent();
    let wrong = [
        &["emulators", "-d", "10ms"][..],
        &["emulators", "-d", "11m"],
        &["emulators", "--only", "everything"],
        &["emulators", "--depths", "67"],
        &["emulators", "--rates", "fast"],
        &["emulators", "--paths", "0"],
        &["emulator-probe", "{\"probe\":\"unknown\"}"],
    ];
    for arguments in wrong {
        let output = workspace.run(&[&["reproduce"], arguments].concat());
        assert_eq!(output.code, Some(1), "{arguments:?}: {output}");
        assert_eq!(output.stderr.lines().count(), 1, "{arguments:?}: {output}");
    }
}
