//! `yamabiko capacity` in the testbed, with servers of known capacity: 4 workers of 20 ms, 200/s; and one that accepts
//! 150 connections.

use std::path::Path;

use crate::support::document::assert_known_capacity;
use crate::support::workspace::Workspace;

/// The command of the model server, with further arguments.
fn model(more: &str) -> String {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/model-server/model.py");
    format!("exec python3 {} --listen 0.0.0.0:8080 {more}", model.display())
}

#[test]
fn a_known_capacity_lies_within_the_bracket() {
    let workspace = Workspace::new();
    let server = model("");
    let document = workspace.run_json(&[
        "capacity",
        "http://server:8080/",
        "--server",
        &server,
        "--slo",
        "p90 < 60ms, errors < 1%",
        "--start",
        "120/s",
        "--short",
        "1s",
        "--trial",
        "3s",
        "--confirm",
        "0s",
        "--width",
        "5%",
        "--searches",
        "1",
        "--warmup",
        "300ms",
        "--no-overload",
        "--no-limit",
        "--watch",
        "none",
        "--json",
    ]);
    let part = &document["capacity"];
    if !assert_known_capacity(&document) {
        return;
    }
    // The server's CPU is idle: its number of workers limits it, four by Little's law.
    assert_eq!(part["bound_by"]["name"], "workers", "{part:#}");
    let concurrent = part["bound_by"]["figures"]["concurrent_requests"].as_f64().unwrap();
    assert!((3.0..6.0).contains(&concurrent), "{concurrent}");
}

/// Refused connections do not depend on time: on any machine the bracket of a completed search contains the true
/// capacity.
#[test]
fn a_known_connection_capacity_lies_within_the_bracket() {
    let workspace = Workspace::new();
    let document = workspace.run_json(&[
        "capacity",
        "http://server:8080/",
        "--find",
        "connections",
        "--server",
        &model("--service 0.001 --connections 150"),
        "--slo",
        "p50 < 1s, errors < 5%",
        "--start",
        "120",
        "--max",
        "300",
        "--short",
        "1s",
        "--trial",
        "1s",
        "--confirm",
        "0s",
        "--width",
        "10%",
        "--searches",
        "1",
        "--warmup",
        "300ms",
        "--watch",
        "none",
        "--json",
    ]);
    let part = &document["capacity"];
    assert_eq!((part["find"].as_str(), part["unit"].as_str()), (Some("connections"), Some("connections")));
    let refused: Vec<f64> = part["trials"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|trial| trial["verdict"] == "bad")
        .map(|trial| trial["load"].as_f64().unwrap())
        .collect();
    assert!(refused.iter().all(|load| *load > 150.0), "{refused:?} of 150: {document:#}");
    if part["converged"] != true {
        // On a busy machine the result reports that the search did not complete.
        assert!(part["notes"].as_array().is_some_and(|notes| !notes.is_empty()), "{document:#}");
        return;
    }
    let (lower, upper) =
        (part["searches"][0]["lower"].as_f64().unwrap(), part["searches"][0]["upper"].as_f64().unwrap());
    assert!(lower <= 150.0 && upper > 150.0 && upper / lower <= 1.101, "{lower} {upper}");
    assert_eq!((part["result"].as_f64(), part["bound_by"]["name"].as_str()), (Some(lower), Some("connections")));
    let limit = part["generator_limit"]["load"].as_f64().unwrap();
    assert!(limit > 300.0 && part["generator_limit"]["how"] == "counted", "{part:#}");
}
