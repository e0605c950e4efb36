//! `yamabiko reproduce directory`: repeats the experiments of the NTT DIRECTORY paper.

use std::time::Duration;

use anyhow::{Result, ensure};
use papers::ntt_directory::{self, DirectoryOptions, DirectoryPart, summary};
use report::page::{Page, Section};
use report::plot::{Bars, Quantity};
use report::reproduction::{bars, page_with};
use schema::ReproductionDocument;
use store::RunStore;
use sys::signal::Interrupts;

use super::{Progress, order, write_and_print};
use crate::args;
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::terminal::print_message;

/// Runs the selected parts of the experiments and prints the rows.
pub fn run(arguments: &args::Directory) -> Result<Exit> {
    ensure!(
        arguments.duration >= Duration::from_millis(100),
        "--duration: expected 100ms or more; CPU time is counted in steps of 10 ms"
    );
    let part = |part: &args::Part| match part {
        args::Part::Maximum => DirectoryPart::Maximum,
        args::Part::Features => DirectoryPart::Features,
        args::Part::Requests => DirectoryPart::Requests,
        args::Part::Cache => DirectoryPart::Cache,
        args::Part::Flood => DirectoryPart::Flood,
    };
    let options = DirectoryOptions {
        order: order(&arguments.result)?,
        parts: arguments.only.iter().map(part).collect(),
        time: arguments.duration,
        entries: arguments.entries,
    };
    let live = LivePage::start(&arguments.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let run_store = RunStore::open()?;
    if !arguments.result.json {
        let time = Duration::from_secs(options.time().as_secs());
        print_message(format_args!("{} parts; this takes about {}", options.parts.len(), units::format_duration(time)));
    }
    let mut progress = Progress { quiet: arguments.result.json };
    let reproduced = ntt_directory::make(&options, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    write_and_print(&reproduced.document, page(&reproduced.document), &reproduced.folder, &arguments.result)
}

fn page(document: &ReproductionDocument) -> Page {
    let summary = summary(&document.reproduce);
    let servers = |quantity| {
        let names = ["MAX", "yamabiko", "nginx", "Apache"].map(|name| (name, name, false));
        bars("Requests per second, 50 clients, 3 KB", document, (quantity, Quantity::PerSecond), &names, false)
    };
    let figures = Section::new("Figures")
        .figure(servers("requests per second").about("Published: MAX does about twice two general servers."))
        .figure(features(document))
        .figure(parts(document))
        .figure(flood(document));
    let title = "NTT DIRECTORY: the cost of a server's features, and a limit that protects it";
    page_with(title, document, (&summary.head, &summary.lines), &[1, 2], vec![figures])
}

/// One group per setting of an experiment with these quantities, in us.
fn by_setting(title: &str, document: &ReproductionDocument, experiment: &str, quantities: &[(&str, &str)]) -> Bars {
    let names: Vec<&str> = quantities.iter().map(|(name, _)| *name).collect();
    let rows = || document.reproduce.rows.iter().filter(|row| row.experiment == experiment);
    let mut settings: Vec<&str> = Vec::new();
    for row in rows().filter(|row| quantities.iter().any(|(_, quantity)| *quantity == row.quantity)) {
        if !settings.contains(&row.setting.as_str()) {
            settings.push(&row.setting);
        }
    }
    let in_ns = |here: f64, unit: &str| here * if unit == "us" { 1e3 } else { 1e6 };
    settings.iter().fold(Bars::new(title, Quantity::Nanoseconds, &names), |bars, setting| {
        let values: Vec<Option<f64>> = quantities
            .iter()
            .map(|(_, quantity)| {
                let row = rows().find(|row| row.setting == *setting && row.quantity == *quantity)?;
                Some(in_ns(row.measured?, &row.unit))
            })
            .collect();
        bars.row(*setting, &values)
    })
}

fn features(document: &ReproductionDocument) -> Bars {
    let quantities = [("user", "CPU per request, user"), ("kernel", "CPU per request, system")];
    by_setting("Features added to MAX: CPU per request", document, "features added to MAX", &quantities)
        .about("Each step includes those above it, unless its name states an alternative.")
}

fn parts(document: &ReproductionDocument) -> Bars {
    let here = |experiment: &str, setting: &str| {
        let is = |row: &&schema::ReproductionRow| {
            row.experiment == experiment && row.setting == setting && row.quantity == "CPU per request"
        };
        document.reproduce.rows.iter().find(is).and_then(|row| row.measured).map(|us| us * 1e3)
    };
    let names = ["OS", "server function", "application"];
    let empty = Bars::dots("CPU of a request by component", Quantity::Nanoseconds, &names);
    ["static request", "dynamic request"]
        .iter()
        .fold(empty, |bars, experiment| bars.row(*experiment, &names.map(|name| here(experiment, name))))
        .about("As in the paper's figure 1; logarithmic axis.")
}

fn flood(document: &ReproductionDocument) -> Bars {
    let quantities = [("median", "static response time, median"), ("99 %", "static response time, 99 %")];
    by_setting("Static response time", document, "searches at ten times the maximum", &quantities)
        .about("While searches come at ten times the application's maximum, and without searches.")
}
