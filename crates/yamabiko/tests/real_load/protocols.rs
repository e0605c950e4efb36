//! One load by HTTP/1.1, HTTP/2 and HTTP/3 against a server that speaks all three.

use std::fs;

use crate::real_load::http3::caddy;
use crate::support::workspace::Workspace;

#[test]
fn several_http_versions_and_losses_make_a_run_each_and_one_table() {
    let workspace = Workspace::new();
    let (server, trust) = caddy(&workspace);
    let mut words = vec!["bench", "https://server:8443/10k.bin", "--server", &server];
    words.extend(trust.split_whitespace());
    words.extend(["--http", "1.1,2,3", "--loss", "0%,2%", "--rtt", "10ms", "--clients", "2", "-c", "2"]);
    words.extend(["--streams", "2", "-d", "1s"]);
    let document = workspace.run_json(&[&words[..], &["--json"]].concat());
    let runs = document["runs"].as_array().unwrap();
    let order: Vec<_> = runs.iter().map(|run| (run["http"].as_str().unwrap(), run["loss"].as_str().unwrap())).collect();
    assert_eq!(order, [("1.1", "0%"), ("2", "0%"), ("3", "0%"), ("1.1", "2%"), ("2", "2%"), ("3", "2%")]);
    for run in runs {
        assert!(run["completed"].as_u64().unwrap() > 20, "{run}");
        // At least the handshake's round trip and the request's lie in each first response; all others take one.
        assert!(run["response_time_ns"]["min"].as_u64().unwrap() >= 10_000_000, "{run}");
        let id = run["run"].as_str().unwrap();
        let own = workspace.run_json(&["report", id, "--json"]);
        assert_eq!(own["load"]["response_time_ns"], run["response_time_ns"], "the stored run is the same");
    }
    let output = workspace.run(&words);
    for part in ["HTTP/1.1 p50", "HTTP/2 p50", "HTTP/3 p50", "change of p50", "2%", "protocols.html"] {
        assert!(output.stdout.contains(part), "{part}: {output}");
    }
    let page = output.stdout.lines().find_map(|line| line.trim().strip_prefix("file://")).unwrap().to_owned();
    assert!(fs::read_to_string(page).unwrap().contains("<figure"));
}

#[test]
fn options_that_make_no_sense_with_several_versions_are_refused_in_a_line() {
    let workspace = Workspace::new();
    for (words, why) in [
        (&["--http", "1.1,1.1"][..], "different values"),
        (&["--http", "1.1,4"], "4"),
        (&["--http", "1.1,2", "--print-plan"], "--print-plan"),
        (&["--http", "1.1,3", "--engine", "io_uring"], "io_uring"),
    ] {
        let output = workspace.run(&[&["bench", "https://127.0.0.1:1/", "-d", "1s"], words].concat());
        assert!(output.code != Some(0) && output.stderr.contains(why), "{words:?}: {output}");
    }
}
