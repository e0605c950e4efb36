//! Adding up: which parts a request of a described server brings, and what they come to; pure.

use plan::{BodyFrom, LogLines, PartsPlan};
use schema::{SumClass, SumTerm};

use super::prices::Priced;
use crate::predict::model::{Estimate, Mixed};

/// Names of the parts, as in the document.
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

/// What every request is, besides the size of its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    /// Each has a connection of its own.
    pub close: bool,
    /// It is over TLS.
    pub tls: bool,
    /// Bytes of a request's head.
    pub request_bytes: f64,
    /// Bytes of an answer's head.
    pub head_bytes: f64,
    /// Bytes of a handshake in full to the server, and from it.
    pub full: (f64, f64),
    /// Of a resumed one.
    pub resumed: (f64, f64),
}

/// The parts of a request whose answer has `bytes` of body: name, how many, bytes of each. Parts of which there are none are left out.
pub fn terms(described: &PartsPlan, shape: &Shape, bytes: f64) -> Vec<(&'static str, f64, f64)> {
    let answer = bytes + shape.head_bytes;
    let (cold, resumed) = (described.cold.value(), described.resumed.value());
    let mut terms = vec![(part::RECEIVE, 1.0, shape.request_bytes), (part::SEND, 1.0, answer)];
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
            // What comes from the disk is brought in by whoever asks for it; reading it to the process's own memory as well is a little more.
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
        terms.push((part::RECORDS, 1.0, answer));
    }
    if shape.tls && shape.close {
        for (name, share, (up, down)) in
            [(part::HANDSHAKE_FULL, 1.0 - resumed, shape.full), (part::HANDSHAKE_RESUMED, resumed, shape.resumed)]
        {
            terms.push((name, share, 0.0));
            // Its flights come and go like a request and its answer.
            terms.push((part::RECEIVE, share, up));
            terms.push((part::SEND, share, down));
        }
    }
    terms.retain(|(_, times, _)| times.abs() > 1e-12);
    terms
}

/// One kind of request added up. A part that was not measured is named.
///
/// # Errors
/// The name of the part.
pub fn class(
    described: &PartsPlan,
    shape: &Shape,
    parts: &[Priced],
    (bytes, share): (u64, f64),
) -> Result<(SumClass, [Estimate; 2]), &'static str> {
    let mut of_parts: Vec<(&str, [Estimate; 2])> = Vec::new();
    let mut rows = Vec::new();
    for (name, times, of_bytes) in terms(described, shape, bytes as f64) {
        let priced = parts.iter().find(|priced| priced.part == name).ok_or(name)?;
        let (processes, cores) = (priced.processes.at(of_bytes), priced.cores.at(of_bytes));
        let costs = [processes, cores.at_least(processes)].map(|cost| cost.times(times));
        match of_parts.iter_mut().find(|(part, _)| *part == name) {
            // One price asked twice has one error.
            Some((_, sums)) => sums.iter_mut().zip(costs).for_each(|(sum, cost)| *sum = sum.plus_of_the_same(cost)),
            None => of_parts.push((name, costs)),
        }
        rows.push(SumTerm {
            part: name.into(),
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
    let row = SumClass { bytes, share, terms: rows, processes_s: sums[0].value, cores_s: sums[1].value };
    Ok((row, sums))
}

/// A request of the mix: classes by their shares. The same parts are in all of them, so that their errors do not cancel out.
pub fn mixed(classes: &[(f64, Estimate)]) -> Mixed {
    let value = classes.iter().map(|(share, cost)| share * cost.value).sum();
    let half = classes.iter().map(|(share, cost)| share * cost.half).sum();
    Mixed { light: None, behind: Estimate { value, half }, held: true, idle: 0.0 }
}

#[cfg(test)]
mod tests;
