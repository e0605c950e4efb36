//! Options of this machine for verbs that make no load, or have options of their own for how it is made.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use plan::cli::Given;
use plan::{HostPlan, Placement};

/// The options of [`HostPlan`] without `--threads` and `--engine`.
#[derive(Clone, Debug)]
pub struct HostOptions(pub HostPlan);

/// What is left out.
const OF_THE_LOAD: [&str; 2] = ["threads", "engine"];

impl Args for HostOptions {
    fn augment_args(command: Command) -> Command {
        let all = HostPlan::augment_args(Command::new("host"));
        // As a derived group leaves it: what a verb adds next stands under this heading, too.
        let command = command.next_help_heading("This machine");
        command.args(all.get_arguments().filter(|option| !OF_THE_LOAD.contains(&option.get_id().as_str())).cloned())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for HostOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // Every field is named: one that comes to the plan is read here, or is an option of the load.
        let HostPlan { wait, idle, placement, threads, engine } = HostPlan::default();
        Ok(HostOptions(HostPlan {
            wait: matches.get_one("wait").copied().unwrap_or(wait),
            idle: matches.get_one("idle").copied().unwrap_or(idle),
            placement: matches.get_one("placement").copied().unwrap_or(placement),
            threads,
            engine,
        }))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = HostOptions::from_arg_matches(matches)?;
        Ok(())
    }
}

impl HostOptions {
    /// The options as typed, with `default` as the placement where none was typed.
    pub fn placed_or(&self, default: Placement, given: &Given) -> HostPlan {
        let placement = if given.has("placement") { self.0.placement } else { default };
        HostPlan { placement, ..self.0.clone() }
    }
}
