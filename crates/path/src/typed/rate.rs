//! The rate of a bottleneck: constant, or by a trace.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use units::BitRate;

use super::text_or_table;
use crate::profile::{Files, ProfileError, read_trace};
use crate::spec::RateSpec;

/// Rate of a bottleneck. Typed as `10Mbit` or `trace:FILE`; in files also as `{ trace = "FILE" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// Constant.
    Constant(BitRate),
    /// By the delivery times in this file, in mahimahi's format.
    Trace(PathBuf),
}

impl Rate {
    /// The rate specification; a trace is searched in `folder`.
    ///
    /// # Errors
    /// A trace that cannot be read or is invalid: file and line.
    pub fn spec(&self, folder: &Path, files: Files<'_>) -> Result<RateSpec, ProfileError> {
        match self {
            Rate::Constant(rate) => Ok(RateSpec::Constant(*rate)),
            Rate::Trace(file) => Ok(RateSpec::Trace(Arc::new(read_trace(&folder.join(file), files)?))),
        }
    }
}

const EXPECTED_FORM: &str =
    "a rate is written like 512kbit or 10Mbit, or names a trace: trace:FILE or { trace = \"FILE\" }";

impl FromStr for Rate {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        match typed.trim().strip_prefix("trace:") {
            Some("") => Err(format!("`{typed}` names no file; {EXPECTED_FORM}")),
            Some(file) => Ok(Rate::Trace(file.into())),
            None => typed.parse().map(Rate::Constant).map_err(|error: units::ParseError| error.to_string()),
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rate::Constant(rate) => rate.fmt(f),
            Rate::Trace(file) => write!(f, "trace:{}", file.display()),
        }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    trace: PathBuf,
}

impl From<Table> for Rate {
    fn from(table: Table) -> Self {
        Rate::Trace(table.trace)
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_table::read::<D, Rate, Table>(deserializer, EXPECTED_FORM)
    }
}
