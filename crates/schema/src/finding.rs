//! Something that a measurement came upon and names: data, not a verdict.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What was found, by a name that programs may rely on, with its figures and a sentence.
///
/// A finding does not make a measurement invalid: a gateway that drops every thousandth packet, or a server that fills its memory, was
/// measured well. What casts doubt on the measurement itself is a [`crate::Check`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name: lower case, words joined by `_`; the pages on `gateway` and `capacity` list them.
    pub name: String,
    /// In which test or trial it was found; empty where it concerns the whole.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub test: String,
    /// Its figures by name; each name ends in its unit, as everywhere.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<String, f64>,
    /// One sentence for people, with the figures in it.
    pub words: String,
}
