//! `yamabiko runs`: lists, searches, tags, exports and deletes stored runs.

mod archive;
mod condition;
mod delete;
mod search;
mod time_span;

use anyhow::Result;
use store::{CatalogueUse, DiskUse, Listing, RunEntry, RunStore};

pub use self::condition::Condition;
pub use self::time_span::TimeSpan;
use super::bench::print;
use crate::args::{self, RunsWhat, Shown};
use crate::exit::Exit;
use crate::terminal::{self, print_message};

/// Lists the runs, newest last, or runs a subcommand.
pub fn run(arguments: &args::Runs) -> Result<Exit> {
    let run_store = RunStore::open()?;
    match &arguments.what {
        None => show(&read_listing(&run_store, arguments.shown)?, arguments.shown),
        Some(RunsWhat::Search(search)) => {
            let mut listing = read_listing(&run_store, search.shown)?;
            search::retain_matching(&mut listing.entries, search);
            if listing.entries.is_empty() && !search.shown.json {
                print("no run matches\n")?;
                return Ok(Exit::Success);
            }
            show(&listing, search.shown)
        }
        Some(RunsWhat::Tag(tag)) => {
            let dir = run_store.find(&tag.run)?;
            let tags = if tag.tags.is_empty() {
                store::read_tags(&dir)
            } else {
                store::change_tags(run_store.root(), &dir, &tag.tags, &[])?
            };
            print_tags(&dir, &tags)
        }
        Some(RunsWhat::Untag(untag)) => {
            let dir = run_store.find(&untag.run)?;
            let removed = if untag.all { store::read_tags(&dir) } else { untag.tags.clone() };
            print_tags(&dir, &store::change_tags(run_store.root(), &dir, &[], &removed)?)
        }
        Some(RunsWhat::Delete(delete)) => delete::run(&run_store, delete),
        Some(RunsWhat::Export(export)) => archive::export(&run_store, export),
        Some(RunsWhat::Import(import)) => archive::import(&run_store, import),
        Some(RunsWhat::Du(du)) => disk_use(&run_store, du),
        Some(RunsWhat::Rebuild) => {
            let listing = run_store.rebuild()?;
            print_message(format_args!(
                "{} runs read; the catalogue of {} is rebuilt",
                listing.read,
                run_store.root().display()
            ));
            Ok(Exit::Success)
        }
        Some(RunsWhat::Columns) => {
            print(&store::columns_page())?;
            Ok(Exit::Success)
        }
        Some(RunsWhat::Names) => {
            // Shell completion reads the names: a renamed folder with other characters is left out.
            let plain = |id: &String| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let names = run_store.dirs()?.iter().map(|dir| name(dir)).filter(plain).collect::<Vec<_>>();
            print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
            Ok(Exit::Success)
        }
    }
}

fn read_listing(run_store: &RunStore, shown: Shown) -> Result<Listing> {
    let listing = if shown.no_catalogue { run_store.listing_of_folders()? } else { run_store.listing()? };
    if let CatalogueUse::Without(why) | CatalogueUse::Unwritten(why) = &listing.catalogue
        && listing.read > UNREPORTED_READS_MAX
    {
        let why = report::figures::plain(why);
        print_message(format_args!("yamabiko: no catalogue ({why}); {} folders were read instead", listing.read));
    }
    Ok(listing)
}

fn show(listing: &Listing, shown: Shown) -> Result<Exit> {
    if shown.json {
        print(&(report::json::runs(&listing.entries, sentence)? + "\n"))?;
    } else {
        print(&report::terminal::runs(&listing.entries, sentence, terminal::style()))?;
    }
    Ok(Exit::Success)
}

fn sentence(entry: &RunEntry) -> Option<String> {
    report::result_sentence::of_run(&entry.dir)
}

fn print_tags(dir: &std::path::Path, tags: &[String]) -> Result<Exit> {
    let tags = if tags.is_empty() { "no tags".to_owned() } else { tags.join(" ") };
    print(&format!("{}: {tags}\n", name(dir)))?;
    Ok(Exit::Success)
}

fn disk_use(run_store: &RunStore, du: &args::Du) -> Result<Exit> {
    let dirs = if du.runs.is_empty() {
        run_store.dirs()?
    } else {
        du.runs.iter().map(|name| run_store.find(name)).collect::<store::Result<_>>()?
    };
    let mut runs = Vec::with_capacity(dirs.len());
    let mut total = DiskUse::default();
    for dir in dirs {
        let used = store::disk_use(&dir)?;
        total.add(&used);
        runs.push((name(&dir), used));
    }
    runs.sort_by_key(|(_, used)| std::cmp::Reverse(used.bytes));
    if du.json {
        print(&(report::json::disk_use(&runs, &total)? + "\n"))?;
    } else {
        print(&report::terminal::disk_use(&runs, &total, terminal::style()))?;
    }
    Ok(Exit::Success)
}

/// A run's ID, with unprintable characters escaped.
fn name(dir: &std::path::Path) -> String {
    report::figures::plain(&dir.file_name().unwrap_or_default().to_string_lossy())
}

/// Number of folders up to which a listing without the catalogue is fast enough to need no message.
const UNREPORTED_READS_MAX: usize = 1000;
