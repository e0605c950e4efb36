//! From the plan to what the load engine is told.

use load::workload::Template;
use load::{Arrivals, HttpVersion, Lane, LoadSpec, RequestSpec, Reuse, Target, Workload, parse_header};

use crate::error::LabError;
use crate::plan::{self, ArrivalKind, Plan};

/// What the plan asks for.
///
/// # Errors
/// A URL or header that cannot be meant; a body file that cannot be read.
pub(super) fn workload(plan: &Plan) -> Result<Workload, LabError> {
    let target = Target::parse(&plan.load.url).map_err(LabError::plan)?;
    let headers = plan
        .load
        .headers
        .iter()
        .map(|line| parse_header(line))
        .collect::<Result<Vec<_>, _>>()
        .map_err(LabError::plan)?;
    let request = RequestSpec {
        method: plan.load.method,
        headers: headers.into_iter().map(|(name, value)| (name, Template::literal(&value))).collect(),
        body: Template::bytes(&read_body(plan)?),
        ..RequestSpec::get(target)
    };
    Ok(Workload { requests: vec![request], ..Workload::of([]) })
}

/// The load as meant.
pub(super) fn load(plan: &Plan, workload: Workload, connections_max: u32) -> LoadSpec {
    let load = &plan.load;
    LoadSpec {
        workload,
        absolute_form: load.proxy.is_some(),
        version: match load.http {
            plan::HttpVersion::Http10 => HttpVersion::Http10,
            plan::HttpVersion::Http11 => HttpVersion::Http11,
        },
        streams_max: 1,
        reuse: if load.close { Reuse::Close } else { Reuse::KeepAlive },
        arrivals: match (load.rate, load.arrivals) {
            (None, _) => Arrivals::Closed,
            (Some(rate), ArrivalKind::Constant) => Arrivals::constant(rate),
            (Some(rate), ArrivalKind::Poisson) => Arrivals::poisson(rate),
        },
        connections_max,
        requests_max: load.requests,
        clients: load.clients,
        connect_timeout: load.connect_timeout,
        response_timeout: load.timeout,
        lane: Lane::WHOLE,
        seed: plan.seed,
        warmup: load.warmup,
        duration: load.duration,
    }
}

fn read_body(plan: &Plan) -> Result<Vec<u8>, LabError> {
    match &plan.load.body {
        None => Ok(Vec::new()),
        Some(file) => {
            std::fs::read(file).map_err(|error| LabError::Plan(format!("--body {}: {error}", file.display())))
        }
    }
}
