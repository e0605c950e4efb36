//! Small reproductions of the experiments on servers, with real Apache, nginx and gunicorn. On a busy machine figures
//! are meaningless; every part must run, and the document must be consistent.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::support::workspace::Workspace;

fn rows(document: &Value) -> &Vec<Value> {
    document["reproduce"]["rows"].as_array().unwrap()
}

/// A measured figure, which must exist.
fn measured(document: &Value, experiment: &str, setting: &str, quantity: &str) -> f64 {
    let is = |row: &&Value| row["experiment"] == experiment && row["setting"] == setting && row["quantity"] == quantity;
    let row = rows(document).iter().find(is);
    let row = row.unwrap_or_else(|| panic!("no row {experiment}, {setting}, {quantity} in {document:#}"));
    row["measured"].as_f64().unwrap_or_else(|| panic!("no figure in {row:#}"))
}

fn reports_no_response(document: &Value, case: &str) -> bool {
    let name = format!("flood, {case}: application");
    let checks = document["validity"]["checks"].as_array().unwrap();
    checks.iter().any(|check| check["name"] == name.as_str() && check["state"] == "could_not_run")
}

/// Properties of every reproduction: its runs are stored with valid responses, it is reported again identically, and
/// its page has its figures.
fn assert_stored_and_reported(workspace: &Workspace, document: &Value, page: &PathBuf, figures: usize) {
    let html = fs::read_to_string(page).unwrap();
    assert!(html.matches("<figure").count() >= figures, "{} figures", html.matches("<figure").count());
    let id = document["run"]["id"].as_str().unwrap();
    assert_eq!(workspace.run_json(&["report", id, "--json"]), *document);
    let text = workspace.run(&["report", id]).stdout;
    assert!(text.contains(document["run"]["command"].as_str().unwrap()), "{text}");
    let runs: BTreeSet<&str> =
        document["reproduce"]["runs"].as_array().unwrap().iter().map(|run| run.as_str().unwrap()).collect();
    assert_eq!(runs.len(), document["reproduce"]["runs"].as_array().unwrap().len(), "the document names each run once");
    for run in runs {
        let run = workspace.run_json(&["report", run, "--json"]);
        assert!(run["load"]["completed"].as_u64().unwrap() > 0, "{run:#}");
    }
}

#[test]
fn reproduce_dserver_with_one_hundredth_of_the_requests() {
    let workspace = Workspace::new();
    let page = workspace.file("dserver.html");
    let document = workspace.run_json(&[
        "reproduce",
        "dserver",
        "-n",
        "20",
        "-s",
        "1KB,100KB",
        "--json",
        "--html",
        page.to_str().unwrap(),
    ]);
    for size in ["1 KB", "100 KB"] {
        for server in ["Apache", "nginx", "yamabiko"] {
            for way in ["100 Mbit/s", "no path"] {
                let setting = format!("{way}, {server}");
                let of = |quantity: &str| measured(&document, size, &setting, quantity);
                // Both figures are about the same requests in the same time.
                let per_second = 1000.0 / of("time taken, of 1000 requests");
                assert!((of("requests per second") / per_second - 1.0).abs() < 0.5, "{size}, {setting}");
                let bytes_each = of("transfer rate") * 1000.0 / of("requests per second");
                let body = if size == "1 KB" { 1024.0 } else { 102_400.0 };
                assert!(bytes_each > body, "{size}, {setting}: {bytes_each} bytes per request");
            }
            // The throughput, packet headers excluded, never exceeds the link rate of 100 Mbit/s.
            let through = measured(&document, size, &format!("100 Mbit/s, {server}"), "transfer rate");
            assert!(through < 12_500.0, "{size}, {server}: {through} KB/s");
        }
    }
    let paper: Vec<&str> = rows(&document).iter().filter_map(|row| row["published"].as_str()).collect();
    assert!(paper.contains(&"8.110") && paper.contains(&"7337.13") && paper.contains(&"2.08"), "{paper:?}");
    assert_stored_and_reported(&workspace, &document, &page, 3);
}

#[test]
fn reproduce_directory_in_short_trials_with_a_small_directory() {
    let workspace = Workspace::new();
    let page = workspace.file("directory.html");
    let document = workspace.run_json(&[
        "reproduce",
        "directory",
        "-d",
        "150ms",
        "--entries",
        "2000",
        "-o",
        "requests,cache,flood",
        "--json",
        "--html",
        page.to_str().unwrap(),
    ]);
    let of = |experiment: &str, setting: &str, quantity: &str| measured(&document, experiment, setting, quantity);
    // Components of a request never exceed the complete request.
    for request in ["static request", "dynamic request"] {
        let parts = ["OS", "server function", "application"];
        let known = rows(&document).iter().filter(|row| row["experiment"] == request);
        let sum: f64 = known
            .filter(|row| parts.contains(&row["setting"].as_str().unwrap()))
            .filter_map(|row| row["measured"].as_f64())
            .sum();
        assert!(sum <= of(request, "all", "CPU per request") * 1.001, "{request}: {sum} us");
    }
    let ratio = of("result cache", "with", "hit ratio");
    assert!((0.0..=100.0).contains(&ratio), "{ratio} %");
    for case in ["limited, least weight", "limited", "unlimited"] {
        // With the lowest weight the application runs only on an idle core. If the core is always busy, the document
        // must report that instead of figures.
        if case == "limited, least weight" && reports_no_response(&document, case) {
            let reported = rows(&document).iter().all(|row| !row["setting"].as_str().unwrap().starts_with(case));
            assert!(reported, "unmeasured quantities have no figures: {document:#}");
            continue;
        }
        for load in ["unloaded", "flooded"] {
            let setting = format!("{case}, {load}");
            let (p50, p99) = (
                of("searches at ten times the maximum", &setting, "static response time, median"),
                of("searches at ten times the maximum", &setting, "static response time, 99 %"),
            );
            assert!(p50 > 0.0 && p99 >= p50, "{setting}: {p50} and {p99} ms");
        }
    }
    assert_stored_and_reported(&workspace, &document, &page, 2);
}

#[test]
fn reproduce_directory_adds_features_to_the_minimal_server() {
    let workspace = Workspace::new();
    let page = workspace.file("features.html");
    let document = workspace.run_json(&[
        "reproduce",
        "directory",
        "-d",
        "100ms",
        "-o",
        "features",
        "--entries",
        "1000",
        "--json",
        "--html",
        page.to_str().unwrap(),
    ]);
    let rungs = ["bare", "+ parse", "+ date", "+ open", "+ held", "+ conditional", "+ figures", "+ log", "+ TLS"];
    for rung in rungs.into_iter().chain(["complete server, epoll", "complete server, io_uring", "MAX, io_uring"]) {
        let rate = measured(&document, "features added to MAX", rung, "requests per second");
        assert!(rate > 0.0, "{rung}");
    }
    assert_stored_and_reported(&workspace, &document, &page, 1);
}

#[test]
fn invalid_options_of_reproduce_dserver_and_directory_are_refused() {
    let workspace = Workspace::concurrent();
    let wrong = [
        &["dserver", "-n", "0"][..],
        &["dserver", "-s", "2KB"],
        &["directory", "-d", "0s"],
        &["directory", "-o", "everything"],
        &["directory", "--entries", "10"],
    ];
    for arguments in wrong {
        let output = workspace.run(&[&["reproduce"], arguments].concat());
        assert_eq!(output.code, Some(1), "{arguments:?}: {output}");
        assert_eq!(output.stderr.lines().count(), 1, "{arguments:?}: {output}");
    }
}

/// Both reproductions in full, without options: about ten minutes.
#[cfg(feature = "full")]
#[test]
fn reproduce_dserver_and_directory_in_full() {
    let workspace = Workspace::new();
    for name in ["dserver", "directory"] {
        let mut running = workspace.start(&["reproduce", name, "--json"]);
        for _ in 0..1200 {
            if running.ended() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_secs(1));
        }
        let document = running.finish().json();
        assert!(
            rows(&document).iter().all(|row| row["measured"].is_f64() || row["published"].is_string()),
            "{document:#}"
        );
    }
}
