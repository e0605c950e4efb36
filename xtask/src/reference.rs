//! Generates the pages of `docs/reference`. The tests that compare the pages with the definitions write them if the
//! variable [`UPDATE`] is set.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

const UPDATE: &str = "UPDATE_REFERENCE";

/// Pages: the page, the package and the targets with its test, and the test's name.
const PAGES: [(&str, &str, &str, &str); 2] = [
    ("docs/reference/plan.md", "plan", "--lib", "docs_reference_plan_md_is_current"),
    ("docs/reference/options.md", "yamabiko", "--bins", "page_of_options_is_current"),
];

/// Writes the pages.
///
/// # Errors
/// The test of a page failed or does not exist.
pub fn run(root: &Path) -> Result<()> {
    for (page, package, targets, test) in PAGES {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root).env(UPDATE, "1").stderr(Stdio::inherit());
        cargo.args(["test", "--quiet", "--package", package, targets, test]);
        let output = cargo.output().context("start cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        // `cargo test` also succeeds if the filter matches no test.
        let is_written = output.status.success() && text.contains(" 1 passed;");
        ensure!(is_written, "{page} was not written: cargo test --package {package} {targets} {test}\n{text}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a source below `folder` defines this function.
    fn defines(folder: &Path, function: &str) -> bool {
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).any(|path| {
            if path.is_dir() {
                return defines(&path, function);
            }
            std::fs::read_to_string(&path).is_ok_and(|text| text.contains(&format!("fn {function}()")))
        })
    }

    #[test]
    fn every_page_has_its_test() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for (page, package, _, test) in PAGES {
            assert!(defines(&crates.join(package).join("src"), test), "{page}: no test {test} in {package}");
        }
    }
}
