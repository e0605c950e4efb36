//! Rules about one source file.

use super::source::{code_only, has_word};
use super::{CORES, Violation, crate_of};

/// Violations in `file` (relative to the workspace).
pub fn check(file: &str, text: &str) -> Vec<Violation> {
    let mut found = Checker { file, violations: Vec::new() };
    found.length(text.lines().count());
    found.opening(text);
    let code = code_only(text);
    for (at, line) in text.lines().enumerate() {
        for word in UNFINISHED_MARKS {
            if has_word(line, word) {
                found.add(at, format!("{word}: finish it, or describe in the plan what is missing"));
            }
        }
    }
    for at in doc_tests(text) {
        found.add(
            at,
            "`cargo xtask test` runs no doc tests: mark the block `text`, and make a test of what it shows".to_owned(),
        );
    }
    for (at, line) in code.lines().enumerate() {
        for name in ["todo", "unimplemented"] {
            if has_word(line, name) && line.contains(&format!("{name}!")) {
                found.add(at, format!("{name}!: a call that can only panic"));
            }
        }
        if has_word(line, "unsafe") && !UNSAFE_CRATES.contains(&crate_of(file)) {
            found.add(at, "only `sys` and `tap` may contain unsafe code: wrap the call there".to_owned());
        }
        if line.replace(' ', "").contains("#[ignore") {
            found.add(at, "an ignored test looks like one that passed: run it, or delete it".to_owned());
        }
    }
    if CORES.contains(&crate_of(file)) && !is_outside_library(file) {
        found.core(&without_inline_tests(&code));
    }
    found.violations
}

/// Lines, from 0, that open a block in a documentation comment which rustdoc would take for Rust.
fn doc_tests(text: &str) -> Vec<usize> {
    let mut open = false;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let Some(comment) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            open = false;
            continue;
        };
        let Some(language) = comment.trim_start().strip_prefix("```") else { continue };
        if !open && language.split(',').all(|word| RUST.contains(&word.trim())) {
            found.push(at);
        }
        open = !open;
    }
    found
}

/// Info strings of code blocks that rustdoc compiles as Rust.
const RUST: &[&str] = &["", "rust", "no_run", "should_panic", "compile_fail", "ignore", "edition2021", "edition2024"];

struct Checker<'a> {
    file: &'a str,
    violations: Vec<Violation>,
}

impl Checker<'_> {
    /// `at` is the line, from 0.
    fn add(&mut self, at: usize, why: String) {
        self.violations.push(Violation { file: self.file.to_owned(), line: at + 1, why });
    }

    fn length(&mut self, lines: usize) {
        let allowed = LONGER_FILES.iter().find(|(file, _)| *file == self.file).map(|(_, lines)| *lines);
        match allowed {
            None if lines > MAX_LINES => {
                self.add(lines - 1, format!("{lines} lines, more than {MAX_LINES}: split it by what it is about"));
            }
            Some(allowed) if lines > allowed => {
                self.add(lines - 1, format!("{lines} lines; it may only shrink from {allowed}"))
            }
            Some(allowed) if lines < allowed => {
                self.add(0, format!("only {lines} lines now: lower its entry in the ratchet, or remove it"));
            }
            _ => {}
        }
    }

    fn opening(&mut self, text: &str) {
        if self.file.ends_with("/mod.rs") {
            self.add(0, "named mod.rs: name it after the module, next to the folder".to_owned());
        }
        let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        if !first.starts_with("//!") && !self.file.ends_with("/tests.rs") {
            self.add(0, "no `//!` at the top: describe the purpose of the file".to_owned());
        }
    }

    fn core(&mut self, code: &str) {
        for (at, line) in code.lines().enumerate() {
            for name in FORBIDDEN_TYPES.iter().filter(|name| has_word(line, name)) {
                self.add(at, format!("{name} in a core: it is given what it needs as an argument"));
            }
        }
        for (at, path) in std_paths(code) {
            let module = path.split("::").next().unwrap_or_default();
            let address = module == "net" && path.split("::").nth(1).is_some_and(|name| ADDRESSES.contains(&name));
            if FORBIDDEN_MODULES.contains(&module) && !address {
                self.add(at, format!("std::{path} in a core, which owns no descriptor, thread, clock or environment"));
            }
        }
    }
}

/// Every path that begins with `std::`, without this prefix, and its line, from 0. Groups in braces are expanded to two
/// levels: module and item.
fn std_paths(code: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("std::") {
        if code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let line = code[..at].matches('\n').count();
        expand_group("", &code[at + "std::".len()..], 0, &mut |path| paths.push((line, path)));
    }
    paths
}

/// Calls `take` with `prefix` and the path at the beginning of `tail`, or each element of a group.
fn expand_group(prefix: &str, tail: &str, depth: usize, take: &mut impl FnMut(String)) {
    let Some(group) = tail.strip_prefix('{') else {
        let end = tail.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':' | '*'))).unwrap_or(tail.len());
        let path = tail[..end].trim_end_matches(':');
        if depth < 2 && tail[end..].starts_with('{') {
            return expand_group(&format!("{prefix}{path}::"), &tail[end..], depth + 1, take);
        }
        return take(format!("{prefix}{path}"));
    };
    let mut level = 0;
    let mut begin = 0;
    for (at, c) in group.char_indices() {
        match c {
            '{' => level += 1,
            ',' if level == 0 => {
                expand_group(prefix, group[begin..at].trim(), depth + 1, take);
                begin = at + 1;
            }
            '}' if level == 0 => {
                let last = group[begin..at].trim();
                if !last.is_empty() {
                    expand_group(prefix, last, depth + 1, take);
                }
                return;
            }
            '}' => level -= 1,
            _ => {}
        }
    }
}

/// Whether a file of a core crate is not part of the library: tests and benches.
fn is_outside_library(file: &str) -> bool {
    file.ends_with("/tests.rs") || ["/tests/", "/benches/", "/examples/"].iter().any(|folder| file.contains(folder))
}

/// The code without the test module at its end.
fn without_inline_tests(code: &str) -> String {
    let lines: Vec<&str> = code.lines().collect();
    let begin = lines.windows(2).position(|pair| {
        pair[0].trim() == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].trim_end().ends_with('{')
    });
    lines[..begin.unwrap_or(lines.len())].join("\n")
}

/// Maximum number of lines of a file.
const MAX_LINES: usize = 800;
/// Longer files, with their current length, which must not grow.
const LONGER_FILES: &[(&str, usize)] = &[];
/// Crates that may contain unsafe code.
const UNSAFE_CRATES: &[&str] = &["sys", "tap"];
/// Marks of unfinished work, in pieces so that this file passes its own rule.
const UNFINISHED_MARKS: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("X", "XX")];
/// Clocks and sockets by name, however they were imported.
const FORBIDDEN_TYPES: &[&str] = &["Instant", "SystemTime", "TcpStream", "TcpListener", "UdpSocket", "ToSocketAddrs"];
const FORBIDDEN_MODULES: &[&str] = &["env", "fs", "net", "os", "process", "thread"];
/// Types of std::net that are plain values.
const ADDRESSES: &[&str] =
    &["AddrParseError", "IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "SocketAddrV4", "SocketAddrV6"];

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: [usize; 0] = [];

    fn lines_of(file: &str, text: &str) -> Vec<usize> {
        check(file, &format!("//! About.\n{text}")).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn files_up_to_the_line_limit_are_accepted() {
        let of = |lines: usize| format!("//! About.\n{}", "\n".repeat(lines - 1));
        assert_eq!(check("crates/a/src/a.rs", &of(MAX_LINES)), []);
        let found = check("crates/a/src/a.rs", &of(MAX_LINES + 1));
        assert_eq!((found.len(), found[0].line), (1, MAX_LINES + 1));
    }

    #[test]
    fn module_files_need_a_leading_doc_comment() {
        assert_eq!(check("crates/a/src/a.rs", "\n//! About.\n"), []);
        assert_eq!(check("crates/a/src/a.rs", "use b;\n").len(), 1);
        // A test module needs no doc comment.
        assert_eq!(check("crates/a/src/a/tests.rs", "use b;\n"), []);
        assert_eq!(check("crates/a/src/a.rs", "").len(), 1);
        assert_eq!(check("crates/a/src/b/mod.rs", "//! About.\n").len(), 1);
    }

    #[test]
    fn todo_marks_are_found_in_comments_and_code() {
        let mark = UNFINISHED_MARKS[0];
        assert_eq!(lines_of("crates/a/src/a.rs", &format!("// {mark}: later\nlet {mark}S = 1;")), [2]);
        assert_eq!(lines_of("crates/a/src/a.rs", "todo!()\n// todo!() is not for us\nlet todo = 1;"), [2]);
        assert_eq!(lines_of("crates/a/src/a.rs", "unimplemented!(\"x\")"), [2]);
    }

    #[test]
    fn doc_tests_are_found_by_their_code_fence() {
        let text = "/// ```\n/// f();\n/// ```\nfn f() {}\n\n/// ```text\n/// a -> b\n/// ```\n    /// ```rust,no_run\n    /// ```\n// ```";
        assert_eq!(lines_of("crates/a/src/a.rs", text), [2, 10]);
        assert_eq!(lines_of("crates/a/src/a.rs", "//! ```should_panic\n//! ```\n/// ```console\n/// ```"), [2]);
    }

    #[test]
    fn unsafe_code_is_allowed_in_listed_crates_only() {
        let text = "// not unsafe\nlet x = \"unsafe\";\nunsafe { f() }\n#![deny(unsafe_op_in_unsafe_fn)]";
        assert_eq!(lines_of("crates/testbed/src/a.rs", text), [4]);
        assert_eq!(lines_of("xtask/src/a.rs", text), [4]);
        assert_eq!(lines_of("crates/sys/src/a.rs", text), NONE);
        assert_eq!(lines_of("crates/tap/src/a.rs", text), NONE);
        assert_eq!(lines_of("crates/system/src/a.rs", text), [4]);
    }

    #[test]
    fn ignored_tests_are_found() {
        assert_eq!(
            lines_of("crates/a/tests/a.rs", "#[ignore]\n#[ignore = \"slow\"]\n#[ ignore ]\n// #[ignore]"),
            [2, 3, 4]
        );
    }

    #[test]
    fn core_crates_use_no_clock_socket_or_file() {
        let wrong =
            "use std::time::Instant;\nlet a = std::fs::read(b);\nuse std::{fmt, thread};\nuse std::{\n    env,\n};";
        // Paths of a group have the line on which the group begins.
        assert_eq!(lines_of("crates/path/src/a.rs", wrong), [2, 3, 4, 5]);
        assert_eq!(lines_of("crates/testbed/src/a.rs", wrong), NONE);
        assert_eq!(lines_of("crates/path/tests/a.rs", wrong), NONE);
        assert_eq!(lines_of("crates/path/examples/a.rs", wrong), NONE);
        assert_eq!(lines_of("crates/path/src/a/tests.rs", wrong), NONE);
        assert_eq!(lines_of("crates/path/src/a.rs", &format!("#[cfg(test)]\nmod tests {{\n{wrong}\n}}")), NONE);
        assert_eq!(lines_of("crates/path/src/a.rs", &format!("#[cfg(test)]\nmod tests;\n{wrong}")), [4, 5, 6, 7]);
    }

    #[test]
    fn core_crates_use_only_the_address_types_of_std_net() {
        let right = "use std::net::{IpAddr, Ipv4Addr};\nuse std::net::SocketAddr;\nuse std::{fmt, net::Ipv6Addr};";
        assert_eq!(lines_of("crates/wire/src/a.rs", right), NONE);
        let wrong = "use std::net;\nuse std::net::*;\nuse std::net::{IpAddr, Shutdown};\nuse std::{fmt, net::{self}};";
        assert_eq!(lines_of("crates/wire/src/a.rs", wrong), [2, 3, 4, 5]);
        assert_eq!(lines_of("crates/wire/src/a.rs", "use std::net::TcpStream;").len(), 2);
    }
}
