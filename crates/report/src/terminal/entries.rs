//! Labelled lines, for verbs without a run.

use super::Style;
use super::page::{Ink, Page};

/// One labelled line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A label, and text that is wrapped.
    Words(String, String),
    /// A label, and text that is wrapped and coloured as a warning.
    Warning(String, String),
    /// A label, and text that is not wrapped because it will be copied.
    Verbatim(String, String),
    /// An empty line.
    Blank,
}

/// The entries, one below the other.
pub fn entries(entries: &[Entry], style: Style) -> String {
    let mut page = Page::new(style);
    for entry in entries {
        match entry {
            Entry::Words(label, text) => page.entry(label, text),
            Entry::Warning(label, text) => page.entry_in(label, text, Ink::Doubtful),
            Entry::Verbatim(label, text) => page.verbatim(label, text),
            Entry::Blank => page.blank(),
        }
    }
    page.into_text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_except_verbatim_entries() {
        let long = "word ".repeat(40);
        let rows = [
            Entry::Words("one".into(), long.clone()),
            Entry::Blank,
            Entry::Verbatim("two".into(), long.trim().to_owned()),
            Entry::Warning("three".into(), "a\u{1b}b".into()),
        ];
        let text = entries(&rows, Style { width: 80, ..Style::PLAIN });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 5 && lines[0].starts_with("  one ") && lines[1].starts_with("     "), "{text}");
        assert!(lines.contains(&"") && lines.iter().any(|line| line.ends_with(long.trim())), "{text}");
        assert!(text.contains("a\\u{1b}b"));
    }
}
