//! Hidden arguments `serve --only`: the MAX server with some features, a reference of `reproduce directory`.

use std::path::PathBuf;

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};

#[derive(Args, Debug)]
pub struct StepOptions {
    /// Serve with nothing but these features: none, or of parse,date,open,held,conditional,figures,log,tls
    #[arg(long, value_enum, value_delimiter = ',', value_name = "FEATURES", requires = "dir", hide = true)]
    pub only: Option<Vec<Step>>,
    /// The access log of `--only log`
    #[arg(long, value_name = "FILE", requires = "only", hide = true)]
    pub only_log: Option<PathBuf>,
}

/// A feature of `--only`, with the name of the crate that implements it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No feature.
    None,
    With(serve::Feature),
}

impl ValueEnum for Step {
    fn value_variants<'a>() -> &'a [Self] {
        const ALL: [Step; serve::Feature::ALL.len() + 1] = {
            let mut all = [Step::None; serve::Feature::ALL.len() + 1];
            let mut at = 0;
            while at < serve::Feature::ALL.len() {
                all[at + 1] = Step::With(serve::Feature::ALL[at]);
                at += 1;
            }
            all
        };
        &ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(match self {
            Step::None => "none",
            Step::With(feature) => feature.name(),
        }))
    }
}

impl Step {
    /// The feature; `None` for `none`.
    pub fn feature(self) -> Option<serve::Feature> {
        match self {
            Step::None => None,
            Step::With(feature) => Some(feature),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_feature_names_are_parsed() {
        for feature in serve::Feature::ALL {
            assert_eq!(Step::from_str(feature.name(), false).unwrap().feature(), Some(feature));
        }
        assert_eq!(Step::from_str("none", false), Ok(Step::None));
    }
}
