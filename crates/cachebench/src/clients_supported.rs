//! How many seats of a class a machine holds.
//!
//! The school gateway's rule: a class of 40 seats needs about 40 requests a second at its peak, one a seat. What a
//! machine *holds* the paper says in words ("usable to about 40/s"); here it is a rule, ours: of the measured rates
//! the highest at which, and at every lower one,
//!
//! - fewer than 1 % of the requests failed, and the point was not ended early;
//! - what was offered was carried, within 5 % and what chance explains;
//! - hits took less than a second in the mean, for a class that waits longer does without the cache.
//!
//! Only points that are evidence count. One that somebody interrupted is none; nor is one that kept the rule in a run that
//! is not valid, or broke it in a run whose bench is in doubt. Those that do not count are named, and without any that
//! does no seats are stated.

use schema::document::{CheckState, Validity, Verdict, Weight};
use schema::{CachePoint, ClientsSupported, NotCounted};
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
                    was offered was carried within 5 %, and hits took under 1 s in the mean; of valid runs that came to \
                    their end";

/// Checks that speak of the cache and not of the bench: where they fail, a point that broke the rule broke it all the same.
const OF_THE_CACHE: [&str; 5] =
    ["server_alive", "responses_whole", "error_rate", "achieved_as_offered", "steady_state"];
/// Checks by whose failing requests fail that no cache was asked.
const OF_OUR_CONNECTIONS: [&str; 2] = ["client_descriptors_and_ports", "open_connections_established"];

/// What a point's run is worth as evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunEvidence {
    verdict: Verdict,
    /// Checks that did not hold, of the bench.
    of_bench: Vec<String>,
    /// Checks that did not hold, of the cache.
    of_cache: Vec<String>,
}

impl RunEvidence {
    /// Of a run with these checks.
    pub fn of(validity: &Validity) -> RunEvidence {
        let bad = validity.checks.iter().filter(|check| {
            // Many caches answer a reload from their copy unless told otherwise; that says nothing of seats.
            let is_reloads = check.name == "cache_responses_correct" && check.weight == Weight::Suspect;
            matches!(check.state, CheckState::Failed | CheckState::CouldNotRun) && !is_reloads
        });
        let (of_cache, of_bench): (Vec<String>, Vec<String>) =
            bad.map(|check| check.name.clone()).partition(|name| OF_THE_CACHE.contains(&name.as_str()));
        let verdict = if of_cache.is_empty() && of_bench.is_empty() { Verdict::Valid } else { validity.verdict };
        RunEvidence { verdict, of_bench, of_cache }
    }

    /// The same with one more reason not to trust how much was carried.
    pub fn doubted(mut self, why: &str) -> RunEvidence {
        self.verdict = self.verdict.max(Verdict::Suspect);
        self.of_bench.push(why.to_owned());
        self
    }

    fn because(&self) -> String {
        let names: Vec<String> =
            self.of_bench.iter().chain(&self.of_cache).map(|name| name.replace('_', " ")).collect();
        format!("{}: {}", self.verdict.name(), names.join(", "))
    }
}

/// What a point says.
enum Evidence {
    Held,
    TooMuch,
    Nothing(String),
}

fn evidence(point: &CachePoint, standing: &RunEvidence) -> Evidence {
    if point.interrupted {
        return Evidence::Nothing("it was interrupted".to_owned());
    }
    // Where nothing ever answers there is no machine, and no measure of one.
    if point.figures.answered == 0 {
        return Evidence::Nothing("nothing was answered".to_owned());
    }
    if holds(point) {
        let is_valid = standing.verdict == Verdict::Valid;
        return if is_valid { Evidence::Held } else { Evidence::Nothing(standing.because()) };
    }
    let ours = standing.of_bench.iter().any(|name| OF_OUR_CONNECTIONS.contains(&name.as_str()));
    // Answers that failed did so however late they were asked for.
    if standing.of_bench.is_empty() || (failed(point) && !ours) {
        Evidence::TooMuch
    } else {
        Evidence::Nothing(standing.because())
    }
}

/// What was found out of seats.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SupportResult {
    /// The seats; none where no point counts.
    pub supported: Option<ClientsSupported>,
    /// Where no point counts, the points and why.
    pub not_counted: Vec<NotCounted>,
}

/// Judges points, each with the rate that was asked for (the measured one differs from it by chance) and the standing of
/// its run. Each seat asks so often.
pub fn of<'a>(
    points: impl IntoIterator<Item = (f64, &'a CachePoint, &'a RunEvidence)>,
    client_rate: RequestRate,
) -> SupportResult {
    let mut held = Vec::new();
    let mut too_much = Vec::new();
    let mut not_counted = Vec::new();
    for (rate, point, standing) in points {
        if point.figures.requests == 0 {
            continue;
        }
        match evidence(point, standing) {
            Evidence::Held => held.push(rate),
            Evidence::TooMuch => too_much.push(rate),
            Evidence::Nothing(why) => not_counted.push(NotCounted { rate_per_s: rate, why }),
        }
    }
    if held.is_empty() && too_much.is_empty() {
        return SupportResult { supported: None, not_counted };
    }
    let not_held = too_much.into_iter().min_by(f64::total_cmp);
    // The same rate more than once, with different ends, was not held.
    let below = held.into_iter().filter(|rate| not_held.is_none_or(|not_held| *rate < not_held));
    let highest = below.max_by(f64::total_cmp).unwrap_or(0.0);
    let supported = ClientsSupported {
        // A hair more, for rates that no float has.
        clients: (highest / client_rate.per_second() + 1e-9).floor() as u64,
        rate_per_client_per_s: client_rate.per_second(),
        unsustained_rate_per_s: not_held,
        not_counted,
        rule: RULE.to_owned(),
    };
    SupportResult { supported: Some(supported), not_counted: Vec::new() }
}

/// Whether a point keeps the rule.
pub fn holds(point: &CachePoint) -> bool {
    let figures = &point.figures;
    let offered = point.offered_rate_per_s;
    // What is under way at either end of the phase differs by chance, by Little's law about so much.
    let under_way = offered * figures.response_time_ns.mean / 1e9;
    let chance = DEVIATIONS * (2.0 * under_way).sqrt() / point.duration_s.max(1e-9);
    let hits = &figures.hits_response_time_ns;
    !failed(point)
        && point.achieved_rate_per_s >= offered * (1.0 - NOT_CARRIED_MAX) - chance
        && (hits.count == 0 || hits.mean < HITS_MEAN_NS_MAX)
}

/// Whether more failed than a class would bear.
fn failed(point: &CachePoint) -> bool {
    point.ended_early || point.figures.error_ratio.is_none_or(|ratio| ratio >= ERRORS_MAX)
}

#[cfg(test)]
mod tests {
    use schema::CacheFigures;
    use schema::document::{Check, Quantiles};

    use super::*;

    fn point(rate: f64) -> CachePoint {
        let quantiles = |mean| Quantiles { count: 100, mean, ..Quantiles::default() };
        CachePoint {
            offered_rate_per_s: rate,
            achieved_rate_per_s: rate,
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

    fn supported(points: &[(f64, CachePoint)], client_rate: f64) -> Option<ClientsSupported> {
        let valid = standing(&[]);
        let points = points.iter().map(|(rate, point)| (*rate, point, &valid));
        of(points, RequestRate::from_per_second(client_rate).unwrap()).supported
    }

    /// Of a run in which these checks failed.
    fn standing(failed: &[(&str, Weight)]) -> RunEvidence {
        let check = |&(name, weight): &(&str, Weight)| Check {
            name: name.into(),
            state: CheckState::Failed,
            weight,
            value: None,
            limit: None,
            unit: String::new(),
            why: String::new(),
        };
        RunEvidence::of(&Validity::from_checks(failed.iter().map(check).collect()))
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
        let found = supported(&[held(80.0), held(20.0), failing.clone(), held(30.0)], 1.0).unwrap();
        assert_eq!((found.clients, found.unsustained_rate_per_s), (30, Some(40.0)), "80/s held by luck does not count");
        assert_eq!(supported(&[held(30.0), held(40.0), failing.clone()], 1.0).unwrap().clients, 30, "once it did not");
        let all = supported(&[held(40.0)], 1.0).unwrap();
        assert_eq!((all.clients, all.unsustained_rate_per_s), (40, None));
        assert_eq!(supported(&[failing], 1.0).unwrap().clients, 0);
        assert_eq!(supported(&[held(40.0)], 2.0).unwrap().clients, 20);
        assert_eq!(supported(&[held(0.3)], 0.1).unwrap().clients, 3);
        assert!(supported(&[], 1.0).is_none());
        assert!(supported(&[(5.0, CachePoint::default())], 1.0).is_none());
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
        assert!(holds(&CachePoint { achieved_rate_per_s: 37.6, ..point(40.0) }));
        assert!(!holds(&CachePoint { achieved_rate_per_s: 37.4, ..point(40.0) }));
    }

    #[test]
    fn only_valid_points_that_came_to_their_end_count() {
        let one = RequestRate::from_per_second(1.0).unwrap();
        let found = |points: &[(CachePoint, RunEvidence)]| {
            of(points.iter().map(|(point, standing)| (point.offered_rate_per_s, point, standing)), one)
        };
        let late = standing(&[("generator_on_time", Weight::Invalid)]);
        let growing = standing(&[("steady_state", Weight::Suspect)]);
        let interrupted = CachePoint { interrupted: true, ..point(40.0) };
        for (point, standing, why) in [
            (interrupted.clone(), standing(&[]), "it was interrupted"),
            (point(40.0), late.clone(), "invalid: generator on time"),
            (point(40.0), growing.clone(), "suspect: steady state"),
        ] {
            let alone = found(&[(point.clone(), standing.clone())]);
            assert_eq!(alone.supported, None, "{why}");
            assert_eq!(alone.not_counted, [NotCounted { rate_per_s: 40.0, why: why.into() }]);
            let beside = found(&[(super::tests::point(20.0), super::tests::standing(&[])), (point, standing)]);
            let supported = beside.supported.unwrap();
            assert_eq!(
                (supported.clients, supported.unsustained_rate_per_s, supported.not_counted.len()),
                (20, None, 1),
                "{why}"
            );
        }
        let mute = CachePoint {
            figures: CacheFigures { answered: 0, error_ratio: Some(1.0), ..point(5.0).figures },
            ..point(5.0)
        };
        let nobody = found(&[(mute, standing(&[("server_answers", Weight::Invalid)]))]);
        assert_eq!(
            (nobody.supported, nobody.not_counted[0].why.as_str()),
            (None, "nothing was answered"),
            "at a wrong address"
        );
        // What broke the rule broke it, if it was the cache's doing.
        let failing = |standing| {
            let figures = CacheFigures { error_ratio: Some(0.6), ..point(40.0).figures };
            found(&[(CachePoint { figures, ended_early: true, ..point(40.0) }, standing)]).supported
        };
        for standing in [growing, late.clone(), standing(&[("server_alive", Weight::Invalid)])] {
            assert_eq!(failing(standing).unwrap().unsustained_rate_per_s, Some(40.0));
        }
        assert_eq!(failing(standing(&[("client_descriptors_and_ports", Weight::Invalid)])), None);
        let behind = CachePoint { achieved_rate_per_s: 20.0, ..point(40.0) };
        assert_eq!(
            found(&[(behind.clone(), late)]).supported,
            None,
            "the bench was too slow, or the cache: nobody knows"
        );
        let short = standing(&[]).doubted("warm-up shorter than the think time");
        assert_eq!(found(&[(behind.clone(), short)]).supported, None, "the first answers had not come when it began");
        let carried = standing(&[("achieved_as_offered", Weight::Suspect)]);
        assert_eq!(found(&[(behind, carried)]).supported.unwrap().unsustained_rate_per_s, Some(40.0));
        // A reload out of the cache is a body_content of its settings; other wrong answers are none.
        let reloads = standing(&[("cache_responses_correct", Weight::Suspect)]);
        assert_eq!(found(&[(point(40.0), reloads)]).supported.unwrap().clients, 40);
        let wrong = standing(&[("cache_responses_correct", Weight::Invalid)]);
        assert_eq!(found(&[(point(40.0), wrong)]).supported, None);
    }
}
