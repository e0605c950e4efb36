//! `serve --only`: MAX with some features. Not in the help: a yardstick of `reproduce directory`, not a server.

use std::path::PathBuf;

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    None,
    Parse,
    Date,
    Open,
    Held,
    Conditional,
    Figures,
    Log,
    Tls,
}

impl Step {
    /// As meant; `none` is nothing.
    pub fn feature(self) -> Option<serve::Feature> {
        Some(match self {
            Step::None => return None,
            Step::Parse => serve::Feature::Parse,
            Step::Date => serve::Feature::Date,
            Step::Open => serve::Feature::Open,
            Step::Held => serve::Feature::Held,
            Step::Conditional => serve::Feature::Conditional,
            Step::Figures => serve::Feature::Figures,
            Step::Log => serve::Feature::Log,
            Step::Tls => serve::Feature::Tls,
        })
    }
}
