//! `yamabiko profile check`: measures whether the emulated path has the configured RTT, loss and rate.

use std::time::Duration;

use anyhow::{Result, bail};
use plan::PathPlan;
use report::durations::in_one_unit;
use report::figures::{bit_rate, count, share};
use report::terminal::{CheckRow, CheckView};
use serde::Serialize;
use testbed::check::{CheckOutcome, CheckPlan, Row, State, Unit};

use super::check_clients;
use crate::args;
use crate::exit::Exit;
use crate::terminal;
use crate::verb::bench::print;

/// Shortest time of a measurement: in less, loss and rate cannot be measured.
const DURATION_MIN: Duration = Duration::from_secs(1);

/// Measures the path, prints the result, and returns whether the path is as configured.
pub fn run(check: &args::Check) -> Result<Exit> {
    check_clients(check.clients)?;
    if check.duration < DURATION_MIN {
        bail!("--duration {} is too short: expected at least 1s", units::format_duration(check.duration));
    }
    let mut options = check.path.clone();
    if check.name.is_some() {
        options.profile = check.name.clone();
    }
    let Some(path) = options.resolve(false).map_err(anyhow::Error::msg)? else {
        bail!("nothing to check: give a profile (yamabiko profile list) or path options such as --rtt 48ms");
    };
    path.check().map_err(anyhow::Error::msg)?;
    let against = check.against.clone().map(|profile| PathPlan { profile: Some(profile), ..PathPlan::default() });
    let plan = CheckPlan { path, against, clients: check.clients, duration: check.duration, seed: check.seed };
    let outcome = testbed::check(&plan)?;
    if check.json {
        print(&(serde_json::to_string_pretty(&document(&outcome))? + "\n"))?;
    } else {
        print(&report::terminal::check(&view(&outcome), terminal::style()))?;
    }
    Ok(if outcome.is_as_configured() { Exit::Success } else { Exit::Invalid })
}

fn view(outcome: &CheckOutcome) -> CheckView {
    let row = |row: &Row| {
        let [low, high] = row.between.map_or([None, None], |ends| ends.map(Some));
        let [configured, measured, low, high] = texts(row.unit, [row.configured, Some(row.measured), low, high]);
        CheckRow {
            what: row.what.clone(),
            configured,
            measured,
            accepted: if low.is_empty() { String::new() } else { range(&low, &high) },
            as_configured: match row.state {
                State::Within => Some(true),
                State::Outside => Some(false),
                State::Shown => None,
            },
        }
    };
    CheckView { name: outcome.name.clone(), rows: outcome.rows.iter().map(row).collect(), notes: outcome.notes.clone() }
}

/// The values as texts, durations in one unit; empty without a value.
fn texts(unit: Unit, values: [Option<f64>; 4]) -> [String; 4] {
    if let Unit::Nanoseconds = unit {
        let known: Vec<f64> = values.iter().flatten().copied().collect();
        let mut texts = in_one_unit(&known).into_iter();
        return values.map(|value| value.and_then(|_| texts.next()).unwrap_or_default());
    }
    values.map(|value| match (unit, value) {
        (_, None) => String::new(),
        (Unit::BitsPerSecond, Some(value)) => bit_rate(value),
        (Unit::Share, Some(value)) => share(value),
        (Unit::Clients | Unit::Nanoseconds, Some(value)) => count(value as u64),
    })
}

/// A range of two values, with the unit written once if it is the same.
fn range(low: &str, high: &str) -> String {
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} to {high}"),
        _ => format!("{low} to {high}"),
    }
}

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    path: &'a str,
    as_configured: bool,
    rows: Vec<RowDocument<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct RowDocument<'a> {
    what: &'a str,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    configured: Option<f64>,
    measured: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<[f64; 2]>,
    state: &'static str,
}

fn document(outcome: &CheckOutcome) -> Document<'_> {
    Document {
        schema: "yamabiko.profile_check/2",
        path: &outcome.name,
        as_configured: outcome.is_as_configured(),
        rows: outcome.rows.iter().map(RowDocument::from).collect(),
        notes: &outcome.notes,
    }
}

impl<'a> From<&'a Row> for RowDocument<'a> {
    fn from(row: &'a Row) -> Self {
        RowDocument {
            what: &row.what,
            unit: row.unit.name(),
            configured: row.configured,
            measured: row.measured,
            accepted: row.between,
            state: row.state.name(),
        }
    }
}
