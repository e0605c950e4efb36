//! MAX against general servers, as the paper has it: 50 clients, 3 KB, continuously.

use plan::LoadPlan;
use schema::ReproductionRow;

use super::rows::{CLOSE, CPU_SYSTEM, CPU_USER, KEPT, MAX_OVER, PER_SECOND, beside, row};
use super::site::PAGE;
use super::{Kitchen, Measured, ROUNDS, turn_about};
use experiment::ExperimentError;
use experiment::local::free_address;
use stats::median;

/// Four servers, with and without keeping connections.
pub const MEASUREMENTS: u32 = 4 * 2 * ROUNDS;

/// Makes the part.
pub fn make(kitchen: &mut Kitchen<'_>) -> Result<Vec<ReproductionRow>, ExperimentError> {
    let (max, own) = (free_address()?, free_address()?);
    let mut commands = vec![("MAX", max, kitchen.site.max(max)), ("yamabiko", own, kitchen.site.serve_and_log(own))];
    commands.extend(kitchen.site.general()?);
    let mut servers = Vec::new();
    for (name, listen, command) in commands {
        servers.push((name, listen, kitchen.start(name, &command, listen)?));
    }
    let mut rows = Vec::new();
    for (experiment, close) in [(CLOSE, true), (KEPT, false)] {
        let measured = turn_about(servers.len(), |at| {
            if kitchen.interrupted() {
                return Ok(None);
            }
            let (name, listen, server) = &servers[at];
            let load = LoadPlan { close, ..kitchen.closed(&format!("http://{listen}{PAGE}")) };
            kitchen.measure(&format!("maximum, {name}, {experiment}"), server, load).map(Some)
        })?;
        let names = servers.iter().map(|(name, ..)| *name);
        rows.extend(of_one(experiment, &names.zip(measured).collect::<Vec<_>>()));
    }
    Ok(rows)
}

fn of_one(experiment: &str, measured: &[(&str, Vec<Measured>)]) -> Vec<ReproductionRow> {
    let mut rows = Vec::new();
    let rate = |rounds: &[Measured]| median(rounds.iter().map(Measured::per_second));
    let max = measured.iter().find(|(name, _)| *name == "MAX").map_or(f64::NAN, |(_, rounds)| rate(rounds));
    for (name, rounds) in measured {
        let of = |of: fn(&Measured) -> f64| median(rounds.iter().map(of));
        rows.push(row(experiment, name, PER_SECOND, "1/s", rate(rounds)));
        rows.push(row(experiment, name, CPU_USER, "us", of(|one| one.us(|used| used.server_user + used.below_user))));
        rows.push(row(
            experiment,
            name,
            CPU_SYSTEM,
            "us",
            of(|one| one.us(|used| used.server_system + used.below_system)),
        ));
        if *name != "MAX" {
            // The paper's servers A and B are not named; its requests had a connection each.
            let paper = (experiment == CLOSE && *name != "yamabiko").then_some("about 2");
            let note = if paper.is_some() { "paper: over its two general servers A and B" } else { "" };
            rows.push(beside(row(experiment, name, MAX_OVER, "", max / rate(rounds)), paper, note));
        }
    }
    rows
}
