//! Labelled lines: what a verb has to say that is no run.

use super::Style;
use super::page::{Ink, Page};

/// One thing to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A label, and words that are wrapped beside it.
    Words(String, String),
    /// The same, to be looked at before the rest is believed.
    Doubt(String, String),
    /// A label, and a text that is not broken because it will be copied.
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
            Entry::Doubt(label, text) => page.entry_in(label, text, Ink::Doubtful),
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
    fn words_are_wrapped_and_what_is_copied_is_not() {
        let long = "word ".repeat(40);
        let said = [
            Entry::Words("one".into(), long.clone()),
            Entry::Blank,
            Entry::Verbatim("two".into(), long.trim().to_owned()),
            Entry::Doubt("three".into(), "a\u{1b}b".into()),
        ];
        let text = entries(&said, Style { width: 80, ..Style::PLAIN });
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.len() > 5 && lines[0].starts_with("  one ") && lines[1].starts_with("     "), "{text}");
        assert!(lines.contains(&"") && lines.iter().any(|line| line.ends_with(long.trim())), "{text}");
        assert!(text.contains("a\\u{1b}b"));
    }
}
