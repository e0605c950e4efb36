//! The testbed's gateway: measured figures equal the configured ones.

use std::fs;

use crate::support::workspace::{Workspace, str_of};
use serde_json::Value;

/// Measures a plan with one condition; returns that condition. The machine's noise can make the result suspect, so the
/// test checks the figures.
fn condition(workspace: &Workspace, plan: &str) -> Value {
    let file = workspace.file("plan.toml");
    fs::write(&file, plan).unwrap();
    let document = workspace.run_json(&["run", str_of(&file), "--json"]);
    let conditions = document["gateway"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "{document}");
    conditions[0].clone()
}

#[test]
fn gateway_stream_reaches_the_link_rate() {
    let workspace = Workspace::new();
    let plan = "[gateway]\nconditions = [\"nat\"]\nlinks = [\"10Mbit\"]\nshare = \"none\"\ntests = [\"stream\"]\ntrials = 3\n\
                lasts = \"1s\"\ndirection = \"up\"\nsurvey = false\nsocket_bytes = \"auto\"\n";
    let condition = condition(&workspace, plan);
    // 1448 of 1500 bytes are payload: IP has 20 bytes, TCP with timestamps 32.
    let expected = 10.0 * 1448.0 / 1500.0;
    // Other load on the machine lowers the rate of a trial; a stall before its first second raises it.
    let trials = condition["mbit_per_s"]["trials"].as_array().unwrap();
    let is_exact = |rate: &Value| (rate.as_f64().unwrap() / expected - 1.0).abs() <= 0.03;
    assert!(trials.iter().any(is_exact), "{expected}: {condition}");
    assert_eq!(condition["bound_by"]["stream_up"], "link", "{condition}");
    // On a stalled machine the stall is a finding.
    let findings = condition["findings"].as_array().into_iter().flatten();
    assert_eq!(findings.filter(|finding| finding["name"] != "stall").count(), 0, "{condition}");
}

#[test]
fn gateway_measures_a_known_loss() {
    let workspace = Workspace::new();
    let plan = "[gateway]\nconditions = [\"none\"]\nlinks = [\"100Mbit,loss=2%\"]\nshare = \"none\"\ntests = [\"transactions\"]\n\
                trials = 1\nlasts = \"500ms\"\ndirection = \"up\"\n";
    let condition = condition(&workspace, plan);
    // Both links lose 2 % of at least 1000 packets: within five standard deviations.
    let (loss, sent) = (1.0 - 0.98 * 0.98, 1000.0);
    let bound = 5.0 * f64::sqrt(loss * (1.0 - loss) / sent);
    let seen = condition["floor"]["up"].as_f64().unwrap();
    assert!((seen - loss).abs() <= bound, "{seen} of {loss} +-{bound}: {condition}");
    // On a stalled machine there are other findings, too.
    let findings = condition["findings"].as_array().unwrap();
    let finding = findings.iter().find(|finding| finding["name"] == "loss_random");
    let finding = finding.unwrap_or_else(|| panic!("{condition}"));
    assert!(finding["words"].as_str().unwrap().contains("configured loss of the links: "), "{finding}");
}

#[test]
fn programs_of_the_emulated_gateway_are_limited_to_its_memory() {
    let workspace = Workspace::new();
    let limit = 96 << 20;
    let plan = "[gateway]\nconditions = [\"nat-proxy-idle\"]\nlinks = [\"100Mbit\"]\nmemory = \"96MiB\"\ntests = [\"transactions\"]\n\
                trials = 1\nlasts = \"500ms\"\ndirection = \"up\"\nsurvey = false\n";
    let limited = condition(&workspace, plan);
    let most = limited["memory_max_bytes"].as_u64().unwrap();
    // squid alone needs more than a few megabytes.
    assert!((8 << 20..=limit).contains(&most), "{most} of {limit}: {limited}");

    let file = workspace.file("little.toml");
    fs::write(&file, plan.replace("96MiB", "4MiB")).unwrap();
    workspace.run(&["run", str_of(&file), "--json", "--no-save"]).refused(1, &["4MiB of memory (--gateway-memory)"]);
}
