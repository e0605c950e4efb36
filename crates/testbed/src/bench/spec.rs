//! Makes the specification of the load engine from a plan.

use std::sync::Arc;
use std::time::SystemTime;

use load::workload::{Choice, Template};
use load::{Arrivals, HttpVersion, LoadSpec, Retry, Reuse, Shard, Workload};
use polymix::World;

use crate::error::TestbedError;
use crate::shards::ShardPlan;
use plan::Plan;

/// The requests of the plan.
///
/// # Errors
/// An invalid URL or header, or an unreadable body file.
pub(super) fn workload(plan: &Plan) -> Result<Workload, TestbedError> {
    plan.load.workload().map_err(TestbedError::Plan)
}

/// The load as configured; its number of connections depends on the machine's limits.
pub(super) fn load(plan: &Plan, mut workload: Workload, arrivals: Arrivals) -> LoadSpec {
    let load = &plan.load;
    // Inside a tunnel the proxy sees no header, so its credentials are in the CONNECT request.
    if let Some(authorization) = load.proxy.as_ref().and_then(plan::Proxy::authorization) {
        for request in workload.requests.iter_mut().filter(|request| !request.target.secure) {
            request.headers.push(("Proxy-Authorization".into(), Template::literal(&authorization)));
        }
    }
    LoadSpec {
        workload,
        absolute_form: load.proxy.is_some(),
        version: match load.http {
            plan::HttpVersion::Http10 => HttpVersion::Http10,
            plan::HttpVersion::Http11 => HttpVersion::Http11,
            plan::HttpVersion::Http2 => HttpVersion::Http2,
            plan::HttpVersion::Http3 => HttpVersion::Http3,
        },
        streams_max: load.streams_at_most(),
        reuse: if load.close { Reuse::Close } else { Reuse::KeepAlive },
        retry: match load.retry {
            plan::Retry::Never => Retry::Never,
            plan::Retry::IdleRace => Retry::IdleRace,
        },
        arrivals,
        connections_max: 0,
        requests_max: load.requests,
        clients: load.clients,
        connect_timeout: load.connect_timeout,
        response_timeout: load.timeout,
        shard: Shard::WHOLE,
        seed: plan.seed,
        warmup: load.warmup,
        duration: load.duration,
    }
}

/// Sets the wall clock at the run's zero: objects of a cache workload change by it.
pub(super) fn set_wall_zero(spec: &mut LoadSpec, zero_at: SystemTime) {
    if let Choice::CacheWorkload(mix) = &mut spec.workload.choice {
        let since_1970 = zero_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        mix.wall_zero_ns = units::time::saturating_nanos(since_1970);
    }
}

/// The world of a load's cache workload.
pub(super) fn world(spec: &LoadSpec) -> Option<&Arc<World>> {
    match &spec.workload.choice {
        Choice::CacheWorkload(mix) => Some(&mix.world),
        Choice::InTurn | Choice::Drawn | Choice::Sessions(_) => None,
    }
}

/// The part of loop `index` of this machine, whose connections are `connections_max` of `machine`.
pub(super) fn shard(machine: &LoadSpec, shards: ShardPlan, index: u32) -> LoadSpec {
    let connections_max = shards.share(index, u64::from(machine.connections_max)) as u32;
    LoadSpec { shard: shards.shard(index), connections_max, ..machine.clone() }
}
