//! `yamabiko cache`: points of a sweep. Separate worlds, TLS proxies, origins without counters, interrupts, and
//! ineffective options.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::support::document::count;
use crate::support::proxy::{Fault, Proxy};
use crate::support::serving::Serving;
use crate::support::tls::Authority;
use crate::support::workspace::{Workspace, str_of, wait_until};
use nix::sys::signal::Signal;
use serde_json::Value;

/// A workspace with an origin without think time.
fn origin(mix: &str) -> (Workspace, Serving) {
    let workspace = Workspace::concurrent();
    let command =
        workspace.command(&["serve", "--workload", mix, "--seed", "1", "--think", "none", "--listen", "127.0.0.1:0"]);
    let origin = Serving::start_command(&workspace, command);
    (workspace, origin)
}

fn points(document: &Value) -> &Vec<Value> {
    document["cache"]["points"].as_array().unwrap()
}

/// The sweep's check whose name ends with `name`.
fn check<'a>(document: &'a Value, name: &str) -> Option<&'a Value> {
    let mut checks = document["validity"]["checks"].as_array().unwrap().iter();
    checks.find(|check| check["name"].as_str().unwrap().ends_with(name))
}

#[test]
fn points_share_a_world_only_with_keep_world() {
    let (workspace, origin) = origin("polymix-1");
    let at = origin.address.to_string();
    let sweep = |more: &[&str]| {
        let proxy = Proxy::forward(Fault::None);
        let address = proxy.address().to_string();
        let words =
            ["cache", "--proxy", &address, "--origin-at", &at, "--think", "none", "--rate", "200,200/s", "-d", "2s"];
        workspace.run_json(&[&words[..], &["--world", "7", "--no-save", "--json"], more].concat())
    };
    let found = |document: &Value| count(&points(document)[1], "hits_not_offered");
    // A late generator can swap two requests; the second then gets the response that the first would have fetched. This
    // is rare.
    let (separate, shared) = (found(&sweep(&[])), found(&sweep(&["--keep-world"])));
    assert!(
        separate * 4 < shared,
        "the second point shares no objects with the first without --keep-world: {separate}, {shared}"
    );
}

/// A reverse proxy with TLS before the origin.
#[test]
fn a_reverse_proxy_is_measured_over_tls() {
    let (workspace, origin) = origin("polymix-1");
    let authority = Authority::new(&workspace, "authority");
    let certificate = authority.sign(&["127.0.0.1"], 2200);
    let upstream = format!("/y=http://{}/y", origin.address);
    let www = workspace.www();
    let words = ["serve", str_of(&www), "--listen", "127.0.0.1:0", "--dynamic", &upstream, "--cache"];
    let tls = ["--tls", str_of(&certificate.cert), str_of(&certificate.key)];
    let cache = Serving::start_command(&workspace, workspace.command(&[&words[..], &tls].concat()));
    let (url, at) = (format!("https://{}", cache.address), origin.address.to_string());
    let words =
        ["cache", "--reverse", &url, "--origin-at", &at, "--think", "none", "--rate", "100/s", "-d", "2s", "--json"];
    let trusted = authority.file();
    for tls in [&["-k"][..], &["--cacert", str_of(&trusted)]] {
        let document = workspace.run_json(&[&words[..], tls].concat());
        let point = &points(&document)[0];
        assert_eq!(
            (&point["error_ratio"], &point["hit_ratio"]["measured"].is_f64()),
            (&Value::from(0.0), &true),
            "{point}"
        );
        assert!(count(point, "hits") > 0 && count(point, "origin.requests") > 0, "{point}");
    }
    // With an untrusted certificate.
    let document = workspace.run_json(&words);
    assert_eq!(count(&points(&document)[0], "answered"), 0, "{document:#}");
    assert!(count(&points(&document)[0], "errors.tls_certificate") > 0, "{document:#}");
}

/// A server in front of an origin that closes the connection at the third request for the origin's counters.
fn without_counters(origin: SocketAddr) -> SocketAddr {
    static COUNTER_REQUESTS: AtomicU32 = AtomicU32::new(0);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || forward(client, origin, &COUNTER_REQUESTS));
        }
    });
    address
}

fn forward(mut client: TcpStream, origin: SocketAddr, counter_requests: &AtomicU32) -> std::io::Result<()> {
    let mut head = [0; 4096];
    let length = client.read(&mut head)?;
    if head[..length].starts_with(b"GET /-/origin ") && counter_requests.fetch_add(1, Ordering::AcqRel) >= 2 {
        return Ok(());
    }
    let mut server = TcpStream::connect(origin)?;
    server.write_all(&head[..length])?;
    let (mut from, mut to) = (client.try_clone()?, server.try_clone()?);
    let up = thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    std::io::copy(&mut server, &mut client)?;
    client.shutdown(Shutdown::Both)?;
    drop(up.join());
    Ok(())
}

#[test]
fn a_point_without_origin_counts_is_stored() {
    let (workspace, origin) = origin("polymix-1");
    let (proxy, at) = (Proxy::forward(Fault::None), without_counters(origin.address).to_string());
    let address = proxy.address().to_string();
    let words =
        ["cache", "--proxy", &address, "--origin-at", &at, "--think", "none", "--rate", "50/s", "-d", "2s", "--json"];
    let document = workspace.run_json(&words);
    let point = &points(&document)[0];
    assert!(count(point, "answered") > 0 && point.get("origin").is_none(), "{point}");
    let check = check(&document, "origin counted").unwrap_or_else(|| panic!("{document:#}"));
    assert_eq!((&check["state"], &check["weight"]), (&"failed".into(), &"suspect".into()), "{check}");
    assert!(check["why"].as_str().unwrap().contains("the origin's counters could not be read"), "{check}");
}

#[test]
fn an_interrupted_point_has_no_clients_supported() {
    let (workspace, origin) = origin("polymix-1");
    let (proxy, at) = (Proxy::forward(Fault::None), origin.address.to_string());
    let address = proxy.address().to_string();
    let words = ["cache", "--proxy", &address, "--origin-at", &at, "--think", "none", "--rate", "50,60/s", "-d", "10m"];
    let running = workspace.start(&[&words[..], &["--warmup", "0", "--json"]].concat());
    wait_until("the proxy has responded to some requests", || proxy.counters().requests > 100);
    running.signal(Signal::SIGINT);
    let output = running.finish();
    let document = output.json();
    assert_eq!((&document["run"]["interrupted"], points(&document).len()), (&true.into(), 1), "{output}");
    let point = &points(&document)[0];
    assert_eq!((&point["interrupted"], &point["ended_early"]), (&true.into(), &false.into()), "{point}");
    assert!(count(point, "answered") > 0, "the results before the interrupt are stored: {point}");
    assert!(document["cache"].get("clients_supported").is_none(), "{document:#}");
    let notes = document["cache"]["notes"].to_string();
    assert!(
        notes.contains("No number of clients supported is stated") && notes.contains("50/s (it was interrupted)"),
        "{notes}"
    );
}

#[test]
fn ineffective_cache_options_are_refused() {
    let workspace = Workspace::concurrent();
    let forward = ["cache", "--proxy", "127.0.0.1:3128"];
    let reverse = ["cache", "--reverse", "http://127.0.0.1:80", "--origin", "127.0.0.1:8400"];
    let at = "127.0.0.1:8400";
    for (cache, rest, named) in [
        (&forward[..], &["--schedule", "polymix-4", "-d", "10s"][..], "--duration"),
        (&forward, &["--schedule", "polymix-4", "--warmup", "5%"], "--warmup"),
        (&forward, &["--time-scale", "0.1"], "--time-scale"),
        (&forward, &["-k"], "--reverse"),
        (&forward, &["--origin-at", at, "--workload", "modern-https"], "--origin-at"),
        (&reverse, &["--cacert", "x.pem"], "needs https"),
        (&reverse, &["--workload", "modern-https"], "a reverse proxy sees all"),
        (&["cache", "--reverse", "http://127.0.0.1:80/x", "--origin", at], &[], "without a path"),
        (&["cache", "--reverse", "https://127.0.0.1:80", "--origin", at], &["--engine", "io_uring"], "io_uring"),
        (&["cache", "--reverse", "http://127.0.0.1:80", "--rtt", "5ms"], &[], "--origin"),
        (&["cache", "--direct"], &["--client-rate", "2/s"], "--client-rate"),
        (&["cache", "--direct"], &["--watch", "both"], "--watch"),
    ] {
        for more in [&[][..], &["--print-plan"]] {
            let output = workspace.run(&[cache, rest, more].concat());
            assert_eq!(output.code, Some(1), "{output}");
            assert!(output.stderr.contains(named), "{named}: {output}");
        }
    }
    assert_eq!(std::fs::read_dir(workspace.runs()).map_or(0, Iterator::count), 0, "no run is begun");
}
