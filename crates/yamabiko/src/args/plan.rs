//! From arguments as typed to the plan as meant: every default is decided here.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use lab::plan::{
    ArrivalKind, HostPlan, HttpVersion, LoadPlan, PathPlan, Placement, Plan, ServerPlan, Wait, WatchAt, WatchPlan,
};
use ledger::Method;

use super::{Arrivals, Bench, HostOptions, Http, MethodName, PathOptions, ServerOptions, WatchOptions};

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
    let path = path_plan(&bench.path, bench.server.server.is_some())?;
    let clients = load.clients.unwrap_or(match connections {
        // Without a path all clients would have one address and one distance: any connection serves any request, and
        // to keep them apart would only open more connections.
        _ if path.is_none() => 1,
        Some(connections) if load.rate.is_none() => connections.min(path::AddressPlan::CLIENTS_MAX),
        // More clients than connections would close one connection for each request of another client.
        Some(connections) => connections.min(OPEN_CLIENTS),
        None => OPEN_CLIENTS,
    });
    let method = match load.method {
        MethodName::Get if load.body.is_some() => Method::Post,
        MethodName::Get => Method::Get,
        MethodName::Head => Method::Head,
        MethodName::Post => Method::Post,
    };
    if bench.server.server.is_none() && bench.server.server_tcp.is_some() {
        bail!("--server-tcp is the TCP of a server that the lab starts: give --server as well, or leave it out");
    }
    let mut plan = Plan {
        name: bench.result.name.clone(),
        seed: bench.result.seed,
        load: LoadPlan {
            url: bench.url.clone(),
            method,
            body: load.body.clone(),
            headers: load.headers.clone(),
            http: match load.http {
                Http::V10 => HttpVersion::Http10,
                Http::V11 => HttpVersion::Http11,
            },
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
        watch: watch_plan(&bench.watch),
        host: host_plan(&bench.host, Placement::Split),
        slo: bench.result.slo.clone(),
    };
    plan.check()?;
    plan.watch.at = Some(plan.watch_at());
    plan.load.warmup = match (load.warmup, load.rate) {
        (Some(warmup), _) => warmup,
        (None, None) => Duration::ZERO,
        (None, Some(_)) => warmup(&plan)?,
    };
    Ok(plan)
}

/// The path as meant; `None` for none. `with_ends`: the lab makes both ends, so there is a path even if none was asked
/// for.
///
/// # Errors
/// `--path none` beside something that only a path has.
pub fn path_plan(options: &PathOptions, with_ends: bool) -> Result<Option<PathPlan>> {
    let asked = options.asked();
    let profile = match options.path.as_deref() {
        Some("none") => {
            if let Some(option) = asked.first() {
                bail!("--path none means no path at all, but {option} asks for one: leave one of the two out");
            }
            if with_ends {
                bail!(
                    "--path none means no path at all, but the lab makes both ends of one here: --rtt 0ms is the shortest"
                );
            }
            return Ok(None);
        }
        profile => profile.map(str::to_owned),
    };
    if profile.is_none() && asked.is_empty() && !with_ends {
        return Ok(None);
    }
    let rtt = if profile.is_none() { options.rtt.or(Some(Duration::ZERO)) } else { options.rtt };
    Ok(Some(PathPlan {
        profile,
        rtt,
        variation: options.variation,
        loss: options.loss,
        up: options.up,
        down: options.down,
        queue: options.queue,
        offload: !options.no_offload,
    }))
}

impl PathOptions {
    /// The options given, besides `--path` itself.
    fn asked(&self) -> Vec<&'static str> {
        let options = [
            ("--rtt", self.rtt.is_some()),
            ("--variation", self.variation.is_some()),
            ("--loss", self.loss.is_some()),
            ("--up", self.up.is_some()),
            ("--down", self.down.is_some()),
            ("--queue", self.queue.is_some()),
            ("--no-offload", self.no_offload),
        ];
        options.into_iter().filter(|&(_, given)| given).map(|(option, _)| option).collect()
    }
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

/// The second witness as meant.
pub fn watch_plan(options: &WatchOptions) -> WatchPlan {
    let plan = WatchPlan::default();
    WatchPlan {
        at: options.watch.map(|at| match at {
            super::WatchAt::Server => WatchAt::Server,
            super::WatchAt::Both => WatchAt::Both,
            super::WatchAt::None => WatchAt::None,
        }),
        snap: options.watch_snap.unwrap_or(plan.snap),
        ..plan
    }
}

/// This machine's part as meant.
pub fn host_plan(options: &HostOptions, unless_said: Placement) -> HostPlan {
    HostPlan {
        wait: match options.wait {
            super::Wait::Sleep => Wait::Sleep,
            super::Wait::Hybrid => Wait::Hybrid,
            super::Wait::Spin => Wait::Spin,
        },
        placement: match options.placement {
            None => unless_said,
            Some(super::Placement::Split) => Placement::Split,
            Some(super::Placement::Float) => Placement::Float,
        },
    }
}

fn warmup(plan: &Plan) -> Result<Duration> {
    let longest = match &plan.path {
        None => Duration::ZERO,
        Some(path) => lab::distances::spec(path, plan.load.clients)
            .context("the path")?
            .clients
            .iter()
            .map(path::ClientPath::rtt)
            .max()
            .unwrap_or_default(),
    };
    Ok((WARMUP_BASE + longest * WARMUP_RTTS).min(WARMUP_MAX))
}
