//! `yamabiko disk`: how fast a folder's storage reads, writes and commits.

use anyhow::{Context, Result};
use ledger::{DiskDocument, DiskTest};
use report::figures;
use store::Book;
use suites::disk::{self, Trial};
use suites::reproduce::Order;
use sys::clock::Clock;
use sys::signal::Interrupts;

use super::bench::{command_line, print};
use crate::args;
use crate::exit::{self, Exit};
use crate::terminal::{self, say};

/// Measures it as typed.
pub fn run(typed: &args::Disk) -> Result<Exit> {
    let plan = typed.plan();
    let interrupts = Interrupts::install()?;
    let passing = tempfile::tempdir().context("a folder for what is not kept")?;
    let book = if typed.no_save { Book::at(passing.path()) } else { Book::open()? };
    let order = Order {
        program: std::env::current_exe().context("the path of this program")?,
        seed: typed.seed,
        command: command_line(),
        started: Clock::start().started(),
    };
    let mut began = false;
    let mut tell = |test: Trial| {
        if typed.json {
            return;
        }
        if !std::mem::replace(&mut began, true) {
            let time = std::time::Duration::from_secs(plan.time().as_secs().max(1));
            say(format_args!(
                "a file of {} in {}, without a name; this takes about {}, longer on a slow disk",
                plan.size,
                plan.directory.display(),
                units::format_duration(time)
            ));
        }
        say(test.about());
    };
    let mut done = disk::run(&plan, &order, &book, &interrupts, &mut tell)?;
    if typed.no_save {
        done.document.run.dir.clear();
        done.document.run.id.clear();
    }
    show(&done.document, typed.json)?;
    Ok(exit_of(&done.document, typed.strict))
}

/// Its status: that of its checks.
pub fn exit_of(document: &DiskDocument, strict: bool) -> Exit {
    match exit::of_validity(&document.validity) {
        Exit::Fine if strict && document.validity.verdict != ledger::Verdict::Valid => Exit::Invalid,
        exit => exit,
    }
}

/// Prints what was measured, now or from the book.
pub fn show(document: &DiskDocument, json: bool) -> Result<()> {
    if json {
        return print(&(serde_json::to_string_pretty(document)? + "\n"));
    }
    let style = terminal::style();
    let made = |bonnies: bool| {
        let tests = Trial::ALL.into_iter().filter(move |test| test.is_bonnies() == bonnies);
        tests.filter_map(|test| Some((test, document.disk.get(test.name())?)))
    };
    let bonnies: Vec<Vec<String>> = made(true).map(|(test, figures)| bonnies_line(test, figures)).collect();
    let needs: Vec<Vec<String>> = made(false).map(|(test, figures)| needs_line(test, figures)).collect();
    let mut table = String::new();
    if !bonnies.is_empty() {
        table += &report::terminal::table(
            &["as Bonnie does", "KB/s", "a second", "%CPU", "from or to storage"],
            &bonnies,
            style,
        );
    }
    if !needs.is_empty() {
        if !table.is_empty() {
            table.push('\n');
        }
        let head = ["caches, databases", "a second", "p50", "p99", "p99.9", "max", "%CPU"];
        table += &report::terminal::table(&head, &needs, style);
    }
    let notes = [
        "Bytes are counted as fio counts them, a KB is 1,000 of them; %CPU is of one core, user and kernel, without the kernel's own threads. \
         What storage itself remembers (a controller's cache, a host below this machine) is not seen from here.",
    ];
    print(&report::terminal::judged(&document.run, &document.validity, &answer(document), &table, &notes, style))
}

/// The result in a sentence.
fn answer(document: &DiskDocument) -> String {
    let settings = &document.run.host.settings;
    let of = |name: &str| settings.get(name).map(String::as_str).unwrap_or_default();
    let figure = |test: Trial| document.disk.get(test.name());
    let parts = [
        figure(Trial::WritePerBlock).map(|test| format!("writes {}", megabytes(test))),
        figure(Trial::ReadPerBlock).map(|test| format!("reads {}", megabytes(test))),
        figure(Trial::Seeks).map(|test| format!("{} seeks a second", whole(test.iops))),
        figure(Trial::RandomRead).map(|test| format!("{} random reads of 4 KiB a second", whole(test.iops))),
        figure(Trial::Commits).map(|test| format!("{} commits a second", whole(test.iops))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    match parts.as_slice() {
        [] => format!("{} ({}): nothing was measured.", of("folder"), of("file system")),
        parts => format!("{} ({}): {}.", of("folder"), of("file system"), parts.join(", ")),
    }
}

fn bonnies_line(test: Trial, figures: &DiskTest) -> Vec<String> {
    vec![
        test.about().to_owned(),
        whole(figures.bytes_per_s / 1e3),
        if test == Trial::Seeks { whole(figures.iops) } else { String::new() },
        percent(figures.cpu),
        figures.storage_share.map(|share| figures::share(share.min(1.0))).unwrap_or_default(),
    ]
}

fn needs_line(test: Trial, figures: &DiskTest) -> Vec<String> {
    let time = |of: fn(&ledger::Quantiles) -> u64| {
        figures.latency_ns.as_ref().map(|times| figures::duration(of(times))).unwrap_or_default()
    };
    vec![
        test.about().to_owned(),
        whole(figures.iops),
        time(|q| q.p50),
        time(|q| q.p99),
        time(|q| q.p99_9),
        time(|q| q.max),
        percent(figures.cpu),
    ]
}

fn megabytes(test: &DiskTest) -> String {
    format!("{:.0} MB/s", test.bytes_per_s / 1e6)
}

fn whole(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { figures::count(value.round() as u64) }
}

fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}
