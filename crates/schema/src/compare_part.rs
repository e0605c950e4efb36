//! The document of `compare`. `docs/concepts/compare.md` defines the terms.

use serde::{Deserialize, Serialize};

use crate::document::{Run, Validity};

/// The document of `compare`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The comparison as a whole: its folder, the command that repeats it, the machine.
    pub run: Run,
    /// Whether to believe the comparison: includes the checks of the compared runs.
    pub validity: Validity,
    /// The result.
    pub compare: ComparePart,
}

/// The differences of two sides, B less A.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparePart {
    /// Data of the intervals: `one_run` (variation within one run per side), `runs` (several runs per side), or
    /// `blocks` (two servers, interleaved).
    pub method: String,
    /// Confidence of the deciding metric's interval, and of all others together: 0.95 for 95 %.
    pub confidence: f64,
    /// Name of the deciding metric.
    pub by: String,
    /// The first side.
    pub a: CompareSide,
    /// The second side.
    pub b: CompareSide,
    /// Differences between the two plans, field by field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans_differ: Vec<PlanDifference>,
    /// Differences between the machines, fact by fact; of several runs per side the first are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts_differ: Vec<HostDifference>,
    /// All metrics, the deciding one first.
    pub metrics: Vec<ComparedMetric>,
    /// Blocks of interleaved runs, in order, those that do not count included.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<ComparedBlock>,
    /// Terms of `--fail-if`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fail_if: Vec<FailTerm>,
    /// Notes for the reader.
    pub notes: Vec<String>,
}

impl ComparePart {
    /// The deciding metric; `None` if it has no figures.
    pub fn headline(&self) -> Option<&ComparedMetric> {
        self.metrics.iter().find(|metric| metric.name == self.by)
    }
}

/// One side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareSide {
    /// Description: names of runs, a server's command, or a URL.
    pub what: String,
    /// Ids of its stored runs, in order; empty if not stored.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// Runs whose figures are in the metrics.
    pub counted: u64,
}

/// A field in which two plans differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanDifference {
    /// Name with its tables, such as `load.rate`.
    pub field: String,
    /// Value of the first side; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<String>,
    /// Value of the second side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<String>,
    /// Whether the field belongs to the compared server, not to the way of measuring.
    pub subject: bool,
}

/// A fact in which two machines differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostDifference {
    /// Name as in [`crate::document::Host`], such as `kernel` or `settings.class`.
    pub fact: String,
    /// Value of the first side; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<String>,
    /// Value of the second side.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<String>,
    /// Whether the fact makes it another machine (kernel, CPU, cores, memory), not another setting.
    pub machine: bool,
}

/// One metric of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedMetric {
    /// Name, ending in the unit.
    pub name: String,
    /// Short name, as typed, such as `p99`.
    pub short: String,
    /// Unit of `a` and `b`.
    pub unit: String,
    /// The first side's figure; over several runs or blocks the geometric mean, for errors the mean. Absent if it has
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<f64>,
    /// The second side's figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<f64>,
    /// Whether `difference` and the following are relative to A's figure (0.05: 5 % more); otherwise they are in
    /// `unit`.
    pub relative: bool,
    /// B less A; absent if one side has no figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// Confidence interval of the difference; absent if the variation is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Confidence of `interval`: that of the deciding metric, or higher for several metrics together (Holm).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// Probability of a difference of this size or more if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Whether B's figure is less or more.
    pub verdict: CompareVerdict,
    /// Smallest difference that would have been shown: half the interval's width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable_difference: Option<f64>,
}

/// Conclusion of the interval about a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareVerdict {
    /// B's is less.
    Less,
    /// B's is more.
    More,
    /// The interval includes 0.
    NoDifferenceShown,
    /// The interval is unknown.
    NotKnown,
}

/// Four interleaved runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedBlock {
    /// `ABBA` or `BAAB`.
    pub order: String,
    /// Whether its figures are in the metrics.
    pub counted: bool,
    /// Why not; empty if they are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Runs of the block, in order.
    pub runs: Vec<ComparedRun>,
}

/// One run of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// `A` or `B`.
    pub side: String,
    /// Id of the run in the run store; empty if not stored.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// `valid`, `suspect` or `invalid`.
    pub verdict: String,
    /// Figures of the run, by name of the metric.
    pub figures: std::collections::BTreeMap<String, f64>,
}

/// One term of `--fail-if`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailTerm {
    /// The term as typed.
    pub term: String,
    /// The metric's name.
    #[serde(default)]
    pub metric: String,
    /// Limit of the difference, in `unit`.
    #[serde(default)]
    pub limit: f64,
    /// `ratio` for a limit relative to A's figure, or as a share of the requests; otherwise the metric's unit.
    #[serde(default)]
    pub unit: String,
    /// Whether a difference above the limit fails, otherwise below.
    #[serde(default)]
    pub above: bool,
    /// Whether the term failed; absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    /// Certainty of the verdict.
    #[serde(default)]
    pub sure: FailCertainty,
    /// The verdict as a sentence.
    #[serde(default)]
    pub why: String,
}

/// Certainty that a difference exceeds a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailCertainty {
    /// The whole interval exceeds the limit.
    Shown,
    /// A difference is shown and the estimate exceeds the limit; the interval does so in part.
    Likely,
    /// The interval reaches beyond the limit; the shown difference does not exceed it.
    Possible,
    /// The whole interval is within the limit.
    Excluded,
    /// The interval is unknown.
    #[default]
    NotKnown,
}
