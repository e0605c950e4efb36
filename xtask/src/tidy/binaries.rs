//! Rules about the test binaries of the command, each of which joins several test files.
//!
//! ```text
//!   crates/yamabiko/Cargo.toml     [[test]] name = "experiments"    [[test]] name = "real_path", required-features
//!                                            |                                |
//!   tests/                         experiments.rs: mod ab; ..       real_path.rs: mod net; ..
//!                                            |                                |
//!                                  experiments/ab.rs                real_path/net.rs
//! ```
//!
//! cargo builds the binaries that the manifest declares, and rustc the modules that a binary's root declares. An
//! undeclared file is not built, which looks as if its tests had passed. A test that needs the real network must not be
//! in a binary that plain `cargo test` runs.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Violation;
use super::source::code_only;

/// Test files that would never run, and real-network tests that plain `cargo test` would run.
pub fn check(root: &Path) -> Result<Vec<Violation>> {
    let mut found = Vec::new();
    let folder = root.join(COMMAND);
    let tests = folder.join("tests");
    if !tests.is_dir() {
        return Ok(found);
    }
    let manifest =
        fs::read_to_string(folder.join("Cargo.toml")).with_context(|| format!("read {COMMAND}/Cargo.toml"))?;
    let binaries = binaries(&manifest);
    let (files, folders) = inside(&tests)?;
    let mut add = |file: &str, why: String| {
        found.push(Violation { file: format!("{COMMAND}/tests/{file}"), line: 1, why });
    };
    for name in files.iter().filter(|name| *name != SHARED) {
        match binaries.iter().find(|(binary, _)| binary == name) {
            None => add(&format!("{name}.rs"), format!("its tests never run: Cargo.toml has no [[test]] `{name}`")),
            Some((_, false)) if is_real(name) => {
                let why = format!("`{name}` needs required-features = [\"real-network\"] in Cargo.toml");
                add(&format!("{name}.rs"), why);
            }
            Some(_) => {}
        }
    }
    for name in folders.iter().filter(|name| *name != SHARED) {
        // A folder without a root declares none of its files.
        let text = fs::read_to_string(tests.join(format!("{name}.rs"))).unwrap_or_default();
        let modules = modules(&text);
        for file in inside(&tests.join(name))?.0 {
            let shown = format!("{name}/{file}.rs");
            if !modules.contains(&file) {
                add(&shown, format!("its tests never run: tests/{name}.rs has no `mod {file};`"));
            }
            if is_real(&file) && !is_real(name) {
                add(
                    &shown,
                    format!("a real-network test in `{name}`, which runs without the feature: see tests/real_*.rs"),
                );
            }
        }
    }
    // Files that a root includes by `#[path = ..]`.
    for name in files.iter().filter(|name| !is_real(name)) {
        let text = fs::read_to_string(tests.join(format!("{name}.rs"))).context("read a test")?;
        if text.lines().any(|line| line.trim_start().starts_with("#[path") && line.contains("real_")) {
            add(&format!("{name}.rs"), format!("a real-network test in `{name}`, which runs without the feature"));
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(found)
}

/// The crate that declares its test binaries in its manifest; in all other crates cargo finds them.
const COMMAND: &str = "crates/yamabiko";

/// The module that the tests share; it has no tests.
const SHARED: &str = "support";

fn is_real(name: &str) -> bool {
    name.starts_with("real_")
}

/// Names of the sources and of the folders in `folder`, without their endings.
fn inside(folder: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let reading = || format!("read {}", folder.display());
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).with_context(reading)? {
        let entry = entry.with_context(reading)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if entry.file_type().with_context(reading)?.is_dir() {
            folders.push(name);
        } else if let Some(name) = name.strip_suffix(".rs") {
            files.push(name.to_owned());
        }
    }
    Ok((files, folders))
}

/// The modules that a root declares, one a line, as rustfmt formats them.
fn modules(root: &str) -> Vec<String> {
    let code = code_only(root);
    let names = code.lines().filter_map(|line| line.trim().strip_prefix("mod ")?.strip_suffix(';'));
    names.map(str::to_owned).collect()
}

/// Names of the [[test]] targets, and whether each requires the feature `real-network`.
fn binaries(manifest: &str) -> Vec<(String, bool)> {
    let mut binaries = Vec::new();
    for section in manifest.split("\n[") {
        if !section.trim_start_matches('[').starts_with("test]]") {
            continue;
        }
        let value = |key: &str| {
            let line = section.lines().find_map(|line| line.trim().strip_prefix(key))?;
            line.trim_start().strip_prefix('=').map(str::trim)
        };
        if let Some(name) = value("name") {
            let real = value("required-features").is_some_and(|features| features.contains("\"real-network\""));
            binaries.push((name.trim_matches('"').to_owned(), real));
        }
    }
    binaries
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The files that break a rule, in a crate with this manifest and these test files.
    fn violating_files(manifest: &str, files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        let tests = root.path().join(COMMAND).join("tests");
        for (name, text) in files {
            let file = tests.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        fs::write(root.path().join(COMMAND).join("Cargo.toml"), manifest).unwrap();
        let found = check(root.path()).unwrap();
        found.iter().map(|violation| violation.file.split_once("tests/").unwrap().1.to_owned()).collect()
    }

    const REAL: &str = "[features]\nreal-network = []\n\n[[test]]\nname = \"real_a\"\nrequired-features = [\"real-network\"]\n\n\
                        [[test]]\nname = \"plain\"\n\n[[test]]\nname = \"real_b\"\n\n\
                        [[bin]]\nname = \"real_c\"\nrequired-features = [\"real-network\"]\n";

    #[test]
    fn every_test_binary_is_declared_and_real_ones_require_their_feature() {
        let empty = ["plain.rs", "real_a.rs", "support.rs", "support/lab.rs"].map(|name| (name, ""));
        assert_eq!(violating_files(REAL, &empty), Vec::<String>::new());
        let more = [&empty[..], &["real_b.rs", "real_c.rs", "stray.rs"].map(|name| (name, ""))].concat();
        assert_eq!(violating_files(REAL, &more), ["real_b.rs", "real_c.rs", "stray.rs"]);
    }

    #[test]
    fn every_test_file_is_a_module_of_its_binary() {
        let named = [("plain.rs", "mod support;\nmod plain {\n    mod one;\n}\n"), ("plain/one.rs", "")];
        assert_eq!(violating_files(REAL, &named), Vec::<String>::new());
        assert_eq!(violating_files(REAL, &[&named[..], &[("plain/two.rs", "")]].concat()), ["plain/two.rs"]);
        assert_eq!(violating_files(REAL, &[("plain.rs", "// mod one;"), ("plain/one.rs", "")]), ["plain/one.rs"]);
        assert_eq!(violating_files(REAL, &[("plain.rs", ""), ("other/one.rs", "")]), ["other/one.rs"]);
    }

    #[test]
    fn real_tests_are_not_in_ordinary_binaries() {
        let named = [("plain.rs", "mod plain {\n    mod real_one;\n}\n"), ("plain/real_one.rs", "")];
        assert_eq!(violating_files(REAL, &named), ["plain/real_one.rs"]);
        let real = [("real_a.rs", "mod real_a {\n    mod real_one;\n}\n"), ("real_a/real_one.rs", "")];
        assert_eq!(violating_files(REAL, &real), Vec::<String>::new());
        let by_path = [("plain.rs", "#[path = \"real_a/one.rs\"]\nmod one;\n"), ("real_a.rs", "")];
        assert_eq!(violating_files(REAL, &by_path), ["plain.rs"]);
    }
}
