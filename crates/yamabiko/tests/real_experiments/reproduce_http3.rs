//! A small run of `reproduce http3`. On a busy machine figures are meaningless, but loss must cost time.

use std::fs;

use crate::support::workspace::Workspace;

#[test]
fn reproduce_http3_measures_both_versions_over_loss_and_on_a_fast_line() {
    let workspace = Workspace::new();
    let page = workspace.file("http3.html");
    let mut words = vec!["reproduce", "http3", "-n", "2", "--json", "--html", page.to_str().unwrap()];
    words.extend(["--losses", "0,6", "--delays", "25", "--fast", "100"]);
    let document = workspace.run_json(&words);
    let rows = document["reproduce"]["rows"].as_array().unwrap();
    let figure = |experiment: &str, setting: &str, quantity: &str| {
        let is = |row: &&serde_json::Value| {
            row["experiment"].as_str().unwrap().starts_with(experiment)
                && row["setting"] == setting
                && row["quantity"] == quantity
        };
        let row = rows.iter().find(is).unwrap_or_else(|| panic!("{experiment}, {setting}: {document:#}"));
        row["measured"].as_f64().unwrap_or_else(|| panic!("no figure: {row}"))
    };
    let time = "download time, median";
    for version in ["HTTP/2", "HTTP/3"] {
        let whole = figure("10 Mbit/s, 25 ms, loss 0 %", version, time);
        // 1 MB at 10 Mbit/s, and two or three round trips.
        assert!(whole > 0.85, "{version}: {whole} s is faster than the link");
        assert!(figure("10 Mbit/s, 25 ms, loss 6 %", version, time) > whole, "{version}: loss costs time");
        assert!(figure("100 Mbit/s", version, time) > 4.0, "{version}: 50 MB at 100 Mbit/s");
    }
    figure("10 Mbit/s, 25 ms, loss 6 %", "HTTP/3 against HTTP/2", "time saved by HTTP/3");
    assert!(fs::read_to_string(&page).unwrap().contains("<figure"));
    let id = document["run"]["id"].as_str().unwrap();
    assert_eq!(workspace.run_json(&["report", id, "--json"]), document);
}

#[test]
fn points_that_the_papers_do_not_have_are_refused() {
    let workspace = Workspace::new();
    for words in [&["--losses", "5"][..], &["--delays", "10"], &["--fast", "20"], &["-n", "0"]] {
        let output = workspace.run(&[&["reproduce", "http3"], words].concat());
        assert!(output.code != Some(0), "{words:?}: {output}");
    }
}
