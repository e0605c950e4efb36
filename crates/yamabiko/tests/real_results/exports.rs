//! Other programs read Yamabiko's files and exports: promtool and Prometheus, an OpenTelemetry receiver (rotel), DuckDB
//! and polars, a Jupyter kernel, and a decoder of fortio's types. Each gets the numbers of summary.json.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

use nix::sys::signal::Signal;

use crate::support::readers::{self, Prometheus, own_address, promtool, python};
use crate::support::servers::{bench, yamabiko_serve};
use crate::support::workspace::{Workspace, str_of, wait_until};
use serde_json::Value;

use super::live::Page;

/// A workspace with a run that has a path, a capture and a server, its document and its folder. All tests share one
/// run, which is measured once and imported into each workspace.
fn with_a_run() -> (Workspace, Value, PathBuf) {
    static RUN_ARCHIVE: OnceLock<Vec<u8>> = OnceLock::new();
    let workspace = Workspace::concurrent_as_root();
    let archive = workspace.file("run.tar.gz");
    let made = RUN_ARCHIVE.get_or_init(|| {
        let options = "--path koshien-2001 --clients 100 --rate 110/s --close -d 4s --warmup 0s --json";
        let document = workspace.run_json(&bench(&yamabiko_serve(&workspace), options));
        workspace.run(&["runs", "export", "last", str_of(&archive)]).success();
        fs::remove_dir_all(document["run"]["dir"].as_str().unwrap()).unwrap();
        fs::read(&archive).unwrap()
    });
    fs::write(&archive, made).unwrap();
    workspace.run(&["runs", "import", str_of(&archive)]).success();
    let document = workspace.run_json(&["report", "last", "--json"]);
    let dir = workspace.runs().join(document["run"]["id"].as_str().unwrap());
    (workspace, document, dir)
}

fn written(workspace: &Workspace, format: &str) -> PathBuf {
    let path = workspace.file(&format!("run.{format}"));
    let output = workspace.run(&["report", "--export", format, str_of(&path)]);
    output.assert_measured();
    path
}

fn number(document: &Value, pointer: &str) -> f64 {
    document.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {document}"))
}

/// Prometheus' timestamp of the run's last second.
fn end_s(workspace: &Workspace) -> f64 {
    let text = fs::read_to_string(written(workspace, "openmetrics")).unwrap();
    let samples = text.lines().filter(|line| line.starts_with("yamabiko_requests_offered_total"));
    samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).fold(0.0, f64::max)
}

fn failed(document: &Value) -> f64 {
    document["load"]["failed"].as_object().unwrap().values().map(|count| count.as_f64().unwrap()).sum()
}

/// Asserts that Prometheus has the figures of the run's document.
fn assert_has_run(prometheus: &Prometheus, document: &Value, at_s: f64) {
    let (offered, completed) = (number(document, "/load/offered_requests"), number(document, "/load/completed"));
    assert_eq!(prometheus.one("yamabiko_requests_offered_total", at_s), offered);
    assert_eq!(prometheus.one("sum(yamabiko_requests_total)", at_s), completed + failed(document));
    assert_eq!(prometheus.one("yamabiko_response_time_seconds_count", at_s), completed);
    assert_eq!(prometheus.one("yamabiko_response_time_seconds_bucket{le=\"+Inf\"}", at_s), completed);
    let p99 = prometheus.one("yamabiko_measured_response_time_percentile_seconds{percentile=\"99\"}", at_s);
    assert!((p99 * 1e9 / number(document, "/load/response_time_ns/p99") - 1.0).abs() < 1e-9, "{p99}");
    // Prometheus estimates quantiles from the buckets, as exactly as the buckets are narrow.
    let estimate = prometheus.one("histogram_quantile(0.5, yamabiko_response_time_seconds_bucket)", at_s);
    let p50 = number(document, "/load/response_time_ns/p50") / 1e9;
    assert!(estimate > p50 / 2.6 && estimate < p50 * 2.6, "{estimate} for {p50}");
    let verdict = prometheus.query("yamabiko_run_verdict == 1", at_s);
    assert_eq!((verdict.len(), &verdict[0].0["verdict"]), (1, &document["validity"]["verdict"]));
    assert_eq!(&verdict[0].0["run"], &document["run"]["id"]);
}

#[test]
fn promtool_accepts_the_export_and_backfills_prometheus() {
    let (workspace, document, _) = with_a_run();
    let checked = promtool(&workspace, &["check", "metrics"], &written(&workspace, "prometheus"));
    assert_eq!((checked.code, checked.stdout.as_str(), checked.stderr.as_str()), (Some(0), "", ""), "{checked}");

    let storage = workspace.file("blocks");
    let history = written(&workspace, "openmetrics");
    let made = promtool(
        &workspace,
        &["tsdb", "create-blocks-from", "openmetrics", str_of(&history), str_of(&storage)],
        &history,
    );
    assert_eq!(made.code, Some(0), "{made}");
    let prometheus = Prometheus::start(&workspace, &storage, &[]);
    let at_s = end_s(&workspace);
    assert_has_run(&prometheus, &document, at_s);
    // Every second is stored, not only the last one.
    let seconds = prometheus.one("count_over_time(yamabiko_requests_offered_total[1m])", at_s);
    assert!(seconds >= number(&document, "/run/duration_s"), "{seconds}");
}

#[test]
fn prometheus_returns_the_figures_sent_by_remote_write() {
    let (workspace, document, _) = with_a_run();
    let prometheus = Prometheus::start(&workspace, &workspace.file("tsdb"), &[]);
    let url = format!("http://{}/api/v1/write", prometheus.address);
    workspace.run(&["export", "last", "--remote-write", &url]).success();
    let at_s = end_s(&workspace);
    assert_has_run(&prometheus, &document, at_s);
    // The time series end with the run.
    assert!(prometheus.query("yamabiko_requests_offered_total", at_s + 5.0).is_empty());
    // Prometheus can evaluate every query of the dashboard.
    let dashboard: Value =
        serde_json::from_str(&fs::read_to_string(readers::repository("examples/grafana/yamabiko.json")).unwrap())
            .unwrap();
    let mut with_result = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap().replace("$run", ".*").replace("$__rate_interval", "1m");
            // A gauge without a value in the last seconds has ended.
            let times = [at_s, at_s - 3.0];
            with_result += usize::from(times.iter().any(|&at_s| !prometheus.query(&query, at_s).is_empty()));
        }
    }
    assert!(with_result > 25, "{with_result} queries of the dashboard have a result");
    // Prometheus refuses repeated data, reports that, and loses no data.
    workspace.run(&["export", "last", "--remote-write", &url]).refused(2, &["was sent before"]);
    assert_has_run(&prometheus, &document, at_s);
}

#[test]
fn prometheus_scrapes_the_live_page_of_a_finished_run() {
    let (workspace, document, _) = with_a_run();
    let page = Page::open(&workspace, &["last"]);
    let prometheus = Prometheus::start(&workspace, &workspace.file("tsdb"), &[page.address().parse().unwrap()]);
    wait_until("Prometheus has scraped the page", || {
        !prometheus.query("yamabiko_requests_offered_total", now_s()).is_empty()
    });
    assert_has_run(&prometheus, &document, now_s());
    assert_eq!(prometheus.one("up", now_s()), 1.0);
}

#[test]
fn prometheus_scrapes_the_live_page_of_a_running_run() {
    let workspace = Workspace::concurrent_as_root();
    let run = workspace
        .start(&bench(&yamabiko_serve(&workspace), "--rtt 20ms --clients 20 --rate 100/s --close -d 300s --json"));
    wait_until("the run has a folder", || {
        fs::read_dir(workspace.runs()).unwrap().flatten().any(|run| run.path().join("progress.json").exists())
    });
    let page = Page::open(&workspace, &["last"]);
    let prometheus = Prometheus::start(&workspace, &workspace.file("tsdb"), &[page.address().parse().unwrap()]);
    let offered = || prometheus.query("yamabiko_requests_offered_total", now_s()).first().map_or(0.0, |one| one.1);
    wait_until("requests are counted", || offered() > 0.0);
    let before = offered();
    wait_until("more requests are counted", || offered() > before + 100.0);
    run.signal(Signal::SIGINT);
    let document = run.finish().json();
    let all = number(&document, "/load/offered_requests");
    // Warm-up included.
    wait_until("all requests are counted", || offered() >= all);
    assert_eq!(prometheus.one("count(up == 1)", now_s()), 1.0);
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn an_opentelemetry_receiver_gets_the_figures_of_a_run() {
    let (workspace, document, _) = with_a_run();
    let (http, grpc) = (own_address(4318), own_address(4317));
    let mut command = Command::new(readers::folder().join("venv/bin/python"));
    // The receiver's binary is inside the Python package.
    let find = "import os, rotel, sys; agent = os.path.join(os.path.dirname(rotel.__file__), 'rotel-agent'); os.execv(agent, [agent] + sys.argv[1:])";
    command.args([
        "-c",
        find,
        "start",
        "--exporter",
        "blackhole",
        "--debug-log",
        "metrics",
        "--debug-log-verbosity",
        "detailed",
    ]);
    command.args(["--otlp-http-endpoint", &http.to_string(), "--otlp-grpc-endpoint", &grpc.to_string()]);
    let (pid, log) = (workspace.file("rotel.pid"), workspace.file("rotel.log"));
    command.args(["--pid-file", str_of(&pid), "--log-file", str_of(&log)]).stdin(Stdio::null());
    let rotel = workspace.start_command(command);
    wait_until("rotel listens", || std::net::TcpStream::connect(http).is_ok());
    workspace.run(&["export", "last", "--otlp", &format!("http://{http}")]).success();
    let printed = || rotel.stdout() + &rotel.stderr();
    // A block for each metric with a line for each value of each point; the last metric of the message is complete when
    // its last value is printed.
    wait_until("rotel shows the metrics", || printed().contains("Name: http.client.active_requests"));
    let text = printed();
    let of = |metric: &str, figure: &str| -> Vec<f64> {
        let block = text
            .split("Descriptor:")
            .find(|block| block.lines().any(|line| line.ends_with(&format!("Name: {metric}"))));
        let block = block.unwrap_or_else(|| panic!("{metric} in {text}"));
        block.lines().filter_map(|line| line.strip_prefix(figure)?.trim().parse().ok()).collect()
    };
    let (offered, completed) = (number(&document, "/load/offered_requests"), number(&document, "/load/completed"));
    assert_eq!(of("yamabiko.requests_offered", "Value:").last(), Some(&offered));
    assert_eq!(of("yamabiko.measured_requests_completed", "Value:"), [completed]);
    assert_eq!(of("yamabiko.response_time", "Count:").last(), Some(&completed));
    let durations = "http.client.request.duration";
    assert_eq!(of(durations, "Count:").iter().sum::<f64>(), number(&document, "/load/service_time_ns/count"));
    let longest = of(durations, "Max:").into_iter().fold(0.0, f64::max);
    assert!((longest * 1e9 - number(&document, "/load/service_time_ns/max")).abs() < 1.0, "{longest}");
    for words in
        [document["run"]["id"].as_str().unwrap(), "server.address: Str(server)", "http.response.status_code: Int(200)"]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
}

#[test]
fn duckdb_and_polars_read_every_table() {
    let (workspace, document, dir) = with_a_run();
    let output = python(&workspace, &readers::script("tables.py"), &[str_of(&dir)], &[]);
    let found = output.json();
    let tables: BTreeSet<String> = found.as_object().unwrap().keys().cloned().collect();
    let there = fs::read_dir(&dir).unwrap().flatten().filter_map(|entry| {
        entry.file_name().to_str().and_then(|name| name.strip_suffix(".parquet")).map(str::to_owned)
    });
    assert_eq!(tables, there.collect());
    for name in ["requests", "series", "server_series", "connections", "wire_requests", "watch_series"] {
        assert!(tables.contains(name), "{name} of {tables:?}");
    }
    // The columns are those that docs/concepts/columns.md lists.
    let page = workspace.run(&["runs", "columns"]).stdout;
    for (name, table) in found.as_object().unwrap() {
        assert_eq!((&table["agree"], &table["columns"]), (&Value::from(true), &table["polars_columns"]), "{name}");
        for column in table["columns"].as_array().unwrap() {
            assert!(page.contains(&format!("| `{}` |", column.as_str().unwrap())), "{name}: {column}");
        }
    }
    let offered = number(&document, "/load/offered_requests");
    assert_eq!(number(&found, "/requests/rows"), offered);
    assert_eq!(number(&found, "/requests/failed"), failed(&document));
    assert_eq!(number(&found, "/requests/sums/bytes_received"), number(&document, "/load/bytes_received"));
    assert_eq!(number(&found, "/series/sums/offered"), offered);
    assert_eq!(number(&found, "/series/sums/completed"), number(&document, "/load/completed"));
    assert_eq!(number(&found, "/distributions/sums/count"), number(&document, "/load/completed"));
    // The document's wire section covers the measured phase; rows and seconds cover the complete capture.
    assert_eq!(number(&found, "/wire_requests/rows"), number(&found, "/watch_series/sums/requests"));
    assert_eq!(number(&found, "/connections/rows"), number(&found, "/watch_series/sums/connections_opened"));
    assert!(number(&found, "/watch_series/sums/packets") >= number(&document, "/watch/packets"));
    assert_eq!(number(&found, "/requests/p99"), number(&found, "/requests/polars_p99"));
    // Histograms have three significant digits.
    let p99 = number(&document, "/load/response_time_ns/p99") / number(&found, "/requests/p99");
    assert!((0.999..1.01).contains(&p99), "{p99}");
}

#[test]
fn the_example_notebook_runs_and_draws_charts() {
    let (workspace, document, dir) = with_a_run();
    let folder = readers::repository("examples/notebook");
    python(&workspace, &folder.join("make.py"), &["--check"], &[]);
    let figures = workspace.file("figures");
    fs::create_dir(&figures).unwrap();
    // A notebook kernel draws figures; a script has no window.
    let variables = [("YAMABIKO_RUN", str_of(&dir)), ("YAMABIKO_FIGURES", str_of(&figures)), ("MPLBACKEND", "agg")];
    let script = python(&workspace, &folder.join("yamabiko.py"), &[], &variables);
    for name in ["in_process", "by_percentile", "round_trips", "over_time"] {
        let png = fs::read(figures.join(format!("{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 4000, "{name}: {} bytes", png.len());
    }
    let run = python(
        &workspace,
        &readers::script("notebook.py"),
        &[str_of(&folder.join("yamabiko.ipynb")), str_of(workspace.path())],
        &variables[..1],
    );
    assert!(run.stdout.contains("4 figures"), "{run}");
    for output in [&script, &run] {
        let completed = format!("{:.1}", number(&document, "/load/completed"));
        // Both columns of the table: counted from the rows, and read from the document.
        let line = output.stdout.lines().find(|line| line.contains("completed")).unwrap_or_else(|| panic!("{output}"));
        assert_eq!(line.matches(&completed).count(), 2, "{line}");
    }
}

/// Neither Debian nor PyPI packages fortio: a script decodes the JSON like fortio, with the types that fortio
/// documents.
#[test]
fn fortio_reads_the_exported_json() {
    let (workspace, document, _) = with_a_run();
    let mut command = Command::new(readers::folder().join("venv/bin/python"));
    command.arg(readers::script("fortio.py")).stdin(File::open(written(&workspace, "fortio")).unwrap());
    let read = workspace.start_command(command).finish().success().json();
    assert_eq!((&read["id"], &read["run_type"]), (&document["run"]["id"], &Value::from("HTTP")));
    assert_eq!((&read["in_order"], &read["counted"]), (&Value::from(true), &read["count"]));
    assert_eq!(number(&read, "/count"), number(&document, "/load/response_time_ns/count"));
    assert_eq!(&read["ret_codes"]["200"], &document["load"]["status"]["200"]);
    assert_eq!(number(&read, "/actual_qps"), number(&document, "/load/achieved_rate_per_s"));
    assert!((number(&read, "/max") * 1e9 / number(&document, "/load/response_time_ns/max") - 1.0).abs() < 0.001);
    // fortio's interpolation in the exported buckets gives the run's percentile.
    let p99 = number(&read, "/p99") * 1e9 / number(&document, "/load/response_time_ns/p99");
    assert!((0.99..1.01).contains(&p99), "{p99}");
}
