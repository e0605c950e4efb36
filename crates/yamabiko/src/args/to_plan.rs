//! Turns arguments into a plan, with the defaults that depend on other options.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plan::{Alpn, LoadPlan, Offered, Plan, RequestPlan, ShardPlan, WatchPlan};
use schema::Method;

use super::Bench;

const CLOSED_CONNECTIONS: u32 = 64;
const OPEN_CLIENTS: u32 = 100;
const DURATION: Duration = Duration::from_secs(10);
/// Default warm-up of an open loop: connections, caches and requests in flight settle within some RTTs.
const WARMUP_BASE: Duration = Duration::from_secs(1);
const WARMUP_RTTS: u32 = 4;
const WARMUP_MAX: Duration = Duration::from_secs(15);

/// The plan of a `bench`.
///
/// # Errors
/// Contradictory options, or a profile that cannot be read.
pub fn bench(bench: &Bench) -> Result<Plan> {
    let mut load = bench.load.clone();
    // The plan does not record whether the value was given or is the default.
    let is_http11 = bench.given.has("alpn") && load.tls.as_ref().is_some_and(|tls| tls.alpn == Alpn::Http11);
    if !load.http.is_http1() && is_http11 {
        bail!(
            "--alpn http/1.1 and --http {0} contradict each other: over TLS HTTP/{0} is chosen by ALPN, so leave --alpn out",
            load.http.name()
        );
    }
    load.settle_options().map_err(anyhow::Error::msg)?;
    let path = bench.path.clone().resolve(bench.server.server.is_some()).map_err(anyhow::Error::msg)?;
    if !load.is_open() {
        load.connections.get_or_insert(CLOSED_CONNECTIONS);
    }
    if !bench.given.has("clients") {
        load.clients = clients(&load, path.is_some());
    }
    // Phases, tables and logs have their own length.
    if load.requests.is_none() && !load.offered().has_length() {
        load.duration.get_or_insert(DURATION);
    }
    set_requests(&bench.url, &mut load);
    let mut plan = Plan {
        name: bench.result.name.clone(),
        seed: bench.result.seed,
        load,
        path,
        server: bench.server.server_plan(),
        target: bench.server.target_plan(&bench.to),
        watch: WatchPlan { tap: bench.tap, keep: bench.explain, ..bench.watch },
        host: bench.host.clone(),
        shard: shard(bench),
        slo: bench.result.slo.clone(),
        ..Plan::default()
    };
    plan.load.find_files_from(Path::new(""));
    plan.settle()?;
    if !bench.given.has("warmup") {
        plan.load.warmup = match plan.load.offered() {
            // A log is replayed from its first request on, without warm-up.
            Offered::Closed | Offered::Replay(_) => Duration::ZERO,
            Offered::Open { .. } | Offered::Phases(_) | Offered::RateFile(_) => warmup(&plan)?,
        };
    }
    Ok(plan)
}

/// The shard as configured. Where the shards' leader sets the start, it is unknown as yet.
fn shard(bench: &Bench) -> ShardPlan {
    if bench.coordination.coordinate.is_some() { bench.shard.coordinated() } else { bench.shard }
}

/// The default number of clients.
fn clients(load: &LoadPlan, has_path: bool) -> u32 {
    match load.connections {
        // The log determines the number of clients.
        _ if load.replay.is_some() => 1,
        // Without a path all clients have the same address and distance, so one client is enough. Cookies need clients, since
        // each client has its own.
        _ if !has_path && !load.cookies => 1,
        Some(connections) if !load.is_open() => connections.min(path::AddressPlan::CLIENTS_MAX),
        // With more clients than connections, a request of another client would close a connection.
        Some(connections) => connections.min(OPEN_CLIENTS),
        None => OPEN_CLIENTS,
    }
}

/// Several URLs become requests in turn, with the method and body of the load.
fn set_requests(urls: &[String], load: &mut LoadPlan) {
    match urls {
        [] => {}
        [url] => load.url = url.clone(),
        several => {
            let method = Some(std::mem::take(&mut load.method)).filter(|&method| method != Method::Get);
            let request = |url: &String| RequestPlan { method, ..load.with_body(RequestPlan::get(url)) };
            let requests = several.iter().map(request).collect();
            (load.request, load.body, load.body_text) = (requests, None, None);
        }
    }
}

fn warmup(plan: &Plan) -> Result<Duration> {
    let longest = match &plan.path {
        None => Duration::ZERO,
        Some(path) => {
            testbed::distances::longest_rtt(&testbed::distances::spec(path, plan.load.clients).context("the path")?)
        }
    };
    Ok((WARMUP_BASE + longest * WARMUP_RTTS).min(WARMUP_MAX))
}
