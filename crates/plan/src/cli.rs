//! What the command line needs besides the options themselves, which the types of a plan define.

use std::collections::BTreeSet;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};

/// Names of the options that were typed. An option that was typed as its own default is among them, which its value does not show.
///
/// Flatten it before all other fields: reading a field takes its option out of what was typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Given(BTreeSet<String>);

impl Given {
    /// Whether this option was typed, by its identifier in clap: the field's name unless the field says another.
    pub fn has(&self, option: &str) -> bool {
        self.0.contains(option)
    }

    /// Has this option count as typed.
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
