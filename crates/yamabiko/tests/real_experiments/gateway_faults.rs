//! Gateways with one fault each, which the result must report.

use crate::support::workspace::{Running, Workspace};
use serde_json::Value;

/// Starts `gateway` with this condition and set-up script.
fn start(workspace: &Workspace, condition: &str, setup: &str, duration: &str) -> Running {
    let words = [
        "gateway",
        "--condition",
        condition,
        "--link",
        "unlimited",
        "--gateway-cpu",
        "none",
        "--tests",
        "transactions",
    ];
    let more = ["--trials", "1", "--direction", "up", "--json", "-d", duration, "--setup", setup];
    workspace.start(&[&words[..], &more[..]].concat())
}

/// The findings of the result's condition, with their names.
fn findings(running: Running) -> Vec<(String, Value)> {
    findings_of(&running.finish().assert_measured().json())
}

fn findings_of(document: &Value) -> Vec<(String, Value)> {
    let found = document["gateway"]["conditions"][0]["findings"].as_array().cloned().unwrap_or_default();
    found.into_iter().map(|finding| (finding["name"].as_str().unwrap().to_owned(), finding)).collect()
}

fn named<'a>(found: &'a [(String, Value)], name: &str) -> &'a Value {
    &found.iter().find(|(finding, _)| finding == name).unwrap_or_else(|| panic!("{name} is not in {found:?}")).1
}

const TABLE: &str =
    "nft add table ip faulty; nft 'add chain ip faulty passing { type filter hook forward priority 0; }'";

/// Both runs are concurrent, since a silent gateway lets every timeout expire.
#[test]
fn a_missing_route_and_a_loss_of_one_in_a_thousand_are_found() {
    let workspace = Workspace::new();
    let silent = start(&workspace, "none", "ip route replace blackhole 198.18.0.1", "500ms");
    let rule = "nft add rule ip faulty passing meta l4proto udp ip length 512 numgen inc mod 1000 0 drop";
    let found = findings(start(&workspace, "none", &format!("{TABLE}; {rule}"), "500ms"));
    let period = named(&found, "loss_periodic");
    assert_eq!(period["figures"]["period_packets"].as_f64().unwrap().round(), 1000.0, "{found:?}");
    assert!(period["words"].as_str().unwrap().starts_with("every 1000th packet is lost"), "{period}");
    let found = findings(start(&workspace, "nat", "ip route replace unreachable 198.18.0.1", "500ms"));
    let finding = named(&found, "no_route");
    assert!(finding["words"].as_str().unwrap().contains("reported by the gateway: "), "{finding}");
    let found = findings(silent);
    let finding = named(&found, "no_route");
    assert!(finding["words"].as_str().unwrap().contains("silently dropped at the gateway"), "{finding}");
}

#[test]
fn a_gateway_stall_of_one_second_is_found() {
    let workspace = Workspace::new();
    // The stall begins after some hundred forwarded packets of the survey.
    let forwarded = "awk '/^Ip: [0-9]/ { print $7 }' /proc/net/snmp";
    let stops = "nft add rule ip faulty passing drop; sleep 1; nft flush chain ip faulty passing";
    let setup = format!("{TABLE}; (until [ $({forwarded}) -gt 600 ]; do sleep 0.02; done; {stops}) >/dev/null 2>&1 &");
    let document = start(&workspace, "none", &setup, "2500ms").finish().assert_measured().json();
    let found = findings_of(&document);
    let is_found = |finding: &Value| {
        let figure = |name: &str| finding["figures"][name].as_f64().unwrap();
        // nft adds and removes the two rules outside of the stall of one second.
        let lasts = (0.98..2.5).contains(&(figure("lasted_ns") / 1e9));
        lasts && figure("lost_packets") > 1000.0
    };
    // On a busy machine there are other stalls, in which no packet is lost, and one may hide this one: the result must
    // report doubts.
    let is_there = found.iter().any(|(name, finding)| name == "stall" && is_found(finding));
    assert!(is_there || document["validity"]["verdict"] != "valid", "{document:#}");
}
