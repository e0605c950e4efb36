//! How many seats of a class a machine holds.
//!
//! P5's rule: a class of 40 seats needs about 40 requests a second at its peak, one a seat. What a machine *holds* the
//! paper says in words ("usable to about 40/s"); here it is a rule, ours: of the measured rates the highest at which,
//! and at every lower one,
//!
//! - fewer than 1 % of the requests failed, and the point was not ended early;
//! - what was offered was carried, within 5 % and what chance explains;
//! - hits took less than a second in the mean, for a class that waits longer does without the cache.

use ledger::{CachePoint, Seats};
use units::RequestRate;

/// Failures of a point that a class would still bear.
const ERRORS_MAX: f64 = 0.01;
/// Of what was offered, the part that need not be carried.
const NOT_CARRIED_MAX: f64 = 0.05;
/// A hit's mean response time.
const HITS_MEAN_NS_MAX: f64 = 1e9;
/// Chance is given so many standard deviations.
const DEVIATIONS: f64 = 3.0;

/// In words, as in the document.
const RULE: &str = "the highest rate measured at which, and at every lower one, fewer than 1 % of the requests failed, what \
                    was offered was carried within 5 %, and hits took under 1 s in the mean";

/// Judges points, each with the rate that was asked for: the measured one differs from it by chance. None without any. Each
/// seat asks so often.
pub fn of<'a>(points: impl IntoIterator<Item = (f64, &'a CachePoint)>, a_seat: RequestRate) -> Option<Seats> {
    let mut by_rate: Vec<(f64, &CachePoint)> =
        points.into_iter().filter(|(_, point)| point.figures.requests > 0).collect();
    by_rate.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let held = by_rate.iter().take_while(|(_, point)| holds(point)).count();
    // The same rate more than once, with different ends, was not held.
    let not_held = by_rate.get(held).map(|(rate, _)| *rate);
    let below = by_rate[..held].iter().rev().find(|(rate, _)| not_held.is_none_or(|not_held| *rate < not_held));
    let highest = below.map_or(0.0, |(rate, _)| *rate);
    (!by_rate.is_empty()).then(|| Seats {
        // A hair more, for rates that no float has.
        seats: (highest / a_seat.per_second() + 1e-9).floor() as u64,
        rate_per_seat_per_s: a_seat.per_second(),
        not_held_rate_per_s: not_held,
        rule: RULE.to_owned(),
    })
}

/// Whether a point keeps the rule.
pub fn holds(point: &CachePoint) -> bool {
    let figures = &point.figures;
    let offered = point.offered_rate_per_s;
    // What is under way at either end of the phase differs by chance, by Little's law about so much.
    let under_way = offered * figures.response_time_ns.mean / 1e9;
    let chance = DEVIATIONS * (2.0 * under_way).sqrt() / point.duration_s.max(1e-9);
    let hits = &figures.hits_response_time_ns;
    !point.ended_early
        && figures.error_ratio.is_some_and(|ratio| ratio < ERRORS_MAX)
        && point.carried_rate_per_s >= offered * (1.0 - NOT_CARRIED_MAX) - chance
        && (hits.count == 0 || hits.mean < HITS_MEAN_NS_MAX)
}

#[cfg(test)]
mod tests {
    use ledger::CacheFigures;
    use ledger::document::Quantiles;

    use super::*;

    fn point(rate: f64) -> CachePoint {
        let quantiles = |mean| Quantiles { count: 100, mean, ..Quantiles::default() };
        CachePoint {
            offered_rate_per_s: rate,
            carried_rate_per_s: rate,
            duration_s: 54.0,
            figures: CacheFigures {
                requests: 100,
                answered: 100,
                error_ratio: Some(0.0),
                response_time_ns: quantiles(1e9),
                hits_response_time_ns: quantiles(5e6),
                ..CacheFigures::default()
            },
            ..CachePoint::default()
        }
    }

    fn seats(points: &[(f64, CachePoint)], a_seat: f64) -> Option<Seats> {
        let points = points.iter().map(|(rate, point)| (*rate, point));
        of(points, RequestRate::from_per_second(a_seat).unwrap())
    }

    fn held(rate: f64) -> (f64, CachePoint) {
        // What is measured is near what was asked for.
        (rate, point(rate * 0.99))
    }

    #[test]
    fn the_highest_rate_below_which_all_held() {
        let failing =
            CachePoint { figures: CacheFigures { error_ratio: Some(0.3), ..point(40.0).figures }, ..point(40.0) };
        let failing = (40.0, failing);
        let found = seats(&[held(80.0), held(20.0), failing.clone(), held(30.0)], 1.0).unwrap();
        assert_eq!((found.seats, found.not_held_rate_per_s), (30, Some(40.0)), "80/s held by luck does not count");
        assert_eq!(seats(&[held(30.0), held(40.0), failing.clone()], 1.0).unwrap().seats, 30, "once it did not");
        let all = seats(&[held(40.0)], 1.0).unwrap();
        assert_eq!((all.seats, all.not_held_rate_per_s), (40, None));
        assert_eq!(seats(&[failing], 1.0).unwrap().seats, 0);
        assert_eq!(seats(&[held(40.0)], 2.0).unwrap().seats, 20);
        assert_eq!(seats(&[held(0.3)], 0.1).unwrap().seats, 3);
        assert!(seats(&[], 1.0).is_none());
        assert!(seats(&[(5.0, CachePoint::default())], 1.0).is_none());
    }

    #[test]
    fn each_part_of_the_rule_has_its_edge() {
        let with = |figures: CacheFigures| CachePoint { figures, ..point(40.0) };
        let figures = point(40.0).figures;
        assert!(holds(&with(CacheFigures { error_ratio: Some(0.0099), ..figures.clone() })));
        assert!(!holds(&with(CacheFigures { error_ratio: Some(0.01), ..figures.clone() })));
        let hits = |mean| Quantiles { count: 9, mean, ..Quantiles::default() };
        assert!(holds(&with(CacheFigures { hits_response_time_ns: hits(0.99e9), ..figures.clone() })));
        assert!(!holds(&with(CacheFigures { hits_response_time_ns: hits(1.0e9), ..figures.clone() })));
        assert!(holds(&with(CacheFigures { hits_response_time_ns: Quantiles::default(), ..figures })));
        assert!(!holds(&CachePoint { ended_early: true, ..point(40.0) }));
        // 40/s of a second each: 3 x sqrt(80) / 54 is 0.5/s of chance beside the 2/s that need not be carried.
        assert!(holds(&CachePoint { carried_rate_per_s: 37.6, ..point(40.0) }));
        assert!(!holds(&CachePoint { carried_rate_per_s: 37.4, ..point(40.0) }));
    }
}
