//! `yamabiko cache` against squid, Varnish and nginx as Debian has them: what it measures is what each says of itself.
//!
//! Which requests are in whose ratio: here, plain GETs of the whole run (no warm-up) that were answered, outside TLS. squid
//! counts each request when it is over, tunnels too, which its log tells apart; Varnish each request, and once more the ones
//! that waited for another's fetch, which it says; nginx writes a line for each. The mixes ask for nothing but plain GETs, so that all are of the same requests.

use std::net::{SocketAddr, TcpListener};

use experiment::programs::proxies::squid::Setup;
use experiment::programs::proxies::{NginxCache, ProxyCounters, RunningProxy, Sizes, Squid, Varnish};
use serde_json::Value;
use units::Bytes;

use crate::support::document::count;
use crate::support::workspace::{Workspace, set_mode, wait_until};

/// In memory, beyond what any of these runs fills.
const SIZES: Sizes = Sizes { memory: Bytes(256 << 20), disk: None };
/// Half a point.
const APART_MAX: f64 = 0.005;

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The one point of a run of `yamabiko cache` without warm-up and thinking.
fn measure(workspace: &Workspace, rest: &[&str]) -> Value {
    let words = ["cache", "--warmup", "0", "--think", "none", "--json"];
    let output = workspace.run(&[&words[..], rest].concat());
    assert!(matches!(output.code, Some(0 | 3)), "{output}");
    let document = output.json();
    let [point] = &document["cache"]["points"].as_array().unwrap()[..] else { panic!("{output}") };
    let mut point = point.clone();
    // What is wrong with the load on a busy machine is not the cache's.
    let checks = document["validity"]["checks"].as_array().unwrap().iter();
    let failed: Vec<&Value> = checks.filter(|check| check["state"] == "failed").collect();
    point["failed_checks"] = serde_json::json!(failed);
    point
}

/// Waits until the cache has counted all, and holds the two against each other.
fn compare(name: &str, point: &Value, counted: impl Fn() -> ProxyCounters) {
    let wanted = count(point, "basic_requests");
    assert!(wanted >= 2500, "{name}: half a point of {wanted} requests says little: {point:#}");
    assert_eq!(point["error_ratio"], 0.0, "{name}: {point:#}");
    wait_until(&format!("{name} has counted {wanted} requests"), || counted().requests >= wanted);
    let counted = counted();
    assert_eq!(counted.requests, wanted, "{name} counts the same requests");
    let measured = point["hit_ratio"]["measured"].as_f64().unwrap();
    let its = counted.hit_ratio().unwrap();
    println!("{name}: {wanted} requests, measured {measured:.5}, by its own counters {its:.5}");
    assert!((measured - its).abs() < APART_MAX, "{name}: measured {measured}, by its own counters {its}: {point:#}");
    assert!(measured > 0.2, "{name}: {point:#}");
    // A finite cache evicts; no other deviation is permitted.
    let wrong = point["wrong"].as_object().unwrap();
    assert!(wrong.keys().all(|kind| kind == "false_miss"), "{name}: {wrong:?}, {point:#}");
}

#[test]
fn squid_counters_agree_with_the_cache_benchmark() {
    let workspace = Workspace::new();
    let (squid, listen) = (Squid::find().unwrap(), free());
    let command = squid.configure(workspace.path(), &Setup { listen, sizes: SIZES, log: true }).unwrap();
    let _running = RunningProxy::start(&command, listen, &workspace.file("squid.out")).unwrap();
    let counters = || squid.counters(workspace.path(), listen).unwrap();

    let before = counters();
    let proxy = listen.to_string();
    let point = measure(&workspace, &["--proxy", &proxy, "--rate", "2500/s", "-d", "2s"]);
    compare("squid", &point, || counters().since(&before));

    // Three tenths inside TLS, through CONNECT: squid sees the rest, and tunnels.
    let before = counters();
    let rest = ["--proxy", &proxy, "--workload", "modern", "--set", "https=0.3", "--rate", "2000/s", "-d", "2s"];
    let point = measure(&workspace, &[&rest[..], &["--clients", "50"]].concat());
    assert!(count(&point, "requests") > count(&point, "basic_requests") + 1000, "some went through tunnels: {point:#}");
    compare("squid, modern mix", &point, || counters().since(&before));
}

#[test]
fn varnish_counters_agree_with_the_cache_benchmark() {
    let workspace = Workspace::new();
    let (varnish, listen, origin) = (Varnish::find().unwrap(), free(), free());
    let command = varnish.configure(workspace.path(), listen, origin, SIZES).unwrap();
    let _running = RunningProxy::start(&command, listen, &workspace.file("varnish.out")).unwrap();
    let (url, at) = (format!("http://{listen}"), origin.to_string());
    let counters = || varnish.counters(workspace.path()).unwrap();
    let before = counters();
    let point = measure(&workspace, &["--reverse", &url, "--origin", &at, "--rate", "3000/s", "-d", "2s"]);
    compare("Varnish", &point, || counters().since(&before));
}

#[test]
fn nginx_counters_agree_with_the_cache_benchmark() {
    let workspace = Workspace::new();
    let (nginx, listen, origin) = (NginxCache::find().unwrap(), free(), free());
    set_mode(workspace.path(), 0o755);
    let command = nginx.configure(workspace.path(), listen, origin, SIZES).unwrap();
    let _running = RunningProxy::start(&command, listen, &workspace.file("nginx.out")).unwrap();
    let (url, at) = (format!("http://{listen}"), origin.to_string());
    let counters = || nginx.counters(workspace.path()).unwrap();
    let before = counters();
    let point = measure(&workspace, &["--reverse", &url, "--origin", &at, "--rate", "3000/s", "-d", "2s"]);
    compare("nginx", &point, || counters().since(&before));
}
