//! The arrivals of an open loop: scheduled time, client and shard of each.
//!
//! Every shard draws the whole schedule and skips the arrivals of other shards. So the requests of a run (number,
//! scheduled time, client) do not depend on the number of shards, and shards do not communicate (docs/decisions/0015).

use std::sync::Arc;
use std::time::Duration;

use units::Timestamp;

use crate::arrivals::{Arrivals, Logged, Schedule};
use crate::client_order::ClientOrder;
use crate::spec::Shard;

/// The whole schedule of an open loop, one arrival at a time.
#[derive(Clone, Debug)]
pub(crate) struct ArrivalSource {
    source: Source,
    clients: u32,
    shard: Shard,
    next: Arrival,
}

/// Where arrivals come from.
#[expect(clippy::large_enum_variant, reason = "a load has one of it")]
#[derive(Clone, Debug)]
enum Source {
    /// Times and clients are computed.
    Drawn { schedule: Schedule, order: ClientOrder },
    /// Times, clients and requests are those of a log.
    Logged { logged: Arc<Logged>, start: Timestamp, round: u64, index: usize },
}

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Number in the whole schedule, from 0.
    pub(crate) sequence: u64,
    /// Scheduled time; [`Timestamp::MAX`] after the last arrival.
    pub(crate) at: Timestamp,
    /// Index of its client.
    pub(crate) client: u32,
    /// Index of its request in the workload, if a log defines it; otherwise the workload chooses.
    pub(crate) request: Option<u32>,
}

impl Source {
    /// The next arrival: time, client, request.
    fn draw(&mut self) -> (Timestamp, u32, Option<u32>) {
        match self {
            Source::Drawn { schedule, order } => (schedule.take(), order.take(), None),
            Source::Logged { logged, start, round, index } => {
                if *index == logged.arrivals.len() {
                    (*index, *round) = (0, *round + 1);
                }
                let Some(arrival) = logged.arrivals.get(*index).filter(|_| logged.rounds.is_none_or(|of| *round < of))
                else {
                    return (Timestamp::MAX, 0, None);
                };
                *index += 1;
                let before = u64::try_from(logged.round.as_nanos()).unwrap_or(u64::MAX).saturating_mul(*round);
                let offset = Duration::from_nanos(before.saturating_add(arrival.offset_ns));
                (*start + offset, arrival.client, Some(arrival.request))
            }
        }
    }
}

impl ArrivalSource {
    /// The arrivals from `start` on; `None` for the closed loop, which has none. `clients` must be at least 1.
    pub(crate) fn new(arrivals: &Arrivals, start: Timestamp, seed: u64, clients: u32, shard: Shard) -> Option<Self> {
        let mut source = match arrivals {
            Arrivals::Logged(logged) => Source::Logged { logged: Arc::clone(logged), start, round: 0, index: 0 },
            _ => Source::Drawn {
                schedule: Schedule::new(arrivals, start, seed)?,
                order: ClientOrder::new(arrivals, clients, seed),
            },
        };
        let (at, client, request) = source.draw();
        Some(ArrivalSource { source, clients, shard, next: Arrival { sequence: 0, at, client, request } })
    }

    /// Scheduled time of the next arrival, of any shard.
    pub(crate) fn next(&self) -> Timestamp {
        self.next.at
    }

    /// Whether the next arrival is this shard's.
    pub(crate) fn is_own(&self) -> bool {
        self.shard.takes(self.next.sequence, self.next.client, self.clients)
    }

    /// Returns the next arrival, and draws the one after it.
    pub(crate) fn take(&mut self) -> Arrival {
        let taken = self.next;
        let (at, client, request) = self.source.draw();
        self.next = Arrival { sequence: taken.sequence + 1, at, client, request };
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::LoggedArrival;

    /// Rounds follow each other. Shards divide the arrivals among them, and each arrival is made once.
    #[test]
    fn all_shards_together_replay_a_log_in_rounds() {
        let arrival = |offset_ns, client, request| LoggedArrival { offset_ns, client, request };
        let logged = Logged {
            arrivals: vec![arrival(0, 0, 7), arrival(5, 1, 8), arrival(5, 2, 7)],
            round: Duration::from_nanos(10),
            rounds: Some(2),
        };
        let arrivals = Arrivals::Logged(Arc::new(logged));
        let arrival_source = |index, of| {
            let mut arrival_source =
                ArrivalSource::new(&arrivals, Timestamp::from_nanos(100), 1, 3, Shard::new(index, of))
                    .expect("an open loop");
            let mut taken = Vec::new();
            while arrival_source.next() < Timestamp::MAX {
                let is_own = arrival_source.is_own();
                let Arrival { sequence, at, client, request } = arrival_source.take();
                if is_own {
                    taken.push((sequence, at.as_nanos(), client, request.unwrap()));
                }
            }
            taken
        };
        let whole = arrival_source(0, 1);
        assert_eq!(
            whole,
            [(0, 100, 0, 7), (1, 105, 1, 8), (2, 105, 2, 7), (3, 110, 0, 7), (4, 115, 1, 8), (5, 115, 2, 7)]
        );
        let mut shared: Vec<_> = (0..2).flat_map(|index| arrival_source(index, 2)).collect();
        shared.sort_unstable();
        assert_eq!(shared, whole);
    }
}
