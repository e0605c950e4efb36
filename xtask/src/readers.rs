//! Installs the programs that tests use as readers of Yamabiko's files and that Debian does not package: DuckDB,
//! polars, a Jupyter kernel, an OpenTelemetry receiver (rotel), an HTTP/3 client (aioquic) and Kubernetes' schema, from PyPI.
//! `crates/yamabiko/tests/readers/requirements.txt` pins their versions. They are installed into `target/readers`,
//! again after a change of that file.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context as _, Result, bail};

/// Name of the folder below the target folder into which [`make_ready`] installs. Tests find it there, or by the
/// variable [`VARIABLE`].
pub const FOLDER: &str = "readers";
/// Environment variable with the path of the folder.
pub const VARIABLE: &str = "YAMABIKO_READERS";

/// Installs the readers unless they are installed already.
///
/// # Errors
/// A package cannot be downloaded, or python3 is missing or fails.
pub fn make_ready(root: &Path, target: &Path) -> Result<()> {
    let (sources, folder) = (root.join("crates/yamabiko/tests/readers"), target.join(FOLDER));
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    let requirements = sources.join("requirements.txt");
    once_per_content(&folder.join("venv.stamp"), &[&requirements], || {
        let venv = folder.join("venv");
        run_command(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
        let mut pip = Command::new(venv.join("bin/pip"));
        // Wheels only: installing them runs no code of the packages.
        pip.args(["install", "--quiet", "--no-cache-dir", "--disable-pip-version-check", "--only-binary", ":all:"]);
        run_command(pip.arg("--requirement").arg(&requirements))
    })
}

/// Calls `install` unless it succeeded before with the same content of these files.
fn once_per_content(stamp: &Path, files: &[&Path], install: impl FnOnce() -> Result<()>) -> Result<()> {
    let read = |file: &&Path| fs::read_to_string(file).with_context(|| format!("read {}", file.display()));
    let content = files.iter().map(read).collect::<Result<Vec<String>>>()?.concat();
    match fs::read_to_string(stamp) {
        Ok(had) if had == content => return Ok(()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("read {}", stamp.display()));
        }
        _ => {}
    }
    install()?;
    fs::write(stamp, content).with_context(|| format!("write {}", stamp.display()))
}

fn run_command(command: &mut Command) -> Result<()> {
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
            let outcome = once_per_content(&stamp, &[&file], || {
                times += 1;
                if succeeds { Ok(()) } else { bail!("no") }
            });
            (outcome.is_ok(), times)
        };
        assert_eq!(attempt("one", false), (false, 1));
        assert_eq!(attempt("one", true), (true, 2));
        assert_eq!(attempt("one", true), (true, 2));
        assert_eq!(attempt("two", true), (true, 3));
        assert!(once_per_content(&stamp, &[&folder.path().join("missing")], || Ok(())).is_err());
    }
}
