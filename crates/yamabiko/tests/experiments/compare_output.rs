//! `yamabiko compare`: comparisons of stored runs, and interleaved runs of two servers on loopback. The stored runs
//! have known figures, so that no figure of this machine matters.

use std::fs;
use std::path::{Path, PathBuf};

use crate::support::hostile::Hostile;
use crate::support::workspace::{Workspace, str_of};
use serde_json::{Value, json};

/// A measured run, and stored copies of it with other figures.
struct StoredRuns {
    workspace: Workspace,
    made: PathBuf,
    copies: u32,
}

impl StoredRuns {
    fn new() -> Self {
        let (workspace, server) = (Workspace::concurrent(), Hostile::start());
        let made = workspace.run_json(&[
            "bench",
            &server.url("/ok/100"),
            "-r",
            "100/s",
            "-n",
            "20",
            "--warmup",
            "0s",
            "--json",
        ]);
        let made = PathBuf::from(made["run"]["dir"].as_str().unwrap());
        StoredRuns { workspace, made, copies: 0 }
    }

    /// Stores a run that is newer than all others, with this mean response time.
    fn run(&mut self, mean_ns: f64, more: impl FnOnce(&mut Value, &mut String)) -> String {
        self.copies += 1;
        let id = format!("20990101-0000{:02}-copy-aaaa", self.copies);
        let dir = self.made.parent().unwrap().join(&id);
        fs::create_dir(&dir).unwrap();
        let read = |name: &str| fs::read_to_string(self.made.join(name)).unwrap();
        let mut summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
        let mut plan = read("plan.toml");
        summary["run"]["id"] = json!(id);
        summary["validity"] = json!({ "verdict": "valid", "checks": [] });
        summary["load"]["response_time_ns"]["mean"] = json!(mean_ns);
        more(&mut summary, &mut plan);
        fs::write(dir.join("plan.toml"), plan).unwrap();
        fs::write(dir.join("summary.json"), summary.to_string()).unwrap();
        id
    }

    fn side(&mut self, means: [f64; 3]) -> String {
        means.map(|mean| self.run(mean, |_, _| {})).join(",")
    }
}

#[test]
fn compare_accepts_several_runs_per_side() {
    let mut stored_runs = StoredRuns::new();
    let a = stored_runs.side([1.00e6, 1.01e6, 0.99e6]);
    let alike = stored_runs.side([1.01e6, 0.99e6, 1.00e6]);
    let slower = stored_runs.side([1.10e6, 1.11e6, 1.09e6]);
    let workspace = &stored_runs.workspace;

    let same = workspace.run(&["compare", &a, &alike]).success();
    assert!(same.stdout.contains("mean response time: no difference detected; detectable from "), "{same}");
    assert!(same.stdout.contains("no; detectable from "), "{same}");

    let other = workspace.run(&["compare", &a, &slower, "--json"]).success();
    let document = other.json();
    let mean = &document["compare"]["metrics"][0];
    assert_eq!((&mean["name"], &mean["verdict"]), (&json!("response_time_mean_ns"), &json!("more")), "{mean}");
    assert!((mean["difference"].as_f64().unwrap() - 0.1).abs() < 0.001, "{mean}");
    assert_eq!(document["compare"]["method"], "runs");
    // Reported again from the run store.
    let again = workspace.run(&["report", "--json", document["run"]["dir"].as_str().unwrap()]).success();
    assert_eq!(again.json(), document);

    // The exit status depends on the tested condition only.
    let ending = |terms: &str| workspace.run(&["compare", &a, &slower, "--fail-if", terms]).code;
    assert_eq!(ending("mean > 5%"), Some(4));
    assert_eq!(ending("mean > 15%"), Some(0));
    assert_eq!(ending("mean < -5%, mean > 5%"), Some(4));
    workspace.run(&["compare", &a, &slower, "--fail-if", "mean 5%"]).refused(1, &["--fail-if", "mean 5%"]);
}

#[test]
fn compare_reports_differences_of_plans_and_verdicts() {
    let mut stored_runs = StoredRuns::new();
    let a = stored_runs.side([1.00e6, 1.01e6, 0.99e6]);
    let mut faster = |_| stored_runs.run(1e6, |_, plan| *plan = plan.replace("rate = \"100/s\"", "rate = \"200/s\""));
    let faster = [0, 1].map(&mut faster).join(",");
    let invalid = stored_runs.run(1e6, |summary, _| {
        let check = json!({ "name": "generator_on_time", "state": "failed", "weight": "invalid", "unit": "", "why": "it was late" });
        summary["validity"] = json!({ "verdict": "invalid", "checks": [check] });
    });
    let valid = stored_runs.run(1e6, |_, _| {});
    let workspace = &stored_runs.workspace;
    workspace.run(&["compare", &a, &faster]).refused(1, &["load.rate", "100/s", "200/s", "--different-plans"]);
    let anyway = workspace.run(&["compare", &a, &faster, "--different-plans", "--no-save"]).success();
    let line = anyway.stdout.lines().find(|line| line.contains("load.rate")).unwrap_or_else(|| panic!("{anyway}"));
    assert!(line.contains("100/s") && line.contains("200/s") && line.ends_with(" plan"), "{line}");
    // `last` selects the last run with load, not the comparison.
    let comparison = workspace.run(&["compare", &a, "last,last~3", "--different-plans"]);
    comparison.refused(1, &["are on one side", "load.rate"]);
    let comparison = workspace.run(&["compare", &a, &format!("{invalid},{valid}")]);
    assert_eq!(comparison.code, Some(3), "{comparison}");
    assert!(
        comparison.stdout.contains("generator on time") && comparison.stdout.contains("it was late"),
        "{comparison}"
    );
}

/// The page, Markdown and JUnit files of a comparison: written with the result, and again from the run store.
#[test]
fn compare_writes_text_json_and_html() {
    let mut stored_runs = StoredRuns::new();
    let a = stored_runs.side([1.00e6, 1.01e6, 0.99e6]);
    let b = stored_runs.side([1.10e6, 1.11e6, 1.09e6]);
    let on_another_host = |summary: &mut Value, _: &mut String| summary["run"]["host"]["kernel"] = json!("7.0 <b>");
    let other_host_runs = [0, 1].map(|_| stored_runs.run(1e6, on_another_host)).join(",");
    let workspace = &stored_runs.workspace;
    let [html, md, xml] = ["c.html", "c.md", "c.xml"].map(|name| workspace.file(name));
    let terms = "mean +5%, mean +1s, rate -90%";
    let files = ["--html", str_of(&html), "--md", str_of(&md), "--junit", str_of(&xml)];
    let made = workspace.run(&[&["compare", &a, &b, "--fail-if", terms], &files[..]].concat());
    assert_eq!(made.code, Some(4), "{made}");
    assert!(made.stdout.contains("mean +5%   FAILED ") && made.stdout.contains("mean +1s   passed "), "{made}");
    assert!(made.stdout.trim_end().ends_with("/c.html"), "{made}");
    let page = fs::read_to_string(&html).unwrap();
    for part in
        ["<h2>Differences</h2>", "<h2>Differences of plans and hosts</h2>", "10.0 % higher than A", "no longer stored"]
    {
        // The copied runs have no tables.
        assert_eq!(page.contains(part), part != "no longer stored", "{part}");
    }
    let text = fs::read_to_string(&md).unwrap();
    assert!(
        text.contains("| mean +5% | FAILED |") && text.contains("| mean response time | 1.00 ms | 1.10 ms |"),
        "{text}"
    );
    let xml = fs::read_to_string(&xml).unwrap();
    assert!(xml.contains("tests=\"4\"") && xml.contains("failures=\"1\"") && xml.contains("errors=\"0\""), "{xml}");
    // The run store gives the same page.
    let id = page.split_once("<h1>").unwrap().1.split_once("</h1>").unwrap().0;
    let again = workspace.run(&["report", id, "--html", "-"]);
    assert_eq!(again.code, Some(4));
    assert!(again.stdout == page, "the page from the run store differs");
    let again = workspace.run(&["report", id, "--md", "-"]);
    assert_eq!(again.stdout, text);
    let other = workspace.run(&["compare", &a, &other_host_runs, "--json", "--no-save"]);
    let differ = &other.json()["compare"]["hosts_differ"];
    assert_eq!(
        (&differ[0]["fact"], &differ[0]["b"], &differ[0]["machine"]),
        (&json!("kernel"), &json!("7.0 <b>"), &json!(true))
    );
    // An undecidable comparison is not a success in any format: the CPU time of a remote server is unknown.
    let xml = workspace.file("unknown.xml");
    for terms in ["cpu +5%", "mean +5%, cpu +5%", "mean +1s, cpu +5%"] {
        let unknown = workspace.run(&["compare", &a, &b, "--fail-if", terms, "--junit", str_of(&xml)]);
        assert_eq!(unknown.code, Some(3), "{unknown}");
        assert!(unknown.stdout.contains("there is no interval here, so the term cannot be judged"), "{unknown}");
        let xml = fs::read_to_string(&xml).unwrap();
        assert!(xml.contains("errors=\"1\""), "{xml}");
        let id = xml.split_once("<testsuite name=\"").unwrap().1.split_once('"').unwrap().0;
        assert_eq!(workspace.run(&["report", id]).code, Some(3), "{id}");
    }
    // A run on another machine makes the comparison suspect: a JUnit error only if the exit status is 3.
    for (strict, code, errors) in [(&[][..], Some(0), "errors=\"0\""), (&["--strict"], Some(3), "errors=\"1\"")] {
        let doubtful =
            workspace.run(&[&["compare", &a, &other_host_runs, "--no-save", "--junit", str_of(&xml)], strict].concat());
        assert_eq!(doubtful.code, code, "{doubtful}");
        let xml = fs::read_to_string(&xml).unwrap();
        assert!(xml.contains(errors), "{xml}");
    }
    // An unwritable file is reported, and no result is printed.
    let missing = workspace.file("missing/c.md");
    workspace.run(&["compare", &a, &b, "--md", str_of(&missing)]).refused(2, &["cannot write", "missing/c.md"]);
}

#[test]
fn compare_refuses_incomparable_runs_with_the_reason() {
    let mut stored_runs = StoredRuns::new();
    stored_runs.run(1e6, |_, _| {});
    let workspace = &stored_runs.workspace;
    let short = workspace.run_json(&["compare", "last~1", "last", "--json", "--no-save"]);
    assert!(short["compare"]["notes"].to_string().contains("and 10 are needed"), "{short}");
    workspace.run(&["compare", "last", "nonsense"]).refused(1, &["nonsense"]);
    workspace.run(&["compare", "last", "last"]).refused(1, &["given twice"]);
    workspace.run(&["compare", "last"]).refused(1, &["two sides"]);
    workspace.run(&["compare", "last~2", "last"]).refused(1, &["last~2"]);
    workspace.run(&["compare", "last", "last", "-r", "5/s"]).refused(1, &["stored runs"]);
    workspace.run(&["compare", "http://127.0.0.1/", "--server", "one"]).refused(1, &["twice"]);
    // Nothing listens on ports 1 and 2: the first run detects it and the report names the side.
    let unused = ["compare", "--url", "http://127.0.0.1:1/", "--url", "http://127.0.0.1:2/", "--path", "none"];
    let refused = workspace.run(&[&unused[..], &["-d", "2s"]].concat());
    assert_eq!((refused.code, refused.stdout.as_str()), (Some(1), ""), "{refused}");
    let last = refused.stderr.lines().last().unwrap_or_default();
    assert!(last.contains(": nothing listens on 127.0.0.1:") && last.contains("all refused"), "{refused}");
    assert_eq!(stored_comparisons(&workspace.runs()), 2, "a refused comparison is not stored");
}

fn stored_comparisons(runs: &Path) -> usize {
    fs::read_dir(runs).unwrap().count()
}

/// Two servers on loopback, three blocks and one uncounted block: sixteen runs of 0.1 s.
#[test]
fn compare_runs_two_servers_alternately() {
    let (workspace, one, other) = (Workspace::concurrent(), Hostile::start(), Hostile::start());
    let (a, b) = (one.url("/ok/100"), other.url("/ok/100"));
    let words = ["compare", "--url", &a, "--url", &b, "-c", "2", "-d", "100ms", "--warmup", "0s", "--blocks", "3"];
    let output = workspace.run(&[&words[..], &["--json", "--path", "none"]].concat());
    // Other load on the machine can make runs, and so the comparison, invalid.
    output.assert_measured();
    assert_eq!(output.stderr, "", "{output}");
    let document = output.json();
    let compare = &document["compare"];
    assert_eq!((&compare["method"], &compare["by"]), (&json!("blocks"), &json!("achieved_rate_per_s")));
    assert_eq!((&compare["a"]["what"], &compare["b"]["what"]), (&json!(a), &json!(b)));
    let blocks = compare["blocks"].as_array().unwrap();
    assert_eq!(blocks[0]["counted"], false);
    for block in blocks {
        let order: String = block["runs"].as_array().unwrap().iter().map(|run| run["side"].as_str().unwrap()).collect();
        assert_eq!(block["order"], order, "{block}");
        assert!(["ABBA", "BAAB"].contains(&order.as_str()), "{order}");
    }
    let counted = blocks.iter().filter(|block| block["counted"] == true).count();
    // Three counted blocks, or so many void blocks that the comparison was ended.
    assert!(counted == 3 || (document["validity"]["verdict"] == "invalid" && blocks.len() - counted > 2), "{document}");
    assert!(one.requests() > 0 && other.requests() > 0);
    let differ = compare["plans_differ"].as_array().unwrap();
    assert_eq!((differ.len(), &differ[0]["field"]), (1, &json!("load.url")));
    // The comparison is stored, its runs only with an option.
    assert_eq!(stored_comparisons(&workspace.runs()), 1);
    let dir = document["run"]["dir"].as_str().unwrap();
    assert_eq!(workspace.run(&["report", "--json", str_of(dir)]).json(), document);
}
