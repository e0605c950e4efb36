//! `yamabiko profile check`: what the path really gives.

use std::time::Duration;

use anyhow::{Result, bail};
use plan::PathPlan;
use report::figures::{bit_rate, count, duration_f64, share};
use report::terminal::{CheckRow, CheckView};
use serde::Serialize;
use testbed::check::{CheckOutcome, CheckPlan, Row, State, Unit};

use super::check_clients;
use crate::args;
use crate::exit::Exit;
use crate::terminal;
use crate::verb::bench::print;

/// Least time to measure in: less shows nothing of a loss or a rate.
const SHORTEST: Duration = Duration::from_secs(1);

/// Measures, prints, and judges.
pub fn run(check: &args::Check) -> Result<Exit> {
    check_clients(check.clients)?;
    if check.duration < SHORTEST {
        bail!("--duration {}: at least 1s is needed", units::format_duration(check.duration));
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
    Ok(if outcome.as_asked() { Exit::Fine } else { Exit::Invalid })
}

fn view(outcome: &CheckOutcome) -> CheckView {
    let row = |row: &Row| {
        let words = |value: f64| match row.unit {
            Unit::Nanoseconds => duration_f64(value),
            Unit::BitsPerSecond => bit_rate(value),
            Unit::Share => share(value),
            Unit::Clients => count(value as u64),
        };
        CheckRow {
            what: row.what.clone(),
            asked: row.asked.map_or(String::new(), words),
            got: words(row.got),
            between: row.between.map_or(String::new(), |[low, high]| range(&words(low), &words(high))),
            as_asked: match row.state {
                State::Within => Some(true),
                State::Outside => Some(false),
                State::Shown => None,
            },
        }
    };
    CheckView { name: outcome.name.clone(), rows: outcome.rows.iter().map(row).collect(), notes: outcome.notes.clone() }
}

/// Both ends, and their unit once where it is the same.
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
    as_asked: bool,
    rows: Vec<RowDocument<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct RowDocument<'a> {
    what: &'a str,
    unit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    asked: Option<f64>,
    got: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    between: Option<[f64; 2]>,
    state: &'static str,
}

fn document(outcome: &CheckOutcome) -> Document<'_> {
    Document {
        schema: "yamabiko.profile_check/1",
        path: &outcome.name,
        as_asked: outcome.as_asked(),
        rows: outcome.rows.iter().map(RowDocument::from).collect(),
        notes: &outcome.notes,
    }
}

impl<'a> From<&'a Row> for RowDocument<'a> {
    fn from(row: &'a Row) -> Self {
        RowDocument {
            what: &row.what,
            unit: row.unit.name(),
            asked: row.asked,
            got: row.got,
            between: row.between,
            state: row.state.name(),
        }
    }
}
