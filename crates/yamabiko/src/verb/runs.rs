//! `yamabiko runs`: what is stored, and its upkeep.

mod carry;
mod condition;
mod delete;
mod moment;
mod search;

use anyhow::Result;
use store::{CatalogueUse, DiskUse, Listing, RunEntry, RunStore};

pub use self::condition::Condition;
pub use self::moment::Moment;
use super::bench::print;
use crate::args::{self, RunsWhat, Shown};
use crate::exit::Exit;
use crate::terminal::{self, say};

/// Lists the runs, newest last, or does what is asked with them.
pub fn run(arguments: &args::Runs) -> Result<Exit> {
    let book = RunStore::open()?;
    match &arguments.what {
        None => show(&listed(&book, arguments.shown)?, arguments.shown),
        Some(RunsWhat::Search(search)) => {
            let mut listing = listed(&book, search.shown)?;
            search::keep(&mut listing.entries, search);
            if listing.entries.is_empty() && !search.shown.json {
                print("no run matches\n")?;
                return Ok(Exit::Success);
            }
            show(&listing, search.shown)
        }
        Some(RunsWhat::Tag(tag)) => {
            let dir = book.find(&tag.run)?;
            let tags = if tag.tags.is_empty() {
                store::read_tags(&dir)
            } else {
                store::change_tags(book.root(), &dir, &tag.tags, &[])?
            };
            tagged(&dir, &tags)
        }
        Some(RunsWhat::Untag(untag)) => {
            let dir = book.find(&untag.run)?;
            let taken = if untag.all { store::read_tags(&dir) } else { untag.tags.clone() };
            tagged(&dir, &store::change_tags(book.root(), &dir, &[], &taken)?)
        }
        Some(RunsWhat::Delete(delete)) => delete::run(&book, delete),
        Some(RunsWhat::Export(export)) => carry::export(&book, export),
        Some(RunsWhat::Import(import)) => carry::import(&book, import),
        Some(RunsWhat::Du(du)) => disk_use(&book, du),
        Some(RunsWhat::Rebuild) => {
            let listing = book.rebuild()?;
            say(format_args!("{} runs read; the catalogue of {} is rebuilt", listing.read, book.root().display()));
            Ok(Exit::Success)
        }
        Some(RunsWhat::Columns) => {
            print(&store::columns_page())?;
            Ok(Exit::Success)
        }
        Some(RunsWhat::Names) => {
            // Shells read these: a folder that somebody renamed to something else is left out.
            let plain = |id: &String| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let names = book.dirs()?.iter().map(|dir| name(dir)).filter(plain).collect::<Vec<_>>();
            print(&names.iter().map(|name| format!("{name}\n")).collect::<String>())?;
            Ok(Exit::Success)
        }
    }
}

fn listed(book: &RunStore, shown: Shown) -> Result<Listing> {
    let listing = if shown.no_catalogue { book.listing_of_folders()? } else { book.listing()? };
    if let CatalogueUse::Without(why) | CatalogueUse::Unwritten(why) = &listing.catalogue
        && listing.read > SLOW
    {
        let why = report::figures::plain(why);
        say(format_args!("yamabiko: no catalogue ({why}); {} folders were read instead", listing.read));
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

fn tagged(dir: &std::path::Path, tags: &[String]) -> Result<Exit> {
    let tags = if tags.is_empty() { "no tags".to_owned() } else { tags.join(" ") };
    print(&format!("{}: {tags}\n", name(dir)))?;
    Ok(Exit::Success)
}

fn disk_use(book: &RunStore, du: &args::Du) -> Result<Exit> {
    let dirs = if du.runs.is_empty() {
        book.dirs()?
    } else {
        du.runs.iter().map(|asked| book.find(asked)).collect::<store::Result<_>>()?
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

/// A run's name, as it may be printed.
fn name(dir: &std::path::Path) -> String {
    report::figures::plain(&dir.file_name().unwrap_or_default().to_string_lossy())
}

/// Folders that take no time worth a word.
const SLOW: usize = 1000;
