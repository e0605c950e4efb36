//! `profile check` confirms configured values that the path has, and reports deviations.

use serde_json::Value;

use crate::support::load_monitor::LoadMonitor;
use crate::support::workspace::{Output, Workspace};

/// The row whose name begins with `what`.
fn row<'a>(document: &'a Value, what: &str) -> &'a Value {
    let rows = document["rows"].as_array().expect("rows");
    rows.iter()
        .find(|row| row["what"].as_str().unwrap().starts_with(what))
        .unwrap_or_else(|| panic!("{what}: {document}"))
}

fn states(document: &Value, state: &str) -> usize {
    document["rows"].as_array().expect("rows").iter().filter(|row| row["state"] == state).count()
}

fn check(workspace: &Workspace, arguments: &str) -> Output {
    let words: Vec<&str> = ["profile", "check", "--json"].into_iter().chain(arguments.split_whitespace()).collect();
    workspace.run(&words)
}

/// The measured values equal the configured ones; on a busy machine delays are only longer and rates only lower.
fn assert_confirmed(output: &Output, disturbed: bool) {
    let document = output.json();
    if (output.code, &document["as_configured"]) == (Some(0), &Value::Bool(true)) {
        return;
    }
    assert!(disturbed, "{output}");
    assert_eq!((output.code, &document["as_configured"]), (Some(3), &Value::Bool(false)), "{output}");
    for row in document["rows"].as_array().unwrap().iter().filter(|row| row["state"] == "outside") {
        let (what, measured) = (row["what"].as_str().unwrap(), row["measured"].as_f64().unwrap());
        let [low, high] = [0, 1].map(|bound| row["accepted"][bound].as_f64().unwrap());
        assert!(if what.starts_with("rate") { measured < low } else { measured > high }, "{what}: {output}");
    }
}

#[test]
fn profile_check_confirms_a_built_in_profile() {
    let workspace = Workspace::new();
    let monitor = LoadMonitor::start();
    let output = check(&workspace, "dsl --duration 6s");
    let disturbed = monitor.disturbed();
    let document = output.json();
    assert_eq!(document["schema"], "yamabiko.profile_check/2", "{output}");
    // Two kinds of links: the rates of both, upstream and downstream.
    for what in ["RTT p50", "loss up, client", "loss down, client", "rate up, client", "rate down, client"] {
        assert!(disturbed || row(&document, what)["state"] != "outside", "{output}");
    }
    assert_confirmed(&output, disturbed);
}

#[test]
fn profile_check_measures_loss_and_rate() {
    let workspace = Workspace::new();
    let monitor = LoadMonitor::start();
    let output = check(&workspace, "--rtt 20ms --loss 2% --down 5Mbit --up 2Mbit --clients 10 --duration 6s");
    let document = output.json();
    assert_confirmed(&output, monitor.disturbed());
    let measured = |what: &str| row(&document, what)["measured"].as_f64().unwrap();
    assert!(measured("loss up") > 0.002 && measured("loss down") > 0.002, "{output}");
    // On a busy machine, too, the measured rate never exceeds the link rate.
    assert!(measured("rate up") < 2.1e6 && measured("rate down") < 5.2e6, "{output}");
    assert!(measured("RTT p50") >= 20e6, "{output}");
}

#[test]
fn profile_check_measures_reordering_duplication_and_corruption() {
    let workspace = Workspace::new();
    let effects = "--loss ge:2%,40% --duplicate 3% --corrupt 2% --reorder 3%,10ms";
    let monitor = LoadMonitor::start();
    let output = check(&workspace, &format!("--rtt 30ms {effects} --clients 10 --duration 6s"));
    let document = output.json();
    for what in ["duplicated", "corrupted", "reordered", "loss"] {
        for way in ["up", "down"] {
            let measured = row(&document, &format!("{what} {way}"))["measured"].as_f64().unwrap();
            assert!(measured > 0.005, "{what} {way}: {output}");
        }
    }
    assert_confirmed(&output, monitor.disturbed());
}

/// Wrong expected values must not pass: RTTs, rates and losses of another profile.
#[test]
fn profile_check_reports_deviations_from_the_configuration() {
    let workspace = Workspace::new();
    let made = "--rtt 20ms --down 5Mbit --clients 10 --duration 4s";
    std::fs::write(
        workspace.path().join("other.toml"),
        "name = \"other\"\n[[clients]]\nshare = 1\nrtt = \"30ms\"\nup = { loss = \"20%\" }\ndown = { rate = \"8Mbit\" }\n",
    )
    .unwrap();
    let output = check(&workspace, &format!("{made} --against other.toml"));
    let document = output.json();
    assert_eq!((output.code, &document["as_configured"]), (Some(3), &Value::Bool(false)), "{output}");
    for what in ["RTT p10", "RTT p50", "RTT p90", "off their own RTT", "loss up", "rate down"] {
        assert_eq!(row(&document, what)["state"], "outside", "{what}: {output}");
    }
    assert_eq!(row(&document, "loss down")["state"], "within", "{output}");
    assert!(states(&document, "outside") >= 6, "{output}");
}

#[test]
fn profile_check_prints_a_table_on_a_terminal() {
    let workspace = Workspace::new();
    let output = workspace.run(&["profile", "check", "--rtt", "5ms", "--clients", "3", "--duration", "2s"]).success();
    assert!(output.stdout.contains("RTT p50") && output.stdout.contains("verdict"), "{output}");
    assert!(output.stdout.lines().all(|line| line.chars().count() <= 100), "{output}");
    workspace.run(&["profile", "check"]).refused(1, &["nothing to check"]);
    workspace.run(&["profile", "check", "lan", "--duration", "10ms"]).refused(1, &["at least 1s"]);
}
