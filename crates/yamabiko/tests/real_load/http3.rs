//! HTTP/3 to a real server through a path.

use std::fs;

use serde_json::Value;

use crate::support::document::{assert_packets_agree, check, count};
use crate::support::readers::{folder, script};
use crate::support::tls::Authority;
use crate::support::workspace::{Workspace, str_of};

/// Year in which certificates expire: far in the future.
const EXPIRY_YEAR: i32 = 4000;

/// Caddy with HTTP/1.1, 2 and 3 on port 8443, its log, and the options to trust it.
pub fn caddy(workspace: &Workspace) -> (String, String) {
    let authority = Authority::new(workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    let here = workspace.path().display();
    let text = format!(
        "{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {here}/var\n}}\n\
         https://server:8443 {{\n\ttls {} {}\n\troot * {}\n\tfile_server\n\
         \tlog {{\n\t\toutput file {here}/var/access.log {{\n\t\t\troll_disabled\n\t\t}}\n\t}}\n}}\n",
        str_of(&certificate.cert),
        str_of(&certificate.key),
        str_of(&workspace.www())
    );
    let configuration = workspace.path().join("Caddyfile");
    fs::write(&configuration, text).unwrap();
    let file = configuration.display();
    let server = format!("HOME={here}/var XDG_DATA_HOME={here}/var exec caddy run --adapter caddyfile --config {file}");
    (server, format!("--cacert {}", str_of(&authority.file())))
}

fn bench(workspace: &Workspace, path: &str, server: &str, options: &str) -> Value {
    let url = format!("https://server:8443{path}");
    let arguments = ["bench", &url, "--server", server, "--json"];
    let arguments: Vec<&str> = arguments.into_iter().chain(options.split_whitespace()).collect();
    let output = workspace.run(&arguments);
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"))
}

fn nanoseconds(document: &Value, pointer: &str) -> f64 {
    document.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer}: {}", document["load"]))
}

#[test]
fn http3_to_caddy_in_closed_and_open_loop() {
    let workspace = Workspace::new();
    let (server, trust) = caddy(&workspace);
    let log = workspace.path().join("var/access.log");
    for (options, requests, connections) in [
        ("-c 4 --streams 8 -n 400", 400, 4),
        ("--rate 200/s --warmup 0s -n 200", 200, 4),
        ("--close -c 4 -n 20", 20, 20),
    ] {
        let options = format!("{trust} --http 3 --rtt 4ms --clients 4 {options}");
        let document = bench(&workspace, "/10k.bin", &server, &options);
        assert_eq!(count(&document, "load.completed"), requests, "{}", document["load"]);
        assert_eq!(count(&document, "load.connections_opened"), connections, "{}", document["load"]);
        assert_eq!(count(&document, "load.quic.handshakes"), connections, "{}", document["load"]);
        assert_eq!(count(&document, "load.tls.alpn.h3"), connections, "{}", document["load"]);
        assert_eq!(count(&document, "load.quic.receive_drops"), 0, "{}", document["load"]);
        assert!(document["load"].get("tls_handshake_ns").is_none(), "{}", document["load"]);
        let lines = fs::read_to_string(&log).unwrap();
        let served = lines.lines().filter(|line| line.contains("HTTP/3")).count();
        assert_eq!(served as u64, requests, "{}", document["load"]);
        fs::remove_file(&log).unwrap();
        assert_packets_agree(&document);
        let quic = &document["watch"]["quic"];
        assert_eq!(count(quic, "retries"), 0, "{quic}");
        assert_eq!(check(&document, "rtt_as_configured")["state"], "not_applicable", "{}", document["validity"]);
        for name in ["conservation", "no_unintended_drops"] {
            assert_eq!(check(&document, name)["state"], "ok", "{}", document["validity"]);
        }
    }
}

/// A new connection's response takes two round trips with HTTP/3 and three with HTTP/2 over TLS 1.3, a large one takes
/// the server's slow start, and no window of the load.
#[test]
fn responses_at_62_ms_take_the_round_trips_of_their_protocol() {
    let workspace = Workspace::new();
    let (server, trust) = caddy(&workspace);
    let rtt = 62e6;
    for (http, round_trips) in [("--http 3", 2.0), ("--http 2", 3.0)] {
        let options = format!("{trust} {http} --rtt 62ms --clients 4 --close -c 4 -n 40 --no-resumption");
        let document = bench(&workspace, "/10k.bin", &server, &options);
        assert_eq!(count(&document, "load.completed"), 40, "{}", document["load"]);
        let time = nanoseconds(&document, "/load/response_time_ns/p50");
        assert!((round_trips * rtt..round_trips * rtt + 25e6).contains(&time), "{http}: {time} ns");
    }
    let size = 1_300_000;
    fs::write(workspace.www().join("large.bin"), vec![b'x'; size]).unwrap();
    let options = format!("{trust} --http 3 --rtt 62ms --clients 2 --close -c 2 -n 8");
    let document = bench(&workspace, "/large.bin", &server, &options);
    assert_eq!(count(&document, "load.completed"), 8, "{}", document["load"]);
    // quic-go begins with 32 packets and doubles: 1.3 MB take six rounds after the handshake. A load with a window of
    // 64 KiB would need twenty.
    let time = nanoseconds(&document, "/load/response_time_ns/p50");
    assert!(time < 10.0 * rtt, "{time} ns");
    let bytes = nanoseconds(&document, "/load/quic/bytes_received");
    assert!(bytes > 8.0 * size as f64, "{}", document["load"]["quic"]);
}

#[test]
fn a_resumed_client_saves_a_round_trip_with_early_data() {
    let workspace = Workspace::new();
    let (server, trust) = caddy(&workspace);
    let options = format!("{trust} --http 3 --rtt 40ms --clients 1 --close -c 1 -n 10");
    let plain = bench(&workspace, "/10k.bin", &server, &options);
    assert!(count(&plain, "load.tls.handshakes_resumed") >= 8, "{}", plain["load"]["tls"]);
    assert_eq!(count(&plain, "load.quic.early_data_offered"), 0, "{}", plain["load"]["quic"]);
    let early = bench(&workspace, "/10k.bin", &server, &format!("{options} --early-data"));
    assert_eq!(count(&early, "load.completed"), 10, "{}", early["load"]);
    // A ticket arrives a round trip after early data was accepted: too late for a connection that is closed after its
    // response, so the next one has none.
    assert!(count(&early, "load.quic.early_data_accepted") >= 4, "{}", early["load"]["quic"]);
    let time = nanoseconds(&early, "/load/response_time_ns/min");
    assert!((40e6..65e6).contains(&time), "{time} ns");
}

/// A NAT that forgets its mappings: TCP connections are reset by a server that does not know the port, and requests go on
/// over new ones; QUIC packets from the new port are followed in the capture, whether the server follows or not.
#[test]
fn rebinding_changes_the_port_that_the_server_sees() {
    let workspace = Workspace::new();
    let (server, trust) = caddy(&workspace);
    let load = format!("{trust} --rtt 10ms --clients 2 -c 2 --streams 2 -d 3s --warmup 0s --timeout 2s");
    let tcp = bench(&workspace, "/10k.bin", &server, &format!("{load} --http 2 --change 1s:rebind"));
    let failed = tcp["load"]["failed"].as_object().unwrap();
    assert_eq!(failed.keys().collect::<Vec<_>>(), ["reset"], "{}", tcp["load"]);
    assert_eq!(count(&tcp, "load.connections_opened"), 4, "{}", tcp["load"]);
    assert!(count(&tcp, "path.drops.unmapped") > 0, "{}", tcp["path"]);
    let quic = bench(&workspace, "/10k.bin", &server, &format!("{load} --http 3 --change 1s:rebind"));
    assert_eq!(count(&quic, "watch.quic.migrations"), 2, "{}", quic["watch"]);
    for name in ["vantage_points_agree_requests", "vantage_points_agree_service_time"] {
        let check = check(&quic, name);
        assert!(check["state"] == "not_applicable" && check["why"].as_str().unwrap().contains("rebind"), "{check}");
    }
}

/// Each connection moves, or is counted as one that must not: some versions of Caddy forbid it.
#[test]
fn clients_move_their_connections_unless_the_server_forbids_it() {
    let workspace = Workspace::new();
    let (server, trust) = caddy(&workspace);
    let options = format!("{trust} --rtt 10ms --clients 2 -c 2 -d 2s --warmup 0s --change 1s:migrate");
    let document = bench(&workspace, "/10k.bin", &server, &format!("{options} --http 3"));
    let quic = &document["load"]["quic"];
    let moved = count(quic, "migrations");
    assert_eq!(moved + count(quic, "migrations_refused"), 2, "{quic}");
    assert_eq!(count(&document, "watch.quic.migrations"), moved, "{}", document["watch"]);
    assert_eq!(document["load"]["failed"].as_object().map(serde_json::Map::len), Some(0), "{}", document["load"]);
    assert_packets_agree(&document);
    let url = "https://server:8443/10k.bin";
    let arguments = ["bench", url, "--server", &server, "-d", "1s", "--rtt", "10ms", "--change", "1s:migrate"];
    workspace.run(&arguments).refused(1, &["--http 3"]);
}

/// aioquic as the server: responses of many sizes, bodies, and a connection that moves: it follows.
#[test]
fn aioquic_serves_the_load_and_follows_its_moves() {
    let workspace = Workspace::new();
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    let server = format!(
        "exec {}/venv/bin/python {} 0.0.0.0 8443 {} {}",
        folder().display(),
        script("http3_server.py").display(),
        str_of(&certificate.cert),
        str_of(&certificate.key)
    );
    let trust = format!("--cacert {}", str_of(&authority.file()));
    for (path, options, requests) in [
        ("/10000.bin", "-c 4 --clients 4 --streams 8 -n 200", 200),
        ("/0.bin", "-c 1 --clients 1 -n 5", 5),
        ("/1300000.bin", "-c 1 --clients 1 -n 4 --loss 1%", 4),
        ("/upload", "-c 2 --clients 2 -n 10 --body @upload.bin --expect-body 300000", 10),
    ] {
        fs::write(workspace.path().join("upload.bin"), vec![b'x'; 300_000]).unwrap();
        let options = format!("{trust} --http 3 --rtt 10ms {options}");
        let options = options.replace("@", &format!("@{}/", workspace.path().display()));
        let document = bench(&workspace, path, &server, &options);
        assert_eq!(count(&document, "load.completed"), requests, "{path}: {}", document["load"]);
        assert_eq!(check(&document, "vantage_points_agree_requests")["state"], "ok", "{}", document["validity"]);
    }
    let options = format!("{trust} --http 3 --rtt 10ms --clients 2 -c 2 -d 2s --warmup 0s --change 1s:migrate");
    let document = bench(&workspace, "/10000.bin", &server, &options);
    let quic = &document["load"]["quic"];
    assert_eq!((count(quic, "migrations"), count(quic, "migrations_refused")), (2, 0), "{quic}");
    assert_eq!(count(&document, "watch.quic.migrations"), 2, "{}", document["watch"]);
    assert_eq!(document["load"]["failed"].as_object().map(serde_json::Map::len), Some(0), "{}", document["load"]);
    assert_eq!(count(&document, "load.connections_opened"), 2, "{}", document["load"]);
    assert_packets_agree(&document);
}

#[test]
fn a_server_without_http3_is_named() {
    let workspace = Workspace::new();
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    let server = crate::support::tls::nginx(&workspace, &[(8443, &certificate, "")]);
    let trust = format!("--cacert {}", str_of(&authority.file()));
    let document = bench(&workspace, "/10k.bin", &server, &format!("{trust} --http 3 --rtt 4ms -c 1 -n 2"));
    assert_eq!(count(&document, "load.completed"), 0, "{}", document["load"]);
    assert_eq!(count(&document, "load.failed.connect_refused"), 2, "{}", document["load"]);
}

/// The version that a browser would use, of servers with all, with two and with one.
#[test]
fn auto_uses_http3_only_where_the_server_offers_it() {
    let workspace = Workspace::new();
    let (with_all, trust) = caddy(&workspace);
    let authority = Authority::new(&workspace, "second");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    let with_two = crate::support::tls::nginx(&workspace, &[(8443, &certificate, "listen 8444 ssl http2;")]);
    let second = format!("--cacert {}", str_of(&authority.file()));
    for (server, port, trust, version) in
        [(&with_all, 8443, &trust, "3"), (&with_two, 8444, &second, "2"), (&with_two, 8443, &second, "1.1")]
    {
        let url = format!("https://server:{port}/10k.bin");
        let words = format!("--http auto --rtt 4ms -c 1 -n 4 {trust}");
        let arguments: Vec<&str> =
            ["bench", &url, "--server", server].into_iter().chain(words.split_whitespace()).collect();
        let output = workspace.run(&arguments);
        assert!(output.stderr.contains(&format!("HTTP/{version}: ")), "{output}");
        let printed = workspace.run(&[&arguments[..], &["--print-plan"]].concat());
        assert!(printed.stdout.contains(&format!("http = \"{version}\"")), "{printed}");
    }
}
