//! Whose turn it is: the arrivals of an open loop, with their clients, and which of them are this shard's.
//!
//! Every shard draws the whole schedule and passes over what others take. So the requests of a run (number, moment,
//! client) are the same however many shards make them, and no shard has to hear of another
//! (docs/decisions/0015).

use std::sync::Arc;
use std::time::Duration;

use units::Timestamp;

use crate::arrivals::{Arrivals, Logged, Schedule};
use crate::client_order::ClientOrder;
use crate::spec::Lane;

/// The whole schedule of an open loop, one arrival at a time.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    source: Source,
    clients: u32,
    lane: Lane,
    next: Turn,
}

/// Where arrivals come from.
#[expect(clippy::large_enum_variant, reason = "a load has one of it")]
#[derive(Clone, Debug)]
enum Source {
    /// Moments and clients are drawn.
    Drawn { schedule: Schedule, order: ClientOrder },
    /// They stand in a log.
    Logged { logged: Arc<Logged>, start: Timestamp, round: u64, place: usize },
}

/// One arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Its number in the whole schedule, from 0.
    pub(crate) sequence: u64,
    /// When it is intended; [`Timestamp::MAX`] for one that never comes.
    pub(crate) at: Timestamp,
    /// Index of its client.
    pub(crate) client: u32,
    /// Index of its request in the workload, where a log says it; else the workload's choice.
    pub(crate) request: Option<u32>,
}

impl Source {
    /// The next arrival: moment, client, request.
    fn draw(&mut self) -> (Timestamp, u32, Option<u32>) {
        match self {
            Source::Drawn { schedule, order } => (schedule.take(), order.take(), None),
            Source::Logged { logged, start, round, place } => {
                if *place == logged.arrivals.len() {
                    (*place, *round) = (0, *round + 1);
                }
                let Some(arrival) = logged.arrivals.get(*place).filter(|_| logged.rounds.is_none_or(|of| *round < of))
                else {
                    return (Timestamp::MAX, 0, None);
                };
                *place += 1;
                let before = u64::try_from(logged.round.as_nanos()).unwrap_or(u64::MAX).saturating_mul(*round);
                let offset = Duration::from_nanos(before.saturating_add(arrival.offset_ns));
                (*start + offset, arrival.client, Some(arrival.request))
            }
        }
    }
}

impl Turns {
    /// The turns of `arrivals` from `start`; `None` for the closed loop, which has none. `clients` must be at least 1.
    pub(crate) fn new(arrivals: &Arrivals, start: Timestamp, seed: u64, clients: u32, lane: Lane) -> Option<Self> {
        let mut source = match arrivals {
            Arrivals::Logged(logged) => Source::Logged { logged: Arc::clone(logged), start, round: 0, place: 0 },
            _ => Source::Drawn {
                schedule: Schedule::new(arrivals, start, seed)?,
                order: ClientOrder::new(arrivals, clients, seed),
            },
        };
        let (at, client, request) = source.draw();
        Some(Turns { source, clients, lane, next: Turn { sequence: 0, at, client, request } })
    }

    /// When the next arrival is intended, whosever it is.
    pub(crate) fn next(&self) -> Timestamp {
        self.next.at
    }

    /// Whether the next arrival is this shard's.
    pub(crate) fn is_own(&self) -> bool {
        self.lane.takes(self.next.sequence, self.next.client, self.clients)
    }

    /// Takes the next arrival and draws the one after it.
    pub(crate) fn take(&mut self) -> Turn {
        let taken = self.next;
        let (at, client, request) = self.source.draw();
        self.next = Turn { sequence: taken.sequence + 1, at, client, request };
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::LoggedArrival;

    /// Rounds follow each other; shards share them out and no arrival is taken twice.
    #[test]
    fn all_shards_together_replay_a_log_in_rounds() {
        let arrival = |offset_ns, client, request| LoggedArrival { offset_ns, client, request };
        let logged = Logged {
            arrivals: vec![arrival(0, 0, 7), arrival(5, 1, 8), arrival(5, 2, 7)],
            round: Duration::from_nanos(10),
            rounds: Some(2),
        };
        let arrivals = Arrivals::Logged(Arc::new(logged));
        let turns = |index, of| {
            let mut turns =
                Turns::new(&arrivals, Timestamp::from_nanos(100), 1, 3, Lane { index, of }).expect("an open loop");
            let mut taken = Vec::new();
            while turns.next() < Timestamp::MAX {
                let is_own = turns.is_own();
                let Turn { sequence, at, client, request } = turns.take();
                if is_own {
                    taken.push((sequence, at.as_nanos(), client, request.unwrap()));
                }
            }
            taken
        };
        let whole = turns(0, 1);
        assert_eq!(
            whole,
            [(0, 100, 0, 7), (1, 105, 1, 8), (2, 105, 2, 7), (3, 110, 0, 7), (4, 115, 1, 8), (5, 115, 2, 7)]
        );
        let mut shared: Vec<_> = (0..2).flat_map(|index| turns(index, 2)).collect();
        shared.sort_unstable();
        assert_eq!(shared, whole);
    }
}
