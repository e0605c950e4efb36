//! Rules about Cargo.toml files: which crate may depend on which.

use super::{CORES, Violation, crate_of};

/// The crates from top to bottom. A crate may depend only on crates below it.
const ORDER: &[&str] = &[
    "yamabiko",
    "manager",
    "agent",
    "tap-protocol",
    "web",
    "report",
    "papers",
    "gateway",
    "capacity",
    "cachebench",
    "disk",
    "experiment",
    "merge",
    "broker",
    "coordination",
    "doctor",
    "testbed",
    "validity",
    "explain",
    "plan",
    "store",
    "load",
    "path",
    "watch",
    "serve",
    "tap",
    "polymix",
    "stats",
    "wire",
    "http1",
    "http3",
    "field-compression",
    "sys",
    "schema",
    "units",
];

/// Forbidden dependencies on lower crates, with the reason.
const FORBIDDEN: &[(&str, &str, &str)] = &[
    ("report", "experiment", "it reads stored runs, never a running experiment"),
    ("report", "testbed", "it reads stored runs, never a running experiment"),
];

/// Third-party crates with descriptors, threads or clocks, which core crates must not use.
const NOT_FOR_CORES: &[&str] = &["libc", "mio", "nix", "rustix", "socket2", "tokio"];

/// Violations in a manifest.
pub fn check(file: &str, text: &str) -> Vec<Violation> {
    let own = crate_of(file);
    if own == "xtask" {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let mut add = |line, why| violations.push(Violation { file: file.to_owned(), line, why });
    let Some(rank) = ORDER.iter().position(|name| *name == own) else {
        add(1, format!("`{own}` is missing in the order of crates (xtask/src/tidy/manifests.rs)"));
        return violations;
    };
    let core = CORES.contains(&own);
    for Dependency { name, line, for_tests } in dependencies(text) {
        if let Some((_, _, why)) = FORBIDDEN.iter().find(|(from, to, _)| *from == own && *to == name) {
            add(line, format!("`{own}` must not use `{name}`: {why}"));
        }
        match ORDER.iter().position(|other| *other == name) {
            // A crate's tests may enable a feature of the crate itself.
            Some(other) if other == rank && for_tests => {}
            Some(other) if other <= rank => add(line, format!("`{name}` is above `{own}`: arrows point down only")),
            Some(_) if core && !CORES.contains(&name.as_str()) && !for_tests => {
                add(line, format!("`{own}` is a core and `{name}` is not"));
            }
            None if core && !for_tests && NOT_FOR_CORES.contains(&name.as_str()) => {
                add(line, format!("`{own}` is a core, which owns no descriptor, thread or clock: no `{name}`"));
            }
            _ => {}
        }
    }
    violations
}

struct Dependency {
    name: String,
    line: usize,
    for_tests: bool,
}

/// All dependencies in the forms that this workspace uses: `name.workspace = true`, `name = ..` or a section
/// `[dependencies.name]`.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut inside = None;
    for (at, line) in manifest.lines().enumerate() {
        let (line, number) = (line.trim(), at + 1);
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            // Sections of a target have the same suffix: [target.'cfg(unix)'.dependencies].
            let (table, name) = match section.rsplit_once('.') {
                Some((table, name)) if is_table(table) => (table, Some(name)),
                _ => (section, None),
            };
            inside = is_table(table).then_some(table.ends_with("dev-dependencies"));
            if let (Some(for_tests), Some(name)) = (inside, name) {
                found.push(Dependency { name: name.to_owned(), line: number, for_tests });
                inside = None;
            }
        } else if let Some(for_tests) = inside
            && !line.is_empty()
            && !line.starts_with('#')
        {
            let end = line.find(['.', '=', ' ']).unwrap_or(line.len());
            found.push(Dependency { name: line[..end].trim_matches('"').to_owned(), line: number, for_tests });
        }
    }
    found
}

fn is_table(section: &str) -> bool {
    ["dependencies", "dev-dependencies", "build-dependencies"]
        .iter()
        .any(|table| section == *table || section.ends_with(&format!(".{table}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations_in(own: &str, sections: &str) -> Vec<(usize, String)> {
        let file = format!("crates/{own}/Cargo.toml");
        check(&file, sections).into_iter().map(|violation| (violation.line, violation.why)).collect()
    }

    #[test]
    fn dependencies_follow_the_crate_order() {
        assert_eq!(
            violations_in(
                "testbed",
                "[dependencies]\nload.workspace = true\nsys = { path = \"../sys\" }\nanyhow = \"1\""
            ),
            []
        );
        let up = violations_in(
            "path",
            "[package]\nname = \"path\"\ntestbed = 1\n\n[dependencies]\nunits.workspace = true\n# store\nload.workspace = true",
        );
        assert_eq!(up, [(8, "`load` is above `path`: arrows point down only".to_owned())]);
        assert_eq!(violations_in("units", "[dev-dependencies]\ntestbed.workspace = true").len(), 1);
        assert_eq!(violations_in("units", "[build-dependencies.testbed]\npath = \"../testbed\"").len(), 1);
        assert_eq!(violations_in("units", "[target.'cfg(unix)'.dependencies]\nunits.workspace = true").len(), 1);
        assert_eq!(violations_in("units", "[dev-dependencies]\nunits = { path = \".\" }"), []);
        assert_eq!(violations_in("newcomer", "").len(), 1);
    }

    #[test]
    fn core_crates_depend_on_core_crates_only() {
        assert_eq!(
            violations_in("load", "[dependencies]\nsys.workspace = true")[0].1,
            "`load` is a core and `sys` is not"
        );
        assert_eq!(violations_in("watch", "[dependencies]\nnix.workspace = true").len(), 1);
        assert_eq!(violations_in("watch", "[dev-dependencies]\nnix.workspace = true\ntempfile.workspace = true"), []);
        assert_eq!(violations_in("serve", "[dependencies]\nnix.workspace = true\nsys.workspace = true"), []);
    }

    #[test]
    fn report_depends_on_store_only() {
        assert_eq!(violations_in("report", "[dependencies]\nstore.workspace = true\nschema.workspace = true"), []);
        assert!(violations_in("report", "[dependencies]\ntestbed.workspace = true")[0].1.contains("reads stored runs"));
    }
}
