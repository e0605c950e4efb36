//! `yamabiko reproduce`: a published experiment made again, paper beside here.

use anyhow::{Result, ensure};
use lab::Observer;
use ledger::ReproductionDocument;
use report::page::Page;
use report::reproduction::{ExperimentView, Offered, SettingView};
use store::Book;
use suites::reproduce::koshien::{self, Asked, Length, Made, Reproduced, Setting, Stage};
use sys::clock::Clock;
use sys::signal::Interrupts;

use super::bench::{command_line, print};
use crate::args;
use crate::exit::{self, Exit};
use crate::page_file;
use crate::progress::Display;
use crate::terminal::{self, say};

/// The page's name in the reproduction's folder.
pub const PAGE: &str = "report.html";

/// Makes it and prints the rows.
pub fn run(reproduce: &args::Reproduce) -> Result<Exit> {
    match reproduce {
        args::Reproduce::Koshien(koshien) => run_koshien(koshien),
    }
}

fn run_koshien(typed: &args::Koshien) -> Result<Exit> {
    ensure!(typed.full || !typed.duration.is_zero(), "--duration 0s: an experiment needs some seconds");
    let asked = Asked {
        experiments: typed.experiments.clone(),
        settings: match typed.setting {
            args::Setting::Year2001 => vec![Setting::Year2001],
            args::Setting::Today => vec![Setting::Today],
            args::Setting::Both => Setting::ALL.to_vec(),
        },
        length: if typed.full { Length::Full } else { Length::Time(typed.duration) },
        seed: typed.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    let interrupts = Interrupts::install()?;
    let book = Book::open()?;
    if !typed.json {
        say(format_args!(
            "{} runs of one server at {:.0} requests/s; this takes {}",
            asked.experiments.len() * asked.settings.len(),
            koshien::RATE_PER_S,
            units::format_duration(asked.time()),
        ));
    }
    let reproduced = koshien::make(&asked, &book, &interrupts, &mut Progress { quiet: typed.json })?;
    let html = page(&reproduced).into_html();
    let kept = reproduced.folder.join(PAGE);
    for file in [Some(&kept), typed.html.as_ref()].into_iter().flatten() {
        page_file::write(file, html.as_bytes())?;
    }
    show(&reproduced.document, typed.json)?;
    if !typed.json {
        print(&(page_file::url(&kept) + "\n"))?;
    }
    Ok(exit::of_validity(&reproduced.document.validity))
}

/// Prints a reproduction, now or from the book.
pub fn show(document: &ReproductionDocument, json: bool) -> Result<()> {
    if json {
        return print(&(serde_json::to_string_pretty(document)? + "\n"));
    }
    let style = terminal::style();
    let summary = koshien::summary(&document.reproduce);
    let table = report::terminal::table(&summary.head, &summary.lines, style);
    // The first is on where the paper's figures and these come from; the page has them all.
    let notes: Vec<&str> = summary.ratios.iter().chain(document.reproduce.notes.first()).map(String::as_str).collect();
    let (run, validity) = (&document.run, &document.validity);
    print(&report::terminal::judged(run, validity, &document.reproduce.answer, &table, &notes, style))
}

fn page(reproduced: &Reproduced) -> Page {
    let summary = koshien::summary(&reproduced.document.reproduce);
    let settings: Vec<SettingView<'_>> = Setting::ALL
        .iter()
        .map(|&setting| SettingView {
            name: format!("TCP of {}", setting.name()),
            about: setting.about().into(),
            experiments: reproduced.made.iter().filter(|made| made.setting == setting).map(view).collect(),
        })
        .filter(|setting| !setting.experiments.is_empty())
        .collect();
    let offered = Offered { rate_per_s: koshien::RATE_PER_S, warmup_s: koshien::WARMUP.as_secs_f64() };
    report::reproduction::page(
        "Koshien: the same rate, further away",
        &reproduced.document,
        (&summary.head, &summary.lines),
        offered,
        &settings,
    )
}

fn view(made: &Made) -> ExperimentView<'_> {
    let experiment = made.experiment;
    ExperimentView {
        name: format!("{}: {}", experiment.number, experiment.about),
        color: usize::from(experiment.number) - 1,
        seconds: &made.seen.seconds,
        rtts_ns: &made.seen.rtts_ns,
        asked_rtts_ns: if experiment.varied() { &made.asked_rtts_ns } else { &[] },
    }
}

struct Progress {
    quiet: bool,
}

impl Stage for Progress {
    fn begin(&mut self, what: &str) -> Box<dyn Observer> {
        if !self.quiet {
            say(what);
        }
        Box::new(Display::new("", self.quiet))
    }
}
