//! A published experiment beside the same experiment here: a part of the JSON document.

use serde::{Deserialize, Serialize};

use crate::document::{Run, Validity};

/// Paper beside here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reproduction {
    /// Which: `koshien`, `dserver`, `directory`, `transparent`, `gateway`; empty in documents from before there were several.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Whose experiments these are, and how they were made here.
    pub about: String,
    /// What came out, in a sentence.
    pub answer: String,
    /// What to know when comparing with the paper.
    pub notes: Vec<String>,
    /// One figure a row.
    pub rows: Vec<ReproductionRow>,
    /// Ids of the runs in the book, in the order they were made.
    pub runs: Vec<String>,
}

/// One figure of the paper and the same figure here.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReproductionRow {
    /// Number of the experiment, as the paper counts.
    pub experiment: String,
    /// Under which setting it was made here.
    pub setting: String,
    /// What the figure says.
    pub quantity: String,
    /// Its unit; empty for a pure number.
    pub unit: String,
    /// The paper's own words; absent where it publishes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
    /// The figure here; absent where the run had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<f64>,
    /// What to know when comparing the two.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The document of `reproduce`: that of a run, with this part.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReproductionDocument {
    /// [`crate::document::SCHEMA`].
    pub schema: String,
    /// The command as a whole; each run has its own document in the book.
    pub run: Run,
    /// The checks of every run, named `experiment setting: check`; only those that are not ok, and one each for the
    /// rest.
    pub validity: Validity,
    /// Paper beside here.
    pub reproduce: Reproduction,
}
