//! Measures a gateway, emulated or real, and prints and stores the result.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use experiment::{Order, Stage};
use gateway::GatewayPlan;
use gateway::tester::{Secret, is_wrong_secret};
use indicatif::{ProgressBar, ProgressStyle};
use schema::{GatewayDocument, Verdict};
use store::RunStore;
use sys::clock::Clock;
use sys::scratch::Scratch;
use sys::signal::Interrupts;
use testbed::Observer;

use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::terminal::{self, print_message};
use crate::token::Token;
use crate::verb::bench::{ExecutionOptions, print};
use crate::verb::result_page::{Output, write_and_print};

const NO_TOKEN: &str = "no token: --token-file or YAMABIKO_TOKEN";

/// The secret shared with the server behind a real gateway: from the plan's token file, otherwise from the environment.
/// [`Secret::none`] if there is no secret and the server is on this host.
///
/// # Errors
/// There is no secret for a server on another host. The secret or the server's address is not valid.
pub fn secret(plan: &GatewayPlan) -> Result<Secret> {
    match Token::find(plan.token_file.as_deref())? {
        Some(token) => Ok(Secret::new(token.bytes())),
        None if gateway::is_on_this_host(plan)? => Ok(Secret::none()),
        None => bail!("{NO_TOKEN}"),
    }
}

/// Measures a gateway, and prints and stores the result.
pub fn measure(
    plan: &GatewayPlan,
    secret: Option<&Secret>,
    options: &ExecutionOptions<'_>,
    html: Option<&PathBuf>,
) -> Result<Exit> {
    if options.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let live = LivePage::start(&options.show, !options.no_save)?;
    let interrupts = Interrupts::install()?;
    let temporary_dir = Scratch::new("gateway-unsaved").context("a folder for unsaved results")?;
    let run_store = if options.no_save { RunStore::at(temporary_dir.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: plan.seed,
        command: options.command.to_owned(),
        started: Clock::start().started(),
    };
    let time = gateway::time(plan);
    let mut progress = Progress::new(time, options.json);
    let measured = match secret {
        Some(secret) => {
            gateway::run_against(plan, secret, &order, &run_store, &interrupts, &mut live.staging(&mut progress))
        }
        None => gateway::run(plan, &order, &run_store, &interrupts, &mut live.staging(&mut progress)),
    };
    progress.end();
    let mut measured = match measured {
        Err(error) if is_wrong_secret(&error) && secret.is_some_and(|secret| !secret.is_some()) => {
            return Err(error).context(NO_TOKEN);
        }
        measured => measured?,
    };
    let page = report::gateway_page(&measured.document, &plan.to_toml());
    if options.no_save {
        measured.document.run.dir.clear();
        measured.document.run.id.clear();
    }
    let output = Output { folder: (!options.no_save).then_some(measured.folder.as_path()), html, json: options.json };
    write_and_print(page, &output, || show(&measured.document, options.json))?;
    Ok(exit_of(&measured.document, options.strict))
}

/// Prints the document of a measured gateway, new or stored.
pub fn show(document: &GatewayDocument, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::gateway(document, terminal::style()))
    }
}

/// The exit status of a measured gateway, from its checks.
pub fn exit_of(document: &GatewayDocument, strict: bool) -> Exit {
    match exit::of_validity(&document.validity) {
        Exit::Success if strict && document.validity.verdict != Verdict::Valid => Exit::Invalid,
        exit => exit,
    }
}

/// Progress on stderr: a bar on a terminal, otherwise a line for each step.
struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Progress {
    fn new(time: Duration, quiet: bool) -> Progress {
        if quiet {
            return Progress { bar: None, quiet };
        }
        print_message(format_args!("this takes about {}", rounded(time)));
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(time.as_secs().max(1));
            let style = ProgressStyle::with_template("{bar:30} {elapsed_precise} of about {len}s  {msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Progress { bar, quiet }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Stage for Progress {
    fn begin(&mut self, _what: &str) -> Box<dyn Observer> {
        Box::new(crate::progress::Display::new("", true))
    }

    fn step(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(bar.elapsed().as_secs().min(bar.length().unwrap_or(u64::MAX)));
                bar.set_message(what.to_owned());
            }
            // Only the first trial of a series is reported.
            None if !self.quiet && (!what.contains(": trial ") || what.contains(": trial 1 of ")) => {
                print_message(what)
            }
            None => {}
        }
    }
}

/// A duration, rounded for display.
fn rounded(time: Duration) -> String {
    match time.as_secs() {
        short @ 0..120 => format!("{} s", short.max(1)),
        middle @ 120..7200 => format!("{} min", (middle + 30) / 60),
        long => format!("{:.1} h", long as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_time_is_rounded_for_people() {
        let of = |seconds| rounded(Duration::from_secs(seconds));
        assert_eq!([0, 119, 120, 3600, 9000].map(of), ["1 s", "119 s", "2 min", "60 min", "2.5 h"]);
    }
}
