//! How one subject of a rule changes between ok and firing: a pure function of the previous state and the value.
//!
//! ```text
//!              bad                 bad for so long
//!     ok   ──────────▶ pending ───────────────────▶ firing ◀──bad──┐
//!      ▲ ◀──────────────┘  good                      │  │          │
//!      │                                             │  └──none──▶ no data (it fired)
//!      └──────good, and so for so long───────────────┘                  │ good for so long; or nothing for a day
//!      ▲ ◀──────────────────────────────────────────────────────────────┘
//!   no data (it did not fire): neither good nor bad
//! ```

use serde::{Deserialize, Serialize};

use super::rule::Limits;

/// State of a subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// The value is unknown. An alert that fired before is not resolved.
    #[default]
    NoData,
    /// The value is not bad.
    Ok,
    /// The value is bad, and not for long enough.
    Pending,
    /// The value was bad for long enough, and the alert is not resolved.
    Firing,
}

/// State of a subject with its times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// State of the subject.
    pub state: State,
    /// Start of the state, s since 1970.
    pub since_s: u64,
    /// End of the last evaluated minute.
    pub at_s: u64,
    /// The value in that minute.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    /// Start of the alert, s since 1970: present until the alert is resolved, also while data is missing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub firing_since_s: Option<u64>,
    /// While the alert fires: time from which the value has been good, s since 1970.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub good_since_s: Option<u64>,
}

/// Transitions that others are notified of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The alert fires, or fires again after a time without data.
    Fires,
    /// The alert still fires, but its data is missing from now on.
    LostData,
    /// The alert is resolved.
    Resolves,
}

/// Evaluates a minute.
pub fn step(limits: &Limits, was: Instance, at_s: u64, value: Option<f64>) -> (Instance, Option<Transition>) {
    let mut now = Instance { at_s, value, ..was };
    // After a gap in the evaluation, or a clock set back, the state in between is unknown: holding times restart.
    let is_gap = at_s.abs_diff(was.at_s) > GAP_MAX_S || at_s < was.at_s;
    let mut transition = None;
    let state = match (was.firing_since_s, value) {
        (None, None) => State::NoData,
        (None, Some(value)) if limits.is_bad(value) => {
            let since_s = if was.state == State::Pending && !is_gap { was.since_s } else { at_s };
            if at_s.saturating_sub(since_s) >= limits.hold_s {
                now.firing_since_s = Some(at_s);
                transition = Some(Transition::Fires);
                State::Firing
            } else {
                now.since_s = since_s;
                State::Pending
            }
        }
        (None, Some(_)) => State::Ok,
        (Some(_), None) => {
            now.good_since_s = None;
            if was.state != State::NoData {
                transition = Some(Transition::LostData);
            } else if at_s.saturating_sub(was.since_s) >= NO_DATA_TIMEOUT_S {
                now.firing_since_s = None;
                transition = Some(Transition::Resolves);
            }
            State::NoData
        }
        (Some(_), Some(value)) => {
            let since_s = was.good_since_s.filter(|_| !is_gap).unwrap_or(at_s);
            now.good_since_s = limits.is_good(value).then_some(since_s);
            if now.good_since_s.is_some_and(|since| at_s.saturating_sub(since) >= limits.ends_after_s) {
                (now.firing_since_s, now.good_since_s) = (None, None);
                transition = Some(Transition::Resolves);
                State::Ok
            } else {
                if was.state == State::NoData && !limits.is_good(value) {
                    transition = Some(Transition::Fires);
                }
                State::Firing
            }
        }
    };
    if state != was.state {
        now.since_s = at_s;
    }
    now.state = state;
    (now, transition)
}

/// Maximum gap between two evaluated minutes.
const GAP_MAX_S: u64 = 120;
/// An alert without data for this time is resolved: its agent or program no longer exists.
const NO_DATA_TIMEOUT_S: u64 = 86_400;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits =
        Limits { below: false, threshold: 100.0, ends_at: 80.0, over_s: 300, hold_s: 180, ends_after_s: 120 };

    /// Evaluates minute after minute; returns states and transitions.
    fn run(limits: &Limits, values: &[Option<f64>]) -> (Vec<State>, Vec<(usize, Transition)>) {
        let (mut states, mut turns) = (Vec::new(), Vec::new());
        let mut instance = Instance::default();
        for (minute, value) in values.iter().enumerate() {
            let (next, transition) = step(limits, instance, 6000 + minute as u64 * 60, *value);
            states.push(next.state);
            turns.extend(transition.map(|transition| (minute, transition)));
            instance = next;
        }
        (states, turns)
    }

    #[test]
    fn an_alert_fires_and_ends_after_its_holding_times() {
        use State::{Firing, Ok, Pending};
        let bad = Some(101.0);
        let (states, turns) = run(
            &LIMITS,
            &[
                Some(100.0),
                bad,
                bad,
                Some(99.0),
                bad,
                bad,
                bad,
                bad,
                Some(90.0),
                Some(80.0),
                Some(81.0),
                Some(1.0),
                Some(2.0),
                Some(3.0),
            ],
        );
        assert_eq!(
            states,
            [Ok, Pending, Pending, Ok, Pending, Pending, Pending, Firing, Firing, Firing, Firing, Firing, Firing, Ok]
        );
        assert_eq!(turns, [(7, Transition::Fires), (13, Transition::Resolves)]);
    }

    #[test]
    fn an_alert_without_holding_times_fires_and_ends_immediately() {
        let limits = Limits { hold_s: 0, ends_after_s: 0, ends_at: 100.0, ..LIMITS };
        let (_, turns) = run(&limits, &[Some(101.0), Some(100.0), Some(101.0)]);
        assert_eq!(turns, [(0, Transition::Fires), (1, Transition::Resolves), (2, Transition::Fires)]);
    }

    #[test]
    fn no_data_neither_fires_nor_ends_an_alert() {
        use State::{Firing, NoData, Ok, Pending};
        let limits = Limits { hold_s: 60, ends_after_s: 60, ..LIMITS };
        let (bad, good) = (Some(200.0), Some(10.0));
        let (states, turns) = run(&limits, &[None, bad, None, bad, bad, None, None, bad, None, good, None, good, good]);
        assert_eq!(
            states,
            [NoData, Pending, NoData, Pending, Firing, NoData, NoData, Firing, NoData, Firing, NoData, Firing, Ok]
        );
        use Transition::{Fires, LostData, Resolves};
        assert_eq!(turns, [(4, Fires), (5, LostData), (7, Fires), (8, LostData), (10, LostData), (12, Resolves)]);
    }

    #[test]
    fn an_alert_without_data_for_a_day_is_resolved() {
        let limits = Limits { hold_s: 0, ..LIMITS };
        let mut values = vec![Some(200.0)];
        values.resize(1500, None);
        let (_, turns) = run(&limits, &values);
        assert_eq!(turns, [(0, Transition::Fires), (1, Transition::LostData), (1441, Transition::Resolves)]);
    }

    /// A manager stopped for an hour: pending alerts restart, firing ones continue.
    #[test]
    fn minutes_that_were_not_evaluated_do_not_count() {
        let (pending, _) = step(&LIMITS, Instance::default(), 6000, Some(200.0));
        let (after, transition) = step(&LIMITS, pending, 9600, Some(200.0));
        assert_eq!((after.state, after.since_s, transition), (State::Pending, 9600, None));
        let firing = Instance {
            state: State::Firing,
            firing_since_s: Some(5000),
            good_since_s: Some(5900),
            at_s: 6000,
            ..pending
        };
        let (after, transition) = step(&LIMITS, firing, 9600, Some(1.0));
        assert_eq!(
            (after.state, after.good_since_s, after.firing_since_s, transition),
            (State::Firing, Some(9600), Some(5000), None)
        );
    }

    /// A clock that is set back by a day, and by a minute.
    #[test]
    fn a_clock_set_back_restarts_the_holding_time() {
        for back in [60, 86_400] {
            let (pending, _) = step(&LIMITS, Instance::default(), 200_000, Some(200.0));
            let (pending, _) = step(&LIMITS, pending, 200_060, Some(200.0));
            let (after, transition) = step(&LIMITS, pending, 200_060 - back, Some(200.0));
            assert_eq!((after.state, after.since_s, transition), (State::Pending, 200_060 - back, None));
            let firing = Instance {
                state: State::Firing,
                firing_since_s: Some(200_000),
                good_since_s: Some(200_060),
                ..pending
            };
            let (after, transition) = step(&LIMITS, firing, 200_060 - back, Some(1.0));
            assert_eq!((after.state, after.good_since_s, transition), (State::Firing, Some(200_060 - back), None));
        }
    }

    proptest! {
        /// For any values: an alert fires only after the value was bad in each minute of the holding time, ends only
        /// after it was good likewise (or without data for a day), and firing and ending alternate.
        #[test]
        fn alerts_never_fire_or_end_before_their_holding_time(values in prop::collection::vec(prop::option::weighted(0.9, 60.0_f64..130.0), 1..200)) {
            let (_, turns) = run(&LIMITS, &values);
            let mut fires = false;
            for (minute, transition) in turns {
                match transition {
                    Transition::Fires if !fires => {
                        fires = true;
                        prop_assert!(minute >= 3 && values[minute - 3..=minute].iter().all(|v| v.is_some_and(|v| v > 100.0)));
                    }
                    Transition::Resolves => {
                        prop_assert!(fires);
                        fires = false;
                        prop_assert!(values[minute - 2..=minute].iter().all(|v| v.is_some_and(|v| v <= 80.0)));
                    }
                    Transition::Fires | Transition::LostData => prop_assert!(fires),
                }
            }
        }
    }
}
