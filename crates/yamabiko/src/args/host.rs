//! Options of this machine for verbs without a load, or with their own options of the load.

use clap::{ArgMatches, Args, Command, FromArgMatches};
use plan::cli::Given;
use plan::{HostPlan, Placement};

/// The options of [`HostPlan`] without `--threads` and `--engine`.
#[derive(Clone, Debug)]
pub struct HostOptions(pub HostPlan);

/// Options that are left out.
const LOAD_OPTIONS: [&str; 2] = ["threads", "engine"];

impl Args for HostOptions {
    fn augment_args(command: Command) -> Command {
        let all = HostPlan::augment_args(Command::new("host"));
        // As a derived group does: the next options of the verb have this heading, too.
        let command = command.next_help_heading("This machine");
        command.args(all.get_arguments().filter(|option| !LOAD_OPTIONS.contains(&option.get_id().as_str())).cloned())
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for HostOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        // Every field is named, so that a new field of the plan is not forgotten here.
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
    /// The options, with `default` as the placement if none was given.
    pub fn with_default_placement(&self, default: Placement, given: &Given) -> HostPlan {
        let placement = if given.has("placement") { self.0.placement } else { default };
        HostPlan { placement, ..self.0.clone() }
    }
}
