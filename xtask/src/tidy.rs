//! Project rules that neither rustfmt nor clippy checks. Each violation is one line: file, line, reason.
//!
//! [`lines`] checks each source file, [`manifests`] the Cargo.toml files and the dependencies of crates, [`binaries`]
//! that every test file belongs to a test binary, [`words`] that no words of the old vocabulary are used. [`source`]
//! separates code from comments and literals.

mod binaries;
mod lines;
mod manifests;
mod source;
mod words;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Relative to the workspace.
    file: String,
    /// From 1.
    line: usize,
    why: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.why)
    }
}

/// Checks the whole workspace and prints all violations.
///
/// # Errors
/// A rule is violated, or a file cannot be read.
pub fn run(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    for folder in ["crates", "xtask"] {
        collect(&root.join(folder), &mut files)?;
    }
    files.sort();
    let mut violations = Vec::new();
    let mut sources = 0;
    for path in &files {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
        if name.ends_with(".rs") {
            sources += 1;
            violations.extend(lines::check(&name, &text));
        } else {
            violations.extend(manifests::check(&name, &text));
        }
    }
    violations.extend(binaries::check(root)?);
    violations.extend(words::check(root)?);
    for violation in &violations {
        println!("{violation}");
    }
    match violations.len() {
        0 => {
            println!("{sources} sources are tidy");
            Ok(())
        }
        found => bail!("{found} violations of the rules"),
    }
}

/// Sources and manifests below `folder`, without build outputs.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let reading = || format!("read {}", folder.display());
    for entry in fs::read_dir(folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let (path, kind) = (entry.path(), entry.file_type().with_context(reading)?);
        if kind.is_dir() {
            if entry.file_name() != "target" {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") || entry.file_name() == "Cargo.toml" {
            files.push(path);
        }
    }
    Ok(())
}

/// Crates that use no descriptor, thread, clock or environment of their own: callers pass these in.
const CORES: &[&str] =
    &["explain", "load", "polymix", "path", "stats", "watch", "wire", "http1", "field-compression", "schema", "units"];

/// The crate a file belongs to: `crates/NAME/..` or `xtask`.
fn crate_of(file: &str) -> &str {
    let inside = file.strip_prefix("crates/").unwrap_or(file);
    inside.split('/').next().unwrap_or(inside)
}
