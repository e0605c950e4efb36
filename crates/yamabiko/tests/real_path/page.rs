//! The page of a real run in a real browser without a network: every chart is drawn, and the console has no messages.

use std::process::{Command, Stdio};

use crate::support::servers::{bench, yamabiko_serve};
use crate::support::workspace::{Output, Workspace, str_of};

/// Opens a page in a network namespace without any device that is up.
fn dump_page(workspace: &Workspace, url: &str) -> Output {
    let mut command = Command::new("unshare");
    command.args(["--net", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.args(["--enable-logging=stderr", "--virtual-time-budget=3000", "--window-size=1200,2000"]);
    command.arg(format!("--user-data-dir={}", workspace.file("browser").display()));
    command.args(["--dump-dom", url]).stdin(Stdio::null());
    workspace.start_command(command).finish().success()
}

#[test]
fn a_browser_without_network_draws_every_chart_of_the_report() {
    let workspace = Workspace::new();
    let options = "--path koshien-2001 --clients 100 --rate 110/s --close -d 3s --warmup 1s --json";
    let document = workspace.run_json(&bench(&yamabiko_serve(&workspace), options));
    let path = workspace.file("page.html");
    let written = workspace.run(&["report", "--html", str_of(&path)]);
    written.assert_measured();
    let url = written.stdout.trim_end();

    let page = dump_page(&workspace, url);
    let dom = &page.stdout;
    let charts = dom.matches("data-plot=").count();
    assert!(charts >= 4, "{charts} charts");
    assert_eq!(dom.matches("<canvas").count(), charts, "a canvas for each chart");
    assert_eq!(dom.matches("class=\"uplot").count(), charts);
    // Each canvas replaces a plot that needs no script.
    assert_eq!(dom.matches("<figure class=\"wide drawn\"").count(), charts);
    assert!(dom.contains(document["run"]["id"].as_str().unwrap()));
    for part in ["Path", "Server", "By distance", "Repeat this run"] {
        assert!(dom.contains(&format!("<h2>{part}</h2>")), "{part}");
    }
    // The page's console messages, including violations of its content policy; internal pages of the browser are
    // excluded.
    let from_page = |line: &&str| line.contains("CONSOLE") && line.contains("source: file://");
    let console: Vec<&str> = page.stderr.lines().filter(from_page).collect();
    assert_eq!(console, Vec::<&str>::new());
}

/// The page of a comparison of two runs whose URLs contain markup: every chart is drawn, and the console has no
/// messages.
#[test]
fn a_browser_draws_the_page_of_a_comparison() {
    let workspace = Workspace::new();
    // Long enough for confidence intervals. Both runs are concurrent, since no figure is checked.
    let options =
        "--path koshien-2001 --clients 50 --rate 110/s --close -d 21s --warmup 0s --json -H X-Wild:<img/src=x>";
    let server = yamabiko_serve(&workspace);
    let arguments = bench(&server, options);
    for run in [(); 2].map(|()| workspace.start(&arguments)) {
        let output = run.finish();
        output.assert_measured();
    }
    let path = workspace.file("compare.html");
    let made =
        workspace.run(&["compare", "last~1", "last", "--fail-if", "p99 +5%, errors +1%", "--html", str_of(&path)]);
    assert!(matches!(made.code, Some(0 | 3 | 4)), "{made}");
    let page = dump_page(&workspace, made.stdout.lines().last().unwrap());
    let dom = &page.stdout;
    let charts = dom.matches("data-plot=").count();
    assert!(charts >= 3, "{charts} charts");
    assert_eq!(dom.matches("<canvas").count(), charts);
    for part in [
        "Failure conditions",
        "Differences",
        "Distributions",
        "Over time",
        "Differences of plans and hosts",
        "Repeat this run",
    ] {
        assert!(dom.contains(&format!("<h2>{part}</h2>")), "{part}");
    }
    assert!(!dom.contains("<img"), "{dom}");
    let from_page = |line: &&str| line.contains("CONSOLE") && line.contains("source: file://");
    let console: Vec<&str> = page.stderr.lines().filter(from_page).collect();
    assert_eq!(console, Vec::<&str>::new());
}

/// The demo's last line is the URL of a page with the verdicts and one chart of its three runs.
#[test]
fn the_demo_writes_its_page() {
    let workspace = Workspace::new();
    let demo = workspace.run(&["demo", "-d", "2s"]);
    demo.assert_measured();
    let url = demo.stdout.lines().last().unwrap();
    assert!(url.starts_with("file:///") && url.contains("-demo-koshien-") && url.ends_with("/demo.html"), "{demo}");
    let dom = dump_page(&workspace, url).stdout;
    for label in ["LAN, RTT 0.2 ms", "RTT 48 ms for all", "Koshien's distances"] {
        assert!(dom.contains(&format!("<b>{label}.</b>")) && dom.contains(&format!("<th scope=\"row\">{label}</th>")));
        // In the legend of the one chart over time, and in those of the two distributions.
        assert!(dom.matches(label).count() >= 5, "{label}");
    }
    assert_eq!(dom.matches("class=\"verdict ").count(), 3);
    assert_eq!((dom.matches("<canvas").count(), dom.matches("about 25").count()), (1, 1));
}
