//! `yamabiko predict`: predicts the capacity of a server from the service demands of its requests.

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
use super::result_page::{Output, write_and_print};
use crate::args;
use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::progress::Display;
use crate::terminal::{self, print_message};

/// Default warm-up of each load without an emulated path.
const WARMUP: Duration = Duration::from_millis(500);

/// Makes the prediction of the given options.
pub fn run(arguments: &mut args::Predict) -> Result<Exit> {
    let mut plan = PredictPlan {
        plan: plan(&mut arguments.bench, arguments.prediction.load_time)?,
        options: options(&arguments.prediction, &arguments.described),
    };
    arguments.described.apply_to(&mut plan.plan);
    plan.check()?;
    let result = &arguments.bench.result;
    if result.print_plan {
        print(&plan.plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let live = LivePage::start(&result.show, !result.no_save)?;
    let interrupts = Interrupts::install()?;
    let temporary_dir = tempfile::tempdir().context("a folder for unsaved results")?;
    let run_store = if result.no_save { RunStore::at(temporary_dir.path()) } else { RunStore::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: result.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    if !result.json {
        let time = Duration::from_secs(plan.time().as_secs().max(1));
        print_message(format_args!("this takes about {}", units::format_duration(time)));
    }
    let mut progress = Progress { quiet: result.json };
    let mut predicted = predict::run(&plan, &order, &run_store, &interrupts, &mut live.staging(&mut progress))?;
    if result.no_save {
        predicted.document.run.dir.clear();
        predicted.document.run.id.clear();
    }
    let text = fs::read_to_string(predicted.folder.join("plan.toml")).unwrap_or_default();
    let page = report::predict_page(&predicted.document, &text);
    let output = Output {
        folder: (!result.no_save).then_some(predicted.folder.as_path()),
        html: arguments.prediction.html.as_ref(),
        json: result.json,
    };
    write_and_print(page, &output, || show(&predicted.document, result.json))?;
    Ok(exit_of(&predicted.document, result.strict))
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
                // A rate selects the defaults of an open loop.
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
fn is_plan(argument: &str) -> bool {
    !argument.contains("://") && Path::new(argument).is_file()
}

fn options(arguments: &args::Prediction, described: &args::Described) -> PredictOptions {
    PredictOptions {
        loads: arguments.loads,
        each: arguments.load_time,
        memory: !arguments.no_memory,
        users: arguments.users,
        think: arguments.think,
        peak: arguments.peak,
        headroom: arguments.headroom,
        peak_to_mean: arguments.peak_to_mean,
        workers: arguments.workers,
        hit_and_miss: arguments.hit.clone().zip(arguments.miss.clone()),
        hit_ratio: arguments.hit_ratio,
        check: arguments.check,
        check_trial: arguments.check_trial,
        pid: arguments.server_pid,
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
            print_message(what);
        }
        Box::new(Display::new("", self.quiet))
    }

    /// Prints a trial of the capacity search of `--check`.
    fn trial(&mut self, trial: &TrialPart, so_far: &SearchProgress) {
        if !self.quiet {
            print_message(report::terminal::capacity_trial(trial, so_far.bracket, "1/s"));
        }
    }
}
