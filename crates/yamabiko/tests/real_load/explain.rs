//! Limits built on purpose with a real server and kernel TCP, each to be named by one run of `explain`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::document::disturbed;
use crate::support::servers::yamabiko_serve;
use crate::support::workspace::{Workspace, str_of};

/// A run of `explain` against a server with a file of `bytes` bytes; its JSON document.
fn explained(workspace: &Workspace, server: &str, bytes: usize, options: &str) -> Value {
    fs::write(workspace.www().join("file.bin"), vec![b'x'; bytes]).unwrap();
    let mut words = vec!["explain", "http://server:8080/file.bin", "--server", server, "--json"];
    words.extend(options.split_whitespace());
    workspace.run_json(&words)
}

/// The cause or limit that dominates the median response, and its share of the time.
fn median_limit(document: &Value) -> (String, f64) {
    let group = &document["summary"]["percentiles"][0];
    let dominant = &group["dominant"];
    let limit = &dominant["limit"];
    let name = limit.as_str().or(limit["of"].as_str()).unwrap_or_default().to_owned();
    (name, dominant["time_ns"].as_f64().unwrap() / group["response_time_ns"].as_f64().unwrap())
}

/// The share of the median response that is unknown.
fn unknown(document: &Value) -> f64 {
    let group = &document["summary"]["percentiles"][0];
    let share = group["shares"].as_array().unwrap().iter().find(|share| share["cause"] == "unknown");
    share.map_or(0.0, |share| share["time_ns"].as_f64().unwrap() / group["response_time_ns"].as_f64().unwrap())
}

/// Less than a twentieth of the median response is unknown, or the run reports a disturbed machine.
fn assert_causes_known(workspace: &Workspace, document: &Value) {
    if unknown(document) >= 0.05 {
        let dir = workspace.runs().join(document["run"]["id"].as_str().unwrap());
        let run = serde_json::from_slice(&fs::read(dir.join("summary.json")).unwrap()).unwrap();
        assert!(disturbed(&run), "{}", document["summary"]);
    }
}

#[test]
fn explain_names_the_initial_window_of_a_new_connection() {
    let workspace = Workspace::new();
    let options = "--rtt 60ms --server-tcp initcwnd=2 --close -r 10/s -d 4s";
    let document = explained(&workspace, &yamabiko_serve(&workspace), 100_000, options);
    let (limit, share) = median_limit(&document);
    assert!(limit == "congestion_window" && share > 0.4, "{limit} {share}: {}", document["summary"]["sentence"]);
    let sentence = document["summary"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("initial window is 2 segments"), "{sentence}");
    assert_causes_known(&workspace, &document);
}

#[test]
fn explain_names_the_rate_of_a_slow_link() {
    let workspace = Workspace::new();
    let options = "--rtt 20ms --down 2Mbit --close -r 1/s -d 5s --clients 20";
    let document = explained(&workspace, &yamabiko_serve(&workspace), 200_000, options);
    let (limit, share) = median_limit(&document);
    assert!(limit == "bottleneck_rate" && share > 0.7, "{limit} {share}: {}", document["summary"]["sentence"]);
    assert_causes_known(&workspace, &document);
}

/// curl/curl#1102: windows of 64 KB.
#[test]
fn explain_names_the_windows_of_http2_and_try_enlarges_them() {
    let workspace = Workspace::new();
    let options = "--rtt 33ms --http 2 --streams 1 --http2-stream-window 64KiB --http2-connection-window 64KiB \
                   -c 1 -n 2 -d 20s --try";
    let document = explained(&workspace, &yamabiko_serve(&workspace), 5_000_000, options);
    let group = &document["summary"]["percentiles"][0];
    let shares = group["shares"].as_array().unwrap().iter();
    let windows = shares.filter(|share| share["cause"].as_str().is_some_and(|cause| cause.starts_with("http2_")));
    let windows: f64 = windows.map(|share| share["time_ns"].as_f64().unwrap()).sum();
    let sentence = document["summary"]["sentence"].as_str().unwrap();
    // Part of the time the server's pacing is slower than the windows.
    assert!(windows / group["response_time_ns"].as_f64().unwrap() > 0.4, "{document}");
    assert!(sentence.contains("HTTP/2") && sentence.contains("window is 64 KB"), "{sentence}");
    let tried = &document["try"]["tried"];
    let of = |name: &str| tried[name].as_f64().unwrap_or_else(|| panic!("{name}: {document}"));
    assert!(of("measured_ns") < 0.5 * of("before_ns"), "{tried}");
}

#[test]
fn explain_tells_streams_of_a_connection_apart() {
    let workspace = Workspace::new();
    let options = "--rtt 30ms --down 20Mbit --http 2 --streams 10 -c 1 -d 3s";
    let document = explained(&workspace, &yamabiko_serve(&workspace), 100_000, options);
    let shares = document["summary"]["percentiles"][0]["shares"].as_array().unwrap();
    let blocked = shares.iter().find(|share| share["cause"] == "head_of_line");
    assert!(blocked.is_some_and(|share| share["time_ns"].as_f64().unwrap() > 0.0), "{shares:?}");
    assert_causes_known(&workspace, &document);
}

/// wrk2's example of coordinated omission: a server that stops for 1.4 s.
#[test]
fn explain_names_a_server_that_stops_for_1400_ms_at_p99() {
    let workspace = Workspace::new();
    let serve = yamabiko_serve(&workspace);
    let serve = serve.strip_prefix("exec ").unwrap();
    let stopped = format!("{serve} & p=$!; sleep 4; kill -STOP $p; sleep 1.4; kill -CONT $p; wait $p");
    let document = explained(&workspace, &stopped, 10_000, "--rtt 20ms -r 50/s -d 6s");
    let sentence = document["summary"]["sentence"].as_str().unwrap();
    assert!(sentence.contains("the median response"), "{sentence}");
    let tail = sentence.split("Of the p99 response of 1.").nth(1);
    assert!(tail.is_some_and(|tail| tail.ends_with("% is server processing.")), "{sentence}");
}

#[test]
fn explain_of_a_stored_run_is_that_of_the_run_itself() {
    let workspace = Workspace::new();
    fs::write(workspace.www().join("file.bin"), vec![b'x'; 50_000]).unwrap();
    let server = yamabiko_serve(&workspace);
    let words =
        ["bench", "http://server:8080/file.bin", "--server", &server, "--rtt", "30ms", "-r", "20/s", "-d", "2s"];
    let run = workspace.run_json(&[&words[..], &["--explain", "--json"]].concat());
    let again = workspace.run_json(&["explain", "last", "--json"]);
    assert_eq!(run["explain"]["summary"], again["summary"]);
    let page = workspace.file("page.html");
    workspace.run(&["explain", "last", "--html", str_of(&page)]).success();
    let html = fs::read_to_string(&page).unwrap();
    assert!(html.contains("Single responses") && html.contains("sent by the server"));
}

/// A server that answers each request with a body of `bytes` bytes after `cpu_ms` of computation; its sockets have a
/// send buffer of `send_buffer` bytes, or the default.
fn python_server(workspace: &Workspace, bytes: usize, cpu_ms: u32, send_buffer: Option<u32>) -> String {
    let limit = send_buffer
        .map_or(String::new(), |bytes| format!("listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, {bytes})\n"));
    let script = format!(
        "import socket, threading, time\n\
         listener = socket.socket()\n\
         listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n\
         {limit}\
         listener.bind(('0.0.0.0', 8080))\n\
         listener.listen(128)\n\
         answer = b'HTTP/1.1 200 OK\\r\\nContent-Length: {bytes}\\r\\n\\r\\n' + b'x' * {bytes}\n\
         def serve(connection):\n\
         \x20   connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)\n\
         \x20   while connection.recv(65536):\n\
         \x20       until = time.thread_time() + {cpu_ms} / 1000\n\
         \x20       while time.thread_time() < until: pass\n\
         \x20       connection.sendall(answer)\n\
         while True:\n\
         \x20   connection, _ = listener.accept()\n\
         \x20   threading.Thread(target=serve, args=(connection,), daemon=True).start()\n"
    );
    let path = workspace.file("server.py");
    fs::write(&path, script).unwrap();
    format!("exec python3 {}", path.display())
}

/// Only TCP_INFO tells a full send buffer from a full congestion window: in both cases data leaves when an ACK arrives.
#[test]
fn explain_names_a_send_buffer_of_16_kb_and_without_it_the_congestion_window() {
    let workspace = Workspace::new();
    // The pacing of BBR would be a part of the congestion window.
    let options = "--rtt 100ms --close -r 4/s -d 4s --server-tcp cc=cubic";
    let small = python_server(&workspace, 300_000, 0, Some(16_384));
    let document = explained(&workspace, &small, 1, options);
    let (limit, share) = median_limit(&document);
    let sentence = &document["summary"]["sentence"];
    assert!(limit == "send_buffer" && share > 0.35, "{limit} {share}: {sentence}");
    assert_causes_known(&workspace, &document);
    let usual = python_server(&workspace, 300_000, 0, None);
    let document = explained(&workspace, &usual, 1, options);
    let (limit, share) = median_limit(&document);
    let sentence = &document["summary"]["sentence"];
    // The largest of all shares; on a busy machine the program's own part of the response grows.
    assert!(limit == "congestion_window" && share > 0.2, "{limit} {share}: {sentence}");
    assert_causes_known(&workspace, &document);
}

#[test]
fn explain_names_the_cpu_limit_of_a_server_and_without_it_its_processing() {
    let workspace = Workspace::new();
    let server = python_server(&workspace, 1_000, 20, None);
    let options = "--rtt 10ms -r 2/s -d 5s";
    let document = explained(&workspace, &server, 1, &format!("{options} --server-cpu 10%"));
    let (limit, share) = median_limit(&document);
    let sentence = &document["summary"]["sentence"];
    assert!(limit == "cpu_throttling" && share > 0.5, "{limit} {share}: {sentence}");
    let document = explained(&workspace, &server, 1, options);
    let (limit, share) = median_limit(&document);
    let sentence = &document["summary"]["sentence"];
    assert!(limit == "server_processing" && share > 0.4, "{limit} {share}: {sentence}");
}

#[test]
fn an_explained_run_has_the_shares_of_each_response_and_the_result_in_its_summary() {
    let workspace = Workspace::new();
    fs::write(workspace.www().join("file.bin"), vec![b'x'; 50_000]).unwrap();
    let server = yamabiko_serve(&workspace);
    let words = ["bench", "http://server:8080/file.bin", "--server", &server, "--rtt", "30ms", "-r", "20/s"];
    let run = workspace.run_json(&[&words[..], &["-d", "2s", "--explain", "--json"]].concat());
    let dir = Path::new(run["run"]["dir"].as_str().unwrap());
    let shares: Vec<_> = store::read_shares(dir).unwrap().map(Result::unwrap).collect();
    let responses: BTreeSet<u64> = shares.iter().map(|share| share.sequence).collect();
    assert_eq!(responses.len() as u64, run["explain"]["summary"]["responses"].as_u64().unwrap());
    for response in responses {
        let own = shares.iter().filter(|share| share.sequence == response);
        assert_eq!(own.clone().map(|share| share.time_ns).sum::<u64>(), own.clone().next().unwrap().response_time_ns);
    }
    let samples = store::read_tcp_samples(dir).unwrap().map(Result::unwrap);
    assert!(samples.into_iter().any(|sample| sample.congestion_window > 0 && sample.segment_bytes > 500));
    let summary: Value = serde_json::from_slice(&fs::read(dir.join("summary.json")).unwrap()).unwrap();
    assert_eq!(summary["explain"], run["explain"]);
    let file = workspace.file("shares.parquet");
    workspace.run(&["explain", "last", "--parquet", str_of(&file)]).success();
    assert_eq!(fs::read(&file).unwrap(), fs::read(dir.join("shares.parquet")).unwrap());
}

#[test]
fn bench_with_explain_whose_requests_all_fail_has_its_result_and_a_note() {
    let workspace = Workspace::new();
    let server = "exec python3 -c \"import socket, time\n\
                  listener = socket.socket()\n\
                  listener.bind(('0.0.0.0', 8080))\n\
                  listener.listen(64)\n\
                  while True: listener.accept()[0].close()\"";
    let words = ["bench", "http://server:8080/", "--server", server, "--rtt", "10ms", "-r", "20/s", "-d", "1s"];
    let output = workspace.run(&[&words[..], &["--explain", "--json"]].concat());
    assert_eq!(output.code, Some(3), "{}", output.stderr);
    assert!(output.stderr.contains("note: not explained: "), "{}", output.stderr);
    assert!(output.stderr.contains("no complete response"), "{}", output.stderr);
    let document: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(document["load"]["completed"], 0);
    assert!(document.get("explain").is_none());
}

#[test]
fn try_makes_a_run_with_the_remedy_and_prints_predicted_beside_measured() {
    let workspace = Workspace::new();
    fs::write(workspace.www().join("file.bin"), vec![b'x'; 100_000]).unwrap();
    let server = yamabiko_serve(&workspace);
    let words = ["explain", "http://server:8080/file.bin", "--server", &server, "--rtt", "60ms", "--close"];
    let more = ["--server-tcp", "initcwnd=2", "-r", "10/s", "-d", "3s", "--try", "--json"];
    let document = workspace.run_json(&[&words[..], &more].concat());
    let tried = &document["try"]["tried"];
    assert_eq!(tried["change"], "--server-tcp initcwnd=10", "{}", document["try"]);
    let ms = |value: &Value| value.as_f64().unwrap() / 1e6;
    let (before, measured) = (ms(&tried["before_ns"]), ms(&tried["measured_ns"]));
    let predicted = ms(&tried["prediction"]["response_time_ns"]);
    assert!(measured < before - 60.0, "a round trip less at least: {measured} ms after {before} ms");
    assert!((predicted - measured).abs() < 90.0, "predicted {predicted} ms, measured {measured} ms");
    let runs = workspace.run(&["runs"]).success().stdout.clone();
    assert!(runs.contains("-try"), "{runs}");
    let again = workspace.run(&["explain", tried["run"].as_str().unwrap(), "--json"]).success().json();
    assert_eq!(again["summary"]["sentence"], tried["sentence"]);
}

#[test]
fn try_tells_in_a_line_why_a_remedy_is_not_a_run_s_to_make() {
    let workspace = Workspace::new();
    fs::write(workspace.www().join("file.bin"), vec![b'x'; 200_000]).unwrap();
    let server = yamabiko_serve(&workspace);
    let words = ["explain", "http://server:8080/file.bin", "--server", &server, "--rtt", "20ms", "--down", "2Mbit"];
    let output =
        workspace.run(&[&words[..], &["--close", "-r", "1/s", "-d", "4s", "--clients", "20", "--try"]].concat());
    let text = &output.success().stdout;
    let line = text.lines().find(|line| line.starts_with("Not tried: "));
    assert!(line.is_some_and(|line| line.contains("no remedy")), "{text}");
}
