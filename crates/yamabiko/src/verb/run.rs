//! `yamabiko run`: executes a plan file.

use std::path::Path;

use anyhow::Result;
use plan::Plan;

use super::bench::{ExecutionOptions, command_line};
use crate::args;
use crate::exit::Exit;
use crate::several;

/// Reads a plan and executes it.
pub fn run(run: &args::Run) -> Result<Exit> {
    let origin = run.plan.display().to_string();
    // An unreadable plan is an error of usage (status 1), so no io::Error is passed on.
    let text = std::fs::read_to_string(&run.plan)
        .map_err(|error| anyhow::anyhow!("cannot read the plan {origin}: {error}"))?;
    if let Some(table) = table_of_several_runs(&text) {
        anyhow::ensure!(
            run.duration.is_none() && run.rate.is_none() && run.shard.is_unset(),
            "{origin}: -d, -r, --shard and --start-at apply to plans with one load; change the table of this plan instead"
        );
        return run_experiment(table, &text, run);
    }
    let mut plan = Plan::from_toml(&text, &origin)?;
    let is_file = || std::fs::metadata(&run.plan).is_ok_and(|file| file.is_file());
    anyhow::ensure!(
        !plan.watch.tap || run.print_plan || is_file(),
        "{origin}: a plan with tap = true must be a regular file, since it is read twice: the program restarts under \
         its tap"
    );
    anyhow::ensure!(
        plan.components.is_none() || plan.server.is_some() || run.print_plan,
        "{origin}: this plan describes a server ([components]) but does not start one: \
         yamabiko predict {origin} --components"
    );
    replace(&mut plan, run)?;
    plan.find_files_from(run.plan.parent().unwrap_or(Path::new("")));
    if plan.capacity.is_some() {
        return search_capacity(&plan, run);
    }
    several::execute_plan(&plan, &execution_options(run, &command_line()), &run.coordination)
}

/// The table of a plan that is not one load: `cache` or `gateway`; `None` for other plans.
fn table_of_several_runs(text: &str) -> Option<&'static str> {
    let plan: toml::Table = toml::from_str(text).ok()?;
    ["cache", "gateway"].into_iter().find(|table| plan.contains_key(*table))
}

#[cfg(feature = "experiments")]
fn run_experiment(table: &str, text: &str, run: &args::Run) -> Result<Exit> {
    let command = command_line();
    let options = execution_options(run, &command);
    if table == "cache" {
        super::cache::run_plan(text, &run.plan, &options)
    } else {
        super::gateway::run_plan(text, &run.plan, &options)
    }
}

#[cfg(not(feature = "experiments"))]
fn run_experiment(table: &str, _: &str, _: &args::Run) -> Result<Exit> {
    anyhow::bail!(crate::left_out::missing(&format!("a plan with [{table}]"), "experiments"))
}

#[cfg(feature = "experiments")]
fn search_capacity(plan: &Plan, run: &args::Run) -> Result<Exit> {
    let (command, machines) = (command_line(), (None, &run.coordination));
    super::capacity::execute_plan(plan, None, &execution_options(run, &command), machines)
}

#[cfg(not(feature = "experiments"))]
fn search_capacity(_: &Plan, _: &args::Run) -> Result<Exit> {
    anyhow::bail!(crate::left_out::missing("a plan with [capacity]", "experiments"))
}

/// Replaces values of the plan by the options of the command line.
fn replace(plan: &mut Plan, run: &args::Run) -> Result<()> {
    if let Some(rate) = run.rate {
        plan.load.rate = Some(rate);
    }
    if let Some(duration) = run.duration {
        (plan.load.duration, plan.load.requests) = (Some(duration), None);
    }
    plan.shard.shard = run.shard.shard.or(plan.shard.shard);
    plan.shard.start_at = run.shard.start_at.or(plan.shard.start_at);
    if run.coordination.coordinate.is_some() {
        plan.shard = plan.shard.coordinated();
    }
    Ok(plan.check()?)
}

/// The execution options of the command line.
fn execution_options<'a>(run: &args::Run, command: &'a str) -> ExecutionOptions<'a> {
    let (print_plan, no_save, show) = (run.print_plan, run.no_save, run.show.clone());
    ExecutionOptions { print_plan, json: run.json, strict: run.strict, no_save, show, command }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_several_runs_is_known_by_its_table() {
        assert_eq!(table_of_several_runs("cache.proxy = \"h:1\""), Some("cache"));
        assert_eq!(table_of_several_runs("[gateway]\n"), Some("gateway"));
        assert_eq!(table_of_several_runs("[load]\nurl = \"http://h/\"\n"), None);
        assert_eq!(table_of_several_runs("not TOML"), None);
    }
}
