//! `yamabiko predict`: capacity of a server, predicted from the cost of its requests.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use capacity::predict::{self, PredictOptions, PredictPlan};
use experiment::{Order, SearchProgress, Stage};
use plan::Plan;
use schema::{PredictDocument, TrialPart};
use store::RunStore;
use sys::clock::Clock;
use sys::signal::Interrupts;
use testbed::Observer;
use units::RequestRate;

use super::bench::{command_line, print};
use super::concluding::{Ending, conclude};
use crate::args;
use crate::exit::{self, Exit};
use crate::live_child::Live;
use crate::progress::Display;
use crate::terminal::{self, say};

/// Default warm-up of each load without distance.
const WARMUP: Duration = Duration::from_millis(500);

/// Runs the prediction as typed.
pub fn run(typed: &mut args::Predict) -> Result<Exit> {
    let mut plan = PredictPlan {
        plan: plan(&mut typed.bench, typed.prediction.load_time)?,
        options: options(&typed.prediction, &typed.described),
    };
    typed.described.put(&mut plan.plan);
    plan.check()?;
    let result = &typed.bench.result;
    if result.print_plan {
        print(&plan.plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let live = Live::start(&result.show, !result.no_save)?;
    let interrupts = Interrupts::install()?;
    let passing = tempfile::tempdir().context("a folder for unsaved results")?;
    let book = if result.no_save { RunStore::at(passing.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: result.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    if !result.json {
        let time = Duration::from_secs(plan.time().as_secs().max(1));
        say(format_args!("this takes about {}", units::format_duration(time)));
    }
    let mut progress = Progress { quiet: result.json };
    let mut done = predict::run(&plan, &order, &book, &interrupts, &mut live.staging(&mut progress))?;
    if result.no_save {
        done.document.run.dir.clear();
        done.document.run.id.clear();
    }
    let text = fs::read_to_string(done.folder.join("plan.toml")).unwrap_or_default();
    let page = report::predict_page(&done.document, &text);
    let ending = Ending {
        folder: (!result.no_save).then_some(done.folder.as_path()),
        html: typed.prediction.html.as_ref(),
        json: result.json,
    };
    conclude(page, &ending, || show(&done.document, result.json))?;
    Ok(exit_of(&done.document, result.strict))
}

/// Exit status, from the checks.
pub fn exit_of(document: &PredictDocument, strict: bool) -> Exit {
    match exit::of_validity(&document.validity) {
        Exit::Success if strict && document.validity.verdict != schema::Verdict::Valid => Exit::Invalid,
        exit => exit,
    }
}

/// Prints a new or stored prediction.
pub fn show(document: &PredictDocument, json: bool) -> Result<()> {
    if json {
        print(&(serde_json::to_string_pretty(document)? + "\n"))
    } else {
        print(&report::terminal::predict(document, terminal::style()))
    }
}

/// The plan that `bench` would make of an open loop, without rate and length.
fn plan(bench: &mut args::Bench, load_time: Duration) -> Result<Plan> {
    let name = if bench.result.name == "bench" { "predict" } else { &bench.result.name }.to_owned();
    let mut plan = match bench.url.as_slice() {
        [file] if is_plan(file) => {
            let text = fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
            let mut plan = Plan::from_toml(&text, file)?;
            (plan.capacity, plan.load.rate, plan.load.requests) = (None, None, None);
            if bench.result.slo.is_some() {
                plan.slo.clone_from(&bench.result.slo);
            }
            plan.load.warmup = WARMUP;
            plan
        }
        _ => {
            bench.load.settle_options().map_err(anyhow::Error::msg)?;
            let load = &bench.load;
            ensure!(
                load.rate.is_none(),
                "--rate: predict chooses its own rates, far below the server's limit; omit it"
            );
            ensure!(
                load.requests.is_none() && load.duration.is_none(),
                "-n, -d: predict chooses the length of its loads (--load-time, --loads); omit them"
            );
            let warmup = if bench.given.has("warmup") { load.warmup } else { WARMUP };
            if !load.is_open() {
                // For the defaults of an open loop.
                bench.load.rate = Some(RequestRate::ONE);
            }
            let mut plan = args::to_plan::bench(bench)?;
            plan.load.warmup = warmup;
            plan
        }
    };
    (plan.load.rate, plan.load.connections) = (None, None);
    // A plan needs a length; loads have their own.
    plan.load.duration = Some(load_time);
    plan.name = name;
    Ok(plan)
}

/// Whether the argument is a plan file and not a URL.
fn is_plan(typed: &str) -> bool {
    !typed.contains("://") && Path::new(typed).is_file()
}

fn options(typed: &args::Prediction, described: &args::Described) -> PredictOptions {
    PredictOptions {
        loads: typed.loads,
        each: typed.load_time,
        memory: !typed.no_memory,
        users: typed.users,
        think: typed.think,
        peak: typed.peak,
        headroom: typed.headroom,
        peak_to_mean: typed.peak_to_mean,
        workers: typed.workers,
        hit_and_miss: typed.hit.clone().zip(typed.miss.clone()),
        hit_ratio: typed.hit_ratio,
        check: typed.check,
        check_trial: typed.check_trial,
        pid: typed.server_pid,
        components: described.components,
        components_folder: described.components_folder.clone(),
        disk: described.disk,
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

    /// Validity of the capacity search of `--check`.
    fn trial(&mut self, trial: &TrialPart, so_far: &SearchProgress) {
        if !self.quiet {
            say(report::terminal::capacity_trial(trial, so_far.bracket, "1/s"));
        }
    }
}
