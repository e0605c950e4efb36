//! Reproductions of the Koshien (ENMA) experiments, with a real Apache and a real httperf.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::workspace::Workspace;

/// A measured figure of one experiment with one setting.
fn measured(document: &Value, experiment: &str, setting: &str, quantity: &str) -> f64 {
    let rows = document["reproduce"]["rows"].as_array().unwrap();
    let row = rows
        .iter()
        .find(|row| row["experiment"] == experiment && row["setting"] == setting && row["quantity"] == quantity)
        .unwrap_or_else(|| panic!("no row {experiment} {setting} {quantity} in {document:#}"));
    row["measured"].as_f64().unwrap_or_else(|| panic!("no figure in {row:#}"))
}

/// Asserts the figures with tolerances far above the effect of a busy machine.
fn assert_48_ms_as_in_2001(document: &Value, experiment: &str) {
    let of = |quantity: &str| measured(document, experiment, "2001", quantity);
    let mean = of("concurrent connections, mean");
    assert!((18.0..=25.0).contains(&mean), "{experiment}: {mean} concurrent connections");
    let rtt = of("RTT at the server, 50 % of connections below");
    assert!((47.9..50.0).contains(&rtt), "{experiment}: {rtt} ms");
    let arrivals = of("request arrivals, mean");
    assert!((108.0..112.0).contains(&arrivals), "{experiment}: {arrivals} requests/s");
}

#[test]
fn reproduce_koshien_with_both_generators_at_48_ms_and_tcp_of_2001() {
    let workspace = Workspace::new();
    let page = workspace.file("koshien.html");
    let document = workspace.run_json(&[
        "reproduce",
        "koshien",
        "-d",
        "4s",
        "-e",
        "2,4",
        "--setting",
        "2001",
        "--json",
        "--html",
        page.to_str().unwrap(),
    ]);
    for experiment in ["2", "4"] {
        assert_48_ms_as_in_2001(&document, experiment);
    }
    assert_eq!(document["reproduce"]["runs"].as_array().unwrap().len(), 2);

    // The page is stored with the document, and reporting again gives the same document.
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Koshien") && html.contains("<svg") && html.contains("httperf, RTT 48 ms"), "{html}");
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    assert_eq!(fs::read_to_string(dir.join("report.html")).unwrap(), html);
    let id = document["run"]["id"].as_str().unwrap();
    assert_eq!(workspace.run_json(&["report", id, "--json"]), document);
    let text = workspace.run(&["report", id]).stdout;
    assert!(text.contains("about 25, steady") && text.contains("nearly 20, steady"), "{text}");
    // Each run is an ordinary stored run.
    for run in document["reproduce"]["runs"].as_array().unwrap() {
        let run = workspace.run_json(&["report", run.as_str().unwrap(), "--json"]);
        assert!(run["watch"]["connections"]["count"].as_u64().unwrap() > 0, "{run:#}");
    }
}

#[test]
fn ctrl_c_stores_the_completed_runs_of_a_reproduction() {
    let workspace = Workspace::concurrent_as_root();
    for (experiments, what) in [("2,1", "in the load's"), ("4,3", "in httperf's")] {
        let running =
            workspace.start(&["reproduce", "koshien", "-d", "60s", "-e", experiments, "--setting", "today", "--json"]);
        sleep(Duration::from_secs(4));
        running.signal(Signal::SIGINT);
        let output = running.finish();
        assert!(output.elapsed < Duration::from_secs(50), "{what}: no further experiment is begun: {output}");
        let document = output.json();
        assert_eq!(document["run"]["interrupted"], true, "{what}: {output}");
        assert_eq!(document["reproduce"]["runs"].as_array().unwrap().len(), 1, "{what}: {output}");
    }
}

#[test]
fn invalid_options_of_reproduce_are_refused() {
    let workspace = Workspace::concurrent();
    for arguments in [&["-e", "6"][..], &["-d", "0s"], &["--setting", "1999"], &["--full", "-d", "1s"], &["-d", "60"]] {
        let output = workspace.run(&[&["reproduce", "koshien"], arguments].concat());
        assert_eq!(output.code, Some(1), "{arguments:?}: {output}");
        assert_eq!(output.stderr.lines().count(), 1, "{arguments:?}: {output}");
    }
}

/// All five experiments with both generators: about five minutes.
#[cfg(feature = "full")]
#[test]
fn reproduce_koshien_runs_all_five_experiments() {
    let workspace = Workspace::new();
    let mut running = workspace.start(&["reproduce", "koshien", "-d", "20s", "--json"]);
    for _ in 0..600 {
        if running.ended() {
            break;
        }
        sleep(Duration::from_secs(1));
    }
    let document = running.finish().json();
    for experiment in ["2", "4"] {
        assert_48_ms_as_in_2001(&document, experiment);
    }
    for experiment in ["1", "3"] {
        for setting in ["2001", "today"] {
            let mean = measured(&document, experiment, setting, "concurrent connections, mean");
            assert!(mean < 1.5, "{experiment}, {setting}: {mean} concurrent connections");
        }
    }
    for setting in ["2001", "today"] {
        let ratio = measured(&document, "5 over 2", setting, "concurrent connections, ratio");
        assert!((2.25 * 0.9..2.25 * 1.1).contains(&ratio), "{setting}: {ratio}");
    }
}
