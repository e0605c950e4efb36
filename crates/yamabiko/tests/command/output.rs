//! Output and exit status: stdout has the result and nothing else, objectives are evaluated, and two concurrent runs do
//! not interfere.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::support::document::{check, checks_not_ok, count, number};
use crate::support::hostile::Hostile;
use crate::support::workspace::{Output, Workspace, str_of, yamabiko};
use serde_json::Value;

/// A workspace, a well-behaved server, and the URL of its page.
fn page() -> (Workspace, Hostile, String) {
    let server = Hostile::start();
    let url = server.url("/ok/1000");
    (Workspace::concurrent(), server, url)
}

#[test]
fn json_output_is_exactly_one_document() {
    let (workspace, _server, url) = page();
    let output = workspace.run(&["bench", &url, "-n", "50", "--json"]);
    output.assert_measured();
    assert_eq!(output.stderr, "", "{output}");
    assert!(output.stdout.ends_with("}\n"), "{output}");
    let document = output.json();
    assert_eq!(document["schema"], "yamabiko.run/2");
    assert_eq!(count(&document, "load.completed"), 50);
    // The same document is stored, and reported again with the same status.
    let dir = document["run"]["dir"].as_str().unwrap();
    let stored: Value = serde_json::from_str(&fs::read_to_string(format!("{dir}/summary.json")).unwrap()).unwrap();
    assert_eq!(stored, document);
    let again = workspace.run(&["report", "--json"]);
    assert_eq!((again.json(), again.code), (document, output.code));
    assert_eq!(again.stderr, "");
}

/// Documents, pages and reports contain commands and plans without credentials; only plan.toml contains the credentials
/// that a repetition needs.
#[test]
fn credentials_appear_in_the_stored_plan_only() {
    let (workspace, _server, url) = page();
    let has_no_secret = |output: &Output| {
        assert!(!output.stdout.contains("s3cret") && !output.stderr.contains("s3cret"), "{output}");
    };
    let mut ids = Vec::new();
    for secret in ["s3cret-one", "s3cret-two"] {
        for _ in 0..2 {
            let (header, cookie) = (format!("authorization: Bearer {secret}"), format!("-HCookie: session={secret}"));
            let output =
                workspace.run(&["bench", &url, "-n", "5", "-H", &header, &cookie, "-H", "X-Shown: yes", "--json"]);
            has_no_secret(&output);
            let document = output.json();
            let command = document["run"]["command"].as_str().unwrap();
            assert!(command.contains(" -H 'authorization: ..' '-HCookie: ..' -H 'X-Shown: yes'"), "{command}");
            let dir = Path::new(document["run"]["dir"].as_str().unwrap());
            for file in fs::read_dir(dir).unwrap().map(|file| file.unwrap().path()) {
                let text = fs::read(&file).unwrap();
                let contains_secret = text.windows(6).any(|window| window == b"s3cret");
                let is_plan = file.ends_with("plan.toml");
                assert_eq!(contains_secret, is_plan, "{}", file.display());
                assert!(!is_plan || file.metadata().unwrap().permissions().mode() & 0o077 == 0);
            }
            ids.push(document["run"]["id"].as_str().unwrap().to_owned());
        }
    }
    let id = ids[0].as_str();
    let forms =
        [&["report", id][..], &["report", id, "--html", "-"], &["report", id, "--md", "-"], &["runs", "--json"]];
    for form in forms {
        let output = workspace.run(form);
        assert!(matches!(output.code, Some(0 | 3)) && !output.stdout.is_empty(), "{output}");
        has_no_secret(&output);
    }
    // That plans differ in credentials is reported, but not the values.
    let sides = [ids[..2].join(","), ids[2..].join(",")];
    let refused = workspace.run(&["compare", &sides[0], &sides[1]]);
    assert!(refused.code == Some(1) && refused.stderr.contains("load.headers"), "{refused}");
    has_no_secret(&refused);
    let (page, xml) = (workspace.file("c.html"), workspace.file("c.xml"));
    let forms = ["--different-plans", "--json", "--html", str_of(&page), "--junit", str_of(&xml)];
    let output = workspace.run(&[&["compare", &sides[0], &sides[1]], &forms[..]].concat());
    has_no_secret(&output);
    assert_eq!(output.json()["compare"]["plans_differ"][0]["field"], "load.headers", "{output}");
    for file in [page, xml] {
        assert!(!fs::read_to_string(file).unwrap().contains("s3cret"));
    }
}

/// With `--no-save` no run is stored, and the document has no folder.
#[test]
fn no_store_option_writes_no_files() {
    let (workspace, _server, url) = page();
    let output = workspace.run(&["bench", &url, "-n", "5", "--json", "--no-save"]);
    assert_eq!(output.json()["run"]["dir"], "", "{output}");
    assert_eq!(fs::read_dir(workspace.runs()).unwrap().count(), 0);
}

#[test]
fn progress_goes_to_stderr_and_colour_to_terminals_only() {
    let (workspace, _server, url) = page();
    // Long enough for a plain line of progress, which comes every five seconds.
    let output = workspace.run(&["bench", &url, "--rate", "20/s", "-d", "5s", "--warmup", "1s"]);
    assert!(output.stderr.contains("in flight") && output.stderr.contains("connections"), "{output}");
    assert!(!output.stdout.contains(", 0 errors") && output.stdout.contains("achieved"), "{output}");
    assert!(!output.stdout.contains('\u{1b}') && !output.stderr.contains('\u{1b}'), "{output}");
}

/// On a terminal (from script(1)) the result has colour, unless NO_COLOR is set.
#[test]
fn no_color_disables_colour() {
    let (workspace, _server, url) = page();
    let on_terminal = |environment: &[&str]| -> String {
        let mut script = Command::new("env");
        script.args(["-u", "NO_COLOR", "TERM=xterm-256color"]).args(environment);
        let inside = format!("{} bench {url} -n 20 2>/dev/null", yamabiko().display());
        script.args(["script", "--quiet", "--command", &inside, "/dev/null"]);
        workspace.start_command(script).finish().stdout
    };
    let plain = on_terminal(&["NO_COLOR=1"]);
    assert!(plain.contains("achieved") && !plain.contains('\u{1b}'), "{plain:?}");
    let coloured = on_terminal(&[]);
    assert!(coloured.contains("achieved") && coloured.contains("\u{1b}["), "{coloured:?}");
    assert!(!on_terminal(&["TERM=dumb"]).contains('\u{1b}'));
}

/// When the reader closes the pipe, the program does not panic, and the run is stored.
#[test]
fn output_ends_when_the_reader_closes_the_pipe() {
    let (workspace, _server, url) = page();
    let shell = |script: &str| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).arg(yamabiko()).arg(&url);
        workspace.start_command(command).finish()
    };
    for script in [
        "\"$0\" bench \"$1\" -n 20 | head -n 1",
        "\"$0\" bench \"$1\" -n 20 --json | head -c 1",
        // Progress may also go to a closed pipe: `head` ends after its first line.
        "{ \"$0\" bench \"$1\" --rate 20/s -d 6s --warmup 0s --json; echo \"status $?\" >&3; } 3>&1 2>&1 >/dev/null | head -n 0",
        "\"$0\" bench --help | head -n 1",
        "\"$0\" frobnicate 2>&1 | head -n 0",
        "\"$0\" runs | head -n 1",
        "\"$0\" report | head -n 1",
    ] {
        let output = shell(script);
        for text in [&output.stdout, &output.stderr] {
            assert!(!text.contains("panicked") && !text.contains("Broken pipe"), "{script}: {output}");
        }
    }
    let runs = workspace.run(&["runs", "--json"]).success().json();
    let states: BTreeSet<&str> =
        runs["runs"].as_array().unwrap().iter().map(|run| run["state"].as_str().unwrap_or("?")).collect();
    assert!(!states.contains("unfinished"), "{runs}");
}

#[test]
fn two_concurrent_runs_do_not_share_a_folder() {
    let (workspace, _server, url) = page();
    let arguments = ["bench", &url, "--rate", "100/s", "-d", "1s", "--warmup", "0s", "--json", "--name", "twin"];
    let running: Vec<_> = (0..4).map(|_| workspace.start(&arguments)).collect();
    let documents: Vec<Value> = running.into_iter().map(|run| run.finish().json()).collect();
    let folders: BTreeSet<&str> = documents.iter().map(|document| document["run"]["dir"].as_str().unwrap()).collect();
    assert_eq!(folders.len(), 4);
    for document in &documents {
        assert_eq!(count(document, "load.offered_requests"), 100);
        assert_eq!(count(document, "load.completed"), 100);
        assert_eq!(check(document, "records_stored")["state"], "ok");
    }
}

#[test]
fn missed_objectives_set_the_exit_status() {
    let (workspace, _server, url) = page();
    let judged =
        |slo: &str| -> Output { workspace.run(&["bench", &url, "-c", "1", "-n", "50", "--json", "--slo", slo]) };
    // Noise of the machine may make a run invalid, and then the objective is undecided.
    let status = |output: &Output, met: u8| {
        let invalid = output.json()["validity"]["verdict"] == "invalid";
        assert_eq!(output.code, Some(if invalid { 3 } else { met.into() }), "{output}");
    };
    let met = judged("p99 < 60s, errors < 0.1%");
    status(&met, 0);
    assert_eq!(met.json()["slo"]["met"], true);
    let missed = judged("p50 < 1ns, errors <= 0");
    status(&missed, 4);
    let slo = &missed.json()["slo"];
    assert_eq!(
        (&slo["met"], &slo["terms"][0]["met"], &slo["terms"][1]["met"]),
        (&false.into(), &false.into(), &true.into())
    );
    let text = workspace.run(&["bench", &url, "-c", "1", "-n", "50", "--slo", "p50 < 1ns"]);
    assert!(text.stdout.contains("NOT MET") && text.stdout.contains("p50 < 1ns"), "{text}");

    // A page with a server error fails the objective, although every response was complete.
    let server = Hostile::start();
    let failing = workspace.run(&["bench", &server.url("/status/503"), "-n", "20", "--json", "--slo", "errors < 1%"]);
    status(&failing, 4);
    // An invalid result outranks a missed objective.
    let dead = workspace.run(&["bench", &server.url("/early-close"), "-n", "20", "--json", "--slo", "errors < 1%"]);
    assert_eq!(dead.code, Some(3), "{dead}");
    assert_eq!(dead.json()["slo"]["met"], false);
}

/// One connection for a page that exceeds every timeout, requested ten times a second: the connection limit is
/// reported, and a suspect verdict is an error with `--strict`.
#[test]
fn strict_fails_on_a_suspect_verdict() {
    let (workspace, server) = (Workspace::concurrent(), Hostile::start());
    let url = server.url("/slow");
    let arguments =
        ["bench", &url, "-c", "1", "--rate", "20/s", "-d", "300ms", "--warmup", "0s", "--timeout", "500ms", "--json"];
    let output = workspace.run(&arguments);
    let document = output.json();
    assert_eq!(output.code, Some(3), "{output}");
    assert!(checks_not_ok(&document).contains(&"connection_cap"), "{output}");
    assert!(number(&document, "load.backlog.max") >= 4.0, "{output}");

    // Some responses are truncated: the verdict is suspect, which is an error only with --strict.
    let url = server.url("/now-and-then");
    for (extra, code) in [(&[][..], 0), (&["--strict"], 3)] {
        let arguments: Vec<&str> =
            ["bench", &url, "-c", "1", "-n", "30", "--json"].iter().chain(extra).copied().collect();
        let output = workspace.run(&arguments);
        let document = output.json();
        assert!(checks_not_ok(&document).contains(&"responses_whole"), "{output}");
        // Noise of the machine can make the run invalid.
        let invalid = document["validity"]["verdict"] == "invalid";
        assert_eq!(output.code, Some(if invalid { 3 } else { code }), "{output}");
        assert_eq!(count(&document, "load.failed.closed_early"), 10, "{output}");
    }
}
