//! How one subject of a rule goes from fine to firing and back: a function of what was and what is seen. No clock, no index.
//!
//! ```text
//!              bad                 bad for so long
//!     fine ──────────▶ pending ───────────────────▶ firing ◀──bad──┐
//!      ▲ ◀──────────────┘  good                      │  │          │
//!      │                                             │  └──none──▶ no data (it fired)
//!      └──────good, and so for so long───────────────┘                  │ good for so long; or nothing for a day
//!      ▲ ◀──────────────────────────────────────────────────────────────┘
//!   no data (it did not fire): neither good nor bad
//! ```

use serde::{Deserialize, Serialize};

use super::rule::Limits;

/// How a subject stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Neither good nor bad is known. Where it fired before, it is not over.
    #[default]
    NoData,
    /// Not bad.
    Fine,
    /// Bad, and not for long enough.
    Pending,
    /// Bad for long enough, and not over.
    Firing,
}

/// A subject.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Instance {
    /// How it stands.
    pub state: State,
    /// Since when, s since 1970.
    pub since_s: u64,
    /// The minute that was judged last, its end.
    pub at_s: u64,
    /// The value then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub value: Option<f64>,
    /// Since when it fires, also where there is no data now.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub firing_since_s: Option<u64>,
    /// Since when it is good though it fires.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub good_since_s: Option<u64>,
}

/// What a step brought that others are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It fires, or again after there was no data.
    Fires,
    /// It fires, and there is no data now.
    Blind,
    /// It is over.
    Ends,
}

/// A minute was judged.
pub fn step(limits: &Limits, was: Instance, at_s: u64, value: Option<f64>) -> (Instance, Option<Turn>) {
    let mut now = Instance { at_s, value, ..was };
    // Nobody looked for a while, or the clock was set back: how it was meanwhile is not known, so what has to last begins anew.
    let is_gap = at_s.abs_diff(was.at_s) > GAP_S || at_s < was.at_s;
    let mut turn = None;
    let state = match (was.firing_since_s, value) {
        (None, None) => State::NoData,
        (None, Some(value)) if limits.is_bad(value) => {
            let since_s = if was.state == State::Pending && !is_gap { was.since_s } else { at_s };
            if at_s.saturating_sub(since_s) >= limits.hold_s {
                now.firing_since_s = Some(at_s);
                turn = Some(Turn::Fires);
                State::Firing
            } else {
                now.since_s = since_s;
                State::Pending
            }
        }
        (None, Some(_)) => State::Fine,
        (Some(_), None) => {
            now.good_since_s = None;
            if was.state != State::NoData {
                turn = Some(Turn::Blind);
            } else if at_s.saturating_sub(was.since_s) >= FORGOTTEN_S {
                now.firing_since_s = None;
                turn = Some(Turn::Ends);
            }
            State::NoData
        }
        (Some(_), Some(value)) => {
            let since_s = was.good_since_s.filter(|_| !is_gap).unwrap_or(at_s);
            now.good_since_s = limits.is_good(value).then_some(since_s);
            if now.good_since_s.is_some_and(|since| at_s.saturating_sub(since) >= limits.ends_after_s) {
                (now.firing_since_s, now.good_since_s) = (None, None);
                turn = Some(Turn::Ends);
                State::Fine
            } else {
                if was.state == State::NoData && !limits.is_good(value) {
                    turn = Some(Turn::Fires);
                }
                State::Firing
            }
        }
    };
    if state != was.state {
        now.since_s = at_s;
    }
    now.state = state;
    (now, turn)
}

/// More than one minute that nobody judged.
const GAP_S: u64 = 120;
/// Something that fired and of which nothing was heard for so long is over: its agent or program is not there any more.
const FORGOTTEN_S: u64 = 86_400;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits =
        Limits { below: false, threshold: 100.0, ends_at: 80.0, over_s: 300, hold_s: 180, ends_after_s: 120 };

    /// Judges minute after minute; gives states and turns.
    fn run(limits: &Limits, values: &[Option<f64>]) -> (Vec<State>, Vec<(usize, Turn)>) {
        let (mut states, mut turns) = (Vec::new(), Vec::new());
        let mut instance = Instance::default();
        for (minute, value) in values.iter().enumerate() {
            let (next, turn) = step(limits, instance, 6000 + minute as u64 * 60, *value);
            states.push(next.state);
            turns.extend(turn.map(|turn| (minute, turn)));
            instance = next;
        }
        (states, turns)
    }

    #[test]
    fn it_fires_when_it_was_bad_for_long_enough_and_ends_when_it_was_good_for_long_enough() {
        use State::{Fine, Firing, Pending};
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
            [
                Fine, Pending, Pending, Fine, Pending, Pending, Pending, Firing, Firing, Firing, Firing, Firing,
                Firing, Fine
            ]
        );
        assert_eq!(turns, [(7, Turn::Fires), (13, Turn::Ends)]);
    }

    #[test]
    fn without_waiting_it_fires_and_ends_at_once() {
        let limits = Limits { hold_s: 0, ends_after_s: 0, ends_at: 100.0, ..LIMITS };
        let (_, turns) = run(&limits, &[Some(101.0), Some(100.0), Some(101.0)]);
        assert_eq!(turns, [(0, Turn::Fires), (1, Turn::Ends), (2, Turn::Fires)]);
    }

    #[test]
    fn no_data_is_neither_good_nor_bad() {
        use State::{Fine, Firing, NoData, Pending};
        let limits = Limits { hold_s: 60, ends_after_s: 60, ..LIMITS };
        let (bad, good) = (Some(200.0), Some(10.0));
        let (states, turns) = run(&limits, &[None, bad, None, bad, bad, None, None, bad, None, good, None, good, good]);
        assert_eq!(
            states,
            [NoData, Pending, NoData, Pending, Firing, NoData, NoData, Firing, NoData, Firing, NoData, Firing, Fine]
        );
        use Turn::{Blind, Ends, Fires};
        assert_eq!(turns, [(4, Fires), (5, Blind), (7, Fires), (8, Blind), (10, Blind), (12, Ends)]);
    }

    #[test]
    fn what_is_not_there_any_more_is_over_after_a_day() {
        let limits = Limits { hold_s: 0, ..LIMITS };
        let mut values = vec![Some(200.0)];
        values.resize(1500, None);
        let (_, turns) = run(&limits, &values);
        assert_eq!(turns, [(0, Turn::Fires), (1, Turn::Blind), (1441, Turn::Ends)]);
    }

    /// A manager that was away for an hour: what was pending begins anew, what fired goes on.
    #[test]
    fn what_nobody_looked_at_does_not_count() {
        let (pending, _) = step(&LIMITS, Instance::default(), 6000, Some(200.0));
        let (after, turn) = step(&LIMITS, pending, 9600, Some(200.0));
        assert_eq!((after.state, after.since_s, turn), (State::Pending, 9600, None));
        let firing = Instance {
            state: State::Firing,
            firing_since_s: Some(5000),
            good_since_s: Some(5900),
            at_s: 6000,
            ..pending
        };
        let (after, turn) = step(&LIMITS, firing, 9600, Some(1.0));
        assert_eq!(
            (after.state, after.good_since_s, after.firing_since_s, turn),
            (State::Firing, Some(9600), Some(5000), None)
        );
    }

    /// A clock that is set back by a day, and by a minute.
    #[test]
    fn a_clock_that_is_set_back_begins_anew() {
        for back in [60, 86_400] {
            let (pending, _) = step(&LIMITS, Instance::default(), 200_000, Some(200.0));
            let (pending, _) = step(&LIMITS, pending, 200_060, Some(200.0));
            let (after, turn) = step(&LIMITS, pending, 200_060 - back, Some(200.0));
            assert_eq!((after.state, after.since_s, turn), (State::Pending, 200_060 - back, None));
            let firing = Instance {
                state: State::Firing,
                firing_since_s: Some(200_000),
                good_since_s: Some(200_060),
                ..pending
            };
            let (after, turn) = step(&LIMITS, firing, 200_060 - back, Some(1.0));
            assert_eq!((after.state, after.good_since_s, turn), (State::Firing, Some(200_060 - back), None));
        }
    }

    proptest! {
        /// Whatever is seen: it fires only after it was bad in each minute of the holding time, it ends only after it was good likewise (or
        /// a day of nothing), and firing and ending take turns.
        #[test]
        fn nothing_fires_or_ends_early(values in prop::collection::vec(prop::option::weighted(0.9, 60.0_f64..130.0), 1..200)) {
            let (_, turns) = run(&LIMITS, &values);
            let mut fires = false;
            for (minute, turn) in turns {
                match turn {
                    Turn::Fires if !fires => {
                        fires = true;
                        prop_assert!(minute >= 3 && values[minute - 3..=minute].iter().all(|v| v.is_some_and(|v| v > 100.0)));
                    }
                    Turn::Ends => {
                        prop_assert!(fires);
                        fires = false;
                        prop_assert!(values[minute - 2..=minute].iter().all(|v| v.is_some_and(|v| v <= 80.0)));
                    }
                    Turn::Fires | Turn::Blind => prop_assert!(fires),
                }
            }
        }
    }
}
