//! From arguments as typed to the plan as meant: every default is decided here.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plan::{Alpn, HttpVersion, LoadPlan, Plan, WatchPlan};
use schema::Method;

use super::load::Body;
use super::{Bench, MethodName};

const CLOSED_CONNECTIONS: u32 = 64;
const OPEN_CLIENTS: u32 = 100;
const DURATION: Duration = Duration::from_secs(10);
/// Warm-up of an open loop: connections, caches and the number in flight settle within some RTTs.
const WARMUP_BASE: Duration = Duration::from_secs(1);
const WARMUP_RTTS: u32 = 4;
const WARMUP_MAX: Duration = Duration::from_secs(15);

/// The plan of a `bench`.
///
/// # Errors
/// What contradicts itself, and a profile that cannot be read.
pub fn bench(bench: &Bench) -> Result<Plan> {
    let load = &bench.load;
    // In a plan the default cannot be told from what was written.
    let is_http11 = bench.given.has("alpn") && bench.tls.as_ref().is_some_and(|tls| tls.alpn == Alpn::Http11);
    if load.http == HttpVersion::Http2 && is_http11 {
        bail!(
            "--alpn http/1.1 and --http 2 contradict each other: over TLS HTTP/2 is chosen by ALPN, so leave --alpn out"
        );
    }
    let is_open = load.rate.is_some() || bench.arrivals.is_open();
    let connections = if is_open { load.connections } else { Some(load.connections.unwrap_or(CLOSED_CONNECTIONS)) };
    let path = bench.path.clone().resolve(bench.server.server.is_some()).map_err(anyhow::Error::msg)?;
    let clients = load.clients.unwrap_or(match connections {
        // The log says how many there are.
        _ if bench.arrivals.replay.is_some() => 1,
        // Without a path all clients would have one address and one distance: any connection serves any request, and
        // to keep them apart would only open more connections.
        // Cookies are a client's own, so that they need clients.
        _ if path.is_none() && !bench.workload.cookies => 1,
        Some(connections) if !is_open => connections.min(path::AddressPlan::CLIENTS_MAX),
        // More clients than connections would close one connection for each request of another client.
        Some(connections) => connections.min(OPEN_CLIENTS),
        None => OPEN_CLIENTS,
    });
    let method = match load.method {
        MethodName::Get if load.body.is_some() => Method::Post,
        MethodName::Get => Method::Get,
        MethodName::Head => Method::Head,
        MethodName::Post => Method::Post,
        MethodName::Put => Method::Put,
        MethodName::Patch => Method::Patch,
        MethodName::Delete => Method::Delete,
        MethodName::Options => Method::Options,
    };
    let mut plan = Plan {
        name: bench.result.name.clone(),
        seed: bench.result.seed,
        load: LoadPlan {
            method,
            body: load.body.as_ref().and_then(Body::file),
            body_text: load.body.as_ref().and_then(Body::text),
            headers: load.headers.clone(),
            proxy: load.proxy.clone(),
            http: load.http,
            unix: load.unix.clone(),
            streams: load.streams,
            close: load.close,
            retry: load.retry,
            rate: load.rate,
            arrivals: bench.arrivals.kind()?,
            phases: bench.arrivals.phases()?,
            rate_file: bench.arrivals.rate_file.clone(),
            replay: bench.arrivals.replay(),
            har: bench.arrivals.har(),
            connections,
            open_connections: load.open_connections,
            clients,
            requests: load.requests,
            // Phases, tables and logs have their own length.
            duration: load.duration.or((load.requests.is_none() && !bench.arrivals.is_open()).then_some(DURATION)),
            warmup: Duration::ZERO,
            connect_timeout: load.connect_timeout,
            timeout: load.timeout,
            tls: bench.tls.clone(),
            ..LoadPlan::default()
        },
        path,
        server: bench.server.server_plan(),
        target: bench.server.target_plan(&bench.to),
        watch: WatchPlan { tap: bench.tap, ..bench.watch },
        host: bench.host.clone(),
        slo: bench.result.slo.clone(),
        ..Plan::default()
    };
    bench.workload.put(&bench.url, &mut plan.load);
    plan.load.find_files_from(Path::new(""));
    plan.load.settle_phases();
    plan.check()?;
    plan.watch.at = Some(plan.watch_at());
    plan.load.settle_tls();
    plan.load.settle_workload();
    plan.load.warmup = match load.warmup {
        Some(warmup) => warmup,
        // A log is replayed as it is, from its first request on.
        None if !is_open || plan.load.replay.is_some() => Duration::ZERO,
        None => warmup(&plan)?,
    };
    Ok(plan)
}

fn warmup(plan: &Plan) -> Result<Duration> {
    let longest = match &plan.path {
        None => Duration::ZERO,
        Some(path) => lab::distances::longest_rtt(&lab::distances::spec(path, plan.load.clients).context("the path")?),
    };
    Ok((WARMUP_BASE + longest * WARMUP_RTTS).min(WARMUP_MAX))
}
