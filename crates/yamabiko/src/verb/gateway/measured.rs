//! Measuring a gateway, in the lab or a real one, and showing what came out.

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
use crate::live_child::Live;
use crate::terminal::{self, say};
use crate::token::Token;
use crate::verb::bench::{Doing, print};
use crate::verb::concluding::{Ending, conclude};

const NO_TOKEN: &str = "no token: --token-file or YAMABIKO_TOKEN";

/// The secret of a real gateway's other end: from the plan's file, else from the environment. Without one there is [`Secret::none`]
/// for a server on this host, which may listen without.
///
/// # Errors
/// There is none for a server elsewhere, or it is none; the server's address is none.
pub fn secret(plan: &GatewayPlan) -> Result<Secret> {
    match Token::find(plan.token_file.as_deref())? {
        Some(token) => Ok(Secret::new(token.bytes())),
        None if gateway::is_on_this_host(plan)? => Ok(Secret::none()),
        None => bail!("{NO_TOKEN}"),
    }
}

/// Measures, shows and keeps.
pub fn measure(plan: &GatewayPlan, secret: Option<&Secret>, doing: &Doing<'_>, html: Option<&PathBuf>) -> Result<Exit> {
    if doing.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let live = Live::start(&doing.show, !doing.no_save)?;
    let interrupts = Interrupts::install()?;
    let passing = Scratch::new("gateway-not-kept").context("a folder for what is not kept")?;
    let book = if doing.no_save { RunStore::at(passing.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: plan.seed,
        command: doing.command.to_owned(),
        started: Clock::start().started(),
    };
    let time = gateway::time(plan);
    let mut told = Told::new(time, doing.json);
    let made = match secret {
        Some(secret) => gateway::run_against(plan, secret, &order, &book, &interrupts, &mut live.staging(&mut told)),
        None => gateway::run(plan, &order, &book, &interrupts, &mut live.staging(&mut told)),
    };
    told.end();
    let mut done = match made {
        Err(error) if is_wrong_secret(&error) && secret.is_some_and(|known| !known.is_some()) => {
            return Err(error).context(NO_TOKEN);
        }
        made => made?,
    };
    let page = report::gateway_page(&done.document, &plan.to_toml());
    if doing.no_save {
        done.document.run.dir.clear();
        done.document.run.id.clear();
    }
    let ending = Ending { folder: (!doing.no_save).then_some(done.folder.as_path()), html, json: doing.json };
    conclude(page, &ending, || show(&done.document, doing.json))?;
    Ok(exit_of(&done.document, doing.strict))
}

/// Prints a gateway, now or from the book.
pub fn show(document: &GatewayDocument, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::gateway(document, terminal::style()))
    }
}

/// Its status: that of its checks.
pub fn exit_of(document: &GatewayDocument, strict: bool) -> Exit {
    match exit::of_validity(&document.validity) {
        Exit::Success if strict && document.validity.verdict != Verdict::Valid => Exit::Invalid,
        exit => exit,
    }
}

/// What is told meanwhile, on stderr: a bar on a terminal, else a line whenever something else begins.
struct Told {
    bar: Option<ProgressBar>,
    quiet: bool,
}

impl Told {
    fn new(time: Duration, quiet: bool) -> Told {
        if quiet {
            return Told { bar: None, quiet };
        }
        say(format_args!("this takes about {}", about(time)));
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(time.as_secs().max(1));
            let style = ProgressStyle::with_template("{bar:30} {elapsed_precise} of about {len}s  {msg}");
            bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        Told { bar, quiet }
    }

    fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

impl Stage for Told {
    fn begin(&mut self, _what: &str) -> Box<dyn Observer> {
        Box::new(crate::progress::Display::new("", true))
    }

    fn step(&mut self, what: &str) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(bar.elapsed().as_secs().min(bar.length().unwrap_or(u64::MAX)));
                bar.set_message(what.to_owned());
            }
            // Of many trials the first is told.
            None if !self.quiet && (!what.contains(": trial ") || what.contains(": trial 1 of ")) => say(what),
            None => {}
        }
    }
}

/// As long as people say it.
fn about(time: Duration) -> String {
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
        let of = |seconds| about(Duration::from_secs(seconds));
        assert_eq!([0, 119, 120, 3600, 9000].map(of), ["1 s", "119 s", "2 min", "60 min", "2.5 h"]);
    }
}
