//! Rules about Cargo.toml files: which crate may depend on which.

use super::{CORES, Violation, crate_of};

/// The rooms from top to bottom. A crate may use those below it, never those above.
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
    "sys",
    "schema",
    "units",
];

/// Arrows that would point down and are still wrong.
const NEVER: &[(&str, &str, &str)] = &[
    ("report", "experiment", "it reads stored runs, never a running experiment"),
    ("report", "testbed", "it reads stored runs, never a running experiment"),
];

/// What brings descriptors, threads or clocks with it.
const NOT_FOR_CORES: &[&str] = &["libc", "mio", "nix", "rustix", "socket2", "tokio"];

/// Everything the manifest does against the rules.
pub fn check(file: &str, text: &str) -> Vec<Violation> {
    let own = crate_of(file);
    if own == "xtask" {
        return Vec::new();
    }
    let mut violations = Vec::new();
    let mut add = |line, why| violations.push(Violation { file: file.to_owned(), line, why });
    let Some(rank) = ORDER.iter().position(|name| *name == own) else {
        add(1, format!("`{own}` has no place in the order of the rooms (xtask/src/tidy/manifests.rs)"));
        return violations;
    };
    let core = CORES.contains(&own);
    for Dependency { name, line, for_tests } in dependencies(text) {
        if let Some((_, _, why)) = NEVER.iter().find(|(from, to, _)| *from == own && *to == name) {
            add(line, format!("`{own}` must not use `{name}`: {why}"));
        }
        match ORDER.iter().position(|other| *other == name) {
            // A crate's own tests may ask it for a feature that only they use.
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

/// The dependencies of all kinds, as this workspace writes them: `name.workspace = true`, `name = ..` or a section
/// `[dependencies.name]`.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut found = Vec::new();
    let mut inside = None;
    for (at, line) in manifest.lines().enumerate() {
        let (line, number) = (line.trim(), at + 1);
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            // A target's own sections end the same way: [target.'cfg(unix)'.dependencies].
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

    fn whys(own: &str, sections: &str) -> Vec<(usize, String)> {
        let file = format!("crates/{own}/Cargo.toml");
        check(&file, sections).into_iter().map(|violation| (violation.line, violation.why)).collect()
    }

    #[test]
    fn dependencies_follow_the_crate_order() {
        assert_eq!(
            whys("testbed", "[dependencies]\nload.workspace = true\nsys = { path = \"../sys\" }\nanyhow = \"1\""),
            []
        );
        let up = whys(
            "path",
            "[package]\nname = \"path\"\ntestbed = 1\n\n[dependencies]\nunits.workspace = true\n# store\nload.workspace = true",
        );
        assert_eq!(up, [(8, "`load` is above `path`: arrows point down only".to_owned())]);
        assert_eq!(whys("units", "[dev-dependencies]\ntestbed.workspace = true").len(), 1);
        assert_eq!(whys("units", "[build-dependencies.testbed]\npath = \"../testbed\"").len(), 1);
        assert_eq!(whys("units", "[target.'cfg(unix)'.dependencies]\nunits.workspace = true").len(), 1);
        assert_eq!(whys("units", "[dev-dependencies]\nunits = { path = \".\" }"), []);
        assert_eq!(whys("newcomer", "").len(), 1);
    }

    #[test]
    fn core_crates_depend_on_core_crates_only() {
        assert_eq!(whys("load", "[dependencies]\nsys.workspace = true")[0].1, "`load` is a core and `sys` is not");
        assert_eq!(whys("watch", "[dependencies]\nnix.workspace = true").len(), 1);
        assert_eq!(whys("watch", "[dev-dependencies]\nnix.workspace = true\ntempfile.workspace = true"), []);
        assert_eq!(whys("serve", "[dependencies]\nnix.workspace = true\nsys.workspace = true"), []);
    }

    #[test]
    fn report_depends_on_store_only() {
        assert_eq!(whys("report", "[dependencies]\nstore.workspace = true\nschema.workspace = true"), []);
        assert!(whys("report", "[dependencies]\ntestbed.workspace = true")[0].1.contains("reads stored runs"));
    }
}
