//! Makes ready what tests read our files with and Debian does not package: DuckDB, polars, a Jupyter kernel and an
//! OpenTelemetry receiver (rotel), from PyPI. Versions are pinned in `crates/yamabiko/tests/readers/requirements.txt`;
//! everything goes into `target/readers`, and is made again when that file changes.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context as _, Result, bail};

/// What [`make_ready`] makes, under the target folder. Tests find it by the variable [`VARIABLE`], or there.
pub const FOLDER: &str = "readers";
/// Tells tests where that is.
pub const VARIABLE: &str = "YAMABIKO_READERS";

/// Installs what is not there yet.
///
/// # Errors
/// A package cannot be had, or python3 is missing or fails: nothing is skipped.
pub fn make_ready(root: &Path, target: &Path) -> Result<()> {
    let (sources, folder) = (root.join("crates/yamabiko/tests/readers"), target.join(FOLDER));
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let requirements = sources.join("requirements.txt");
    once(&folder.join("venv.stamp"), &[&requirements], || {
        let venv = folder.join("venv");
        done(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        let mut pip = Command::new(venv.join("bin/pip"));
        // A wheel or nothing: no package's own code runs to install it.
        pip.args(["install", "--quiet", "--no-cache-dir", "--disable-pip-version-check", "--only-binary", ":all:"]);
        done(pip.arg("--requirement").arg(&requirements))
    })
}

/// Does it, unless it was done with these files as they are.
fn once(stamp: &Path, files: &[&Path], take: impl FnOnce() -> Result<()>) -> Result<()> {
    let read = |file: &&Path| fs::read_to_string(file).with_context(|| format!("read {}", file.display()));
    let wanted = files.iter().map(read).collect::<Result<Vec<String>>>()?.concat();
    match fs::read_to_string(stamp) {
        Ok(had) if had == wanted => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("read {}", stamp.display()));
        }
        _ => {}
    }
    take()?;
    fs::write(stamp, wanted).with_context(|| format!("write {}", stamp.display()))
}

fn done(command: &mut Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("start {command:?}"))?;
    if status.success() { Ok(()) } else { bail!("{command:?}: {status}; its own words are above") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_file_or_a_failure_repeats_the_installation() {
        let folder = tempfile::tempdir().unwrap();
        let (stamp, file) = (folder.path().join("stamp"), folder.path().join("file"));
        let mut times = 0;
        let mut attempt = |text: &str, succeeds: bool| {
            fs::write(&file, text).unwrap();
            let outcome = once(&stamp, &[&file], || {
                times += 1;
                if succeeds { Ok(()) } else { bail!("no") }
            });
            (outcome.is_ok(), times)
        };
        assert_eq!(attempt("one", false), (false, 1));
        assert_eq!(attempt("one", true), (true, 2));
        assert_eq!(attempt("one", true), (true, 2));
        assert_eq!(attempt("two", true), (true, 3));
        assert!(once(&stamp, &[&folder.path().join("missing")], || Ok(())).is_err());
    }
}
