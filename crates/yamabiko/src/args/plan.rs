//! From arguments as typed to the plan as meant: every default is decided here.

use std::time::Duration;

use anyhow::{Context, Result};
use lab::plan::{ArrivalKind, HostPlan, HttpVersion, LoadPlan, PathPlan, Placement, Plan, ServerPlan, Wait};
use ledger::Method;

use super::{Arrivals, Bench, HostOptions, MethodName, PathOptions, ServerOptions};

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
    let connections = match load.rate {
        None => Some(load.connections.unwrap_or(CLOSED_CONNECTIONS)),
        Some(_) => load.connections,
    };
    let clients = load.clients.unwrap_or(match connections {
        Some(connections) if load.rate.is_none() => connections.min(path::AddressPlan::CLIENTS_MAX),
        _ => OPEN_CLIENTS,
    });
    let method = match load.method {
        MethodName::Get if load.body.is_some() => Method::Post,
        MethodName::Get => Method::Get,
        MethodName::Head => Method::Head,
        MethodName::Post => Method::Post,
    };
    let path = path_plan(&bench.path, bench.server.server.is_some());
    let mut plan = Plan {
        name: bench.result.name.clone(),
        seed: bench.result.seed,
        load: LoadPlan {
            url: bench.url.clone(),
            method,
            body: load.body.clone(),
            headers: load.headers.clone(),
            http: if load.http1_0 { HttpVersion::Http10 } else { HttpVersion::Http11 },
            close: load.close,
            rate: load.rate,
            arrivals: match load.arrivals {
                Arrivals::Constant => ArrivalKind::Constant,
                Arrivals::Poisson => ArrivalKind::Poisson,
            },
            connections,
            clients,
            requests: load.requests,
            duration: load.duration.or(if load.requests.is_none() { Some(DURATION) } else { None }),
            warmup: Duration::ZERO,
            connect_timeout: load.connect_timeout,
            timeout: load.timeout,
        },
        path,
        server: server_plan(&bench.server),
        host: host_plan(&bench.host),
        slo: bench.result.slo.clone(),
    };
    plan.check()?;
    plan.load.warmup = match (load.warmup, load.rate) {
        (Some(warmup), _) => warmup,
        (None, None) => Duration::ZERO,
        (None, Some(_)) => warmup(&plan)?,
    };
    Ok(plan)
}

/// The path as meant; `None` for none. `with_server`: a server of the lab is behind a path even when none was asked.
pub fn path_plan(options: &PathOptions, with_server: bool) -> Option<PathPlan> {
    let asked = options.rtt.is_some()
        || options.variation.is_some()
        || options.loss.is_some()
        || options.up.is_some()
        || options.down.is_some()
        || options.queue.is_some();
    let profile = options.path.clone().filter(|name| name != "none");
    if profile.is_none() && !asked && !with_server {
        return None;
    }
    let rtt = if profile.is_none() { options.rtt.or(Some(Duration::ZERO)) } else { options.rtt };
    Some(PathPlan {
        profile,
        rtt,
        variation: options.variation,
        loss: options.loss,
        up: options.up,
        down: options.down,
        queue: options.queue,
        offload: !options.no_offload,
    })
}

/// The lab's server as meant.
pub fn server_plan(options: &ServerOptions) -> Option<ServerPlan> {
    Some(ServerPlan {
        command: options.server.clone()?,
        cpu: options.server_cpu,
        tcp: options.server_tcp.clone().unwrap_or_default(),
        start_timeout: options.server_start_timeout,
    })
}

/// This machine's part as meant.
pub fn host_plan(options: &HostOptions) -> HostPlan {
    HostPlan {
        wait: match options.wait {
            super::Wait::Sleep => Wait::Sleep,
            super::Wait::Hybrid => Wait::Hybrid,
            super::Wait::Spin => Wait::Spin,
        },
        placement: match options.placement {
            super::Placement::Split => Placement::Split,
            super::Placement::Float => Placement::Float,
        },
    }
}

fn warmup(plan: &Plan) -> Result<Duration> {
    let longest = match &plan.path {
        None => Duration::ZERO,
        Some(path) => lab::distances::clients(path, plan.load.clients)
            .context("the path")?
            .iter()
            .map(path::ClientPath::rtt)
            .max()
            .unwrap_or_default(),
    };
    Ok((WARMUP_BASE + longest * WARMUP_RTTS).min(WARMUP_MAX))
}
