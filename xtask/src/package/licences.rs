//! One text with the licences of everything in the binary: every linked crate, and included files that are not crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// Builds the text. A licence text that several crates share is included once.
///
/// # Errors
/// A crate has no licence information, or `cargo metadata` fails.
pub fn page(root: &Path) -> Result<String> {
    let linked = linked(&metadata(root)?)?;
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut list = String::new();
    for package in &linked {
        let name = format!("{} {}", package.name, package.version);
        let found = licence_texts(package)?;
        let Some(licence) = package.license.clone().or_else(|| (!found.is_empty()).then(|| "see below".to_owned()))
        else {
            bail!("{name} has no licence information: it cannot be distributed");
        };
        let own = if found.is_empty() { " (no text of its own: see the standard text of the licence)" } else { "" };
        writeln!(list, "  {name}: {licence}{own}")?;
        for text in found {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (name, path) in ASSETS {
        let text = fs::read_to_string(root.join(path)).with_context(|| format!("read {path}"))?;
        texts.entry(normalised(&text)).or_default().push((*name).to_owned());
    }
    let mut page = format!("{HEADER}\n{list}\n");
    for (text, names) in in_order(texts) {
        write!(page, "{SEPARATOR}\n{}\n{SEPARATOR}\n\n{text}\n\n", names.join(", "))?;
    }
    Ok(page)
}

/// Sorts texts by the first crate that each belongs to.
fn in_order(texts: BTreeMap<String, Vec<String>>) -> Vec<(String, Vec<String>)> {
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1));
    texts
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Clone, Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<String>,
    manifest_path: String,
    source: Option<String>,
    targets: Vec<Target>,
}

#[derive(Clone, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    kind: Option<String>,
}

fn metadata(root: &Path) -> Result<Metadata> {
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform])
        .output()
        .context("run cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context("parse the output of cargo metadata")
}

/// Third-party crates in the binary: those that `yamabiko` reaches by normal dependencies. Build and test dependencies
/// and procedural macros are not linked.
fn linked(metadata: &Metadata) -> Result<Vec<Package>> {
    let packages: BTreeMap<&str, &Package> = metadata.packages.iter().map(|one| (one.id.as_str(), one)).collect();
    let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|one| (one.id.as_str(), one)).collect();
    let own = |package: &&Package| package.name == "yamabiko" && package.source.is_none();
    let first = metadata.packages.iter().find(own).context("cargo metadata has no package yamabiko")?;
    let (mut seen, mut next) = (BTreeSet::new(), vec![first.id.as_str()]);
    while let Some(id) = next.pop() {
        let package = packages.get(id).with_context(|| format!("cargo metadata does not describe {id}"))?;
        if package.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro")) || !seen.insert(id)
        {
            continue;
        }
        let node = nodes.get(id).with_context(|| format!("cargo metadata does not resolve {id}"))?;
        let ordinary = |one: &&Dependency| one.dep_kinds.iter().any(|kind| kind.kind.is_none());
        next.extend(node.deps.iter().filter(ordinary).map(|one| one.pkg.as_str()));
    }
    let mut linked: Vec<Package> =
        seen.iter().map(|id| packages[id].clone()).filter(|package| package.source.is_some()).collect();
    linked.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    Ok(linked)
}

/// The licence and notice files of a crate.
fn licence_texts(package: &Package) -> Result<Vec<String>> {
    let folder = Path::new(&package.manifest_path).parent().context("a manifest has a folder")?;
    let mut paths: BTreeSet<_> = package.license_file.iter().map(|name| folder.join(name)).collect();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_ascii_uppercase();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && FILE_PREFIXES.iter().any(|front| name.starts_with(front)) && !name.ends_with(".RS") {
            paths.insert(entry.path());
        }
    }
    let read = |path: PathBuf| -> Result<String> {
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        Ok(normalised(&String::from_utf8_lossy(&bytes)))
    };
    paths.into_iter().map(read).collect()
}

/// The text with normalised line ends.
fn normalised(text: &str) -> String {
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim_matches('\n').to_owned()
}

/// Prefixes of the names of licence files.
const FILE_PREFIXES: &[&str] = &["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
/// Included files that are not crates: name and path of the licence.
const ASSETS: &[(&str, &str)] = &[("uPlot (in the HTML pages)", "crates/report/assets/uplot/LICENSE")];
const SEPARATOR: &str = "================================================================================";
const HEADER: &str = "\
Licences of what is inside the yamabiko binary
==============================================

Yamabiko itself is licensed under Apache-2.0 OR MIT (LICENSE, LICENSE-APACHE, LICENSE-MIT). The binary also contains the
crates below, each under the licence named; the Rust standard library (Apache-2.0 OR MIT); SQLite, which is in the public
domain (by libsqlite3-sys); and uPlot in the pages that it writes (MIT). Their texts follow the list.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_licence_page_lists_exactly_the_linked_crates() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let page = page(root).unwrap();
        let has = |name: &str| page.lines().any(|line| line.starts_with(&format!("  {name} ")));
        for name in ["clap", "parquet", "rusqlite", "libsqlite3-sys", "rustls", "ring", "serde"] {
            assert!(has(name), "{name}");
        }
        // A build dependency, a test dependency, a procedural macro.
        for name in ["cc", "proptest", "insta", "serde_derive", "yamabiko", "report", "cargo-deb"] {
            assert!(!has(name), "{name}");
        }
        assert!(page.contains("Leon Sorokin") && page.contains("Permission is hereby granted"));
    }

    #[test]
    fn identical_licence_texts_appear_once() {
        assert_eq!(normalised("\r\n\r\na  \r\nb\r\n"), normalised("a\nb"));
    }
}
