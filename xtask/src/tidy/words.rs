//! Words that are gone: the second table of docs/glossary.md lists them with their replacements.
//!
//! ```text
//!   | old word | new |     every tracked text file       file:line: `old word` is gone: new
//!   | ..       | .. |  ──▶ split into words         ──▶
//! ```
//!
//! Text is split into words at spaces and punctuation, identifiers also at underscores and changes of case. To refuse a
//! further word, add a row to the glossary.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::Violation;

/// Searches all tracked text files below `root`.
///
/// # Errors
/// The glossary has no such table, a file cannot be read, or `git ls-files` fails.
pub fn check(root: &Path) -> Result<Vec<Violation>> {
    let path = root.join(GLOSSARY);
    let glossary = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let words: Vec<Gone> = table(&glossary)?;
    let mut violations = Vec::new();
    for file in tracked(root)? {
        if EXEMPT.contains(&&*file) || !EXTENSIONS.iter().any(|extension| file.ends_with(extension)) {
            continue;
        }
        // A tracked file may be deleted in the working tree; a fixture may be binary.
        let Ok(text) = fs::read_to_string(root.join(&file)) else { continue };
        violations.extend(search(&words, &file, &text));
    }
    Ok(violations)
}

/// Files of the repository, relative to `root`.
fn tracked(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().context("run git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).split('\0').filter(|name| !name.is_empty()).map(Into::into).collect())
}

/// One row of the table.
#[derive(Debug)]
struct Gone {
    old: String,
    new: String,
    pattern: Pattern,
}

/// How a row is searched for.
#[derive(Debug, PartialEq, Eq)]
enum Pattern {
    /// An option or a file name: this text, with no letter, digit or hyphen before or after it.
    Literal(String),
    /// Words in this order; of one identifier only if `joined`.
    Words { words: Vec<String>, joined: bool },
}

impl Pattern {
    fn of(old: &str) -> Pattern {
        if old.starts_with('-') || old.contains('.') {
            return Pattern::Literal(old.to_lowercase());
        }
        let words = split(old).into_iter().map(|word| word.text).collect();
        Pattern::Words { words, joined: old.contains('_') }
    }

    fn is_in(&self, line: &str, split: &[Word]) -> bool {
        match self {
            Pattern::Literal(text) => {
                let line = line.to_lowercase();
                line.match_indices(text.as_str()).any(|(at, _)| {
                    let is_part = |letter: char| letter.is_alphanumeric() || letter == '-' || letter == '_';
                    !line[..at].ends_with(is_part) && !line[at + text.len()..].starts_with(is_part)
                })
            }
            Pattern::Words { words, joined } => split.windows(words.len()).any(|window| {
                let is_same = window.iter().zip(words).all(|(word, expected)| word.text == *expected);
                let is_near = window[1..].iter().all(|word| match word.before {
                    Before::Identifier => true,
                    Before::Space => !joined,
                    Before::Other => false,
                });
                is_same && is_near
            }),
        }
    }
}

/// A word of a line, in lower case.
#[derive(Debug, PartialEq, Eq)]
struct Word {
    text: String,
    before: Before,
}

/// What separates a word from the one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    /// Underscores, or a change of case.
    Identifier,
    /// White space, or one hyphen or apostrophe.
    Space,
    /// Anything else, or the beginning of the line.
    Other,
}

/// The words of a line.
fn split(line: &str) -> Vec<Word> {
    let letters: Vec<char> = line.chars().collect();
    let mut words: Vec<Word> = Vec::new();
    let mut gap = String::new();
    for (at, &letter) in letters.iter().enumerate() {
        if !letter.is_alphanumeric() {
            gap.push(letter);
            continue;
        }
        let last = at.checked_sub(1).map(|before| letters[before]);
        let next_is_lower = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let case_changes = letter.is_uppercase()
            && last
                .is_some_and(|last| last.is_lowercase() || last.is_numeric() || (last.is_uppercase() && next_is_lower));
        if words.is_empty() || !gap.is_empty() || case_changes {
            let before = match gap.as_str() {
                "" if words.is_empty() => Before::Other,
                "" => Before::Identifier,
                gap if gap.chars().all(|letter| letter == '_') => Before::Identifier,
                "-" | "'" => Before::Space,
                gap if gap.chars().all(char::is_whitespace) => Before::Space,
                _ => Before::Other,
            };
            words.push(Word { text: String::new(), before });
            gap.clear();
        }
        if let Some(word) = words.last_mut() {
            word.text.extend(letter.to_lowercase());
        }
    }
    words
}

/// The rows of the table below [`HEADING`].
fn table(glossary: &str) -> Result<Vec<Gone>> {
    let Some((_, section)) = glossary.split_once(HEADING) else { bail!("{GLOSSARY} has no section `{HEADING}`") };
    let rows = section.lines().filter_map(|line| {
        let (old, new) = line.strip_prefix("| ")?.strip_suffix(" |")?.split_once(" | ")?;
        let (old, new) = (old.trim().to_owned(), new.trim().to_owned());
        Some(Gone { pattern: Pattern::of(&old), old, new })
    });
    let rows: Vec<Gone> = rows.filter(|row| row.old != "old word").collect();
    if rows.is_empty() {
        bail!("{GLOSSARY}: the table of `{HEADING}` has no rows");
    }
    Ok(rows)
}

/// Every occurrence of a word in `text`.
fn search(words: &[Gone], file: &str, text: &str) -> Vec<Violation> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let split = split(line);
        for word in words.iter().filter(|word| word.pattern.is_in(line, &split)) {
            let why = format!("`{}` is gone: write `{}` ({GLOSSARY})", word.old, word.new);
            found.push(Violation { file: file.to_owned(), line: at + 1, why });
        }
    }
    found
}

const GLOSSARY: &str = "docs/glossary.md";
const HEADING: &str = "## Words that are gone";
const EXTENSIONS: &[&str] = &[
    ".rs", ".md", ".toml", ".js", ".html", ".css", ".h", ".c", ".py", ".sh", ".sql", ".json", ".txt", ".service",
    ".mount", ".conf",
];
/// The page with the table, and the history of the project.
const EXEMPT: &[&str] = &[GLOSSARY, "CHANGELOG.md"];

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "# Glossary\n\n| term | definition |\n|---|---|\n| frob | a term |\n\n## Words that are gone\n\n\
        | old word | new |\n|---|---|\n| frobs | waves |\n| frob_s | wave_s |\n| for frob | forever |\n\
        | --frob | --wave |\n| frob.md | wave.md |\n| f5-new | wave-new |\n";

    /// The old words that are found in `text`.
    fn found(text: &str) -> Vec<String> {
        let words = table(TABLE).unwrap();
        search(&words, "a.rs", text).into_iter().map(|one| one.why.split('`').nth(1).unwrap().to_owned()).collect()
    }

    #[test]
    fn every_row_of_the_second_table_is_read() {
        let words = table(TABLE).unwrap();
        assert_eq!(words.iter().map(|word| &*word.old).collect::<Vec<_>>()[..2], ["frobs", "frob_s"]);
        assert_eq!(words.len(), 6);
        assert!(table("# Glossary\n").is_err() && table("## Words that are gone\n").is_err());
    }

    #[test]
    fn whole_words_are_found_in_any_case_and_in_identifiers() {
        for text in ["Frobs,", "the frobs", "let frobs_max = 1;", "newFrobsMax", "FROBS", "HTTPFrobs", "x-frobs"] {
            assert_eq!(found(text), ["frobs"], "{text}");
        }
        for text in ["frob", "frobsy", "refrobs", "afrobs_"] {
            assert_eq!(found(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn identifiers_match_within_one_identifier_only() {
        assert_eq!([found("frob_s"), found("max_frob_s"), found("frobS")], [["frob_s"]; 3]);
        assert_eq!([found("frob s"), found("frob.s"), found("frob_seconds")], [[""; 0]; 3]);
    }

    #[test]
    fn phrases_options_and_file_names_are_found() {
        assert_eq!([found("once for frob."), found("for_frob")], [["for frob"]; 2]);
        assert_eq!([found("for. Frob"), found("for the frob")], [[""; 0]; 2]);
        assert_eq!([found("`--frob 5`"), found("--frob=5")], [["--frob"]; 2]);
        assert_eq!([found("--frob-more"), found("---frob")], [[""; 0]; 2]);
        assert_eq!([found("see (frob.md)"), found("docs/frob.md#x")], [["frob.md"]; 2]);
        assert_eq!(found("a-frob.md"), [""; 0]);
        assert_eq!([found("run f5-new"), found("F5New")], [["f5-new"]; 2]);
    }

    #[test]
    fn a_violation_names_line_word_and_replacement() {
        let one = &search(&table(TABLE).unwrap(), "a.rs", "x\nfrobs")[0];
        assert_eq!(one.to_string(), "a.rs:2: `frobs` is gone: write `waves` (docs/glossary.md)");
    }
}
