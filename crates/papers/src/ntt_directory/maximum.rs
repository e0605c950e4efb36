//! MAX against general servers, as in the paper: 50 clients, 3 KB, closed loop.

use plan::LoadPlan;
use schema::ReproductionRow;

use super::rows::{CLOSE, CPU_SYSTEM, CPU_USER, KEEP_ALIVE, MAX_OVER, PER_SECOND, row, with_published};
use super::site::PAGE;
use super::{Measured, MeasurementContext, ROUNDS, interleaved};
use experiment::ExperimentError;
use experiment::local::free_address;
use stats::median;

/// Four servers, with and without keep-alive.
pub const MEASUREMENTS: u32 = 4 * 2 * ROUNDS;

/// Runs the part.
pub fn make(context: &mut MeasurementContext<'_>) -> Result<Vec<ReproductionRow>, ExperimentError> {
    let (max, own) = (free_address()?, free_address()?);
    let mut commands = vec![("MAX", max, context.site.max(max)), ("yamabiko", own, context.site.serve_and_log(own))];
    commands.extend(context.site.general()?);
    let mut servers = Vec::new();
    for (name, listen, command) in commands {
        servers.push((name, listen, context.start(name, &command, listen)?));
    }
    let mut rows = Vec::new();
    for (experiment, close) in [(CLOSE, true), (KEEP_ALIVE, false)] {
        let measured = interleaved(servers.len(), |at| {
            if context.interrupted() {
                return Ok(None);
            }
            let (name, listen, server) = &servers[at];
            let load = LoadPlan { close, ..context.closed(&format!("http://{listen}{PAGE}")) };
            context.measure(&format!("maximum, {name}, {experiment}"), server, load).map(Some)
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
            // The paper does not name its servers A and B; it used one connection per request.
            let paper = (experiment == CLOSE && *name != "yamabiko").then_some("about 2");
            let note = if paper.is_some() { "published: relative to its two general servers A and B" } else { "" };
            rows.push(with_published(row(experiment, name, MAX_OVER, "", max / rate(rounds)), paper, note));
        }
    }
    rows
}
