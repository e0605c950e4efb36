//! `yamabiko net`: runs any program at the client end of an emulated path.

use std::ffi::OsString;
use std::io::IsTerminal;

use anyhow::{Context, Result};
use plan::Placement;
use store::RunStore;
use testbed::net::{NetOutcome, NetPlan};
use testbed::tapping::TapPlan;
use units::format_duration;

use crate::args;
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::page_file;
use crate::terminal::print_message;

/// Runs the program and ends with its status.
pub fn run(net: &args::Net) -> Result<Exit> {
    let command: Vec<OsString> = if net.command.is_empty() {
        vec![std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into())]
    } else {
        net.command.clone()
    };
    let plan = NetPlan {
        // Without any path option the path has no delay, loss or limit.
        path: net.path.clone().resolve(true).map_err(anyhow::Error::msg)?.context("no path")?,
        server: net.server.server_plan(),
        target: net.server.target_plan(&[]),
        to: net.to.clone(),
        clients: net.clients,
        // The program may use every core. A path whose threads may move to an idle core disturbs it least.
        host: net.host.with_default_placement(Placement::Float, &net.given),
        watch: net.watch,
        tap: net.tap.then(TapPlan::default),
        seed: net.seed,
        run_store: if net.show.live.is_some() { Some(RunStore::open()?) } else { None },
        name: "net".into(),
    };
    let live = LivePage::start(&net.show, true)?;
    let print_facts = |facts: &str| {
        if std::io::stderr().is_terminal() {
            print_message(facts);
        }
    };
    let outcome = testbed::net_shown(&plan, &command, None, print_facts, |dir| live.show(dir))?;
    print_figures(&outcome);
    if let Some(file) = &net.json {
        let text = serde_json::to_string_pretty(&outcome.document)? + "\n";
        page_file::write(file, text.as_bytes())?;
    }
    Ok(Exit::Program(outcome.status))
}

/// Prints the path's figures, and the failed validity checks, on stderr: stdout belongs to the program.
fn print_figures(outcome: &NetOutcome) {
    let Some(path) = &outcome.document.path else { return };
    if std::io::stderr().is_terminal() {
        let drops: u64 = path.drops.values().sum();
        let late = report::phrases::late_wakeups(path).map(|text| format!("; {text}")).unwrap_or_default();
        print_message(format_args!(
            "path: {} packets, {drops} dropped, timing error p99 {}{late}",
            path.packets,
            format_duration(std::time::Duration::from_nanos(path.timing_error_ns.p99)),
        ));
    }
    for check in &outcome.document.validity.checks {
        if check.state == schema::CheckState::Failed {
            print_message(format_args!("yamabiko: invalid measurement: {}", check.why));
        }
    }
}
