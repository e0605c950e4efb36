//! From arguments as typed to the plan as meant: every default is decided here.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plan::{
    Alpn, Engine, HostPlan, HttpVersion, Idle, LoadPlan, Placement, Plan, Retry, TlsPlan, TlsVersion, Wait, WatchAt,
    WatchPlan,
};
use schema::Method;

use super::load::Body;
use super::path::path_plan;
use super::{Bench, HostOptions, Http, MethodName, TlsOptions, WatchOptions};

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
    if let (Http::V2, Some(Alpn::Http11)) = (load.http, bench.tls.alpn) {
        bail!(
            "--alpn http/1.1 and --http 2 contradict each other: over TLS HTTP/2 is chosen by ALPN, so leave --alpn out"
        );
    }
    let is_open = load.rate.is_some() || bench.arrivals.is_open();
    let connections = if is_open { load.connections } else { Some(load.connections.unwrap_or(CLOSED_CONNECTIONS)) };
    let path = path_plan(&bench.path, bench.server.server.is_some())?;
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
            http: match load.http {
                Http::V10 => HttpVersion::Http10,
                Http::V11 => HttpVersion::Http11,
                Http::V2 => HttpVersion::Http2,
            },
            unix: load.unix.clone(),
            streams: load.streams,
            close: load.close,
            retry: match load.retry {
                super::load::Retry::Never => Retry::Never,
                super::load::Retry::IdleRace => Retry::IdleRace,
            },
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
            tls: tls_plan(&bench.tls),
            ..LoadPlan::get("")
        },
        path,
        server: bench.server.server_plan(),
        target: bench.server.target_plan(&bench.to),
        watch: WatchPlan { tap: bench.tap, ..watch_plan(&bench.watch) },
        host: HostPlan {
            threads: load.threads,
            engine: match load.engine {
                super::Engine::Auto => Engine::Auto,
                super::Engine::Uring => Engine::IoUring,
                super::Engine::Epoll => Engine::Epoll,
            },
            ..host_plan(&bench.host, Placement::Split)
        },
        origin: None,
        capacity: None,
        parts: None,
        slo: bench.result.slo.clone(),
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

/// TLS as meant; `None` where no option asks for any, and the URL decides.
pub fn tls_plan(options: &TlsOptions) -> Option<TlsPlan> {
    let plan = TlsPlan {
        insecure: options.insecure,
        cacert: options.cacert.clone(),
        sni: options.sni.clone(),
        version: match options.tls_version {
            None => TlsVersion::Any,
            Some(super::load::TlsVersion::V12) => TlsVersion::V12,
            Some(super::load::TlsVersion::V13) => TlsVersion::V13,
        },
        alpn: options.alpn.unwrap_or_default(),
        resumption: !options.no_resumption,
        cert: options.cert.clone(),
        key: options.key.clone(),
    };
    // An option at its default asks for nothing, but one given as its default does.
    let asked = plan != TlsPlan::default() || options.alpn.is_some();
    asked.then_some(plan)
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
        idle: match options.idle {
            super::Idle::Awake => Idle::Awake,
            super::Idle::Sleep => Idle::Sleep,
        },
        placement: match options.placement {
            None => unless_said,
            Some(super::Placement::Split) => Placement::Split,
            Some(super::Placement::Float) => Placement::Float,
        },
        ..HostPlan::default()
    }
}

fn warmup(plan: &Plan) -> Result<Duration> {
    let longest = match &plan.path {
        None => Duration::ZERO,
        Some(path) => lab::distances::longest_rtt(&lab::distances::spec(path, plan.load.clients).context("the path")?),
    };
    Ok((WARMUP_BASE + longest * WARMUP_RTTS).min(WARMUP_MAX))
}
