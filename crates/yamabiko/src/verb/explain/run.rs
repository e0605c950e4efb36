//! A run of load: made with packets kept at both ends, or stored before.

use anyhow::{Context as _, Result, anyhow, ensure};
use explain::Summary;
use plan::{Offered, Plan};
use schema::{CheckState, Document, RequestRecord, ShareRow, Verdict};
use store::{RunStore, StoreError};
use sys::signal::Interrupts;
use testbed::explained::RunEvidence;
use units::RequestRate;

use super::attempt::{self, Attempt, Try};
use super::{Explained, Label};
use crate::args;
use crate::args::{Bench, ResultOptions, to_plan};
use crate::command_line::command_line;
use crate::exit::{self, Exit};
use crate::live_child::LivePage;
use crate::progress::Display;
use crate::terminal::print_message;
use crate::verb::bench::print;

/// Rate of the load unless one is given: enough responses for a p95 in 10 s, and far below what limits a server.
const RATE_PER_S: f64 = 20.0;

/// Makes a run and explains it.
pub fn make(arguments: &args::Explain) -> Result<Exit> {
    let bench = explaining(&arguments.bench);
    let plan = to_plan::bench(&bench)?;
    let options = &bench.result;
    if options.print_plan {
        print(&plan.to_toml())?;
        return Ok(Exit::Success);
    }
    let tap_start = plan.watch.tap.then(testbed::tapping::own_start).transpose()?;
    let live = LivePage::start(&options.show, !options.no_save)?;
    let interrupts = Interrupts::install()?;
    // The load's records are read from the run's folder.
    let temporary = if options.no_save { Some(tempfile::tempdir().context("creating a folder")?) } else { None };
    let run_store = match &temporary {
        Some(folder) => RunStore::at(folder.path()),
        None => RunStore::open()?,
    };
    let mut display = live.observing(Display::new("", options.json));
    let outcome =
        testbed::bench_tapped(&plan, tap_start, &command_line(), Some(&run_store), &interrupts, &mut display)?;
    drop(display);
    let folder = outcome.folder.as_deref().ok_or_else(|| anyhow!("the run was not stored"))?;
    let exit = exit::of_document(&outcome.document, options.strict);
    let explained = super::of_run(folder, &outcome.document).and_then(|mut explained| {
        if arguments.try_remedy {
            let tried = try_remedy(&plan, &explained.summary, &run_store, &interrupts, options)?;
            explained.tried = Some(tried);
        }
        if !options.no_save {
            explained.store(folder);
        }
        show(&explained, &outcome.document, arguments)
    });
    match explained {
        // As after requests that all failed: the exit status is that of the run.
        Err(error) if exit != Exit::Success => {
            print_message(format_args!("{error:#}"));
            doubt(&outcome.document).into_iter().for_each(|doubt| print_message(format_args!("{doubt}")));
            Ok(exit)
        }
        explained => explained.map(|()| exit),
    }
}

/// Makes a second run with the remedy that the sentence names, if an option has it.
///
/// # Errors
/// The second run cannot be made.
fn try_remedy(
    plan: &Plan,
    summary: &Summary,
    run_store: &RunStore,
    interrupts: &Interrupts,
    options: &ResultOptions,
) -> Result<Try> {
    let (plan, change, advice) = match attempt::changed(plan, summary) {
        Ok(_) if interrupts.count() > 0 => return Ok(Try::NotTried(String::from("the run was interrupted"))),
        Ok(changed) => changed,
        Err(why) => return Ok(Try::NotTried(why)),
    };
    let mut display = Display::new("try", options.json);
    let outcome = testbed::bench_tapped(&plan, None, &command_line(), Some(run_store), interrupts, &mut display)?;
    drop(display);
    let folder = outcome.folder.as_deref().ok_or_else(|| anyhow!("the run with {change} was not stored"))?;
    let second = match super::of_run(folder, &outcome.document) {
        Ok(second) => second,
        Err(error) => return Ok(Try::NotTried(format!("a run with {change} was made, and not explained: {error:#}"))),
    };
    if !options.no_save {
        second.store(folder);
    }
    let Some(measured_ns) = attempt::median_ns(&second.summary, advice.distance_ns) else {
        return Ok(Try::NotTried(format!("a run with {change} was made, and has no response that could be compared")));
    };
    Ok(Try::Tried(Attempt {
        change,
        prediction: advice.prediction,
        before_ns: advice.measured_ns,
        measured_ns,
        run: outcome.document.run.id.clone(),
        verdict: outcome.document.validity.verdict,
        sentence: second.summary.sentence,
    }))
}

/// Explains a stored run.
pub fn stored(arguments: &args::Explain) -> Result<Exit> {
    let [name] = arguments.bench.url.as_slice() else {
        return Err(anyhow!(
            "{} runs: expected one stored run, or URLs, which begin with http:// or https://",
            arguments.bench.url.len()
        ));
    };
    let dir =
        RunStore::open()?.find(name).map_err(|error| anyhow!("{error}; a URL begins with http:// or https://"))?;
    let document = store::read_summary(&dir).map_err(|error| match error {
        // Experiments of several runs have other summaries.
        StoreError::Summary { path, .. } => {
            anyhow!("{}: not the summary of a run of load; expected a run of bench, run or explain", path.display())
        }
        error => error.into(),
    })?;
    show(&super::of_run(&dir, &document)?, &document, arguments)?;
    Ok(exit::of_document(&document, false))
}

/// The options with packets kept. Without a rate, a number of connections or a schedule: an open loop at
/// [`RATE_PER_S`]. Responses that one saturated server delays say little about the way to it.
fn explaining(bench: &Bench) -> Bench {
    let mut bench = Bench { explain: true, ..bench.clone() };
    let is_chosen = ["connections", "requests"].iter().any(|option| bench.given.has(option));
    if bench.load.offered() == Offered::Closed && !is_chosen {
        bench.load.rate = RequestRate::from_per_second(RATE_PER_S);
    }
    bench
}

/// Prints the result.
fn show(explained: &Explained, document: &Document, arguments: &args::Explain) -> Result<()> {
    explained.print(arguments)?;
    let options = &arguments.bench.result;
    if !options.json && !options.no_save {
        print_message(format_args!("run: {}", document.run.id));
    }
    Ok(())
}

/// Explains the responses of a run.
pub fn explained(run: RunEvidence, document: &Document) -> Result<Explained> {
    ensure!(
        !run.requests.is_empty(),
        "{}: no complete response in the measured phase, so there is nothing to explain; `yamabiko report` shows the \
         failures",
        document.run.id
    );
    let labels: Vec<Label> = run.requests.iter().map(|request| label(&run, request)).collect();
    let responses = run.explained();
    let evidence = |place: usize| run.requests.get(place).map(|request| run.evidence(request));
    let mut explained = Explained::new(document.run.id.clone(), labels, responses, evidence);
    explained.notes.clone_from(&run.notes);
    explained.notes.splice(0..0, doubt(document));
    explained.document = Some(document.clone());
    Ok(explained)
}

/// Why a run is not valid; `None` of a valid one.
fn doubt(document: &Document) -> Option<String> {
    let verdict = document.validity.verdict;
    let reasons = document.validity.checks.iter();
    let reasons = reasons.filter(|check| matches!(check.state, CheckState::Failed | CheckState::CouldNotRun));
    let reasons: Vec<String> =
        reasons.map(|check| format!("{}: {}", report::phrases::check_name(check), check.why)).collect();
    (verdict != Verdict::Valid).then(|| format!("the run is {}: {}", verdict.name(), reasons.join("; ")))
}

fn label(run: &RunEvidence, request: &RequestRecord) -> Label {
    let mut json = serde_json::Map::new();
    json.insert("sequence".into(), request.sequence.into());
    json.insert("client".into(), request.client.into());
    json.insert("connection".into(), request.connection.into());
    json.insert("url".into(), request.url.into());
    let row = ShareRow {
        sequence: request.sequence,
        client: Some(request.client),
        connection: request.connection,
        scheduled_at: request.scheduled_at,
        ..ShareRow::BLANK
    };
    Label { text: format!("request {}: {}", request.sequence, run.target(request)), json, row }
}
