//! Tests that the program accepts every `yamabiko` command in README and in the pages of `docs`.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser;
use clap::error::ErrorKind;

use super::Arguments;

/// Markdown files with commands for users.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut pages: Vec<PathBuf> =
        ["README.md", "docs/cookbook.md", "docs/tutorial.md"].map(|page| root.join(page)).into();
    let concepts = fs::read_dir(root.join("docs/concepts")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(concepts.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    pages
}

/// The commands of a page's `console` and `sh` blocks, continued lines joined. In `console` blocks a command follows
/// a dollar sign and a space.
fn commands(page: &str) -> Vec<String> {
    let (mut commands, mut block, mut begun) = (Vec::new(), "", String::new());
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = if block.is_empty() { if language.is_empty() { "text" } else { language } } else { "" };
            continue;
        }
        let command = match block {
            _ if !begun.is_empty() => line,
            "console" => match line.strip_prefix("$ ") {
                Some(command) => command,
                None => continue,
            },
            "sh" => line,
            _ => continue,
        };
        begun.push_str(command.strip_suffix('\\').unwrap_or(command));
        if !command.ends_with('\\') {
            commands.push(std::mem::take(&mut begun));
        }
    }
    commands
}

/// The words of each simple command of a shell line that starts this program.
fn invocations(line: &str) -> Vec<Vec<String>> {
    let words = shlex::split(line).unwrap_or_else(|| panic!("quotes do not match: {line}"));
    let is_operator = |word: &String| ["|", "&&", "||", ";", "&", ">", ">>", "2>", "<"].contains(&word.as_str());
    words
        .split(is_operator)
        .filter(|words| words.first().is_some_and(|word| word == "yamabiko"))
        .map(<[_]>::to_vec)
        .collect()
}

#[test]
fn every_documented_command_is_accepted() {
    let (mut checked, mut refused) = (0, Vec::new());
    for path in pages() {
        let page = fs::read_to_string(&path).unwrap();
        for words in commands(&page).iter().flat_map(|command| invocations(command)) {
            // Lines that show the syntax of a verb.
            if words.iter().any(|word| word == ".." || word.starts_with('[')) {
                continue;
            }
            // Dots stand for the arguments of the recipe before.
            let in_place = |word: &String| if word == "..." { "http://server/".to_owned() } else { word.clone() };
            let words: Vec<String> = words.iter().map(in_place).collect();
            checked += 1;
            for run in super::expanded(super::with_read(words.iter().map(Into::into))) {
                match Arguments::try_parse_from(run) {
                    Ok(_) => {}
                    Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {}
                    Err(error) => refused.push(format!("{}: {}\n{error}", path.display(), words.join(" "))),
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(checked > 150, "only {checked} commands were found");
}
