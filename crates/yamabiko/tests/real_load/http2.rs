//! HTTP/2 to real servers through a path: the load's counts agree with the server's log.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::document::{assert_packets_agree, check, count};
use crate::support::tls::{Authority, nginx};
use crate::support::workspace::{Workspace, str_of};

/// Year in which certificates expire: far in the future.
const EXPIRY_YEAR: i32 = 4000;

fn bench(workspace: &Workspace, url: &str, server: &str, options: &str) -> Value {
    let arguments = ["bench", url, "--server", server, "--http", "2", "--json", "--rtt", "4ms", "--clients", "4"];
    let arguments: Vec<&str> = arguments.into_iter().chain(options.split_whitespace()).collect();
    let output = workspace.run(&arguments);
    serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"))
}

/// Asserts that every request completed over HTTP/2 and is in the server's log; clears the log for the next run.
fn assert_counted(document: &Value, requests: u64, log: &Path) {
    assert_eq!(count(document, "load.completed"), requests, "{}", document["load"]);
    let lines = fs::read_to_string(log).unwrap();
    assert_eq!(lines.lines().filter(|line| line.contains("HTTP/2.0")).count() as u64, requests, "{}", document["load"]);
    assert_eq!(lines.lines().count() as u64, requests);
    fs::remove_file(log).unwrap();
    assert_packets_agree(document);
    assert_eq!(check(document, "conservation")["state"], "ok");
}

#[test]
fn http2_to_nginx_with_and_without_tls() {
    let workspace = Workspace::new();
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    let more = "listen 8444 ssl http2; listen 8081 http2; access_log var/access.log;";
    let server = nginx(&workspace, &[(8443, &certificate, more)]);
    let log = workspace.path().join("var/access.log");
    let ca = authority.file();
    for url in ["https://server:8444/10k.bin", "http://server:8081/10k.bin"] {
        let trust = if url.starts_with("https") { format!("--cacert {}", str_of(&ca)) } else { String::new() };
        let closed = bench(&workspace, url, &server, &format!("{trust} -c 4 --streams 8 -n 400"));
        assert_counted(&closed, 400, &log);
        assert_eq!(count(&closed, "load.connections_opened"), 4, "{}", closed["load"]);
        let open = bench(&workspace, url, &server, &format!("{trust} --rate 200/s --warmup 0s -n 200"));
        assert_counted(&open, 200, &log);
        assert_eq!(count(&open, "load.connections_opened"), 4, "one connection for each client: {}", open["load"]);
    }
}

#[test]
fn http2_to_apache() {
    let workspace = Workspace::new();
    let here = workspace.path().display();
    let modules: String = ["mpm_event", "authz_core", "http2", "unixd"]
        .map(|name| (name, format!("/usr/lib/apache2/modules/mod_{name}.so")))
        .into_iter()
        .filter(|(_, file)| fs::exists(file).unwrap())
        .map(|(name, file)| format!("LoadModule {name}_module {file}\n"))
        .collect();
    let text = format!(
        "{modules}ServerName localhost\nServerRoot {here}/var\nDefaultRuntimeDir {here}/var\nPidFile {here}/var/apache.pid\n\
         ErrorLog /dev/stderr\nUser www-data\nGroup www-data\nMaxKeepAliveRequests 0\nListen 8081\nProtocols h2c http/1.1\nDocumentRoot {}\n\
         LogFormat \"%h \\\"%r\\\" %>s\" short\nCustomLog {here}/var/access.log short\nThreadsPerChild 16\nStartServers 1\n\
         <Directory />\nRequire all granted\n</Directory>\n",
        str_of(&workspace.www())
    );
    let configuration = workspace.path().join("apache.conf");
    fs::write(&configuration, text).unwrap();
    let server = format!("exec apache2 -f {} -D FOREGROUND", configuration.display());
    let document = bench(&workspace, "http://server:8081/10k.bin", &server, "-c 4 --streams 8 -n 200");
    assert_counted(&document, 200, &workspace.path().join("var/access.log"));
}

/// With few requests in flight, the time from a response's arrival to its last processed byte is a large part of the
/// total. Both the sampled number in flight and the records include it.
#[test]
fn littles_law_holds_for_a_small_number_in_flight_over_every_protocol() {
    let workspace = Workspace::new();
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["server"], EXPIRY_YEAR);
    let server = nginx(&workspace, &[(8443, &certificate, "listen 8444 ssl http2; listen 8081 http2;")]);
    let trust = format!("--cacert {}", str_of(&authority.file()));
    for (url, http2) in [
        ("http://server:8080/10k.bin", ""),
        ("https://server:8443/10k.bin", trust.as_str()),
        ("http://server:8081/10k.bin", "--http 2"),
        ("https://server:8444/10k.bin", &format!("{trust} --http 2")),
    ] {
        for in_flight in ["-c 1", "-c 2", "-c 5", "-c 1 --streams 10", "-c 5 --streams 10"] {
            if in_flight.contains("--streams") && !http2.contains("--http 2") {
                continue;
            }
            let options = format!("{http2} {in_flight} --rtt 100us -d 1s --warmup 200ms --json");
            let arguments = ["bench", url, "--server", &server];
            let output = workspace.run(&arguments.into_iter().chain(options.split_whitespace()).collect::<Vec<_>>());
            let document: Value = serde_json::from_str(&output.stdout).unwrap_or_else(|_| panic!("{output}"));
            let check = check(&document, "littles_law_requests");
            assert_eq!(check["state"], "ok", "{url} {in_flight}: {check}");
            assert!(count(&document, "load.completed") > 100, "{url} {in_flight}: {}", document["load"]);
        }
    }
}
