//! Legend: names of the series above a plot.

use super::svg::{Anchor, Svg, text_width};

/// One name with its mark.
pub(super) struct Entry<'a> {
    pub(super) name: &'a str,
    /// Class of its mark.
    pub(super) class: String,
    /// Whether the mark is a filled square instead of a stroke.
    pub(super) filled: bool,
}

/// Number of lines of the legend within `width`.
pub(super) fn lines(entries: &[Entry<'_>], width: f64) -> usize {
    places(entries, width).last().map_or(0, |place| place.1 + 1)
}

/// Draws them from `(left, top)` on.
pub(super) fn draw(svg: &mut Svg, entries: &[Entry<'_>], left: f64, top: f64, width: f64) {
    for (entry, (x, line, name)) in entries.iter().zip(places(entries, width)) {
        let (x, y) = (left + x, top + line as f64 * LINE + LINE / 2.0);
        if entry.filled {
            svg.rect(&entry.class, [x + 3.0, y - 5.0], [10.0, 10.0], "");
        } else {
            svg.line(&entry.class, [x, y], [x + MARK_WIDTH, y]);
        }
        svg.text("name", [x + MARK_WIDTH + GAP, y + 4.0], Anchor::Start, &name);
    }
}

/// Offset, line and name of each entry; a name longer than a line is shortened.
fn places(entries: &[Entry<'_>], width: f64) -> Vec<(f64, usize, String)> {
    let (mut x, mut line) = (0.0, 0);
    entries
        .iter()
        .map(|entry| {
            let name = fitting(entry.name, width - MARK_WIDTH - GAP);
            let needed = MARK_WIDTH + GAP + text_width(&name);
            if x > 0.0 && x + needed > width {
                (x, line) = (0.0, line + 1);
            }
            let place = (x, line, name);
            x += needed + ENTRY_GAP;
            place
        })
        .collect()
}

/// `text`, shortened with an ellipsis to fit.
pub(super) fn fitting(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    for c in text.chars() {
        cut.push(c);
        if text_width(&cut) + text_width("…") > width {
            cut.pop();
            break;
        }
    }
    cut.trim_end().to_owned() + "…"
}

/// Height of a line of names.
pub(super) const LINE: f64 = 20.0;
const MARK_WIDTH: f64 = 16.0;
const GAP: f64 = 6.0;
const ENTRY_GAP: f64 = 18.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn legend_wraps_names_and_shortens_long_ones() {
        let entry = |name| Entry { name, class: String::new(), filled: false };
        let entries =
            [entry("load"), entry("wire"), entry("a very long name of a series that does not fit on one line")];
        assert_eq!(lines(&entries, 900.0), 1);
        assert_eq!(lines(&entries, 100.0), 3);
        assert!(fitting(entries[2].name, 100.0).ends_with('…'));
        assert_eq!(lines(&[], 100.0), 0);
    }
}
