//! The main use case with real servers: one command measures nginx and Apache over the Koshien profile and stores the
//! run.

use std::fs;
use std::path::{Path, PathBuf};

use schema::RequestRecord;
use serde_json::Value;

use crate::support::document::{assert_checks_passed, assert_fields, checks_not_ok, count, disturbed, number};
use crate::support::servers::{apache, bench, nginx, yamabiko_serve};
use crate::support::workspace::{Workspace, str_of};

/// Checks that must pass on a busy machine, too.
const CHECKS_ON_ANY_MACHINE: [&str; 9] = [
    "conservation",
    "littles_law_requests",
    "littles_law_connections",
    "rtt_as_configured",
    "no_unintended_drops",
    "client_descriptors_and_ports",
    "responses_whole",
    "server_alive",
    "records_stored",
];

#[test]
fn bench_measures_nginx_over_the_koshien_profile() {
    let workspace = Workspace::new();
    let (document, dir) = measure_and_check(&workspace, &nginx(&workspace), 5, "");
    assert_repeatable(&workspace, &document, &dir);
}

#[test]
fn bench_measures_apache_over_the_koshien_profile() {
    let workspace = Workspace::new();
    // The longest exchange takes 2.7 s, twice the longest RTT: after that the load is in its steady state.
    measure_and_check(&workspace, &apache(&workspace), 4, " --warmup 3s");
}

/// Runs the command and checks its output, the stored run, and reports of the stored run.
fn measure_and_check(workspace: &Workspace, server: &str, seconds: u64, more: &str) -> (Value, PathBuf) {
    let options = format!("--path koshien-2001 --clients 100 --rate 110/s --close -d {seconds}s --json{more}");
    let document = workspace.run_json(&bench(server, &options));

    assert_checks_passed(&document, &CHECKS_ON_ANY_MACHINE);
    let disturbed = disturbed(&document);
    if !disturbed {
        assert_eq!(checks_not_ok(&document), Vec::<&str>::new());
        assert_eq!(document["validity"]["verdict"], "valid");
    }
    let offered = 110 * seconds;
    assert_eq!(count(&document, "load.offered_requests"), offered);
    assert_eq!(count(&document, "load.completed"), offered);
    assert_eq!(count(&document, "load.status.200"), offered);
    assert_eq!(document["load"]["failed"], serde_json::json!({}));
    let achieved = number(&document, "load.achieved_rate_per_s");
    // Achieved and offered requests differ by the requests in flight at both ends of the phase. The rows determine this
    // number to within some arrivals; a pause of the machine at either end changes it.
    if !disturbed {
        let apart = (achieved - 110.0).abs() * seconds as f64;
        assert!(apart < number(&document, "load.in_flight.mean") / 2.0, "achieved {achieved} of 110/s");
    }
    // Each response is a 10 KB page and its head.
    let page_bytes = number(&document, "load.bytes_received") / offered as f64;
    assert!((10_240.0..10_240.0 + 1000.0).contains(&page_bytes), "{page_bytes}");
    // 110/s with mean service times of about 0.2 s give about 25 requests in flight, as in the paper.
    let expected = 110.0 * number(&document, "load.service_time_ns.mean") / 1e9;
    let in_flight = number(&document, "load.in_flight.mean");
    if !disturbed {
        assert!((in_flight / expected - 1.0).abs() < 0.15, "in flight {in_flight}, expected {expected}");
    }
    assert_eq!(count(&document, "path.configured_rtt_ns.count"), 100);
    assert_fields(&document);

    let dir = assert_files(&document);
    assert_rows_match_document(&document, &dir);
    assert_reported_again(workspace, &document);
    (document, dir)
}

/// The run's folder and what must be in it.
fn assert_files(document: &Value) -> PathBuf {
    let dir = PathBuf::from(document["run"]["dir"].as_str().unwrap());
    let hlogs = ["response_time", "service_time", "send_lag", "connect", "first_byte", "connection_duration"];
    let others =
        ["plan.toml", "summary.json", "requests.parquet", "series.parquet", "server_series.parquet"].map(str::to_owned);
    for name in hlogs.map(|name| format!("{name}.hlog")).iter().chain(&others) {
        assert!(dir.join(name).is_file(), "{name} is not in {}", dir.display());
    }
    assert!(!dir.join("requests").exists() && !dir.join("series").exists(), "parts of a complete table are removed");
    let summary: Value = serde_json::from_str(&fs::read_to_string(dir.join("summary.json")).unwrap()).unwrap();
    assert_eq!(&summary, document);
    dir
}

/// Asserts that every request has a row, and that the document's figures can be computed from the rows.
fn assert_rows_match_document(document: &Value, dir: &Path) {
    let rows = measured_rows(document, dir);
    assert_eq!(rows.len() as u64, count(document, "load.offered_requests"));
    assert!(rows.iter().all(|row| row.failure.is_none() && row.status == 200));
    let received: u64 = rows.iter().map(|row| row.bytes_received).sum();
    assert_eq!(received, count(document, "load.bytes_received"));

    let mut times: Vec<u64> = rows.iter().map(RequestRecord::response_time_ns).collect();
    times.sort_unstable();
    assert_eq!(*times.last().unwrap(), count(document, "load.response_time_ns.max"));
    assert_eq!(*times.first().unwrap(), count(document, "load.response_time_ns.min"));
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)] {
        let exact = times[(share * times.len() as f64).ceil() as usize - 1] as f64;
        let printed = number(document, &format!("load.response_time_ns.{name}"));
        assert!((printed / exact - 1.0).abs() < 0.002, "{name}: rows {exact}, document {printed}");
    }
    let histogram = store::read_histogram(dir, "response_time").unwrap();
    assert_eq!(histogram.len(), times.len() as u64);

    // The series includes the warm-up, like the rows.
    let all_rows: Vec<RequestRecord> = store::read_requests(dir).unwrap().map(Result::unwrap).collect();
    let all = all_rows.len() as u64;
    // Requests that completed within the phase count as achieved, whenever they were scheduled. The rows determine the
    // phase to within some arrivals.
    let first = rows.iter().map(|row| row.scheduled_at.as_nanos()).min().unwrap() as f64;
    let last = first + number(document, "run.duration_s") * 1e9;
    let edge = 50e6;
    let done = |from: f64, to: f64| {
        all_rows.iter().filter(|row| (from..to).contains(&(row.done_at.as_nanos() as f64))).count() as f64
    };
    let achieved = number(document, "load.achieved_rate_per_s") * number(document, "run.duration_s");
    let (least, most) = (done(first + edge, last - edge), done(first - edge, last + edge));
    assert!(least - 0.5 < achieved && achieved < most + 0.5, "achieved {achieved}, by the rows {least} to {most}");
    let series: Vec<_> = store::read_series(dir).unwrap().map(Result::unwrap).collect();
    assert_eq!(series.iter().map(|second| second.offered).sum::<u64>(), all);
    assert_eq!(series.iter().map(|second| second.completed + second.failed).sum::<u64>(), all);

    // The server's seconds add up to the document's resource usage.
    let server: Vec<_> = store::read_server_series(dir).unwrap().map(Result::unwrap).collect();
    let used: f64 = server.iter().map(|second| second.cpu_user_s + second.cpu_system_s).sum();
    let document_s = number(document, "server.cpu_user_s") + number(document, "server.cpu_system_s");
    assert!((used - document_s).abs() < 0.05, "sum of seconds {used} s, document {document_s} s");
    let elapsed: f64 = server.iter().map(|second| second.elapsed_s).sum();
    let duration = number(document, "run.duration_s");
    // Seconds begin and end when they are sampled, which a pause of the machine delays.
    let is_near = (elapsed - duration).abs() < 0.1 * duration + 0.1;
    assert!(is_near || disturbed(document), "{elapsed} s of {duration} s");
    assert!(server.iter().all(|second| second.rss_bytes > 0 && second.cpu_receive_s.is_some()));
}

/// The rows of the measured phase in scheduled order, after those of the warm-up.
fn measured_rows(document: &Value, dir: &Path) -> Vec<RequestRecord> {
    let mut rows: Vec<RequestRecord> = store::read_requests(dir).unwrap().map(Result::unwrap).collect();
    rows.sort_by_key(|row| row.sequence);
    assert!(rows.iter().enumerate().all(|(i, row)| row.sequence == i as u64), "each sequence number occurs once");
    let warmup_ns = (number(document, "run.warmup_s") * 1e9) as u64;
    let from = rows[0].scheduled_at.as_nanos() + warmup_ns;
    rows.retain(|row| row.scheduled_at.as_nanos() >= from);
    rows
}

fn assert_reported_again(workspace: &Workspace, document: &Value) {
    assert_eq!(&workspace.run_json(&["report", "last", "--json"]), document);
    let id = document["run"]["id"].as_str().unwrap();
    let page = workspace.run(&["report", id]);
    assert!(page.stdout.contains("koshien-2001") && page.stdout.contains("110"), "{page}");
    let runs = workspace.run(&["runs"]).success();
    assert!(runs.stdout.contains(id), "{runs}");
}

/// Asserts that the stored plan gives the same arrivals of the same clients.
fn assert_repeatable(workspace: &Workspace, document: &Value, dir: &Path) {
    let plan = dir.join("plan.toml");
    let printed = workspace.run(&["run", str_of(&plan), "--print-plan"]).success();
    assert_eq!(printed.stdout, fs::read_to_string(&plan).unwrap());

    // A run with a shorter warm-up and drain: arrivals and clients depend on the seed only.
    let shorter = workspace.file("plan.toml");
    let text = printed.stdout.lines().map(|line| match line.split_once(" = ") {
        Some(("warmup", _)) => "warmup = \"0s\"\n".to_owned(),
        _ => format!("{line}\n"),
    });
    fs::write(&shorter, text.collect::<String>()).unwrap();
    let again = workspace.run_json(&["run", str_of(&shorter), "--json"]);
    assert_eq!(count(&again, "load.offered_requests"), count(document, "load.offered_requests"));
    assert_eq!(count(&again, "load.completed"), count(document, "load.completed"));
    assert_eq!(again["run"]["seed"], document["run"]["seed"]);
    let clients = |dir: &Path, of: &Value| {
        let mut rows: Vec<_> = store::read_requests(dir).unwrap().map(Result::unwrap).collect();
        rows.sort_by_key(|row| row.sequence);
        let start = rows[0].scheduled_at.as_nanos();
        let first = count(of, "load.offered_requests") as usize;
        rows.iter().take(first).map(|row| (row.client, row.scheduled_at.as_nanos() - start)).collect::<Vec<_>>()
    };
    let again_dir = PathBuf::from(again["run"]["dir"].as_str().unwrap());
    assert_eq!(clients(dir, document), clients(&again_dir, &again));
}

/// A run without a path needs no privilege, and works with any running server.
#[test]
fn bench_measures_a_server_without_a_path() {
    let workspace = Workspace::new();
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let listen = format!("127.0.0.1:{port}");
    let _server = workspace.start(&["serve", str_of(&workspace.www()), "--listen", &listen]);
    crate::support::workspace::wait_until("the server listens", || std::net::TcpStream::connect(&listen).is_ok());
    let url = format!("http://{listen}/10k.bin");
    let document = workspace.run_json(&["bench", &url, "-n", "2000", "-c", "8", "--json"]);
    assert_eq!(count(&document, "load.completed"), 2000);
    assert_eq!(document["load"]["loop"], "closed");
    assert!(document.get("path").is_none() && document.get("server").is_none(), "missing parts are absent, not zero");
    assert_checks_passed(&document, &["conservation", "responses_whole", "client_descriptors_and_ports"]);
}

/// Without a drain the server's resource usage is still read at the right times.
#[test]
fn bench_measures_yamabiko_serve_on_loopback() {
    let workspace = Workspace::new();
    let server = yamabiko_serve(&workspace);
    let document = workspace.run_json(&bench(&server, "-n 3000 -c 4 --json"));
    assert_checks_passed(&document, &["conservation", "responses_whole", "server_alive", "no_unintended_drops"]);
    assert_eq!(count(&document, "load.completed"), 3000);
    let cpu = number(&document, "server.cpu_user_s") + number(&document, "server.cpu_system_s");
    assert!(cpu > 0.0 && cpu < 2.0 * number(&document, "run.duration_s") + 0.1, "{cpu}");
}
