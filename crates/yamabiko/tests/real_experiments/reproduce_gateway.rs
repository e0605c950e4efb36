//! A short reproduction of the caches of the school gateway study: squid in the testbed, with CPU and memory limits. On
//! a busy machine rates are meaningless; every part must run, and the document must be consistent.

use std::fs;

use serde_json::Value;

use crate::support::workspace::Workspace;

fn row<'a>(document: &'a Value, experiment: &str, setting: &str, quantity: &str) -> &'a Value {
    let rows = document["reproduce"]["rows"].as_array().unwrap();
    let is = |row: &&Value| row["experiment"] == experiment && row["setting"] == setting && row["quantity"] == quantity;
    rows.iter().find(is).unwrap_or_else(|| panic!("no row {experiment}, {setting}, {quantity} in {document:#}"))
}

#[test]
fn reproduce_gateway_measures_a_point_and_a_class() {
    let workspace = Workspace::new();
    let page = workspace.file("gateway.html");
    let words =
        ["reproduce", "gateway", "-d", "2s", "-o", "small,class", "-r", "20/s", "--factor", "10", "--json", "--html"];
    let document = workspace.run_json(&[&words[..], &[page.to_str().unwrap()]].concat());
    let small = |quantity: &str| row(&document, "small, 10 Mbit/s", "20/s", quantity);
    assert_eq!(
        (small("document hit ratio")["published"].as_str(), small("error ratio")["published"].as_str()),
        (Some("32.6"), Some("48.8"))
    );
    // 200/s were offered; 4 % of a core do not achieve them, and the achieved rate never exceeds the offered one.
    let measured = small("responses per second, unconverted")["measured"].as_f64().unwrap();
    assert!(measured > 0.0 && measured < 260.0, "{document:#}");
    assert!((small("responses per second, over F")["measured"].as_f64().unwrap() * 10.0 - measured).abs() < 1e-6);
    // The CPU limit holds, except for the overrun of one period.
    let used = small("CPU used, of its limit")["measured"].as_f64().unwrap();
    assert!(used < 130.0, "{used} % of the share");
    let class = row(&document, "a class, small, 10 Mbit/s", "40/s", "document hit ratio");
    assert_eq!(class["published"], "near 100");
    assert_eq!(row(&document, "the scale", "", "F: time runs this many times as fast")["measured"], 10.0);
    let html = fs::read_to_string(&page).unwrap();
    // A machine without timely responses has no hit ratio; the published error rate is always there.
    assert!(html.contains("Error ratio") && html.contains("small, 10 Mbit/s, published"));
    let id = document["run"]["id"].as_str().unwrap();
    assert_eq!(workspace.run_json(&["report", id, "--json"]), document);
    let text = workspace.run(&["report", id]).stdout;
    assert!(text.contains("the paper") && text.contains("Type1"), "{text}");
}

#[test]
fn invalid_options_of_reproduce_gateway_are_refused() {
    let workspace = Workspace::concurrent();
    for arguments in [
        &["-r", "7/s"][..],
        &["-d", "1s"],
        &["--factor", "0.5"],
        &["-o", "everything"],
        &["--full", "-d", "9s"],
        &["--full", "--trials", "2"],
        &["--factor-forwarding", "0"],
        &["--stream", "900ms"],
        &["--trials", "0"],
        &["--clients", "0"],
        &["--load", "curl"],
    ] {
        let output = workspace.run(&[&["reproduce", "gateway"], arguments].concat());
        assert_eq!(output.code, Some(1), "{arguments:?}: {output}");
        assert_eq!(output.stderr.lines().count(), 1, "{arguments:?}: {output}");
    }
}
