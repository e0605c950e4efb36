//! `yamabiko demo`: shows the effect of distance in a minute, with one server, one rate and three distances.
//!
//! The Koshien (ENMA) paper (Nishimura et al., about 2001) offered 110 requests a second to the same server over a LAN,
//! over a constant RTT of 48 ms, and over the RTTs of a real audience, and counted concurrent connections (its term:
//! connections in process).

mod page;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use plan::{LoadPlan, PathPlan, Plan, ServerPlan};
use schema::document::{Check, CheckState, Weight};
use schema::{Document, Verdict};
use store::RunStore;
use sys::signal::Interrupts;
use testbed::Outcome;
use units::RequestRate;

use super::bench::print;
use crate::args;
use crate::exit::Exit;
use crate::live_child::LivePage;
use crate::page_file;
use crate::progress::Display;
use crate::terminal::print_message;

const RATE_PER_S: f64 = 110.0;
const CLIENTS: u32 = 100;
const FILE_BYTES: usize = 10 << 10;
const PORT: u16 = 8080;

struct Experiment {
    label: &'static str,
    name: &'static str,
    profile: Option<&'static str>,
    rtt: Option<Duration>,
    warmup: Duration,
    paper: &'static str,
}

const EXPERIMENTS: [Experiment; 3] = [
    Experiment {
        label: "LAN, RTT 0.2 ms",
        name: "demo-lan",
        profile: Some("lan"),
        rtt: None,
        warmup: Duration::from_secs(1),
        paper: "4 to 6",
    },
    Experiment {
        label: "RTT 48 ms for all",
        name: "demo-48ms",
        profile: None,
        rtt: Some(Duration::from_millis(48)),
        warmup: Duration::from_secs(2),
        paper: "about 25",
    },
    Experiment {
        label: "Koshien's distances",
        name: "demo-koshien",
        profile: Some("koshien-2001"),
        rtt: None,
        warmup: Duration::from_secs(7),
        paper: "around 60",
    },
];

/// Measures at the three distances and prints the table.
pub fn run(demo: &args::Demo) -> Result<Exit> {
    let live = LivePage::start(&demo.show, true)?;
    let interrupts = Interrupts::install()?;
    let folder = tempfile::tempdir().context("a temporary folder for the demo's file")?;
    let mut file = std::fs::File::create(folder.path().join("10k.bin")).context("the demo's file")?;
    file.write_all(&[b'y'; FILE_BYTES]).context("the demo's file")?;
    drop(file);

    let run_store = RunStore::open()?;
    if !demo.json {
        print_message(format_args!(
            "One server, {RATE_PER_S:.0} requests/s for a 10 KB file, one connection each, {CLIENTS} clients; only \
             the distance changes."
        ));
    }
    let mut outcomes = Vec::new();
    for experiment in &EXPERIMENTS {
        let plan = plan(experiment, demo, folder.path())?;
        let mut display = live.observing(Display::new(experiment.label, demo.json));
        outcomes.push(testbed::bench(&plan, "yamabiko demo", Some(&run_store), &interrupts, &mut display)?);
        if interrupts.count() > 0 {
            break;
        }
    }
    if demo.json {
        let documents: Vec<&Document> = outcomes.iter().map(|outcome| &outcome.document).collect();
        print(&(serde_json::to_string_pretty(&documents)? + "\n"))?;
    } else {
        print(&table(&outcomes))?;
        if let Some(path) = page::write(&outcomes)? {
            print(&format!("\nWith charts, in a browser:\n{}\n", page_file::url(&path)))?;
        }
    }
    let invalid = outcomes.iter().any(|outcome| outcome.document.validity.verdict == Verdict::Invalid);
    Ok(if invalid { Exit::Invalid } else { Exit::Success })
}

fn plan(experiment: &Experiment, demo: &args::Demo, folder: &Path) -> Result<Plan> {
    let program = std::env::current_exe().context("the path of this program")?;
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    let plan = Plan {
        name: experiment.name.into(),
        seed: demo.seed,
        load: LoadPlan {
            close: true,
            rate: RequestRate::from_per_second(RATE_PER_S),
            clients: CLIENTS,
            duration: Some(demo.duration),
            warmup: experiment.warmup,
            ..LoadPlan::get(&format!("http://server:{PORT}/10k.bin"))
        },
        path: Some(PathPlan {
            profile: experiment.profile.map(str::to_owned),
            rtt: experiment.rtt,
            ..PathPlan::default()
        }),
        server: Some(ServerPlan {
            command: format!("exec {} serve {} --listen 198.18.0.1:{PORT}", quoted(&program), quoted(folder)),
            ..ServerPlan::default()
        }),
        ..Plan::default()
    };
    plan.check()?;
    Ok(plan)
}

/// Cells of a run in table and page: label, configured and measured RTT, concurrent connections measured and published,
/// median and 99th percentile of the response time, verdict.
fn rows(outcomes: &[Outcome]) -> Vec<[String; 8]> {
    let ms = |ns: u64| {
        let ms = ns as f64 / 1e6;
        if ms < 10.0 { format!("{ms:.2} ms") } else { format!("{ms:.0} ms") }
    };
    let row = |(experiment, outcome): (&Experiment, &Outcome)| {
        let document = &outcome.document;
        let (load, path) = (document.load.as_ref()?, document.path.as_ref()?);
        Some([
            experiment.label.to_owned(),
            ms(path.configured_rtt_ns.p50),
            path.measured_rtt_ns.map_or("-".into(), |rtt| ms(rtt.p50)),
            format!("{:.1}", load.connections.mean),
            experiment.paper.to_owned(),
            ms(load.response_time_ns.p50),
            ms(load.response_time_ns.p99),
            document.validity.verdict.name().to_owned(),
        ])
    };
    EXPERIMENTS.iter().zip(outcomes).filter_map(row).collect()
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "\n{:<20} {:>10} {:>10}   {:>23}   {:>10} {:>10}   {}\n{:<20} {:>10} {:>10}   {:>11} {:>11}   {:>10} {:>10}\n",
        "",
        "configured",
        "measured",
        "concurrent connections",
        "response",
        "time",
        "result",
        "",
        "RTT median",
        "RTT median",
        "measured",
        "published",
        "median",
        "p99"
    );
    for [label, configured, measured, here, paper, median, p99, verdict] in rows(outcomes) {
        text.push_str(&format!(
            "{label:<20} {configured:>10} {measured:>10}   {here:>11} {paper:>11}   {median:>10} {p99:>10}   {verdict}\n"
        ));
    }
    for note in NOTES {
        text.push('\n');
        for line in wrapped(note, COLUMNS) {
            text.push_str(&line);
            text.push('\n');
        }
    }
    for (experiment, outcome) in EXPERIMENTS.iter().zip(outcomes) {
        if let Some(sentence) = worst_check(experiment.label, &outcome.document) {
            text.push('\n');
            text.push_str(&wrapped(&sentence, COLUMNS).join("\n"));
            text.push('\n');
        }
    }
    if let Some(last) = outcomes.last().filter(|outcome| !outcome.document.run.dir.is_empty()) {
        text.push_str(&format!("\nFull reports: yamabiko runs; yamabiko report {}\n", last.document.run.id));
    }
    text
}

/// The worst failed check of a run as a sentence, the others by name.
fn worst_check(label: &str, document: &Document) -> Option<String> {
    let validity = &document.validity;
    let has_failed = |check: &&Check| matches!(check.state, CheckState::Failed | CheckState::CouldNotRun);
    let mut failed_checks: Vec<&Check> = validity.checks.iter().filter(has_failed).collect();
    let excess = |check: &Check| match (check.value, check.limit) {
        (Some(value), Some(limit)) if limit > 0.0 => value / limit,
        _ => 0.0,
    };
    failed_checks.sort_by(|a, b| {
        let invalid = |check: &Check| check.weight == Weight::Invalid;
        invalid(b).cmp(&invalid(a)).then(excess(b).total_cmp(&excess(a)))
    });
    let (worst, others) = failed_checks.split_first()?;
    let mut text = format!("{label} is {}: {} ({}).", validity.verdict.name(), worst.why, worst.name);
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(|check| check.name.as_str()).collect();
        text.push_str(&format!(" Also {}: yamabiko report {}", names.join(", "), document.run.id));
    }
    Some(text)
}

/// Lines of at most `width` columns, broken between words.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.len() + 1 + word.len() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Explains the figures, and why they differ from those of 2001.
const NOTES: [&str; 2] = [
    "Same server, same rate: the more distant and varied its users are, the more concurrent connections it has. A \
     benchmark on a LAN does not show this.",
    "The published figures are higher because that server took about 45 ms per request even without distance, and \
     its TCP had an initial window of 2 segments, so 10 KB took two more round trips; today's initial window of 10 \
     segments carries them in one flight. Add --server-tcp initcwnd=2,cc=reno to a bench for TCP as in 2001. \
     Koshien's distances are fitted to the paper's published figures, not measured.",
];

/// Width of the table, in characters.
const COLUMNS: usize = 118;
