//! `yamabiko reproduce koshien`.

use anyhow::{Result, ensure};
use papers::koshien::{self, KoshienMeasurement, KoshienOptions, KoshienReproduced, Length, Setting, summary};
use report::page::Page;
use report::reproduction::{ExperimentView, Offered, SettingView};
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;

use super::{Progress, conclude};
use crate::args;
use crate::exit::Exit;
use crate::live_child::Live;
use crate::terminal::say;
use crate::verb::bench::command_line;

/// Runs the experiments.
pub fn run(typed: &args::Koshien) -> Result<Exit> {
    ensure!(typed.full || !typed.duration.is_zero(), "--duration 0s: expected some seconds");
    let asked = KoshienOptions {
        experiments: typed.experiments.clone(),
        settings: match typed.setting {
            args::Setting::Year2001 => vec![Setting::Year2001],
            args::Setting::Today => vec![Setting::Today],
            args::Setting::Both => Setting::ALL.to_vec(),
        },
        length: if typed.full { Length::Full } else { Length::Time(typed.duration) },
        seed: typed.result.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    let live = Live::start(&typed.result.show, true)?;
    let interrupts = Interrupts::install()?;
    let book = RunStore::open()?;
    if !typed.result.json {
        say(format_args!(
            "{} runs of one server at {:.0} requests/s; this takes {}",
            asked.experiments.len() * asked.settings.len(),
            koshien::RATE_PER_S,
            units::format_duration(asked.time()),
        ));
    }
    let mut progress = Progress { quiet: typed.result.json };
    let reproduced = koshien::make(&asked, &book, &interrupts, &mut live.staging(&mut progress))?;
    conclude(&reproduced.document, page(&reproduced), &reproduced.folder, &typed.result)
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
