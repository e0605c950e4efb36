//! `yamabiko bench --http 1.1,2,3 --loss 0%,1%`: what another HTTP version would bring the same users.
//!
//! The runs have the same plan, seed and distances; only the HTTP version and the loss differ. Each is stored as a run
//! of its own.

use std::ffi::OsString;

use anyhow::{Result, bail, ensure};
use plan::Plan;
use schema::{PROTOCOLS_SCHEMA, ProtocolRun, ProtocolsDocument};
use store::RunStore;
use sys::signal::Interrupts;

use super::bench::print;
use crate::args::{Arguments, Bench, Matrix, MatrixRun, Verb, to_plan};
use crate::command_line::command_line;
use crate::exit::{self, Exit};
use crate::progress::Display;
use crate::terminal::{self, print_message};
use crate::{help, page_file};

/// Name of the page in the folder of the last run.
const PAGE: &str = "protocols.html";

/// Wrong usage, and the words of the run that has it.
pub type WrongUsage = (clap::Error, Vec<String>);

/// Parses the command line of each run.
///
/// # Errors
/// Wrong usage.
pub fn parse(matrix: Matrix) -> Result<Vec<(MatrixRun, Bench)>, WrongUsage> {
    let of_run = |run: MatrixRun| parse_bench(run.words.clone()).map(|bench| (run, bench));
    matrix.runs.into_iter().map(of_run).collect()
}

/// Parses one command line of `bench`.
///
/// # Errors
/// Wrong usage.
pub fn parse_bench(words: Vec<OsString>) -> Result<Bench, WrongUsage> {
    let wrong = |error| (error, words.iter().map(|word| word.to_string_lossy().into_owned()).collect());
    match help::parse_words(words.clone()) {
        Ok(Arguments { verb: Verb::Bench(bench) }) => Ok(*bench),
        Ok(_) => Err(wrong(clap::Error::new(clap::error::ErrorKind::InvalidSubcommand))),
        Err(error) => Err(wrong(error)),
    }
}

/// Makes the runs and prints their table.
pub fn run(runs: &[(MatrixRun, Bench)]) -> Result<Exit> {
    // All are checked before the first begins.
    let planned = runs.iter().map(|(run, bench)| Ok((run, planned(run, bench)?))).collect::<Result<Vec<_>>>()?;
    let Some((_, first)) = runs.first() else { bail!("no run") };
    let options = &first.result;
    ensure!(!options.print_plan, "--print-plan prints one plan: write one value of --http and of --loss");
    ensure!(options.show.live.is_none(), "--live shows one run: write one value of --http and of --loss");
    let interrupts = Interrupts::install()?;
    let run_store = if options.no_save { None } else { Some(RunStore::open()?) };
    let command = command_line();
    let mut document =
        ProtocolsDocument { schema: PROTOCOLS_SCHEMA.into(), command: command.clone(), runs: Vec::new() };
    let (mut exit, mut folder) = (Exit::Success, None);
    for (run, plan) in &planned {
        let loss = run.loss.as_ref().map_or(String::new(), |loss| format!(", loss {loss}"));
        let what = format!("HTTP/{}{loss}", run.http);
        if !options.json {
            print_message(&what);
        }
        let mut display = Display::new("", options.json);
        let outcome = testbed::bench(plan, &command, run_store.as_ref(), &interrupts, &mut display)?;
        document.runs.push(ProtocolRun::of(&run.http, run.loss.as_deref(), &outcome.document));
        exit = worse(exit, exit::of_document(&outcome.document, options.strict));
        folder = outcome.folder.or(folder);
        if outcome.document.run.interrupted {
            print_message(format_args!("interrupted: {} of {} runs were made", document.runs.len(), planned.len()));
            break;
        }
    }
    let page = folder.map(|folder| folder.join(PAGE));
    if let Some(page) = &page {
        page_file::write(page, report::protocols::page(&document).into_html().as_bytes())?;
    }
    if options.json {
        print(&(serde_json::to_string_pretty(&document)? + "\n"))?;
        return Ok(exit);
    }
    let table = report::protocols::table(&document);
    let head: Vec<&str> = table.head.iter().map(String::as_str).collect();
    let mut text = report::terminal::table(&head, &table.rows, terminal::style());
    text.extend(table.notes.iter().map(|note| format!("\n{note}")));
    text.push('\n');
    print(&text)?;
    page.map_or(Ok(()), |page| print(&(page_file::url(&page) + "\n")))?;
    Ok(exit)
}

fn planned(run: &MatrixRun, bench: &Bench) -> Result<Plan> {
    let mut plan = to_plan::bench(bench)?;
    // Names have no points and signs.
    let plain = |typed: &str| -> String {
        typed.replace('.', "_").chars().filter(|c| c.is_ascii_alphanumeric() || *c == '_').collect()
    };
    let loss = run.loss.as_ref().map_or(String::new(), |loss| format!("-loss{}", plain(loss)));
    plan.name = format!("{}-http{}{loss}", plan.name, plain(&run.http));
    Ok(plan)
}

/// The worse of two exit statuses: invalid, then an objective missed.
fn worse(one: Exit, other: Exit) -> Exit {
    match (&one, &other) {
        (Exit::Invalid, _) | (_, Exit::Success) => one,
        (_, Exit::Invalid) | (Exit::Success, _) => other,
        _ => one,
    }
}
