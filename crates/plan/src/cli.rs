//! Command-line support that the types of a plan do not derive themselves.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use load::content::Content;
use schema::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use units::parse_duration;

use super::{ArrivalKind, BurstsPlan, ContentPlan, HarPlan, SelfSimilarPlan, ThinkPlan, Time};

/// Names of the options that the user typed, also of those typed with their default value, which their values do not
/// show.
///
/// Flatten it before all other fields: reading a field removes its option from the matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given(BTreeSet<String>);

impl Given {
    /// Whether this option was typed. `option` is its identifier in clap: the field's name unless the field sets
    /// another.
    pub fn has(&self, option: &str) -> bool {
        self.0.contains(option)
    }

    /// The typed options, in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// The typed options of `typed` laid over `base`. Options must have the names of their fields.
    ///
    /// # Panics
    /// A value that does not serialise to a TOML table.
    pub fn over<T: Serialize + DeserializeOwned>(&self, typed: &T, base: &T) -> T {
        let table = |plan: &T| toml::Table::try_from(plan).expect("a plan is plain tables of text and numbers");
        let mut both = table(base);
        both.extend(table(typed).into_iter().filter(|(key, _)| self.has(key)));
        both.try_into().expect("each value was read before")
    }

    /// Counts this option as typed.
    pub fn add(&mut self, option: &str) {
        self.0.insert(option.to_owned());
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let typed = matches.ids().filter(|id| matches.value_source(id.as_str()) == Some(ValueSource::CommandLine));
        Ok(Given(typed.map(|id| id.as_str().to_owned()).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Given::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

/// Help headings that fields of several plan types share.
pub(crate) const WORKLOAD: &str = "Workload";
pub(crate) const ARRIVALS: &str = "Arrivals (open loop)";

/// Parses a method; case is ignored.
pub(crate) fn method() -> impl TypedValueParser<Value = Method> {
    PossibleValuesParser::new(Method::ALL.map(Method::as_str)).map(|typed| {
        let method = Method::ALL.into_iter().find(|method| method.as_str().eq_ignore_ascii_case(&typed));
        method.expect("one of the names above")
    })
}

/// Parses `MODEL:OBJECTS`.
pub(crate) fn content(typed: &str) -> Result<ContentPlan, String> {
    typed.parse().map(|content: Content| content.into()).map_err(|error| format!("{error}"))
}

/// Parses a think time.
pub(crate) fn think(typed: &str) -> Result<ThinkPlan, String> {
    let time = |text: &str| parse_duration(text).map_err(|error| error.to_string());
    match typed.split_once(':') {
        None => Ok(ThinkPlan::Constant(Time(time(typed)?))),
        Some(("constant", text)) => Ok(ThinkPlan::Constant(Time(time(text)?))),
        Some(("exponential", text)) => Ok(ThinkPlan::exponential(time(text)?)),
        Some(_) => Err(
            "expected a time such as 7s, or exponential:7s (at most ten times the mean); a plan file has more forms"
                .into(),
        ),
    }
}

/// Parses the file name of an HTTP archive.
pub(crate) fn har() -> impl TypedValueParser<Value = HarPlan> {
    PathBufValueParser::new().map(|file: PathBuf| HarPlan { file })
}

/// Options of the arrival process; parameters select their process, too.
#[derive(Args)]
#[command(next_help_heading = ARRIVALS)]
struct ArrivalOptions {
    /// Space arrivals by this process: equal gaps, independent users (exponential gaps), bursts and pauses, or many
    /// sources with heavy-tailed on and off times [default: constant]
    #[arg(long, value_parser = arrivals())]
    arrivals: Option<ArrivalKind>,
    /// Offer N times the rate during bursts that last ON on average, with pauses of OFF on average; the rate of the
    /// pauses is lowered so that the mean stays [default: factor=5,on=1s,off=9s]
    #[arg(long, value_name = "factor=N,on=TIME,off=TIME")]
    bursts: Option<BurstsPlan>,
    /// Combine N sources that are each active and silent in turn; Hurst parameter (3 - ALPHA) / 2 [default:
    /// sources=100,alpha=1.4,on=1s,off=2s]
    #[arg(long, value_name = "sources=N,alpha=A,..")]
    self_similar: Option<SelfSimilarPlan>,
}

fn arrivals() -> impl TypedValueParser<Value = ArrivalKind> {
    PossibleValuesParser::new(["constant", "poisson", "bursts", "self-similar"]).map(|typed| match typed.as_str() {
        "poisson" => ArrivalKind::Poisson,
        "bursts" => ArrivalKind::Bursts(BurstsPlan::default()),
        "self-similar" => ArrivalKind::SelfSimilar(SelfSimilarPlan::default()),
        _ => ArrivalKind::Constant,
    })
}

impl ArrivalOptions {
    fn kind(self) -> Result<ArrivalKind, &'static str> {
        match (self.arrivals, self.bursts, self.self_similar) {
            (_, Some(_), Some(_)) => {
                Err("--bursts and --self-similar are different arrival processes: leave one of the two out")
            }
            (None | Some(ArrivalKind::Bursts(_)), Some(bursts), None) => Ok(ArrivalKind::Bursts(bursts)),
            (None | Some(ArrivalKind::SelfSimilar(_)), None, Some(sources)) => Ok(ArrivalKind::SelfSimilar(sources)),
            (Some(_), Some(_), None) => Err("--bursts needs --arrivals bursts: leave one of the two out"),
            (Some(_), None, Some(_)) => Err("--self-similar needs --arrivals self-similar: leave one of the two out"),
            (kind, None, None) => Ok(kind.unwrap_or_default()),
        }
    }
}

impl FromArgMatches for ArrivalKind {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let kind = ArrivalOptions::from_arg_matches(matches)?.kind();
        kind.map_err(|why| clap::Error::raw(ErrorKind::ArgumentConflict, why))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ArrivalKind::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ArrivalKind {
    fn augment_args(command: Command) -> Command {
        ArrivalOptions::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ArrivalOptions::augment_args_for_update(command)
    }
}
