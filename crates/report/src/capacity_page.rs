//! The result of `capacity` as one page: response time, requests in flight and CPU against the load (offered rate,
//! users, connections), the confirmation over time, every trial.

use schema::{CapacityDocument, CapacityPart, TrialPart};

use crate::capacity;
use crate::page::{Page, Section, Table};
use crate::phrases::{span, wall_clock};
use crate::plot::{Axis, Bars, Chart, Quantity, Series};

/// Builds the page; `plan` is the text of the plan; it may be empty.
pub fn capacity_page(document: &CapacityDocument, plan: &str) -> Page {
    let run = &document.run;
    let part = &document.capacity;
    let title = if run.id.is_empty() { "A capacity" } else { &run.id };
    let early = if run.interrupted { ", interrupted: continue with `capacity --resume`" } else { "" };
    let about = format!(
        "{}: {} trials, measured for {} in all{early}.",
        wall_clock(&run.started_at),
        part.trials.len(),
        span(run.duration_s)
    );
    let further = capacity::further(part)
        .into_iter()
        .fold(Table::new(&["", ""]).left(&[1]), |table, (name, words)| table.row([name.to_owned(), words]));
    let found =
        part.findings.iter().fold(Table::new(&["finding", "where", "description"]).left(&[1, 2]), |table, finding| {
            table.row([finding.name.clone(), finding.test.clone(), finding.words.clone()])
        });
    let notes = part.notes.iter().fold(Section::new("Notes"), Section::text);
    let repeat = Section::new("Repeat this run")
        .text(format!("Seed of every random choice: {}.", run.seed))
        .folded("The plan", Section::new("").verbatim("", schema::withheld::plan(plan)));
    let runs: Vec<&str> = part.trials.iter().map(|trial| trial.run.as_str()).filter(|run| !run.is_empty()).collect();
    Page::new(title)
        .lead(capacity::answer(document))
        .subject("", run.command.clone())
        .judged("", &document.validity)
        .about(about)
        .section(Section::new("Further figures").table(further))
        .section(Section::new("Findings").table(found))
        .section(against_load(part))
        .section(confirmation(part))
        .section(each(part))
        .section(trials(part))
        .section(notes)
        .section(repeat)
        .foot(match &runs[..] {
            [] => "Its trials were not stored.".to_owned(),
            runs => format!("Long trials, stored as runs: {}", runs.join(", ")),
        })
}

/// Trials that count at the first distance, by load; of several trials at a load the longest.
fn by_load(part: &CapacityPart) -> Vec<&TrialPart> {
    let first = part.trials.first().map(|trial| trial.at.as_str()).unwrap_or_default();
    let counts = |trial: &&TrialPart| {
        trial.at == first
            && ["short", "long", "confirmation", "overload"].contains(&trial.stage.as_str())
            && ["good", "bad"].contains(&trial.verdict.as_str())
    };
    let mut trials: Vec<&TrialPart> = part.trials.iter().filter(counts).collect();
    trials.sort_by(|a, b| a.load.total_cmp(&b.load).then(b.actual_s.total_cmp(&a.actual_s)));
    trials.dedup_by(|a, b| a.load == b.load);
    trials
}

fn against_load(part: &CapacityPart) -> Section {
    let trials = by_load(part);
    let of = |good: bool, value: &dyn Fn(&TrialPart) -> f64| -> Vec<[f64; 2]> {
        trials
            .iter()
            .filter(|trial| (trial.verdict == "good") == good)
            .map(|trial| [trial.load, value(trial)])
            .collect()
    };
    let all = |value: &dyn Fn(&TrialPart) -> f64| -> Vec<[f64; 2]> {
        trials.iter().map(|trial| [trial.load, value(trial)]).collect()
    };
    let framed = |mut chart: Chart| {
        if let (Some(lower), Some(upper)) = bracket(part) {
            chart = chart.band(lower, upper, "bracket");
        }
        chart
    };
    let offered = || match part.unit.as_str() {
        "users" => Axis::log("users", Quantity::Count),
        "connections" => Axis::log("open connections", Quantity::Count),
        _ => Axis::log("offered requests/s", Quantity::PerSecond),
    };
    let p50 = |trial: &TrialPart| trial.response_time_ns.p50 as f64;
    let p99 = |trial: &TrialPart| trial.response_time_ns.p99 as f64;
    let times = Chart::new("Response time against load", offered(), Axis::log("response time", Quantity::Nanoseconds))
        .series(Series::line("p99, sustained", of(true, &p99)).dotted().color(0))
        .series(Series::line("p99, not sustained", of(false, &p99)).dotted().color(3))
        .series(Series::line("p50", all(&p50)).dashed().dotted().color(5))
        .about("From the scheduled time. Shaded: the bracket, from the highest load that was sustained to the lowest that was not.");
    let flight = Chart::new("In flight against load", offered(), Axis::log("mean requests in flight", Quantity::Count))
        .series(Series::line("sustained", of(true, &|trial| trial.in_flight.mean)).dotted().color(0))
        .series(Series::line("not sustained", of(false, &|trial| trial.in_flight.mean)).dotted().color(3));
    let achieved = Chart::new(
        "Achieved rate against load",
        offered(),
        Axis::from_zero("achieved requests/s", Quantity::PerSecond),
    )
    .series(Series::line("achieved", all(&|trial| trial.achieved_rate_per_s)).dotted())
    .rule(part.saturation_rate_per_s.unwrap_or(f64::NAN), "saturation")
    .about(part.knee.map_or(String::new(), |knee| {
        let knee = capacity::load(&part.unit, knee);
        format!("The knee, the highest ratio of achieved rate to mean response time, is at {knee}.")
    }));
    let cpu = Chart::new("CPU against load", offered(), Axis::from_zero("share of the available CPU", Quantity::Share))
        .series(Series::line("server", all(&|trial| trial.cpu_busy.unwrap_or(f64::NAN))).dotted())
        .series(Series::line("generator", all(&|trial| trial.loop_busy)).dashed().dotted().color(5))
        .about("Server: of its cores or its CPU limit. Generator: of its own time.");
    Section::new("Against load")
        .figure(framed(times))
        .figure(framed(flight))
        .figure(framed(achieved))
        .figure(framed(cpu))
}

fn bracket(part: &CapacityPart) -> (Option<f64>, Option<f64>) {
    let found = part.searches.first().or(part.partial_result.as_ref());
    found.map_or((None, None), |bracket| (bracket.lower, bracket.upper))
}

/// The confirmation trial, second by second.
fn confirmation(part: &CapacityPart) -> Section {
    let confirmed = part.trials.iter().filter(|trial| trial.stage == "confirmation" && !trial.seconds.is_empty());
    let Some(trial) = confirmed.max_by(|a, b| a.load.total_cmp(&b.load)) else { return Section::new("") };
    let of = |value: &dyn Fn(&schema::TrialSecond) -> Option<f64>| -> Vec<(f64, f64)> {
        trial.seconds.iter().filter_map(|second| Some((f64::from(second.second), value(second)?))).collect()
    };
    let times = Chart::over_time("Mean response time in the confirmation", "mean", Quantity::Nanoseconds)
        .series(Series::seconds("mean", of(&|second| second.response_mean_ns)));
    let flight = Chart::over_time("In flight in the confirmation", "in flight", Quantity::Count)
        .series(Series::seconds("in flight", of(&|second| Some(second.in_flight))));
    let cpu = Chart::over_time("CPU in the confirmation", "cores", Quantity::Count)
        .series(Series::seconds("server", of(&|second| second.cpu_s)));
    let memory = Chart::over_time("Memory in the confirmation", "resident", Quantity::Bytes)
        .series(Series::seconds("server", of(&|second| second.rss_bytes.map(|rss| rss as f64))));
    Section::new("Confirmation")
        .text(format!("{} for {}: {}.", capacity::load(&part.unit, trial.load), span(trial.actual_s), verdict(trial)))
        .figure(times)
        .figure(flight)
        .figure(cpu)
        .figure(memory)
}

fn verdict(trial: &TrialPart) -> String {
    match trial.verdict.as_str() {
        "good" => "sustained".into(),
        "bad" => format!("not sustained ({})", trial.why.join("; ")),
        other => format!("{other} ({})", trial.why.join("; ")),
    }
}

fn each(part: &CapacityPart) -> Section {
    if part.each.is_empty() {
        return Section::new("");
    }
    let table =
        part.each.iter().map(|each| capacity::distance(each, &part.unit)).fold(Table::new(&capacity::EACH), Table::row);
    let quantity = if part.unit == "1/s" { Quantity::PerSecond } else { Quantity::Count };
    let bars = part.each.iter().fold(
        Bars::new(format!("{} at each distance", capacity::title(&part.find)), quantity, &["capacity"]),
        |bars, each| bars.row_within(each.name.clone(), &[(each.result, each.interval)]),
    );
    let bound = part.each.iter().fold(Table::new(&["distance", "limited by", ""]).left(&[1, 2]), |table, each| {
        table.row([
            each.name.clone(),
            capacity::bound_name(&each.bound_by.name).to_owned(),
            each.bound_by.words.clone(),
        ])
    });
    Section::new("At each distance").figure(bars).table(table).table(bound)
}

fn trials(part: &CapacityPart) -> Section {
    let table = part
        .trials
        .iter()
        .map(|trial| capacity::trial(trial, &part.unit))
        .fold(Table::new(&capacity::TRIALS).left(&[7]), Table::row);
    let head = ["load", "trial", "cores used", "receive processing", "cores available", "throttled", "memory"];
    let server =
        part.trials.iter().filter_map(|trial| capacity::server(trial, &part.unit)).fold(Table::new(&head), Table::row);
    Section::new("Every trial").table(table).folded("Server in each trial", Section::new("").table(server))
}
