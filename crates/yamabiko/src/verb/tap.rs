//! `yamabiko tap`: measures a program from its own socket calls.
//!
//! The program has the same stdin, stdout and stderr as without the tap, and its exit status becomes that of this
//! program. stdout belongs to the program, so the result is written to stderr when the program has ended, or to a file.

#[cfg(feature = "agent")]
mod agent;
#[cfg(feature = "manager")]
mod manager;
mod slice;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use report::Style;
use report::figures::{count, duration};
use schema::{Document, Verdict};
use store::RunStore;
use testbed::tap::{TapEnd, TapRun};
use testbed::tapping::{Glance, TapPlan};

use super::bench::{command_line, print};
use crate::args::{self, TapWhat};
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::page_file;
use crate::terminal::{self, print_message};

/// Runs a program under the tap, or runs a subcommand.
pub fn run(arguments: &args::Tap) -> Result<Exit> {
    match &arguments.what {
        Some(TapWhat::Slice(slice)) => return slice::run(slice),
        #[cfg(feature = "agent")]
        Some(TapWhat::Agent(agent)) => return agent::run(agent),
        #[cfg(feature = "manager")]
        Some(TapWhat::Manager(manager)) => return manager::run(manager),
        None => {}
    }
    ensure!(!arguments.command.is_empty(), "a command is missing: yamabiko tap [OPTIONS] -- COMMAND");
    #[cfg(feature = "agent")]
    if let Some(folder) = &arguments.agent {
        return agent::enter(folder.as_deref(), &arguments.command);
    }
    let live = LivePage::start(&arguments.show, !arguments.no_save)?;
    let plan = TapRun {
        tap: TapPlan { only: arguments.only.clone(), window: arguments.window.window },
        run_store: if arguments.no_save { None } else { Some(RunStore::open()?) },
        name: arguments.name.clone(),
        command_line: command_line(),
        live: arguments.progress.then_some(std::time::Duration::from_secs(1)),
    };
    let print_progress = |glance: &Glance, seconds| print_message(line(glance, seconds));
    let end = testbed::tap::tap(&plan, &arguments.command, |dir| live.show(dir), print_progress)?;
    // The exit status is the program's, which a script waits for: a failure to write the result must not replace it.
    if let Err(error) = write_result(arguments, &end) {
        print_message(format_args!("yamabiko: {error:#}"));
    }
    Ok(Exit::Program(end.status))
}

fn write_result(arguments: &args::Tap, end: &TapEnd) -> Result<()> {
    let document = &end.document;
    if let Some(file) = &arguments.json {
        let text = serde_json::to_string_pretty(document)? + "\n";
        print_failed_checks(document);
        return if file == Path::new("-") { print(&text) } else { page_file::write(file, text.as_bytes()) };
    }
    if let Some(file) = &arguments.output {
        print_failed_checks(document);
        return page_file::write(file, page(document, Style::PLAIN).as_bytes());
    }
    let text = page(document, terminal::error_style());
    std::io::stderr().write_all(text.as_bytes()).context("writing the result to stderr")
}

fn page(document: &Document, style: Style) -> String {
    report::terminal::render(document, None, style)
}

/// Prints the failed checks of a run that is not valid, for a result that is written to a file.
fn print_failed_checks(document: &Document) {
    if document.validity.verdict == Verdict::Valid {
        return;
    }
    for check in &document.validity.checks {
        if check.state == schema::CheckState::Failed {
            print_message(format_args!("yamabiko: {}: {}", document.validity.verdict.name(), check.why));
        }
    }
}

fn line(glance: &Glance, seconds: f64) -> String {
    let live = &glance.live;
    let response = glance.response_p50_ns.map(|p50| format!(", median response time {}", duration(p50)));
    let dropped = match live.dropped {
        0 => String::new(),
        n => format!(", {} records dropped", count(n)),
    };
    format!(
        "yamabiko: {seconds:.0} s: {} connections ({} open), {} exchanges, {} in flight, {} failed{}{dropped}",
        count(live.connections),
        count(live.open),
        count(glance.exchanges),
        count(live.in_flight),
        count(glance.failed),
        response.unwrap_or_default(),
    )
}
