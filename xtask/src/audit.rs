//! Checks third-party crates: their source, licence, number of versions, and known vulnerabilities.
//!
//! Sources, licences and versions are in Cargo.lock and the crates' manifests, so `cargo xtask test` checks them
//! without a network. Known vulnerabilities are in a database that must be fetched: `cargo deny check advisories` is a
//! step of its own that needs the network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

/// The only permitted registry.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Permitted licences of crates: permissive ones.
const LICENCES: [&str; 12] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Crates with several versions, and which other crates require the versions.
const MULTIPLE_VERSIONS: [(&str, &str); 7] = [
    ("base64", "hdrhistogram asks for 0.22"),
    ("cpufeatures", "sha2, and chacha20 of rand 0.10, ask for two"),
    ("getrandom", "ring, tempfile and proptest ask for three"),
    ("itertools", "built twice, once for build scripts"),
    ("rand", "async-nats asks for 0.10, its nkeys for 0.8"),
    ("rand_core", "as rand"),
    ("syn", "derive macros are moving from 2 to 3"),
];

/// Checks sources, licences, versions and vulnerabilities.
///
/// # Errors
/// A crate from another source, without a checksum, or with another licence; unlisted multiple versions; a known
/// vulnerability.
pub fn run(root: &Path) -> Result<()> {
    let lock = fs::read_to_string(root.join("Cargo.lock")).context("read Cargo.lock")?;
    let crates = sources(&lock)?;
    let licences = tree(root, &["--edges", "normal,build", "--format", "{p}|{l}"])?;
    check_licences(&licences)?;
    let several = tree(root, &["--edges", "normal,build", "--duplicates", "--depth", "0"])?;
    check_versions(&several)?;
    println!("audit: {crates} crates, all from one registry, under permissive licences");
    advisories(root)
}

/// Checks that every third-party crate is from the registry and has a checksum; returns the number of crates.
fn sources(lock: &str) -> Result<usize> {
    let mut crates = 0;
    for package in lock.split("[[package]]").skip(1) {
        let field = |name: &str| package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        let Some(source) = field("source") else { continue };
        let name = field("name").unwrap_or("?");
        ensure!(source.trim_matches('"') == REGISTRY, "{name} comes from {source}, not from the registry");
        ensure!(field("checksum").is_some(), "{name} has no checksum in Cargo.lock");
        crates += 1;
    }
    Ok(crates)
}

/// The distinct lines of `cargo tree` for the built crates.
fn tree(root: &Path, arguments: &[&str]) -> Result<BTreeSet<String>> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["tree", "--workspace", "--locked", "--prefix", "none"]).args(arguments).current_dir(root);
    let output = cargo.output().context("start cargo tree")?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim());
    let text = String::from_utf8(output.stdout).context("cargo tree")?;
    Ok(text
        .lines()
        .map(|line| line.trim_end_matches(" (*)").trim().to_owned())
        .filter(|line| !line.is_empty())
        .collect())
}

fn check_licences(lines: &BTreeSet<String>) -> Result<()> {
    let mut wrong = Vec::new();
    for line in lines {
        let (package, licence) = line.split_once('|').unwrap_or((line, ""));
        if !permits(licence) {
            wrong.push(format!("{package}: `{licence}`"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("under no licence that is permitted: {}", wrong.join("; ")) }
}

/// Whether permitted licences satisfy an SPDX expression, or the older form with slashes.
fn permits(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], " ").replace('/', " OR ");
    // AND binds closer than OR, and parentheses contain alternatives in practice: each operand of AND needs a permitted
    // licence.
    let terms: Vec<&str> = if expression.contains('(') { plain.split(" AND ").collect() } else { Vec::new() };
    let alternative = |text: &str| text.split(" AND ").all(|name| LICENCES.contains(&name.trim()));
    match terms.is_empty() {
        true => plain.split(" OR ").any(alternative),
        false => terms.iter().all(|term| term.split(" OR ").any(alternative)),
    }
}

fn check_versions(lines: &BTreeSet<String>) -> Result<()> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for line in lines {
        let mut words = line.split_whitespace();
        if let (Some(name), Some(version)) = (words.next(), words.next()) {
            versions.entry(name).or_default().insert(version);
        }
    }
    let known = |name: &str| MULTIPLE_VERSIONS.iter().any(|(several, _)| *several == name);
    let unknown: Vec<String> = versions
        .iter()
        .filter(|(name, versions)| versions.len() > 1 && !known(name))
        .map(|(name, versions)| format!("{name} ({})", versions.iter().copied().collect::<Vec<_>>().join(", ")))
        .collect();
    ensure!(unknown.is_empty(), "built in in several versions, and not known to be: {}", unknown.join("; "));
    Ok(())
}

/// Checks for known vulnerabilities with cargo-deny, if it and its database are available.
fn advisories(root: &Path) -> Result<()> {
    let mut deny = Command::new("cargo-deny");
    let outcome = deny.args(["--offline", "check", "advisories"]).current_dir(root).output();
    match outcome {
        Ok(output) if output.status.success() => println!("audit: no known flaw (cargo-deny)"),
        Ok(output) if is_without_database(&output.stderr) => {
            println!("audit: vulnerabilities were not checked: cargo deny fetch db, then cargo deny check advisories");
        }
        Ok(output) => bail!("cargo deny check advisories: {}", String::from_utf8_lossy(&output.stderr).trim()),
        Err(_) => {
            println!("audit: vulnerabilities were not checked: cargo install cargo-deny; cargo deny check advisories");
        }
    }
    Ok(())
}

fn is_without_database(stderr: &[u8]) -> bool {
    let text = String::from_utf8_lossy(stderr);
    text.contains("failed to load advisory database") || text.contains("unable to find advisory database")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_expressions_need_permitted_licences() {
        for met in [
            "MIT",
            "MIT OR GPL-3.0",
            "Apache-2.0/MIT",
            "Apache-2.0 / MIT",
            "MIT AND BSD-3-Clause",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
        ] {
            assert!(permits(met), "{met}");
        }
        for other in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Apache-2.0) AND GPL-3.0", "AGPL-3.0 OR LGPL-2.1"] {
            assert!(!permits(other), "{other}");
        }
    }

    #[test]
    fn a_crate_from_another_registry_is_found() {
        let own = "[[package]]\nname = \"x\"\nversion = \"1\"\n";
        let of = |source: &str, rest: &str| format!("{own}\n[[package]]\nname = \"y\"\nsource = \"{source}\"\n{rest}");
        assert_eq!(sources(&of(REGISTRY, "checksum = \"0\"\n")).unwrap(), 1);
        assert!(sources(&of(REGISTRY, "")).is_err() && sources(&of("git+https://h/y", "checksum = \"0\"\n")).is_err());
    }

    #[test]
    fn a_second_version_of_a_crate_is_found() {
        let lines = |lines: &[&str]| lines.iter().map(|&line| line.to_owned()).collect();
        assert!(check_versions(&lines(&["serde v1.0.1", "syn v2.0.1", "syn v3.0.1", "itertools v0.14.0"])).is_ok());
        assert!(check_versions(&lines(&["serde v1.0.1", "serde v2.0.1"])).is_err());
    }
}
