//! Components of a request of a server model, and their sum; pure functions.

use plan::{BodyFrom, ComponentsPlan, LogLines};
use schema::{ClassSum, ComponentTerm};

use super::costs::MeasuredComponent;
use crate::predict::model::{Estimate, WorkloadDemand};

/// Names of the components, as in the document.
pub mod part {
    pub const CONNECTION: &str = "connection";
    pub const RECEIVE: &str = "receive";
    pub const SEND: &str = "send";
    pub const PARSE: &str = "parse";
    pub const OPEN: &str = "open";
    pub const OPEN_READ: &str = "open-read";
    pub const OPEN_READ_COLD: &str = "open-read-cold";
    pub const LOG_LINE: &str = "log-line";
    pub const LOG_BUFFERED: &str = "log-buffered";
    pub const HANDSHAKE_FULL: &str = "handshake-full";
    pub const HANDSHAKE_RESUMED: &str = "handshake-resumed";
    pub const RECORDS: &str = "records";
}

/// Properties of all requests apart from the response size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    /// One connection per request.
    pub close: bool,
    /// TLS.
    pub tls: bool,
    /// Bytes of a request head.
    pub request_bytes: f64,
    /// Bytes of a response head.
    pub head_bytes: f64,
    /// Bytes of a full handshake to and from the server.
    pub full: (f64, f64),
    /// Bytes of a resumed handshake.
    pub resumed: (f64, f64),
}

/// Components of a request whose response has a body of `bytes`: name, number, bytes of each. Those with number 0 are
/// omitted.
pub fn terms(described: &ComponentsPlan, shape: &Shape, bytes: f64) -> Vec<(&'static str, f64, f64)> {
    let response_bytes = bytes + shape.head_bytes;
    let (cold, resumed) = (described.cold.value(), described.resumed.value());
    let mut terms = vec![(part::RECEIVE, 1.0, shape.request_bytes), (part::SEND, 1.0, response_bytes)];
    if described.parse {
        terms.push((part::PARSE, 1.0, shape.request_bytes));
    }
    match described.body {
        BodyFrom::Memory => {}
        BodyFrom::Read => {
            terms.push((part::OPEN_READ, 1.0 - cold, bytes));
            terms.push((part::OPEN_READ_COLD, cold, bytes));
        }
        BodyFrom::Sendfile => {
            terms.push((part::OPEN, 1.0, 0.0));
            // The caller reads an uncached file from storage; copying it to the process's memory as well costs slightly
            // more.
            terms.push((part::OPEN_READ_COLD, cold, bytes));
            terms.push((part::OPEN_READ, -cold, bytes));
        }
    }
    match described.log {
        LogLines::None => {}
        LogLines::Line => terms.push((part::LOG_LINE, 1.0, 0.0)),
        LogLines::Buffered => terms.push((part::LOG_BUFFERED, 1.0, 0.0)),
    }
    if shape.close {
        terms.push((part::CONNECTION, 1.0, 0.0));
    }
    if shape.tls {
        terms.push((part::RECORDS, 1.0, response_bytes));
    }
    if shape.tls && shape.close {
        for (name, share, (up, down)) in
            [(part::HANDSHAKE_FULL, 1.0 - resumed, shape.full), (part::HANDSHAKE_RESUMED, resumed, shape.resumed)]
        {
            terms.push((name, share, 0.0));
            // The flights of a handshake are received and sent like a request and its response.
            terms.push((part::RECEIVE, share, up));
            terms.push((part::SEND, share, down));
        }
    }
    terms.retain(|(_, times, _)| times.abs() > 1e-12);
    terms
}

/// The sum for one class of requests. Error: name of a component that was not measured.
///
/// # Errors
/// Name of the component.
pub fn class(
    described: &ComponentsPlan,
    shape: &Shape,
    parts: &[MeasuredComponent],
    (bytes, share): (u64, f64),
) -> Result<(ClassSum, [Estimate; 2]), &'static str> {
    let mut of_parts: Vec<(&str, [Estimate; 2])> = Vec::new();
    let mut rows = Vec::new();
    for (name, times, of_bytes) in terms(described, shape, bytes as f64) {
        let measured_component = parts.iter().find(|measured_component| measured_component.part == name).ok_or(name)?;
        let (processes, cores) = (measured_component.processes.at(of_bytes), measured_component.cores.at(of_bytes));
        let costs = [processes, cores.at_least(processes)].map(|cost| cost.times(times));
        match of_parts.iter_mut().find(|(part, _)| *part == name) {
            // Repeated use of one cost has one error.
            Some((_, sums)) => sums.iter_mut().zip(costs).for_each(|(sum, cost)| *sum = sum.plus_of_the_same(cost)),
            None => of_parts.push((name, costs)),
        }
        rows.push(ComponentTerm {
            component: name.into(),
            times,
            bytes: of_bytes,
            processes_s: costs[0].value,
            interval: costs[0].interval(),
            cores_s: costs[1].value,
        });
    }
    let sums = of_parts.iter().fold([Estimate::exact(0.0); 2], |[processes, cores], (_, [one, other])| {
        [processes.plus(*one), cores.plus(*other)]
    });
    let row = ClassSum { bytes, share, terms: rows, processes_s: sums[0].value, cores_s: sums[1].value };
    Ok((row, sums))
}

/// A request of the workload: classes by their shares. All contain the same components, so their errors add up.
pub fn workload_demand(classes: &[(f64, Estimate)]) -> WorkloadDemand {
    let value = classes.iter().map(|(share, cost)| share * cost.value).sum();
    let half = classes.iter().map(|(share, cost)| share * cost.half).sum();
    WorkloadDemand { light: None, at_saturation: Estimate { value, half }, saturated: true, idle: 0.0 }
}

#[cfg(test)]
mod tests;
