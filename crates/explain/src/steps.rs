//! The arrivals that brought bytes of the response which had not arrived before, in whatever order.
//!
//! A response is complete when its last missing byte arrives, so a hole costs time only while nothing else arrives.

use std::collections::BTreeMap;

use crate::view::Arrival;

/// An arrival of new bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Time of the arrival.
    pub(crate) at: u64,
    /// First new byte.
    pub(crate) from: u64,
    /// Byte after the last that arrived with it.
    pub(crate) to: u64,
    /// If it filled a hole: when the first byte beyond it had arrived.
    pub(crate) overtaken_at: Option<u64>,
}

/// The steps from byte `start` until `end`. `arrivals` are in order of time.
pub(crate) fn steps(arrivals: &[Arrival], start: u64, end: u64) -> Vec<Step> {
    let mut steps = Vec::new();
    // Contiguous bytes that have arrived: first byte, byte after the last.
    let mut received = BTreeMap::<u64, u64>::new();
    // Each arrival beyond all before: its end, its time.
    let mut highest: Vec<(u64, u64)> = Vec::new();
    for arrival in arrivals {
        let (first, last) = (arrival.first.max(start), arrival.end.min(end));
        if first >= last {
            continue;
        }
        let before = received.range(..=first).next_back().map(|(from, to)| (*from, *to));
        let from = before.map_or(first, |(_, to)| to.max(first));
        if from >= last {
            continue;
        }
        let higher = highest.partition_point(|(end, _)| *end <= last);
        let overtaken_at = highest.get(higher).map(|(_, at)| *at);
        let overtaken_at = overtaken_at.filter(|at| arrival.at.saturating_sub(*at) >= CAPTURE_TOLERANCE_NS);
        if higher == highest.len() {
            highest.push((last, arrival.at));
        }
        let (mut low, mut high) = (from, last);
        if let Some((begin, to)) = before
            && to == from
        {
            low = begin;
        }
        while let Some((begin, to)) = received.range(low..=high).next_back().map(|(begin, to)| (*begin, *to)) {
            high = high.max(to);
            received.remove(&begin);
        }
        received.insert(low, high);
        steps.push(Step { at: arrival.at, from, to: last, overtaken_at });
    }
    steps
}

/// Captures of interfaces with several queues change the order of packets that are this close, nanoseconds.
const CAPTURE_TOLERANCE_NS: u64 = 100_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(at: u64, first: u64, end: u64) -> Arrival {
        Arrival { at, first, end }
    }

    #[test]
    fn every_new_byte_is_a_step_and_copies_are_none() {
        const MS: u64 = 1_000_000;
        let arrivals = [
            arrival(MS, 0, 10),
            arrival(2 * MS, 20, 30),
            arrival(3 * MS, 30, 40),
            arrival(4 * MS, 0, 10),
            arrival(9 * MS, 10, 20),
            arrival(10 * MS, 35, 60),
            arrival(11 * MS, 5, 50),
        ];
        let steps = steps(&arrivals, 0, 50);
        let step = |at: u64, from, to, overtaken: Option<u64>| {
            let overtaken_at = overtaken.map(|at| at * MS);
            Step { at: at * MS, from, to, overtaken_at }
        };
        assert_eq!(
            steps,
            [
                step(1, 0, 10, None),
                step(2, 20, 30, None),
                step(3, 30, 40, None),
                step(9, 10, 20, Some(2)),
                step(10, 40, 50, None)
            ]
        );
    }
}
