//! Names of test binaries, found in the folders of crates as cargo finds them.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The module that the command's tests share.
const SHARED: &str = "support";

/// The names of the real-network tests: `real_*.rs` in `folder`, in order.
pub fn real_targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = targets_of(folder)?;
    names.retain(|name| is_real(name));
    if names.is_empty() {
        bail!("no real_*.rs in {}: nothing would be tested", folder.display());
    }
    Ok(names)
}

/// The names of all other test binaries of the crates in `folder`, in order. A name that several crates use occurs once
/// and stands for all of them.
pub fn ordinary_targets(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let crate_ = entry.with_context(|| format!("read {}", folder.display()))?.path();
        let manifest = crate_.join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).with_context(|| format!("read {}", manifest.display()))?;
        let has_path = text.split("[[test]]").skip(1).any(|section| {
            section.lines().take_while(|line| !line.starts_with('[')).any(|line| line.trim_start().starts_with("path"))
        });
        if has_path {
            bail!("{}: a test has a `path`: it would not be found here, and not run", manifest.display());
        }
        let tests = crate_.join("tests");
        if tests.is_dir() {
            names.extend(targets_of(&tests)?);
        }
    }
    names.retain(|name| !is_real(name) && name != SHARED);
    names.sort();
    names.dedup();
    if names.is_empty() {
        bail!("no tests in {}: nothing would be tested", folder.display());
    }
    Ok(names)
}

/// The test binaries of a folder as cargo finds them: `NAME.rs` and `NAME/main.rs`, in order.
pub fn targets_of(folder: &Path) -> Result<Vec<String>> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.with_context(|| format!("read {}", folder.display()))?.path();
        let is_target = path.join("main.rs").is_file() || path.extension().is_some_and(|extension| extension == "rs");
        if let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()).filter(|_| is_target) {
            names.push(stem.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn is_real(name: &str) -> bool {
    name.starts_with("real_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn real_test_binaries_are_found_by_name() {
        let folder = tempfile::tempdir().unwrap();
        assert!(real_targets(folder.path()).is_err());
        for name in ["real_b.rs", "real_a.rs", "support.rs", "real_notes.md", "unreal_c.rs"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(real_targets(folder.path()).unwrap(), ["real_a", "real_b"]);
    }

    #[test]
    fn ordinary_test_binaries_are_found_as_cargo_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            std::fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            std::fs::write(at(name), text).unwrap();
        };
        for name in
            ["one/tests/real_a.rs", "one/tests/b.rs", "one/tests/support.rs", "one/tests/b/inner.rs", "two/tests/b.rs"]
        {
            write(name, "");
        }
        write("two/tests/c/main.rs", "");
        write("two/tests/notes/page.md", "");
        write("three/Cargo.toml", "");
        write("one/Cargo.toml", "[[test]]\nname = \"b\"\n[lib]\npath = \"there.rs\"\n");
        write("two/Cargo.toml", "[[test]]\nname = \"c\"\nharness = false\n");
        assert_eq!(ordinary_targets(folder.path()).unwrap(), ["b", "c"]);
        // A test with a `path` is an error, since it would not be found.
        write("two/Cargo.toml", "[[test]]\nname = \"c\"\npath = \"elsewhere/c.rs\"\n");
        assert!(ordinary_targets(folder.path()).unwrap_err().to_string().contains("two/Cargo.toml"));
    }
}
