//! Many explained responses in few figures: shares at percentiles and by distance, the dominant limit, the slowest.

use std::collections::BTreeMap;

use crate::explanation::{Dominant, Explanation, Share};
use crate::sentence::{advice, sentence};
use crate::what_if::Prediction;
use schema::share::{Cause, Confidence, Limit};

/// A response of a set.
#[derive(Clone, Debug)]
pub struct Explained {
    /// Round-trip time of the response's class of distance, as configured, nanoseconds; `None` where none is.
    pub distance_ns: Option<u64>,
    /// Its explanation.
    pub explanation: Explanation,
}

/// The figures of a set of responses.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Summary {
    /// Number of responses.
    pub responses: usize,
    /// Shares at p50, p95 and p99 of all responses; empty of no responses.
    pub percentiles: Vec<Group>,
    /// Shares of the median response of each distance, the nearest first.
    pub distances: Vec<Group>,
    /// Places of the five slowest responses in the set, the slowest first.
    pub slowest: Vec<usize>,
    /// What limits the median response of the distance whose median is longest, with a remedy where one is known; and
    /// what limits p99, if that is something else and takes far longer.
    pub sentence: String,
    /// The remedy that the sentence names for the median response; `None` where it names none that gains something.
    pub advice: Option<Advice>,
}

/// A remedy with its predicted gain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Advice {
    /// Distance of the responses, nanoseconds; `None` of several or unknown distances.
    pub distance_ns: Option<u64>,
    /// Response time of the response for which the gain is predicted, nanoseconds.
    pub measured_ns: u64,
    /// The remedy, and the response time with it.
    pub prediction: Prediction,
}

/// Responses of about the same response time.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Group {
    /// Distance of the responses, nanoseconds; `None` of a group of several or unknown distances.
    pub distance_ns: Option<u64>,
    /// Percentile of the response time, in hundredths of a percent: 5000 is the median.
    pub percentile: u32,
    /// Responses averaged.
    pub responses: usize,
    /// Place of the response at the percentile in the set.
    pub example: usize,
    /// Mean response time of the responses averaged, nanoseconds.
    pub response_time_ns: u64,
    /// Mean time of each cause, the longest first. Sums to the response time, up to a nanosecond for each cause.
    pub shares: Vec<Share>,
    /// The limit with the longest time.
    pub dominant: Option<Dominant>,
}

/// Median, and the percentiles that tails are judged by.
const PERCENTILES: [u32; 3] = [5_000, 9_500, 9_900];
/// A tail that takes this many times the median's time is worth a sentence of its own.
const TAIL_FACTOR: u64 = 2;
/// Number of slowest responses.
const SLOWEST: usize = 5;

impl Summary {
    /// The figures of `responses`.
    pub fn of(responses: &[Explained]) -> Summary {
        let all = ranked(responses, |_| true);
        let percentiles: Vec<Group> = PERCENTILES
            .iter()
            .filter(|rank| is_known(responses.len(), **rank))
            .filter_map(|rank| group(responses, &all, *rank, None))
            .collect();
        let mut classes = BTreeMap::<u64, Vec<usize>>::new();
        for place in &all {
            if let Some(distance) = responses[*place].distance_ns {
                classes.entry(distance).or_default().push(*place);
            }
        }
        let distances: Vec<Group> = classes
            .iter()
            .filter_map(|(distance, places)| group(responses, places, PERCENTILES[0], Some(*distance)))
            .collect();
        let headline = distances.iter().max_by_key(|group| group.response_time_ns).cloned();
        let headline = headline.or_else(|| group(responses, &all, PERCENTILES[0], None));
        let sentence_of = |group: &Group| sentence(group, &responses[group.example].explanation);
        let advice = headline.as_ref().and_then(|group| advice(group, &responses[group.example].explanation));
        let sentence = headline.map_or(String::from("No response to explain."), |group| {
            // The tail has a sentence of its own where something else limits it.
            let limit = |group: &Group| group.dominant.map(|dominant| dominant.limit);
            let tail = percentiles.last().filter(|tail| {
                tail.response_time_ns >= group.response_time_ns.saturating_mul(TAIL_FACTOR)
                    && limit(tail) != limit(&group)
            });
            let tail = tail.map_or(String::new(), |tail| format!(" {}", sentence_of(tail)));
            sentence_of(&group) + &tail
        });
        let slowest = all.iter().rev().take(SLOWEST).copied().collect();
        Summary { responses: responses.len(), percentiles, distances, slowest, sentence, advice }
    }
}

/// Whether a percentile of so many responses is one: at least one of them is beyond it. The median always is.
fn is_known(responses: usize, percentile: u32) -> bool {
    percentile == PERCENTILES[0] || responses as u64 * u64::from(10_000 - percentile) >= 10_000
}

/// Places of the responses in order of response time.
fn ranked(responses: &[Explained], is_in: impl Fn(&Explained) -> bool) -> Vec<usize> {
    let mut places: Vec<usize> = (0..responses.len()).filter(|place| is_in(&responses[*place])).collect();
    places.sort_by_key(|place| responses[*place].explanation.response_time_ns());
    places
}

/// The responses around a percentile: those ranked within 2 % of the set on both sides, and at most half of the way to
/// the slowest, so that p99 does not average the maximum.
fn group(responses: &[Explained], ranked: &[usize], percentile: u32, distance_ns: Option<u64>) -> Option<Group> {
    let count = ranked.len();
    let rank = (count * percentile as usize).div_ceil(10_000).checked_sub(1)?;
    let reach = (count / 50).min((count - 1 - rank) / 2).min(rank);
    let places = &ranked[rank - reach..=rank + reach];
    let explanations: Vec<&Explanation> = places.iter().map(|place| &responses[*place].explanation).collect();
    let number = explanations.len() as u64;
    let mut shares: Vec<Share> = Cause::ALL.into_iter().filter_map(|cause| mean(&explanations, cause)).collect();
    shares.sort_by_key(|share| std::cmp::Reverse(share.time_ns));
    let times = explanations.iter().map(|explanation| u128::from(explanation.response_time_ns()));
    Some(Group {
        distance_ns,
        percentile,
        responses: explanations.len(),
        example: ranked[rank],
        response_time_ns: (times.sum::<u128>() / u128::from(number)) as u64,
        dominant: limits(&shares).first().copied(),
        shares,
    })
}

/// The mean time of a cause, with the confidence that at least half of it has.
fn mean(explanations: &[&Explanation], cause: Cause) -> Option<Share> {
    let parts = || explanations.iter().flat_map(|one| &one.intervals).filter(|part| part.cause == cause);
    let time = |least: Confidence| -> u128 {
        parts().filter(|part| part.confidence >= least).map(|part| u128::from(part.to_ns - part.from_ns)).sum()
    };
    let all = time(Confidence::Weak);
    let levels = [Confidence::Certain, Confidence::Likely];
    let confidence = levels.into_iter().find(|level| time(*level) * 2 >= all).unwrap_or(Confidence::Weak);
    let rule = parts().max_by_key(|part| part.to_ns - part.from_ns)?.rule;
    Some(Share { cause, time_ns: (all / explanations.len() as u128) as u64, confidence, rule })
}

/// The limits of some shares, the one with the longest time first. Of several causes, the confidence of the longest.
pub(crate) fn limits(shares: &[Share]) -> Vec<Dominant> {
    let mut limits = BTreeMap::<Limit, Dominant>::new();
    for share in shares {
        let limit = share.cause.limit();
        let entry = limits.entry(limit).or_insert(Dominant { limit, time_ns: 0, confidence: share.confidence });
        entry.time_ns += share.time_ns;
    }
    let mut limits: Vec<Dominant> = limits.into_values().collect();
    limits.sort_by_key(|limit| std::cmp::Reverse(limit.time_ns));
    limits
}
