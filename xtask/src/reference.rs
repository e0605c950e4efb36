//! Generates the pages of `docs/reference`. The tests that compare the pages with the definitions write them if the
//! variable [`UPDATE`] is set.

use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const UPDATE: &str = "UPDATE_REFERENCE";

/// Pages: the page, the package and the targets with its test, and the test's name.
const PAGES: [(&str, &str, &str, &str); 2] = [
    ("docs/reference/plan.md", "plan", "--lib", "the_page_of_plan_keys_is_current"),
    ("docs/reference/options.md", "yamabiko", "--bins", "the_page_of_options_is_current"),
];

/// Writes the pages.
///
/// # Errors
/// A page was not written. Its old version is then deleted; git has it.
pub fn run(root: &Path) -> Result<()> {
    for (page, package, targets, test) in PAGES {
        // `cargo test` also succeeds if the filter matches no test, so check that the page exists.
        let file = root.join(page);
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error).context(format!("remove {page}")),
            _ => {}
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root).env(UPDATE, "1");
        cargo.args(["test", "--quiet", "--package", package, targets, test]);
        let is_ok = cargo.status().context("start cargo")?.success();
        ensure!(is_ok && file.is_file(), "{page} was not written: cargo test --package {package} {targets} {test}");
    }
    Ok(())
}
