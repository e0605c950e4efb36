//! `yamabiko run`: do what a plan file says.

use std::path::Path;

use anyhow::Result;
use cachebench::CachePlan;
use gateway::GatewayPlan;
use plan::Plan;

use super::bench::{Doing, command_line, do_plan};
use crate::args;
use crate::exit::Exit;

/// Reads the plan and does it.
pub fn run(run: &args::Run) -> Result<Exit> {
    let origin = run.plan.display().to_string();
    // A plan that cannot be read is a plan at fault, not a machine at fault: its io::Error must not decide the status.
    let text = std::fs::read_to_string(&run.plan)
        .map_err(|error| anyhow::anyhow!("cannot read the plan {origin}: {error}"))?;
    let is_one_load = !CachePlan::is_one(&text) && !GatewayPlan::is_one(&text);
    anyhow::ensure!(
        is_one_load || run.duration.is_none() && run.rate.is_none(),
        "{origin}: -d and -r are of plans with one load; change this one's table"
    );
    if CachePlan::is_one(&text) {
        return super::cache::run_plan(&text, &run.plan, &doing(run, &command_line()));
    }
    if GatewayPlan::is_one(&text) {
        return super::gateway::run_plan(&text, &run.plan, &doing(run, &command_line()));
    }
    let mut plan = Plan::from_toml(&text, &origin)?;
    let is_file = || std::fs::metadata(&run.plan).is_ok_and(|file| file.is_file());
    anyhow::ensure!(
        !plan.watch.tap || run.print_plan || is_file(),
        "{origin}: a plan with tap = true is read twice, since the program starts again under its tap: a pipe cannot be"
    );
    anyhow::ensure!(
        plan.components.is_none() || plan.server.is_some() || run.print_plan,
        "{origin}: this plan describes a server in words ([components]), and none that runs: yamabiko predict {origin} --components"
    );
    replace(&mut plan, run)?;
    plan.find_files_from(run.plan.parent().unwrap_or(Path::new("")));
    if plan.capacity.is_some() {
        return super::capacity::do_plan(&plan, None, &doing(run, &command_line()), None);
    }
    do_plan(&plan, &doing(run, &command_line()))
}

/// Puts what was typed in the place of what the plan says.
fn replace(plan: &mut Plan, run: &args::Run) -> Result<()> {
    if let Some(rate) = run.rate {
        plan.load.rate = Some(rate);
    }
    if let Some(duration) = run.duration {
        (plan.load.duration, plan.load.requests) = (Some(duration), None);
    }
    Ok(plan.check()?)
}

/// What to do with the plan and its result.
fn doing<'a>(run: &args::Run, command: &'a str) -> Doing<'a> {
    let (print_plan, no_save, show) = (run.print_plan, run.no_save, run.show.clone());
    Doing { print_plan, json: run.json, strict: run.strict, no_save, show, command }
}
