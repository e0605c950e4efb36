//! `yamabiko reproduce koshien`: repeats the experiments of the Koshien (ENMA) paper.

use anyhow::{Result, ensure};
use papers::koshien::{self, KoshienMeasurement, KoshienOptions, KoshienReproduced, Length, Setting, summary};
use report::page::Page;
use report::reproduction::{ExperimentView, Offered, SettingView};
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;

use super::{Progress, write_and_print};
use crate::args;
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::terminal::print_message;
use crate::verb::bench::command_line;

/// Runs the selected experiments and prints the rows.
pub fn run(arguments: &args::Koshien) -> Result<Exit> {
    ensure!(arguments.full || !arguments.duration.is_zero(), "--duration 0s: expected some seconds");
    let options = KoshienOptions {
        experiments: arguments.experiments.clone(),
        settings: match arguments.setting {
            args::Setting::Year2001 => vec![Setting::Year2001],
            args::Setting::Today => vec![Setting::Today],
            args::Setting::Both => Setting::ALL.to_vec(),
        },
        length: if arguments.full { Length::Full } else { Length::Time(arguments.duration) },
        seed: arguments.result.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    let live = LivePage::start(&arguments.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let run_store = RunStore::open()?;
    if !arguments.result.json {
        print_message(format_args!(
            "{} runs of one server at {:.0} requests/s; this takes {}",
            options.experiments.len() * options.settings.len(),
            koshien::RATE_PER_S,
            units::format_duration(options.time()),
        ));
    }
    let mut progress = Progress { quiet: arguments.result.json };
    let reproduced = koshien::make(&options, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    write_and_print(&reproduced.document, page(&reproduced), &reproduced.folder, &arguments.result)
}

fn page(reproduced: &KoshienReproduced) -> Page {
    let summary = summary(&reproduced.document.reproduce);
    let settings: Vec<SettingView<'_>> = Setting::ALL
        .iter()
        .map(|&setting| SettingView {
            name: format!("TCP of {}", setting.name()),
            about: setting.about().into(),
            experiments: reproduced
                .measurements
                .iter()
                .filter(|measurement| measurement.setting == setting)
                .map(view)
                .collect(),
        })
        .filter(|setting| !setting.experiments.is_empty())
        .collect();
    let offered = Offered { rate_per_s: koshien::RATE_PER_S, warmup_s: koshien::WARMUP.as_secs_f64() };
    report::reproduction::page(
        "Koshien (ENMA): the same rate from greater distances",
        &reproduced.document,
        (&summary.head, &summary.lines),
        offered,
        &settings,
    )
}

fn view(measurement: &KoshienMeasurement) -> ExperimentView<'_> {
    let experiment = measurement.experiment;
    ExperimentView {
        name: format!("{}: {}", experiment.number, experiment.about),
        color: usize::from(experiment.number) - 1,
        seconds: &measurement.capture.seconds,
        rtts_ns: &measurement.capture.rtts_ns,
        configured_rtts_ns: if experiment.varied() { &measurement.configured_rtts_ns } else { &[] },
    }
}
