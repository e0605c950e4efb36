//! A finding of a measurement: data, not a verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A finding: a stable name, figures and a sentence.
///
/// A finding is about the system under test and does not make a measurement invalid: a gateway that drops every
/// thousandth packet, a server that fills its memory. Doubt about the measurement itself is a [`crate::Check`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Name of the finding: lower case, words joined by `_`; the pages on `gateway` and `capacity` list them.
    pub name: String,
    /// Test or trial of the finding; empty if it concerns the whole measurement.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub test: String,
    /// Figures of the finding by name; each name ends in its unit, as everywhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// One sentence for people, with the figures in it.
    pub words: String,
}
