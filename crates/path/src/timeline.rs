//! The changes of a link over time, cut into steps.

use units::time::saturating_nanos;
use units::{Probability, Timestamp};

use crate::spec::{Change, ChangeKind};

/// The time from which changes and series count, once it is set. Before it no change has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Start(pub Option<Timestamp>);

impl Start {
    /// Nanoseconds from the start to `at`; `None` before it.
    #[inline]
    pub(crate) fn position(self, at: u64) -> Option<u64> {
        at.checked_sub(self.0?.as_nanos())
    }
}

/// The changes of one link. Links with the same changes share one timeline.
#[derive(Debug)]
pub(crate) struct Timeline {
    /// (nanoseconds after the start, state from then on), in order.
    steps: Vec<(u64, State)>,
    /// The kinds of changes that occur.
    pub change_kinds: Kinds,
}

/// The changes in force at one time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct State {
    pub is_out: bool,
    pub delay: f64,
    pub rate: f64,
    pub loss: Option<Probability>,
}

/// The kinds of changes of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kinds {
    pub delay: bool,
    pub rate: bool,
    pub loss: bool,
}

impl State {
    /// No change.
    pub(crate) const UNCHANGED: State = State { is_out: false, delay: 1.0, rate: 1.0, loss: None };
}

impl Timeline {
    /// The steps of `changes`, all of one link.
    pub(crate) fn new(changes: &[&Change]) -> Self {
        let intervals: Vec<(u64, u64, &Change)> = changes
            .iter()
            .map(|change| {
                let at = saturating_nanos(change.at);
                let end = change.duration.map_or(u64::MAX, |duration| at.saturating_add(saturating_nanos(duration)));
                (at, end, *change)
            })
            .collect();
        let mut times: Vec<u64> = intervals.iter().flat_map(|&(at, end, _)| [at, end]).collect();
        times.sort_unstable();
        times.dedup();
        let state_at = |time: u64| {
            let mut state = State::UNCHANGED;
            // Of replacing values, the one that began last is in force; of two that began together, the later in the
            // list.
            let mut loss_began = 0;
            for &(at, _, change) in intervals.iter().filter(|&&(at, end, _)| (at..end).contains(&time)) {
                match change.kind {
                    ChangeKind::Outage => state.is_out = true,
                    // Links do not change.
                    ChangeKind::Rebind | ChangeKind::Migrate => {}
                    ChangeKind::Delay(factor) => state.delay *= factor.value(),
                    ChangeKind::Rate(factor) => state.rate *= factor.value(),
                    ChangeKind::Loss(loss) => {
                        if state.loss.is_none() || at >= loss_began {
                            (state.loss, loss_began) = (Some(loss), at);
                        }
                    }
                }
            }
            state
        };
        let any = |kind: fn(&ChangeKind) -> bool| changes.iter().any(|change| kind(&change.kind));
        Timeline {
            steps: times.into_iter().map(|time| (time, state_at(time))).collect(),
            change_kinds: Kinds {
                delay: any(|kind| matches!(kind, ChangeKind::Delay(_))),
                rate: any(|kind| matches!(kind, ChangeKind::Rate(_))),
                loss: any(|kind| matches!(kind, ChangeKind::Loss(_))),
            },
        }
    }

    /// The changes in force at `at`.
    pub(crate) fn at(&self, start: Start, at: u64) -> State {
        let Some(position) = start.position(at) else { return State::UNCHANGED };
        match self.steps.partition_point(|&(time, _)| time <= position) {
            0 => State::UNCHANGED,
            after => self.steps[after - 1].1,
        }
    }

    /// The first time after `at` at which the state may differ.
    pub(crate) fn next_after(&self, start: Start, at: u64) -> Option<u64> {
        let start_ns = start.0?.as_nanos();
        let ahead = match start.position(at) {
            None => self.steps.first(),
            Some(position) => self.steps.get(self.steps.partition_point(|&(time, _)| time <= position)),
        };
        ahead.map(|&(time, _)| start_ns.saturating_add(time)).filter(|&time| time > at && time < u64::MAX)
    }

    /// The smallest delay factor.
    pub(crate) fn shortest_delay(&self) -> f64 {
        self.steps.iter().fold(1.0, |shortest, (_, state)| state.delay.min(shortest))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::spec::{ChangedLinks, Factor};

    fn change(at: u64, duration: Option<u64>, kind: ChangeKind) -> Change {
        let ns = Duration::from_nanos;
        Change { at: ns(at), duration: duration.map(ns), place: ChangedLinks::Shared(0), kind }
    }

    fn chance(value: f64) -> Probability {
        Probability::new(value).unwrap()
    }

    #[test]
    fn change_is_in_force_from_its_begin_until_before_its_end() {
        let outage = change(10, Some(5), ChangeKind::Outage);
        let timeline = Timeline::new(&[&outage]);
        let start = Start(Some(Timestamp::from_nanos(100)));
        let out = |at| timeline.at(start, at).is_out;
        assert_eq!([99, 109, 110, 114, 115].map(out), [false, false, true, true, false]);
        let next = |at| timeline.next_after(start, at);
        assert_eq!([0, 109, 110, 114, 115].map(next), [Some(110), Some(110), Some(115), Some(115), None]);
        assert!(!timeline.at(Start(None), 110).is_out, "nothing begins before the start");
        assert_eq!(timeline.next_after(Start(None), 0), None);
    }

    #[test]
    fn overlapping_factors_multiply_and_the_latest_loss_is_in_force() {
        let factor = |value| Factor::new(value).unwrap();
        let changes = [
            change(0, None, ChangeKind::Rate(factor(0.5))),
            change(10, Some(10), ChangeKind::Rate(factor(0.1))),
            change(5, Some(20), ChangeKind::Loss(chance(0.2))),
            change(2, None, ChangeKind::Loss(chance(0.1))),
            change(15, None, ChangeKind::Delay(factor(3.0))),
        ];
        let timeline = Timeline::new(&changes.each_ref());
        let start = Start(Some(Timestamp::ZERO));
        assert_eq!([0, 9, 10, 19, 20].map(|at| timeline.at(start, at).rate), [0.5, 0.5, 0.05, 0.05, 0.5]);
        let losses = [1, 2, 5, 24, 25].map(|at| timeline.at(start, at).loss);
        assert_eq!(losses, [None, Some(chance(0.1)), Some(chance(0.2)), Some(chance(0.2)), Some(chance(0.1))]);
        assert_eq!((timeline.at(start, 15).delay, timeline.shortest_delay()), (3.0, 1.0));
        assert_eq!(timeline.change_kinds, Kinds { delay: true, rate: true, loss: true });
    }
}
