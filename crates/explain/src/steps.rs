//! The response as its receiver could read it: the arrivals that moved the end of the contiguous bytes.

use std::collections::BTreeMap;

use crate::view::Arrival;

/// An arrival after which more of the response was contiguous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Time of the arrival.
    pub(crate) at: u64,
    /// First byte that it added: the one that all later bytes waited for.
    pub(crate) from: u64,
    /// Byte after the last that was contiguous afterwards.
    pub(crate) to: u64,
    /// If later bytes had arrived before: when the first of them did.
    pub(crate) overtaken_at: Option<u64>,
}

/// The steps from byte `start` until `end`. `arrivals` are in order of time.
pub(crate) fn steps(arrivals: &[Arrival], start: u64, end: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut next = start;
    // Bytes beyond a hole: first byte, (byte after the last, time of arrival).
    let mut beyond = BTreeMap::<u64, (u64, u64)>::new();
    for arrival in arrivals {
        if arrival.end <= next || next >= end || arrival.first >= end {
            continue;
        }
        if arrival.first > next {
            let entry = beyond.entry(arrival.first).or_insert((arrival.end, arrival.at));
            entry.0 = entry.0.max(arrival.end);
            continue;
        }
        let overtaken_at = beyond.values().map(|(_, at)| *at).min();
        let from = next;
        next = arrival.end;
        while let Some(entry) = beyond.first_entry() {
            if *entry.key() > next {
                break;
            }
            next = next.max(entry.remove().0);
        }
        next = next.min(end);
        steps.push(Step { at: arrival.at, from, to: next, overtaken_at });
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(at: u64, first: u64, end: u64) -> Arrival {
        Arrival { at, first, end }
    }

    #[test]
    fn a_hole_holds_back_what_arrived_after_it() {
        let arrivals = [
            arrival(1, 0, 10),
            arrival(2, 20, 30),
            arrival(3, 30, 40),
            arrival(4, 0, 10),
            arrival(9, 10, 20),
            arrival(10, 40, 60),
        ];
        let steps = steps(&arrivals, 0, 50);
        let step = |at, from, to, overtaken_at| Step { at, from, to, overtaken_at };
        assert_eq!(steps, [step(1, 0, 10, None), step(9, 10, 40, Some(2)), step(10, 40, 50, None)]);
    }
}
