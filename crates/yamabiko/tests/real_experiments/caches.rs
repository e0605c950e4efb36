//! `yamabiko cache` against Debian's squid, Varnish and nginx: the measured hit ratio equals the cache's own counters.
//!
//! The compared requests are plain GETs with a response, outside TLS, of the whole run (no warm-up). squid counts a
//! request when it ends, tunnels included, which its log distinguishes. Varnish counts each request, and
//! collapsed ones once more, which it reports. nginx writes a log line for each. The workloads have only plain GETs, so
//! that all ratios are about the same requests.

use std::net::{SocketAddr, TcpListener};

use experiment::programs::proxies::squid::Setup;
use experiment::programs::proxies::{NginxCache, ProxyCounters, RunningProxy, Sizes, Squid, Varnish};
use serde_json::Value;
use units::Bytes;

use crate::support::document::count;
use crate::support::workspace::{Workspace, set_mode, wait_until};

/// A cache in memory, larger than any of these runs fills.
const SIZES: Sizes = Sizes { memory: Bytes(256 << 20), disk: None };
/// Maximum difference of two hit ratios: half a percentage point.
const MAX_DIFFERENCE: f64 = 0.005;

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The point of a run of `yamabiko cache` without warm-up and think time.
fn measure(workspace: &Workspace, rest: &[&str]) -> Value {
    let words = ["cache", "--warmup", "0", "--think", "none", "--json"];
    let output = workspace.run(&[&words[..], rest].concat());
    output.assert_measured();
    let document = output.json();
    let [point] = &document["cache"]["points"].as_array().unwrap()[..] else { panic!("{output}") };
    let mut point = point.clone();
    // Failed checks of the load on a busy machine do not concern the cache.
    let checks = document["validity"]["checks"].as_array().unwrap().iter();
    let failed: Vec<&Value> = checks.filter(|check| check["state"] == "failed").collect();
    point["failed_checks"] = serde_json::json!(failed);
    point
}

/// Waits until the cache has counted all requests, and compares the hit ratios.
fn compare(name: &str, point: &Value, counted: impl Fn() -> ProxyCounters) {
    let expected = count(point, "basic_requests");
    assert!(expected >= 2500, "{name}: {expected} requests are too few for this comparison: {point:#}");
    assert_eq!(point["error_ratio"], 0.0, "{name}: {point:#}");
    wait_until(&format!("{name} has counted {expected} requests"), || counted().requests >= expected);
    let counted = counted();
    assert_eq!(counted.requests, expected, "{name} counts the same requests");
    let measured = point["hit_ratio"]["measured"].as_f64().unwrap();
    let own_ratio = counted.hit_ratio().unwrap();
    println!("{name}: {expected} requests, measured {measured:.5}, by its own counters {own_ratio:.5}");
    assert!(
        (measured - own_ratio).abs() < MAX_DIFFERENCE,
        "{name}: measured {measured}, by its own counters {own_ratio}: {point:#}"
    );
    assert!(measured > 0.2, "{name}: {point:#}");
    // A finite cache evicts objects; no other deviation is permitted.
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

    // 30 % of the requests are inside TLS, through CONNECT: squid counts the others, and the tunnels.
    let before = counters();
    let rest = ["--proxy", &proxy, "--workload", "modern", "--set", "https=0.3", "--rate", "2000/s", "-d", "2s"];
    let point = measure(&workspace, &[&rest[..], &["--clients", "50"]].concat());
    assert!(count(&point, "requests") > count(&point, "basic_requests") + 1000, "some requests use tunnels: {point:#}");
    compare("squid, modern workload", &point, || counters().since(&before));
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
