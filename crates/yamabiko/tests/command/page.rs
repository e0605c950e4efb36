//! `report --html` and `--svg`: one complete file, or one line of error and no file.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::hostile::Hostile;
use crate::support::workspace::{Output, Workspace, str_of};

/// A workspace with one stored run, with a header that contains markup.
fn with_a_run() -> Workspace {
    let (workspace, server) = (Workspace::concurrent(), Hostile::start());
    let wild = "X-Wild: </script><img src=x onerror=alert(1)>";
    let output = workspace.run(&["bench", &server.url("/ok/1000"), "-n", "50", "-H", wild, "--json"]);
    // The machine's noise can make the run invalid, which does not affect its page.
    output.assert_measured();
    workspace
}

/// The file is written, the exit status is the run's, and stdout has the file's path only.
fn written(output: &Output) {
    output.assert_measured();
    assert_eq!(output.stderr, "", "{output}");
}

#[test]
fn report_writes_a_run_as_one_html_file() {
    let workspace = with_a_run();
    let path = workspace.file("a page.html");
    let output = workspace.run(&["report", "--html", str_of(&path)]);
    written(&output);
    assert!(output.stdout.starts_with("file:///") && output.stdout.ends_with("/a%20page.html\n"), "{output}");
    let html = fs::read_to_string(&path).unwrap();
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    for part in
        ["requests/s achieved", "class=\"verdict ", "<h2>Load</h2>", "<h2>Over time</h2>", "id=\"plots\"", "plan"]
    {
        assert!(html.contains(part), "{part}");
    }
    // The command and the plan contain the header, as escaped text.
    assert!(html.matches("&lt;img src=x onerror=alert(1)&gt;").count() >= 2 && !html.contains("<img"));
    // Without a path the page has no path section.
    assert!(!html.contains("<h2>Path</h2>") && !html.contains("<h2>Server</h2>"));
    // The file has the permissions of the umask, and no temporary file remains.
    assert_ne!(fs::metadata(&path).unwrap().permissions().mode() & 0o044, 0);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    // Writing the page again, over the file and to standard output, gives the same bytes.
    written(&workspace.run(&["report", "last", "--html", str_of(&path)]));
    assert_eq!(fs::read_to_string(&path).unwrap(), html);
    assert_eq!(workspace.run(&["report", "--html", "-"]).stdout, html);
}

#[test]
fn report_writes_plots_as_files() {
    let workspace = with_a_run();
    let folder = workspace.file("plots");
    let output = workspace.run(&["report", "--svg", str_of(&folder)]);
    written(&output);
    let named: Vec<&str> = output.stdout.lines().collect();
    assert!(named.contains(&str_of(&folder.join("concurrent-connections.svg"))), "{output}");
    assert!(named.contains(&str_of(&folder.join("response-time-by-percentile.svg"))), "{output}");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), named.len());
    for path in named {
        let svg = fs::read_to_string(path).unwrap();
        assert!(svg.starts_with("<?xml") && svg.contains("xmlns=") && svg.trim_end().ends_with("</svg>"), "{path}");
    }
}

/// The Markdown report has the same text without plots; user input is escaped.
#[test]
fn report_writes_a_run_as_markdown() {
    let workspace = with_a_run();
    let path = workspace.file("run.md");
    let output = workspace.run(&["report", "--md", str_of(&path)]);
    written(&output);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# ") && text.contains("## Load") && text.contains("| offered | 50 |"), "{text}");
    let fenced: String = text.split("```").skip(1).step_by(2).collect();
    assert!(fenced.contains("<img src=x onerror=alert(1)>"), "the command can be copied");
    assert!(!text.split("```").step_by(2).any(|outside| outside.contains("<img")), "{text}");
    assert_eq!(workspace.run(&["report", "--md", "-"]).stdout, text);
    workspace.run(&["report", "--md", "-", "--html", "-"]).refused(1, &["--html -", "--md -"]);
    workspace.run(&["report", "--md", "x", "--json"]).refused(1, &["--md", "--json"]);
}

#[test]
fn report_names_an_unwritable_file_in_one_line() {
    let workspace = with_a_run();
    let missing = workspace.file("missing/page.html");
    workspace.run(&["report", "--html", str_of(&missing)]).refused(2, &["cannot write", "missing/page.html"]);
    assert!(!workspace.file("missing").exists());
    // A folder is not replaced.
    let folder = workspace.file("folder");
    fs::create_dir(&folder).unwrap();
    workspace.run(&["report", "--html", str_of(&folder)]).refused(2, &["cannot write"]);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let file = workspace.file("file");
    fs::write(&file, "mine").unwrap();
    workspace.run(&["report", "--svg", str_of(&file)]).refused(2, &["cannot create the folder"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    // A device is written to, and not replaced.
    written(&workspace.run(&["report", "--html", "/dev/null"]));
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
    workspace.run(&["report", "--html", "x", "--json"]).refused(1, &["--html", "--json"]);
    workspace.run(&["report", "nosuch", "--html", "x"]).refused(1, &["nosuch"]);
    assert!(!workspace.path().join("x").exists());
}

/// The page of a run with corrupt tables has the remaining data, and names the corrupt tables.
#[test]
fn report_names_a_corrupt_table() {
    let workspace = with_a_run();
    let dir = fs::read_dir(workspace.runs()).unwrap().next().unwrap().unwrap().path();
    fs::write(dir.join("series.parquet"), "no parquet").unwrap();
    fs::write(dir.join("response_time.hlog"), "no log").unwrap();
    let output = workspace.run(&["report", "--html", "-"]);
    assert!(output.stdout.contains("series could not be read"), "{output}");
    assert!(output.stdout.contains("response_time.hlog could not be read"), "{output}");
    assert!(output.stdout.contains("<h2>Load</h2>"), "{output}");
}

/// The report reads the summary that the run has stored instead of the rows, of which a long run has tens of millions.
#[test]
fn report_reads_rows_only_without_a_summary() {
    let workspace = with_a_run();
    let dir = fs::read_dir(workspace.runs()).unwrap().next().unwrap().unwrap().path();
    for table in ["connections.parquet", "wire_requests.parquet", "taps.parquet"] {
        fs::write(dir.join(table), "no parquet").unwrap();
    }
    let read = |name: &str| {
        let html = workspace.run(&["report", "--html", "-"]).stdout;
        html.contains(&format!("{name} could not be read to its end"))
    };
    assert!(
        read("connections") && read("wire_requests") && read("taps"),
        "a run of an earlier version has its rows alone"
    );
    for log in ["wire_rtt", "wire_service", "tap_client"] {
        fs::copy(dir.join("response_time.hlog"), dir.join(format!("{log}.hlog"))).unwrap();
    }
    assert!(!read("connections") && !read("wire_requests") && !read("taps"));
}
