//! What terminal and page say alike of a disk: its tests in words, and where it was not storage that was measured.

use schema::document::CheckState;
use schema::{DiskDocument, DiskTest};

use crate::figures;

/// A test of `disk` in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    name: &'static str,
    about: &'static str,
    /// For plots, which have little room.
    short: &'static str,
    /// Whether Bonnie's table has it.
    bonnies: bool,
}

const fn bonnies(name: &'static str, about: &'static str, short: &'static str) -> Words {
    Words { name, about, short, bonnies: true }
}

const fn need(name: &'static str, about: &'static str, short: &'static str) -> Words {
    Words { name, about, short, bonnies: false }
}

/// In the order of the tables.
const TESTS: [Words; 11] = [
    bonnies("write_per_char", "write, a byte a call", "write, a byte"),
    bonnies("write_per_block", "write, 16 KiB a call", "write, 16 KiB"),
    bonnies("rewrite", "rewrite, 16 KiB", "rewrite"),
    bonnies("read_per_char", "read, a byte a call", "read, a byte"),
    bonnies("read_per_block", "read, 16 KiB a call", "read, 16 KiB"),
    bonnies("seeks", "seeks, 3 at once", "seeks"),
    need("random_read_4k", "4 KiB random reads", "random reads"),
    need("random_read_4k_32", "4 KiB random reads, 32 at once", "random reads, 32"),
    need("random_write_4k", "4 KiB random writes", "random writes"),
    need("random_write_4k_32", "4 KiB random writes, 32 at once", "random writes, 32"),
    need("commits", "4 KiB and fdatasync", "commits"),
];

/// A test in words; one that this version does not know is told by its name.
pub fn about(name: &str) -> &str {
    TESTS.iter().find(|words| words.name == name).map_or(name, |words| words.about)
}

/// One test of a document.
pub(crate) struct Made<'a> {
    pub name: &'a str,
    pub figures: &'a DiskTest,
    /// Whether it was the page cache, or memory, that answered: so says the document's own check.
    pub in_memory: bool,
}

impl Made<'_> {
    /// In words, with what must be known before its figure is believed.
    pub fn label(&self) -> String {
        let about = about(self.name);
        if self.in_memory { format!("{about} ({IN_MEMORY})") } else { about.to_owned() }
    }

    /// The same for a plot.
    pub fn short(&self) -> String {
        let short = TESTS.iter().find(|words| words.name == self.name).map_or(self.name, |words| words.short);
        if self.in_memory { format!("{short} (CACHE)") } else { short.to_owned() }
    }
}

/// What is said beside each figure that is none of storage.
const IN_MEMORY: &str = "PAGE CACHE";

/// Tests as Bonnie makes them.
pub(crate) fn of_bonnie(document: &DiskDocument) -> Vec<Made<'_>> {
    made(document, true)
}

/// The others: what caches and databases ask for; and whatever this version does not know.
pub(crate) fn of_needs(document: &DiskDocument) -> Vec<Made<'_>> {
    let unknown = document.disk.keys().filter(|name| TESTS.iter().all(|words| words.name != name.as_str()));
    let mut needs = made(document, false);
    needs.extend(unknown.filter_map(|name| one(document, name)));
    needs
}

fn made(document: &DiskDocument, bonnies: bool) -> Vec<Made<'_>> {
    TESTS.iter().filter(|words| words.bonnies == bonnies).filter_map(|words| one(document, words.name)).collect()
}

fn one<'a>(document: &'a DiskDocument, name: &'a str) -> Option<Made<'a>> {
    let figures = document.disk.get(name)?;
    let check = format!("{name}: storage measured");
    let failed = |check: &&schema::Check| check.state == CheckState::Failed;
    let in_memory = document.validity.checks.iter().filter(failed).any(|failed| failed.name == check);
    Some(Made { name, figures, in_memory })
}

/// The tests that did not measure storage, in a sentence; nothing if there is none.
pub(crate) fn not_of_storage(document: &DiskDocument) -> Option<String> {
    let all = of_bonnie(document).into_iter().chain(of_needs(document));
    let (mut caught, mut others) = (Vec::new(), 0_usize);
    for test in all {
        if test.in_memory { caught.push(about(test.name)) } else { others += 1 }
    }
    let file_system = setting(document, "file system");
    match (caught.as_slice(), others) {
        ([], _) => None,
        (_, 0) => {
            Some(format!("None of this is the speed of a disk: the page cache or memory answered ({file_system})."))
        }
        (caught, _) => Some(format!(
            "NOT the speed of a disk, since the page cache or memory answered ({file_system}): {}.",
            caught.join("; ")
        )),
    }
}

/// The result in a sentence or two.
pub(crate) fn answer(document: &DiskDocument) -> String {
    let figure = |name: &str, words: &dyn Fn(&DiskTest) -> String| {
        let test = one(document, name)?;
        let cached = if test.in_memory { format!(" ({IN_MEMORY})") } else { String::new() };
        Some(words(test.figures) + &cached)
    };
    let parts = [
        figure("write_per_block", &|test| format!("writes {}", megabytes(test))),
        figure("read_per_block", &|test| format!("reads {}", megabytes(test))),
        figure("seeks", &|test| format!("{} seeks a second", whole(test.iops))),
        figure("random_read_4k", &|test| format!("{} random reads of 4 KiB a second", whole(test.iops))),
        figure("commits", &|test| format!("{} commits a second", whole(test.iops))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let place = format!("{} ({})", setting(document, "folder"), setting(document, "file system"));
    let doubt = not_of_storage(document).map_or(String::new(), |doubt| format!(" {doubt}"));
    match parts.as_slice() {
        [] if document.disk.is_empty() => format!("{place}: nothing was measured."),
        [] => format!("{place}: {} tests.{doubt}", document.disk.len()),
        parts => format!("{place}: {}.{doubt}", parts.join(", ")),
    }
}

/// A fact on what was measured: `folder`, `file system`, `file`, `fio`.
pub(crate) fn setting<'a>(document: &'a DiskDocument, name: &str) -> &'a str {
    document.run.host.settings.get(name).map_or("", String::as_str)
}

/// What both kinds of output say of the figures.
pub(crate) const COUNTED: &str = "Bytes are counted as fio counts them, a KB is 1,000 of them; %CPU is of one core, user and kernel, without \
     the kernel's own threads. What storage itself remembers (a controller's cache, a host below this machine) is not seen from here.";

fn megabytes(test: &DiskTest) -> String {
    format!("{} MB/s", whole(test.bytes_per_s / 1e6))
}

/// A rate with as many digits as say something.
pub(crate) fn whole(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { figures::count(value.round() as u64) }
}

/// A share of a core as Bonnie prints it.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// How much came from storage or went there; what was read ahead makes it more than all.
pub(crate) fn storage(test: &DiskTest) -> String {
    test.storage_share.map(|share| figures::share(share.min(1.0))).unwrap_or_default()
}
