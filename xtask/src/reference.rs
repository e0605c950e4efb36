//! The pages of `docs/reference`. The tests that hold them to the definitions write them, too, where this variable asks for it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

const UPDATE: &str = "UPDATE_REFERENCE";

/// A page's package, the targets that have its test, and the test.
const PAGES: [(&str, &str, &str); 2] =
    [("plan", "--lib", "the_page_of_plan_keys_is_current"), ("yamabiko", "--bins", "the_page_of_options_is_current")];

/// Writes the pages.
pub fn run(root: &Path) -> Result<()> {
    for (package, targets, test) in PAGES {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root).env(UPDATE, "1");
        cargo.args(["test", "--quiet", "--package", package, targets, test]);
        ensure!(cargo.status().context("start cargo")?.success(), "the page of {package} was not written");
    }
    Ok(())
}
