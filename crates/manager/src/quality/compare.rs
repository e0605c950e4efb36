//! Compares two sets of exchanges: groups of agents, programs, peers, or two times.
//!
//! Exchanges are not independent: a bad minute affects all of them. So one observation is a block of minutes (some
//! thirty blocks in all), and intervals come from resampling blocks ([`stats::bootstrap`]). If both sets cover the
//! same time, a block contains both, and what they share (network, server) is in no interval. Four figures are
//! compared together and share one error probability by Holm's procedure.

#[cfg(test)]
mod tests;

use rusqlite::Connection;
use serde::{Deserialize, Serialize};
use stats::Rng;
use stats::bootstrap::{BEYOND_MIN, BLOCKS_MIN, standard_errors};
use stats::compare::{Difference, Estimate, between, holm_confidences};

use super::figures::Figures;
use super::query::{LAST_S, named_agents};
use super::scan::{RowSelection, Tally, scan};
use super::sides::Sides;
use super::{QualityError, SPANS_S};

/// The compared sets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// The first set.
    pub a: ComparedSet,
    /// The second set; its default time is that of `a`.
    pub b: ComparedSet,
    /// Confidence of all intervals together, above 0 and below 1; 0.95 by default.
    #[serde(default = "confidence")]
    pub confidence: f64,
}

/// A set: every condition that is given holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ComparedSet {
    /// Start, s since 1970; an hour before `until_s` by default.
    pub from_s: Option<u64>,
    /// End, s since 1970; now by default.
    pub until_s: Option<u64>,
    /// An agent.
    pub agent: Option<String>,
    /// A group of agents, as it is now.
    pub group: Option<String>,
    /// A program.
    pub program: Option<String>,
    /// A peer.
    pub peer: Option<String>,
    /// Which ends of connections.
    pub side: Sides,
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Compared {
    /// The first set.
    pub a: ComparedSide,
    /// The second set.
    pub b: ComparedSide,
    /// Length of a block.
    pub block_s: u64,
    /// Whether both cover the same time, block by block.
    pub paired: bool,
    /// Confidence of all intervals together.
    pub confidence: f64,
    /// The figures that were compared.
    pub metrics: Vec<CompareMetric>,
    /// Notes on the interpretation.
    pub notes: Vec<String>,
}

/// One of the two sets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparedSide {
    /// Start, s since 1970.
    pub from_s: u64,
    /// End.
    pub until_s: u64,
    /// Blocks with attempts.
    pub blocks: u64,
    /// Figures of the set.
    pub figures: Figures,
    /// Attempts that may belong to the set and are no longer stored separately.
    pub attempts_unlisted: u64,
}

/// A compared figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareMetric {
    /// `response_p50`, `response_p99`, `error_ratio` or `availability` (of windows).
    pub name: String,
    /// Unit of `a` and `b`: `ns`, or `ratio` (0 to 1).
    pub unit: String,
    /// The figure of set A; absent: A has no such figure.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub a: Option<f64>,
    /// The figure of set B.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub b: Option<f64>,
    /// B less A: for times as a share of A's, for ratios the difference (0.01 is a percentage point). Absent: not
    /// known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub difference: Option<f64>,
    /// Confidence interval of the difference.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub interval: Option<[f64; 2]>,
    /// Confidence of this interval alone: all together have [`Compared::confidence`].
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub confidence: Option<f64>,
    /// Whether the interval excludes 0; absent: not known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub shown: Option<bool>,
    /// The result in words.
    pub said: String,
}

const fn confidence() -> f64 {
    0.95
}

/// Compares the sets. `now_s` is the manager's clock, s since 1970. The same query on the same data has the same
/// result.
///
/// # Errors
/// An invalid query; SQLite's.
pub fn compare(index: &Connection, comparison: &Comparison, now_s: u64) -> Result<Compared, QualityError> {
    if !(comparison.confidence > 0.0 && comparison.confidence < 1.0) {
        return Err(QualityError::InvalidQuery("confidence must be between 0 and 1, such as 0.95".to_owned()));
    }
    let until_a = comparison.a.until_s.unwrap_or(now_s);
    let from_a = comparison.a.from_s.unwrap_or(until_a.saturating_sub(3600));
    let (from_b, until_b) = match (comparison.b.from_s, comparison.b.until_s) {
        (None, None) => (from_a, until_a),
        (from, until) => {
            let until = until.unwrap_or(now_s);
            (from.unwrap_or(until.saturating_sub(3600)), until)
        }
    };
    let longer = until_a.saturating_sub(from_a).max(until_b.saturating_sub(from_b));
    if until_a.max(until_b) > LAST_S {
        return Err(QualityError::InvalidQuery(format!(
            "until_s is after the year 9998: expected at most {LAST_S}, in seconds since 1970"
        )));
    }
    let shorter = until_a.saturating_sub(from_a).min(until_b.saturating_sub(from_b));
    // The resolution is as coarse as the number of blocks allows: coarse spans are fewer to read, and longer than short
    // disturbances.
    let span_s = SPANS_S.into_iter().rev().find(|span| shorter / span >= SPANS_MIN).unwrap_or(SPANS_S[0]);
    if shorter / span_s < BLOCKS_MIN as u64 {
        return Err(QualityError::InvalidQuery(format!(
            "each of the two times must last {BLOCKS_MIN} minutes or more: choose an earlier from_s"
        )));
    }
    let block_s = (shorter / span_s / BLOCKS_TARGET).max(1) * span_s;
    if longer / block_s > BLOCKS_MAX {
        return Err(QualityError::InvalidQuery(format!(
            "one of the two times is more than {} times as long as the other: choose times of similar length",
            longer / shorter
        )));
    }
    let paired = (from_a, until_a) == (from_b, until_b);
    let same = |set: &ComparedSet| ComparedSet { from_s: None, until_s: None, ..set.clone() };
    if paired && same(&comparison.a) == same(&comparison.b) {
        return Err(QualityError::InvalidQuery(
            "a and b are identical: they must differ in time, agent, group, program, peer or side".to_owned(),
        ));
    }
    let read = |set: &ComparedSet, from_s: u64, until_s: u64| -> Result<(Vec<Tally>, ComparedSide), QualityError> {
        let from_s = from_s / span_s * span_s;
        let count = (until_s - from_s).div_ceil(block_s).max(1);
        let until_s = until_s.div_ceil(span_s) * span_s;
        let selection = RowSelection {
            span_s,
            from_s,
            until_s,
            sides: set.side,
            agents: named_agents(index, set.agent.as_deref(), set.group.as_deref())?,
            program: set.program.clone(),
            peer: set.peer.clone(),
            by_series: set.program.is_some() || set.peer.is_some(),
        };
        let mut blocks = vec![Tally::default(); count as usize];
        let last = blocks.len() - 1;
        let stats = scan(
            index,
            &selection,
            |_, _| Some(()),
            |begin_s, (), tally| {
                blocks[(((begin_s - from_s) / block_s) as usize).min(last)].merge(&tally);
                Ok(())
            },
        )?;
        let whole = blocks.iter().fold(Tally::default(), |mut all, block| {
            all.merge(block);
            all
        });
        let side = ComparedSide {
            from_s,
            until_s,
            blocks: blocks.iter().filter(|block| block.sums.attempts > 0).count() as u64,
            figures: Figures::of(&whole, until_s.min(now_s).saturating_sub(from_s)),
            attempts_unlisted: stats.unlisted,
        };
        Ok((blocks, side))
    };
    let (blocks_a, a) = read(&comparison.a, from_a, until_a)?;
    let (blocks_b, b) = read(&comparison.b, from_b, until_b)?;
    let metrics = compare_blocks(&blocks_a, &blocks_b, paired, comparison.confidence);
    let notes = notes(&a, &b, paired);
    Ok(Compared { a, b, block_s, paired, confidence: comparison.confidence, metrics, notes })
}

/// Minimum spans of a resolution.
const SPANS_MIN: u64 = 24;
/// Target number of blocks: enough to estimate their variance, few enough that one is longer than what correlates
/// neighbours.
const BLOCKS_TARGET: u64 = 30;
/// Maximum blocks of the longer time.
const BLOCKS_MAX: u64 = 2000;
/// Number of resamples: their standard deviation is known to 4 %.
const ROUNDS: u32 = 400;
/// Failures in fewer blocks than this may be a single event of unknown frequency.
const FAILING_BLOCKS_MIN: usize = 5;

fn notes(a: &ComparedSide, b: &ComparedSide, paired: bool) -> Vec<String> {
    let mut notes = vec![if paired {
        "Both cover the same time: disturbances that affect both alike are in no interval.".to_owned()
    } else {
        "They cover different times: other changes between these times are part of the difference.".to_owned()
    }];
    notes.push(
        "The intervals describe these agents, programs and peers, in this time; they do not generalize to \
     others."
            .to_owned(),
    );
    for (name, side) in [("A", a), ("B", b)] {
        if side.figures.attempts_estimated.is_some() {
            notes.push(format!("For {name} a share of the connections was sent: its figures describe this share."));
        }
        if side.attempts_unlisted > 0 {
            notes.push(format!(
                "{} attempts may belong to {name} and are no longer stored separately.",
                side.attempts_unlisted
            ));
        }
    }
    notes
}

/// A figure that can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    Median,
    P99,
    ErrorRatio,
    Availability,
}

impl Metric {
    const ALL: [Metric; 4] = [Metric::Median, Metric::P99, Metric::ErrorRatio, Metric::Availability];

    const fn name(self) -> &'static str {
        match self {
            Metric::Median => "response_p50",
            Metric::P99 => "response_p99",
            Metric::ErrorRatio => "error_ratio",
            Metric::Availability => "availability",
        }
    }

    const fn quantile(self) -> Option<f64> {
        match self {
            Metric::Median => Some(0.5),
            Metric::P99 => Some(0.99),
            _ => None,
        }
    }

    /// Why the figure cannot be compared at all.
    fn unknown(self, blocks: [&[Tally]; 2]) -> Option<String> {
        let sum = |of: fn(&Tally) -> u64| blocks.map(|blocks| blocks.iter().map(of).sum::<u64>());
        match self {
            Metric::Median | Metric::P99 => {
                let count = sum(|block| block.sums.response.count()).into_iter().min().unwrap_or(0);
                let needed = BEYOND_MIN / (1.0 - self.quantile().unwrap_or(0.5));
                ((count as f64) < needed * (1.0 - 1e-9))
                    .then(|| format!("not known: each of the two needs {needed:.0} successful exchanges"))
            }
            Metric::ErrorRatio | Metric::Availability => {
                let failing = |block: &Tally| match self {
                    Metric::ErrorRatio => block.sums.failed > 0,
                    _ => block.succeeded < block.tried,
                };
                let counts = blocks.map(|blocks| blocks.iter().filter(|block| failing(block)).count());
                match counts {
                    [0, 0] => Some("no attempt failed, neither in A nor in B".to_owned()),
                    [a, b] => (a.max(b) < FAILING_BLOCKS_MIN)
                        .then(|| format!("not known: only {} blocks have failures, which may be one event", a.max(b))),
                }
            }
        }
    }
}

/// Compares sets, block against block if they are paired.
fn compare_blocks(a: &[Tally], b: &[Tally], paired: bool, confidence: f64) -> Vec<CompareMetric> {
    let is_there = |block: &Tally| block.sums.attempts > 0;
    let both = [a, b];
    let (tallies, sizes): ([Vec<&Tally>; 2], Vec<usize>) = if paired {
        // Blocks without data in either set are skipped.
        let kept: Vec<usize> = (0..a.len().min(b.len())).filter(|&at| is_there(&a[at]) || is_there(&b[at])).collect();
        (both.map(|blocks| kept.iter().map(|&at| &blocks[at]).collect()), vec![kept.len()])
    } else {
        let tallies = both.map(|blocks| blocks.iter().filter(|block| is_there(block)).collect::<Vec<_>>());
        let sizes = tallies.iter().map(Vec::len).collect();
        (tallies, sizes)
    };
    let sets = tallies.map(Blocks::of);
    let own = sets.each_ref().map(|set| set.figures(&vec![1; set.tallies.len()]));
    let mut rng = Rng::named(0, "quality::compare");
    let errors = standard_errors(&sizes, ROUNDS, &mut rng, |weights| {
        let (first, second) = (&weights[0], weights.last().unwrap_or(&weights[0]));
        let (a, b) = (sets[0].figures(first), sets[1].figures(second));
        (0..Metric::ALL.len()).map(|at| b[at] - a[at]).collect()
    });
    let has_blocks = both.iter().all(|blocks| blocks.iter().filter(|block| is_there(block)).count() >= BLOCKS_MIN);
    let freedom = sizes.iter().copied().min().unwrap_or(0).max(2) as f64 - 1.0;
    let estimate = |at: usize| -> Result<Estimate, String> {
        if !has_blocks {
            return Err(format!("not known: each of the two needs {BLOCKS_MIN} blocks of time with attempts"));
        }
        if let Some(why) = Metric::ALL[at].unknown(both) {
            return Err(why);
        }
        let value = own[1][at] - own[0][at];
        match errors[at].filter(|_| value.is_finite()) {
            Some(standard_error) => Ok(Estimate { value, standard_error, freedom }),
            None => Err("not known: too few values".to_owned()),
        }
    };
    let estimates: Vec<Result<Estimate, String>> = (0..Metric::ALL.len()).map(estimate).collect();
    let nothing = Estimate { value: 0.0, standard_error: 0.0, freedom };
    let difference = |of: &Estimate, confidence: f64| between(nothing, *of, confidence);
    let p: Vec<f64> = estimates
        .iter()
        .map(|estimate| {
            estimate.as_ref().ok().and_then(|of| difference(of, confidence)).map_or(f64::NAN, |found| found.p)
        })
        .collect();
    let confidences = holm_confidences(&p, confidence);
    Metric::ALL
        .into_iter()
        .enumerate()
        .map(|(at, metric)| {
            let values = [own[0][at], own[1][at]];
            let found = match &estimates[at] {
                Ok(of) => difference(of, confidences[at]).ok_or_else(|| "not known: too few values".to_owned()),
                Err(why) => Err(why.clone()),
            };
            metric.to_compare_metric(values, found, confidences[at])
        })
        .collect()
}

/// Blocks with a common numbering of their buckets.
struct Blocks<'a> {
    tallies: Vec<&'a Tally>,
    /// Lower and upper edge of each used bucket, in order.
    edges: Vec<(u64, u64)>,
    /// Bucket and count, by block.
    counts: Vec<Vec<(usize, u64)>>,
}

impl<'a> Blocks<'a> {
    fn of(tallies: Vec<&'a Tally>) -> Blocks<'a> {
        let buckets = |tally: &'a Tally| tally.sums.response.buckets();
        let mut edges: Vec<(u64, u64)> =
            tallies.iter().flat_map(|tally| buckets(tally)).map(|(from, to, _)| (from, to)).collect();
        edges.sort_unstable();
        edges.dedup();
        let numbered = |(from, _, count): (u64, u64, u64)| (edges.partition_point(|(edge, _)| *edge < from), count);
        let counts = tallies.iter().map(|tally| buckets(tally).map(numbered).collect()).collect();
        Blocks { tallies, edges, counts }
    }

    /// The figures in the order of [`Metric::ALL`], with each block weighted: logarithms of times, so that
    /// differences are ratios; NaN if there is none.
    fn figures(&self, weights: &[u64]) -> [f64; 4] {
        let sum = |of: fn(&Tally) -> u64| {
            self.tallies.iter().zip(weights).map(|(tally, weight)| of(tally) * weight).sum::<u64>() as f64
        };
        let share = |part: f64, of: f64| if of > 0.0 { part / of } else { f64::NAN };
        let mut held = vec![0; self.edges.len()];
        for (counts, &weight) in self.counts.iter().zip(weights).filter(|(_, weight)| **weight > 0) {
            counts.iter().for_each(|&(bucket, count)| held[bucket] += count * weight);
        }
        Metric::ALL.map(|metric| match metric {
            Metric::ErrorRatio => share(sum(|tally| tally.sums.failed), sum(|tally| tally.sums.attempts)),
            Metric::Availability => share(sum(|tally| tally.succeeded), sum(|tally| tally.tried)),
            _ => metric.quantile().and_then(|q| self.within(&held, q)).map_or(f64::NAN, |ns| ns.max(1.0).ln()),
        })
    }

    /// A quantile, with values spread evenly over a bucket: otherwise differences would move by whole buckets.
    fn within(&self, held: &[u64], q: f64) -> Option<f64> {
        let rank = q * held.iter().sum::<u64>() as f64;
        let mut passed = 0.0;
        for (&(from, to), &count) in self.edges.iter().zip(held).filter(|(_, count)| **count > 0) {
            let next = passed + count as f64;
            if next >= rank {
                return Some(from as f64 + (to - from) as f64 * ((rank - passed) / count as f64));
            }
            passed = next;
        }
        None
    }
}

impl Metric {
    fn to_compare_metric(self, values: [f64; 2], found: Result<Difference, String>, confidence: f64) -> CompareMetric {
        let is_time = self.quantile().is_some();
        let own = |value: f64| value.is_finite().then(|| if is_time { value.exp() } else { value });
        // A difference of logarithms is a ratio.
        let plain = |difference: f64| if is_time { difference.exp_m1() } else { difference };
        let mut metric = CompareMetric {
            name: self.name().to_owned(),
            unit: if is_time { "ns" } else { "ratio" }.to_owned(),
            a: own(values[0]),
            b: own(values[1]),
            difference: None,
            interval: None,
            confidence: None,
            shown: None,
            said: String::new(),
        };
        match found {
            Ok(found) => {
                let (difference, interval) = (plain(found.mean), found.interval.map(plain));
                metric.said = self.sentence(difference, interval, found.is_shown(), plain(found.half_width()));
                metric.difference = Some(difference);
                metric.interval = Some(interval);
                metric.confidence = Some(confidence);
                metric.shown = Some(found.is_shown());
            }
            Err(why) => metric.said = why,
        }
        metric
    }

    fn sentence(self, difference: f64, interval: [f64; 2], shown: bool, least: f64) -> String {
        let unit = if self.quantile().is_some() { "%" } else { "percentage points" };
        let digits = |value: f64| {
            let percent = value.abs() * 100.0;
            if percent < 9.95 { format!("{percent:.2}") } else { format!("{percent:.1}") }
        };
        if !shown {
            return format!(
                "no difference shown; a difference of {} {unit} or more would have been detected",
                digits(least)
            );
        }
        let (name, more, less) = match self {
            Metric::Median => ("median response time", "longer", "shorter"),
            Metric::P99 => ("99th percentile of response time", "longer", "shorter"),
            Metric::ErrorRatio => ("error ratio", "higher", "lower"),
            Metric::Availability => ("availability", "higher", "lower"),
        };
        let way = if difference > 0.0 { more } else { less };
        let mut ends = interval.map(f64::abs);
        ends.sort_by(f64::total_cmp);
        format!("B's {name} is {} {unit} {way} ({} to {})", digits(difference), digits(ends[0]), digits(ends[1]))
    }
}
