//! What `compare` found: a part of the JSON document. The page on comparing (`docs/concepts/compare.md`) defines its
//! words.

use serde::{Deserialize, Serialize};

use crate::document::{Run, Validity};

/// The document of `compare`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompareDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The comparison as a whole: its folder, the command that repeats it, the machine.
    pub run: Run,
    /// Whether to believe it: the checks of the runs that were compared are carried over.
    pub validity: Validity,
    /// What was found.
    pub compare: ComparePart,
}

/// The differences of two sides, B less A.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ComparePart {
    /// What the intervals are made of: `one_run` (moments within one run a side), `runs` (several runs a side), or
    /// `blocks` (two servers in turns).
    pub method: String,
    /// Confidence of the headline's interval, and of all others together: 0.95 for 95 %.
    pub confidence: f64,
    /// The name of the metric that decides.
    pub by: String,
    /// The first side.
    pub a: CompareSide,
    /// The second side.
    pub b: CompareSide,
    /// Where the plans of the two sides differ, field by field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub plans_differ: Vec<PlanDifference>,
    /// Where the machines differ on which the sides ran, fact by fact; of several runs a side the first's are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts_differ: Vec<HostDifference>,
    /// Every metric, the one that decides first.
    pub metrics: Vec<ComparedMetric>,
    /// The blocks of a comparison in turns, in order; those that do not count as well.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<ComparedBlock>,
    /// What `--fail-if` asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fail_if: Vec<FailTerm>,
    /// What to know when reading.
    pub notes: Vec<String>,
}

impl ComparePart {
    /// The metric that decides; none where it could not be had.
    pub fn headline(&self) -> Option<&ComparedMetric> {
        self.metrics.iter().find(|metric| metric.name == self.by)
    }
}

/// One of the two.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CompareSide {
    /// What it is: names of runs, a server's command, or a URL.
    pub what: String,
    /// Ids of its runs in the book, in order; empty where they were not kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<String>,
    /// Runs whose figures are in the metrics.
    pub counted: u64,
}

/// A field in which two plans differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlanDifference {
    /// Its name with those of its tables in front, such as `load.rate`.
    pub field: String,
    /// As the first has it; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<String>,
    /// As the second has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<String>,
    /// It belongs to what is compared (the server, where it is) and not to how.
    pub subject: bool,
}

/// A fact in which two machines differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostDifference {
    /// Its name as in [`crate::document::Host`], such as `kernel` or `settings.class`.
    pub fact: String,
    /// As the first has it; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<String>,
    /// As the second has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<String>,
    /// Whether it makes another machine of it (kernel, processor, cores, memory) and not only another setting.
    pub machine: bool,
}

/// One figure of both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedMetric {
    /// Its name, which ends in its unit.
    pub name: String,
    /// As it is typed, such as `p99`.
    pub short: String,
    /// Unit of `a` and `b`.
    pub unit: String,
    /// The first side's figure; over several runs or blocks their geometric mean, of errors the mean. Absent where it
    /// has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub a: Option<f64>,
    /// The second side's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b: Option<f64>,
    /// Whether `difference` and what follows are shares of A's figure (0.05: 5 % more); otherwise they are in `unit`.
    pub relative: bool,
    /// How much more B's is; absent where one of them is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<f64>,
    /// The difference lies between these; absent where nothing says how much the figures scatter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Confidence of `interval`: that of the headline, or as much more as several questions at once ask for (Holm).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// How likely a difference of this size or more would be if there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<f64>,
    /// Whether B's is less or more.
    pub verdict: CompareVerdict,
    /// A difference of this size or more would have been shown: half the interval's width.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detectable_difference: Option<f64>,
}

/// What was shown of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareVerdict {
    /// B's is less.
    Less,
    /// B's is more.
    More,
    /// 0 lies within the interval.
    NoDifferenceShown,
    /// There is no interval.
    NotKnown,
}

/// Four runs in turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedBlock {
    /// `ABBA` or `BAAB`.
    pub order: String,
    /// Its figures are in the metrics.
    pub counted: bool,
    /// Why not; empty where they are.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Its runs, in order.
    pub runs: Vec<ComparedRun>,
}

/// One run of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ComparedRun {
    /// `A` or `B`.
    pub side: String,
    /// Its id in the book; empty where it was not kept.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub run: String,
    /// `valid`, `suspect` or `invalid`.
    pub verdict: String,
    /// Its figures, by the name of the metric.
    pub figures: std::collections::BTreeMap<String, f64>,
}

/// One term of `--fail-if`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FailTerm {
    /// As typed.
    pub term: String,
    /// The metric's name.
    #[serde(default)]
    pub metric: String,
    /// The bound of the difference, in `unit`.
    #[serde(default)]
    pub limit: f64,
    /// `ratio` of a bound that is a share of A's figure, or a share of the requests; else the metric's own unit.
    #[serde(default)]
    pub unit: String,
    /// Whether it is above the bound that it fails, or below.
    #[serde(default)]
    pub above: bool,
    /// Whether it failed; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<bool>,
    /// How sure that is.
    #[serde(default)]
    pub sure: FailSure,
    /// The same in a sentence.
    #[serde(default)]
    pub why: String,
}

/// How sure it is that a difference is beyond a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailSure {
    /// The whole interval is beyond the bound.
    Shown,
    /// A difference is shown, and the estimate of it is beyond the bound; the interval is so only in part.
    Likely,
    /// The interval reaches beyond the bound; what is shown does not.
    Possible,
    /// The whole interval is within the bound.
    Excluded,
    /// There is no interval.
    #[default]
    NotKnown,
}
