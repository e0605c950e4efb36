//! Texts and tables about a disk that terminal and page have in common: names of tests, and tests answered from memory.

use schema::document::CheckState;
use schema::{DiskDocument, DiskTest};

use crate::figures;

/// Names of a test of `disk`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Words {
    name: &'static str,
    about: &'static str,
    /// Short name, for plots.
    short: &'static str,
    /// Whether it is a test of Bonnie.
    bonnie_test: bool,
}

const fn bonnie_test(name: &'static str, about: &'static str, short: &'static str) -> Words {
    Words { name, about, short, bonnie_test: true }
}

const fn application_test(name: &'static str, about: &'static str, short: &'static str) -> Words {
    Words { name, about, short, bonnie_test: false }
}

/// All tests, in the order of the tables.
const TESTS: [Words; 11] = [
    bonnie_test("write_per_char", "write, 1 byte per call", "write, 1 byte"),
    bonnie_test("write_per_block", "write, 16 KiB per call", "write, 16 KiB"),
    bonnie_test("rewrite", "rewrite, 16 KiB", "rewrite"),
    bonnie_test("read_per_char", "read, 1 byte per call", "read, 1 byte"),
    bonnie_test("read_per_block", "read, 16 KiB per call", "read, 16 KiB"),
    bonnie_test("seeks", "seeks, 3 concurrent", "seeks"),
    application_test("random_read_4k", "4 KiB random reads", "random reads"),
    application_test("random_read_4k_32", "4 KiB random reads, 32 concurrent", "random reads, 32"),
    application_test("random_write_4k", "4 KiB random writes", "random writes"),
    application_test("random_write_4k_32", "4 KiB random writes, 32 concurrent", "random writes, 32"),
    application_test("commits", "4 KiB and fdatasync", "commits"),
];

/// The name of a test for people; an unknown test keeps its own name.
pub fn about(name: &str) -> &str {
    TESTS.iter().find(|words| words.name == name).map_or(name, |words| words.about)
}

/// One test of a document.
pub(crate) struct TestResult<'a> {
    pub name: &'a str,
    pub figures: &'a DiskTest,
    /// Whether the page cache or memory answered, by the check in the document.
    pub in_memory: bool,
}

impl TestResult<'_> {
    /// The name, marked if the figure is not that of storage.
    pub fn label(&self) -> String {
        let about = about(self.name);
        if self.in_memory { format!("{about} ({IN_MEMORY})") } else { about.to_owned() }
    }

    /// The short name for a plot, marked if the figure is not that of storage.
    pub fn short(&self) -> String {
        let short = TESTS.iter().find(|words| words.name == self.name).map_or(self.name, |words| words.short);
        if self.in_memory { format!("{short} (CACHE)") } else { short.to_owned() }
    }
}

/// Mark of a figure that is not that of storage.
const IN_MEMORY: &str = "PAGE CACHE";

/// The tests of Bonnie.
pub(crate) fn bonnie_tests(document: &DiskDocument) -> Vec<TestResult<'_>> {
    results(document, true)
}

/// The other tests: access patterns of caches and databases, and tests that this version does not know.
pub(crate) fn application_tests(document: &DiskDocument) -> Vec<TestResult<'_>> {
    let unknown = document.disk.keys().filter(|name| TESTS.iter().all(|words| words.name != name.as_str()));
    let mut needs = results(document, false);
    needs.extend(unknown.filter_map(|name| one(document, name)));
    needs
}

fn results(document: &DiskDocument, bonnie_test: bool) -> Vec<TestResult<'_>> {
    TESTS
        .iter()
        .filter(|words| words.bonnie_test == bonnie_test)
        .filter_map(|words| one(document, words.name))
        .collect()
}

fn one<'a>(document: &'a DiskDocument, name: &'a str) -> Option<TestResult<'a>> {
    let figures = document.disk.get(name)?;
    let check = format!("{name}: storage measured");
    let failed = |check: &&schema::Check| check.state == CheckState::Failed;
    let in_memory = document.validity.checks.iter().filter(failed).any(|failed| failed.name == check);
    Some(TestResult { name, figures, in_memory })
}

/// The tests that did not measure storage, in a sentence; nothing if there is none.
pub(crate) fn not_of_storage(document: &DiskDocument) -> Option<String> {
    let all = bonnie_tests(document).into_iter().chain(application_tests(document));
    let (mut caught, mut others) = (Vec::new(), 0_usize);
    for test in all {
        if test.in_memory { caught.push(about(test.name)) } else { others += 1 }
    }
    let file_system = setting(document, "file system");
    match (caught.as_slice(), others) {
        ([], _) => None,
        (_, 0) => Some(format!(
            "None of these figures is the speed of a disk: the page cache or memory answered ({file_system})."
        )),
        (caught, _) => Some(format!(
            "NOT the speed of a disk, as the page cache or memory answered ({file_system}): {}.",
            caught.join("; ")
        )),
    }
}

/// The result in a sentence or two, figures first.
pub(crate) fn answer(document: &DiskDocument) -> String {
    let figure = |name: &str, words: &dyn Fn(&DiskTest) -> String| {
        let test = one(document, name)?;
        let cached = if test.in_memory { format!(" ({IN_MEMORY})") } else { String::new() };
        Some(words(test.figures) + &cached)
    };
    let parts = [
        figure("write_per_block", &|test| format!("{} written", megabytes(test))),
        figure("read_per_block", &|test| format!("{} read", megabytes(test))),
        figure("seeks", &|test| format!("{} seeks/s", rounded(test.iops))),
        figure("random_read_4k", &|test| format!("{} random 4 KiB reads/s", rounded(test.iops))),
        figure("commits", &|test| format!("{} commits/s", rounded(test.iops))),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    let place = format!("{} ({})", setting(document, "folder"), setting(document, "file system"));
    let doubt = not_of_storage(document).map_or(String::new(), |doubt| format!(" {doubt}"));
    match parts.as_slice() {
        [] if document.disk.is_empty() => format!("{place}: nothing was measured."),
        [] => format!("{place}: {} tests.{doubt}", document.disk.len()),
        parts => format!("{}; {place}.{doubt}", parts.join(", ")),
    }
}

/// A setting of the measurement: `folder`, `file system`, `file`, `fio`.
pub(crate) fn setting<'a>(document: &'a DiskDocument, name: &str) -> &'a str {
    document.run.host.settings.get(name).map_or("", String::as_str)
}

/// How the figures are counted.
pub(crate) const TERMS: &str = "Bytes as counted by fio; 1 KB is 1,000 bytes. %CPU: of one core, user and kernel, without kernel threads. \
     Caches inside of the storage (a controller, the host of a virtual machine) cannot be detected.";

fn megabytes(test: &DiskTest) -> String {
    format!("{} MB/s", rounded(test.bytes_per_s / 1e6))
}

/// A rate with one decimal below 100, without decimals from 100.
pub(crate) fn rounded(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { figures::count(value.round() as u64) }
}

/// A share of a core in percent, as Bonnie prints it.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share)
}

/// Share of the bytes that storage read or wrote; read-ahead would make it more than 100 %.
pub(crate) fn storage(test: &DiskTest) -> String {
    test.storage_share.map(|share| figures::share(share.min(1.0))).unwrap_or_default()
}
