//! Limits of HTTP/3 built on purpose with real servers, each to be named by one run of `explain`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::http3::caddy;
use crate::support::tls::Authority;
use crate::support::workspace::{Workspace, str_of, yamabiko};

/// `serve --http3` on port 8443 with the options `more`, and the options to trust it.
fn server(workspace: &Workspace, more: &str) -> (String, String) {
    let authority = Authority::new(workspace, "authority");
    let certificate = authority.sign(&["server"], 4000);
    let (program, www) = (yamabiko(), workspace.www());
    let (cert, key) = (str_of(&certificate.cert), str_of(&certificate.key));
    let command = format!(
        "exec {} serve {} --listen 0.0.0.0:8443 --tls {cert} {key} --http3 {more}",
        program.display(),
        www.display()
    );
    (command, format!("--cacert {}", str_of(&authority.file())))
}

/// A run of `explain` at 62 ms of a file with `bytes` bytes; its JSON document.
fn explained(workspace: &Workspace, (server, trust): &(String, String), bytes: usize, options: &str) -> Value {
    fs::write(workspace.www().join("file.bin"), vec![b'x'; bytes]).unwrap();
    let mut words = vec!["explain", "https://server:8443/file.bin", "--server", server, "--http", "3", "--json"];
    words.extend(["--rtt", "62ms"]);
    words.extend(trust.split_whitespace().chain(options.split_whitespace()));
    workspace.run(&words).json()
}

/// Share of the median response that a cause has.
fn share(document: &Value, cause: &str) -> f64 {
    let group = &document["summary"]["percentiles"][0];
    let share = group["shares"].as_array().unwrap().iter().find(|share| share["cause"] == cause);
    share.map_or(0.0, |share| share["time_ns"].as_f64().unwrap() / group["response_time_ns"].as_f64().unwrap())
}

/// The cause or limit that dominates the median response.
fn limit(document: &Value) -> String {
    let limit = &document["summary"]["percentiles"][0]["dominant"]["limit"];
    limit.as_str().or(limit["of"].as_str()).unwrap_or_default().to_owned()
}

fn assert_limit(document: &Value, expected: &str, least: f64) {
    let part = if expected == "loss" { 1.0 } else { share(document, expected) };
    let whole = &document["summary"];
    assert!(limit(document) == expected && part > least, "{expected}: {part}, {}", whole["sentence"]);
    assert!(share(document, "unknown") < 0.1, "{}", whole["percentiles"][0]);
}

#[test]
fn explain_names_the_limits_of_http3() {
    let workspace = Workspace::new();
    let serving = server(&workspace, "");
    let small = explained(&workspace, &serving, 1_000, "--close -r 4/s -d 4s");
    let [handshake, distance] = ["quic_handshake", "propagation"].map(|cause| share(&small, cause));
    assert!(handshake > 0.4 && distance > 0.4, "{}", small["summary"]["sentence"]);
    let large = explained(&workspace, &serving, 1_000_000, "--close -r 2/s -d 4s");
    assert_limit(&large, "congestion_window", 0.4);
    let windows = "--close -r 1/s -d 4s --http3-stream-window 64KiB";
    assert_limit(&explained(&workspace, &serving, 1_000_000, windows), "quic_stream_window", 0.5);
    let windows = "--close -r 1/s -d 4s --http3-connection-window 64KiB";
    assert_limit(&explained(&workspace, &serving, 1_000_000, windows), "quic_connection_window", 0.5);
    assert_limit(
        &explained(&workspace, &serving, 1_000_000, "--close -r 1/s -d 4s --down 8Mbit"),
        "bottleneck_rate",
        0.6,
    );
    assert_limit(&explained(&workspace, &serving, 1_000_000, "--close -r 2/s -d 6s --loss 1%"), "loss", 0.0);
}

#[test]
fn explain_names_the_congestion_window_of_caddy_and_a_run_without_its_secrets_has_load_times_alone() {
    let workspace = Workspace::new();
    let serving = caddy(&workspace);
    let document = explained(&workspace, &serving, 1_000_000, "--close -r 2/s -d 4s");
    let windows = share(&document, "congestion_window") + share(&document, "pacing");
    assert!(windows > 0.4, "{}", document["summary"]["sentence"]);
    assert!(share(&document, "unknown") < 0.15, "{}", document["summary"]["percentiles"][0]);
    let runs = workspace.run(&["runs", "--json"]).json();
    let again = workspace.run(&["explain", "last", "--json"]).json();
    assert_eq!(again["summary"], document["summary"], "{runs}");
}

#[test]
fn try_enlarges_the_windows_of_http3_and_keeps_connections_open() {
    let workspace = Workspace::new();
    let serving = server(&workspace, "");
    for (bytes, options, change, most) in [
        (1_000_000, "-c 1 --streams 1 -n 3 -d 20s --http3-stream-window 64KiB --try", "--http3-stream-window ", 0.5),
        (1_000, "--close -r 4/s -d 4s --clients 2 --try", "persistent connections", 0.6),
    ] {
        let document = explained(&workspace, &serving, bytes, options);
        let tried = &document["try"]["tried"];
        let of = |name: &str| tried[name].as_f64().unwrap_or_else(|| panic!("{name}: {}", document["try"]));
        assert!(tried["change"].as_str().unwrap().starts_with(change), "{tried}");
        assert!(of("measured_ns") < most * of("before_ns"), "{tried}");
        let predicted = tried["prediction"]["response_time_ns"].as_f64().unwrap();
        assert!((predicted / of("measured_ns")).ln().abs() < 0.5, "{tried}");
    }
}

/// A returning client's request goes out with its first packet: the handshake takes none of its time.
#[test]
fn early_data_of_http3_waits_for_no_handshake() {
    let workspace = Workspace::new();
    let serving = server(&workspace, "");
    let options = "--close -r 10/s -d 4s --warmup 3s --clients 2 --early-data";
    let document = explained(&workspace, &serving, 1_000, options);
    let distance = share(&document, "propagation");
    assert!(distance > 0.85, "{distance}: {}", document["summary"]["sentence"]);
    assert_eq!(share(&document, "quic_handshake"), 0.0, "{}", document["summary"]["percentiles"][0]);
}

/// Packets of handshakes are lost as well: what waits for their timers is loss, whatever else the response waited for.
#[test]
fn lost_packets_of_http3_handshakes_are_losses() {
    let workspace = Workspace::new();
    let serving = server(&workspace, "");
    let document = explained(&workspace, &serving, 1_000, "--close -r 10/s -d 8s --clients 8 --loss 8%");
    let groups = document["summary"]["percentiles"].as_array().unwrap();
    let tail = groups.iter().find(|group| group["percentile"] == 9_500).unwrap_or_else(|| panic!("{groups:?}"));
    let response = tail["response_time_ns"].as_f64().unwrap();
    let of = |names: &[&str]| -> f64 {
        let shares = tail["shares"].as_array().unwrap().iter();
        let named = shares.filter(|share| names.iter().any(|name| share["cause"] == *name));
        named.map(|share| share["time_ns"].as_f64().unwrap()).sum::<f64>() / response
    };
    let lost = of(&["retransmission_timeout", "tail_loss", "fast_retransmit"]);
    assert!(lost > 0.3, "{lost}: {tail}");
    assert!(of(&["unknown"]) < 0.1, "{tail}");
}

#[test]
fn captures_of_http3_are_explained_with_their_key_log() {
    let workspace = Workspace::new();
    let serving = server(&workspace, "");
    fs::write(workspace.www().join("file.bin"), vec![b'x'; 300_000]).unwrap();
    let mut words = vec!["bench", "https://server:8443/file.bin", "--server", &serving.0, "--http", "3", "--json"];
    words.extend(["--rtt", "62ms", "--close", "-r", "3/s", "-d", "3s", "--explain"]);
    words.extend(serving.1.split_whitespace());
    let run = workspace.run(&words).json();
    let folder = Path::new(run["run"]["dir"].as_str().unwrap());
    let [client, server, keys] = ["packets-client.pcap", "packets-server.pcap", "packets-keys.log"]
        .map(|name| str_of(&folder.join(name)).to_owned());
    let both = ["explain", "-r", &client, "--read-server", &server, "--keylog", &keys, "--json"];
    let alone = ["explain", "-r", &client, "--keylog", &keys, "--rtt", "62ms", "--json"];
    for words in [&both[..], &alone] {
        let document = workspace.run(words).success().json();
        assert!(document["summary"]["responses"].as_u64().unwrap() >= 9, "{}", document["summary"]);
        assert_eq!(limit(&document), "congestion_window", "{}", document["summary"]);
    }
    let page = workspace.file("page.html");
    workspace.run(&["explain", "-r", &client, "--keylog", &keys, "--html", str_of(&page)]).success();
    assert!(fs::read_to_string(&page).unwrap().contains("QUIC handshake"));
    let output = workspace.run(&["explain", "-r", &client]);
    assert!(output.code == Some(1) && output.stderr.contains("--keylog"), "{output}");
}

/// A program behind the server that waits before its answer, or in the middle of it.
const SLOW: &str = "import http.server, socketserver, time\n\
     class Answers(http.server.BaseHTTPRequestHandler):\n\
     \x20   protocol_version = 'HTTP/1.1'\n\
     \x20   def do_GET(self):\n\
     \x20       first, last = (10000, 10000) if self.path.endswith('pause') else (0, 1000)\n\
     \x20       self.send_response(200)\n\
     \x20       self.send_header('Content-Length', str(first + last))\n\
     \x20       if first:\n\
     \x20           self.end_headers()\n\
     \x20           self.wfile.write(b'x' * first)\n\
     \x20           self.wfile.flush()\n\
     \x20       time.sleep(0.6)\n\
     \x20       if not first: self.end_headers()\n\
     \x20       self.wfile.write(b'x' * last)\n\
     \x20   def log_message(self, *_): pass\n\
     class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True\n\
     Server(('127.0.0.1', 9000), Answers).serve_forever()\n";

#[test]
fn explain_names_processing_and_pauses_of_a_server_of_http3() {
    let workspace = Workspace::new();
    let script = workspace.file("slow.py");
    fs::write(&script, SLOW).unwrap();
    let (server, trust) = server(&workspace, "--dynamic /app=http://127.0.0.1:9000");
    let server = format!("python3 {} & {server}", script.display());
    for (path, cause) in [("slow", "server_processing"), ("pause", "server_pause")] {
        let url = format!("https://server:8443/app/{path}");
        let mut words = vec!["explain", &url, "--server", &server, "--http", "3", "--json", "--rtt", "62ms"];
        words.extend(trust.split_whitespace().chain("--close -r 2/s -d 4s".split_whitespace()));
        assert_limit(&workspace.run(&words).json(), cause, 0.5);
    }
}
