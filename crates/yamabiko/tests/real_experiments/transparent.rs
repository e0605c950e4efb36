//! Short reproductions of the experiments of transparent monitoring, with real curl, nginx and Apache. On a busy
//! machine costs are meaningless; every vantage point must have recorded every transfer, and the components must add
//! up.

use std::fs;

use serde_json::Value;

use crate::support::workspace::Workspace;

fn measured(document: &Value, setting: &str, quantity: &str) -> f64 {
    let rows = document["reproduce"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["setting"] == setting && row["quantity"] == quantity);
    let row = row.unwrap_or_else(|| panic!("no row {setting}, {quantity} in {document:#}"));
    row["measured"].as_f64().unwrap_or_else(|| panic!("no figure in {row:#}"))
}

/// States of the checks with this name, by run.
fn states<'a>(document: &'a Value, name: &str) -> Vec<&'a str> {
    let checks = document["validity"]["checks"].as_array().unwrap().iter();
    let named = checks.filter(|check| check["name"].as_str().unwrap().ends_with(name));
    named.map(|check| check["state"].as_str().unwrap()).collect()
}

#[test]
fn times_of_client_wire_and_log_agree() {
    let workspace = Workspace::new();
    let page = workspace.file("transparent.html");
    let document = workspace.run_json(&[
        "reproduce",
        "transparent",
        "-d",
        "1s",
        "-e",
        "2",
        "--json",
        "--html",
        page.to_str().unwrap(),
    ]);
    assert_eq!(states(&document, ": transfers seen at all three vantage points"), ["ok", "ok"], "{document:#}");
    for server in ["nginx", "Apache"] {
        let of = |quantity: &str| measured(&document, server, quantity);
        assert!(of("transfers") >= 2.0, "{document:#}");
        // Lower bound: 100 KB at 1.5 Mbit/s and two round trips. The time in the log cannot exceed the time at the
        // client.
        let (tc, log, difference) =
            (of("client's Tc, mean"), of("processing time in the log, mean"), of("difference, mean"));
        assert!(tc > 0.55 && log >= 0.0 && difference > 0.0, "{server}: {tc} {log} {difference}");
        assert!((tc - log - difference).abs() < 1e-6, "{server}: {tc} {log} {difference}");
        let parts = document["reproduce"]["rows"].as_array().unwrap().iter().filter(|row| {
            row["setting"] == server
                && row["quantity"].as_str().is_some_and(|quantity| quantity.starts_with("of that: "))
        });
        let parts: f64 = parts.map(|row| row["measured"].as_f64().unwrap()).sum();
        assert!((parts - difference).abs() < 1e-6, "{server}: the parts are {parts} of {difference} s");
        assert!(of("of that: set-up") >= 0.010, "the set-up includes a round trip");
    }
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("time at the client, and time in the log") && html.contains("up to about 28"));
}

#[test]
fn reproduce_transparent_runs_with_and_without_the_tap() {
    let workspace = Workspace::new();
    let document = workspace.run_json(&["reproduce", "transparent", "-d", "1s", "-e", "1", "--json"]);
    // One run of each kind on each link.
    assert_eq!(states(&document, ": complete responses on the wire"), ["ok"; 4], "{document:#}");
    assert_eq!(states(&document, ": exchanges seen by the tap"), ["ok"; 2], "{document:#}");
    assert_eq!(document["reproduce"]["runs"].as_array().unwrap().len(), 4);
    // Lower bound with and without the tap: 100 KB and its head at 10 Mbit/s.
    for quantity in ["throughput without the tap", "throughput with the tap"] {
        let mb_per_s = measured(&document, "10 Mbit/s, 100 KB", quantity);
        assert!((0.1..1.25).contains(&mb_per_s), "{quantity}: {mb_per_s} MB/s");
        assert!(measured(&document, "no limit, 10 MB", quantity) > 1.25, "{quantity}");
    }
    let id = document["run"]["id"].as_str().unwrap();
    let text = workspace.run(&["report", id]).stdout;
    assert!(text.contains("throughput cost of the tap") && text.contains("at most about 10"), "{text}");
}
