//! The document of `reproduce`: published and measured figures.

use serde::{Deserialize, Serialize};

use crate::document::{Run, Validity};

/// Published vs. measured figures of a paper's experiments.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// Name: `koshien`, `dserver`, `directory`, `transparent`, `gateway`, `emulators`; empty in documents of early
    /// versions.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The paper, and the setup here.
    pub about: String,
    /// The result as a sentence.
    pub answer: String,
    /// Notes on the comparison with the paper.
    pub notes: Vec<String>,
    /// One figure per row.
    pub rows: Vec<ReproductionRow>,
    /// Ids of the stored runs, in order.
    pub runs: Vec<String>,
}

/// A published and a measured figure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReproductionRow {
    /// Number of the experiment in the paper.
    pub experiment: String,
    /// Setting of the measurement.
    pub setting: String,
    /// Name of the figure.
    pub quantity: String,
    /// Unit; empty for a pure number.
    pub unit: String,
    /// The published text; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// The measured figure; absent if the run had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// Notes on the comparison of the two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The document of `reproduce`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReproductionDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The command as a whole; each run has its own document in the run store.
    pub run: Run,
    /// The checks of every run, named `experiment setting: check`: each check that is not ok, and one line per run that
    /// passed.
    pub validity: Validity,
    /// Published vs. measured figures.
    pub reproduce: Reproduction,
}
