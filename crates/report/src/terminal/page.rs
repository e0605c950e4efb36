//! Lines of a page: colours, wrapping, columns. Control characters of every text are escaped here.

use super::Style;
use crate::figures::plain;

/// Text being laid out.
pub(super) struct Page {
    style: Style,
    text: String,
}

/// Role of a piece of text, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ink {
    Plain,
    /// Names of rows and columns.
    Label,
    Strong,
    Good,
    Doubtful,
    Bad,
    Bar,
}

impl Page {
    pub(super) fn new(style: Style) -> Self {
        let width = style.width.clamp(WIDTH_MIN, WIDTH_MAX);
        Page { style: Style { width, ..style }, text: String::new() }
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }

    pub(super) fn width(&self) -> usize {
        usize::from(self.style.width)
    }

    pub(super) fn unicode(&self) -> bool {
        self.style.unicode
    }

    /// An empty line between two parts; none at the top, and never two in a row.
    pub(super) fn blank(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            self.text.push('\n');
        }
    }

    /// One line made of `pieces`.
    pub(super) fn line(&mut self, pieces: &[(&str, Ink)]) {
        for (text, ink) in pieces {
            self.put(text, *ink);
        }
        // Columns are padded, ends of lines are not.
        self.text.truncate(self.text.trim_end_matches(' ').len());
        self.text.push('\n');
    }

    /// Lines laid out by another page.
    pub(super) fn verbatim_block(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// `label` in its column, and `text` wrapped at the right of it.
    pub(super) fn entry(&mut self, label: &str, text: &str) {
        self.entry_in(label, text, Ink::Plain);
    }

    pub(super) fn entry_in(&mut self, label: &str, text: &str, ink: Ink) {
        self.marked(&[(&padded(label, LABEL), Ink::Label)], LABEL, text, ink);
    }

    /// `front`, which takes `indent` columns after the margin, and `text` wrapped at the right of it.
    pub(super) fn marked(&mut self, front: &[(&str, Ink)], indent: usize, text: &str, ink: Ink) {
        let available = self.width().saturating_sub(MARGIN + indent).max(20);
        let mut front = Some(front);
        for line in wrapped(&plain(text), available) {
            self.put(&" ".repeat(MARGIN), Ink::Plain);
            match front.take() {
                Some(pieces) => pieces.iter().for_each(|(text, ink)| self.put(text, *ink)),
                None => self.put(&" ".repeat(indent), Ink::Plain),
            }
            self.line(&[(&line, ink)]);
        }
    }

    /// `label` and a text that is not broken into lines, because it will be copied.
    pub(super) fn verbatim(&mut self, label: &str, text: &str) {
        self.verbatim_at(LABEL, label, text);
    }

    /// A label and text that is not wrapped, with the text at column `indent`.
    pub(super) fn verbatim_at(&mut self, indent: usize, label: &str, text: &str) {
        self.line(&[(&" ".repeat(MARGIN), Ink::Plain), (&padded(label, indent), Ink::Label), (text, Ink::Plain)]);
    }

    /// A table: first cells aligned left, the others right, under `head`. Rows may be short.
    pub(super) fn table(&mut self, head: &[&str], rows: &[Vec<String>]) {
        self.rows(head, rows);
    }

    fn rows(&mut self, head: &[&str], rows: &[Vec<String>]) {
        let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| plain(cell)).collect()).collect();
        let widest = |column: usize| {
            let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| length(cell));
            cells.chain(head.get(column).map(|name| length(name))).max().unwrap_or(0)
        };
        let columns = rows.iter().map(Vec::len).max().unwrap_or(0).max(head.len());
        // On a narrow page the minimum widths are given up first.
        let tight: usize = (0..columns).map(|column| widest(column) + 1).sum();
        let (name, figure) = if tight + SPARE > self.width() { (0, 0) } else { (NAME, FIGURE) };
        let widths: Vec<usize> =
            (0..columns).map(|column| widest(column).max(if column == 0 { name } else { figure })).collect();
        let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
        self.row(&head, &widths, Ink::Label);
        for row in &rows {
            self.row(row, &widths, Ink::Plain);
        }
    }

    fn row(&mut self, cells: &[String], widths: &[usize], ink: Ink) {
        self.put(&" ".repeat(MARGIN), Ink::Plain);
        for (at, (cell, &width)) in cells.iter().zip(widths).enumerate() {
            let gap = " ".repeat(width.saturating_sub(length(cell)));
            let (text, ink) =
                if at == 0 { (format!("{cell}{gap}"), Ink::Label) } else { (format!(" {gap}{cell}"), ink) };
            self.put(&text, ink);
        }
        self.line(&[]);
    }

    fn put(&mut self, text: &str, ink: Ink) {
        let text = plain(text);
        match ink.code().filter(|_| self.style.color && !text.trim().is_empty()) {
            Some(code) => {
                // Padding stays outside the colour, so that the end of the line can be trimmed.
                let bare = text.trim_end_matches(' ');
                self.text.push_str(&format!("\u{1b}[{code}m{bare}\u{1b}[0m{}", &text[bare.len()..]));
            }
            None => self.text.push_str(&text),
        }
    }
}

impl Ink {
    fn code(self) -> Option<&'static str> {
        match self {
            Ink::Plain => None,
            Ink::Label => Some("2"),
            Ink::Strong => Some("1"),
            Ink::Good => Some("1;32"),
            Ink::Doubtful => Some("1;33"),
            Ink::Bad => Some("1;31"),
            Ink::Bar => Some("36"),
        }
    }
}

/// Width of a text in columns; wide characters count as one.
pub(super) fn length(text: &str) -> usize {
    text.chars().count()
}

/// `text` and spaces up to `width`; at least one.
pub(super) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(length(text)).max(1)))
}

/// The text in at most `width` characters; a shortened text ends in three dots.
pub(super) fn shortened(text: &str, width: usize) -> String {
    let text = plain(text);
    if length(&text) <= width {
        return text;
    }
    let front: String = text.chars().take(width.saturating_sub(3)).collect();
    format!("{front}...")
}

/// Lines of at most `width` characters, broken between words; a longer word is broken inside. At least one line.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let mut word: Vec<char> = word.chars().collect();
        let line = lines.last_mut().expect("there is always a line");
        let used = length(line);
        if used > 0 && used + 1 + word.len() <= width {
            line.push(' ');
            line.extend(word);
            continue;
        }
        if used > 0 {
            lines.push(String::new());
        }
        while word.len() > width {
            let rest = word.split_off(width);
            lines.last_mut().expect("there is always a line").extend(std::mem::replace(&mut word, rest));
            lines.push(String::new());
        }
        lines.last_mut().expect("there is always a line").extend(word);
    }
    lines
}

const WIDTH_MIN: u16 = 60;
/// Longer lines are hard to read.
const WIDTH_MAX: u16 = 120;
pub(super) const MARGIN: usize = 2;
/// Column of labels such as `offered`.
pub(super) const LABEL: usize = 11;
/// Minimum width of a table's first column, the longest name of a time, so that tables align with each other.
const NAME: usize = 22;
/// Minimum width of a figure.
const FIGURE: usize = 8;
/// Most columns that the minimum widths add to a table of eight columns.
const SPARE: usize = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_wrap_between_words_and_inside_of_long_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("", 4), [""]);
    }

    #[test]
    fn colour_sequence_ends_before_the_padding() {
        let mut page = Page::new(Style { color: true, width: 80, unicode: true });
        page.line(&[("ok   ", Ink::Good)]);
        assert_eq!(page.into_text(), "\u{1b}[1;32mok\u{1b}[0m\n");
    }

    #[test]
    fn table_columns_are_aligned_and_control_characters_escaped() {
        let mut page = Page::new(Style::PLAIN);
        page.table(&["", "p50"], &[vec!["a".into(), "1 ms".into()], vec!["b\u{1b}".into()]]);
        let text = page.into_text();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0].len(), lines[1].len());
        assert_eq!(lines[2], "  b\\u{1b}");
    }
}
