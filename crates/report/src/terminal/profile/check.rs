//! The result of `profile check`: configured and measured figures of a path.

use super::super::Style;
use super::super::page::{Ink, MARGIN, Page, length};
use crate::figures::plain;

/// The result of a check of a path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckView {
    /// The path, by name.
    pub name: String,
    /// In the order of measurement.
    pub rows: Vec<CheckRow>,
    /// A sentence each.
    pub notes: Vec<String>,
}

/// One figure; its texts have units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckRow {
    /// Name of the figure.
    pub what: String,
    /// Configured value; empty without one.
    pub configured: String,
    /// Measured value.
    pub measured: String,
    /// Range of accepted values; empty without one.
    pub accepted: String,
    /// Whether the measured value is accepted; `None`: shown only.
    pub as_configured: Option<bool>,
}

/// A table with a verdict in each row, and one below.
pub fn check(view: &CheckView, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(&[(&" ".repeat(MARGIN), Ink::Plain), (&view.name, Ink::Strong)]);
    page.blank();
    let heads = ["", "configured", "measured", "accepted"];
    let cells = |row: &CheckRow| [&row.what, &row.configured, &row.measured, &row.accepted].map(|text| plain(text));
    let rows: Vec<[String; 4]> = view.rows.iter().map(cells).collect();
    let width =
        |column: usize| rows.iter().map(|row| length(&row[column])).max().unwrap_or(0).max(length(heads[column]));
    let widths = [0, 1, 2, 3].map(width);
    let pad = |text: &str, column: usize| {
        let gap = " ".repeat(widths[column] - length(text));
        if column == 0 { format!("{text}{gap}") } else { format!("  {gap}{text}") }
    };
    let head: String = (0..4).map(|column| pad(heads[column], column)).collect();
    page.line(&[(&format!("{:MARGIN$}{head}", ""), Ink::Label)]);
    for (cells, row) in rows.iter().zip(&view.rows) {
        let text: String = (1..4).map(|column| pad(&cells[column], column)).collect();
        let (word, ink) = match row.as_configured {
            Some(true) => ("  ok", Ink::Good),
            Some(false) => ("  NOT AS CONFIGURED", Ink::Bad),
            None => ("", Ink::Plain),
        };
        let what = format!("{:MARGIN$}{}", "", pad(&cells[0], 0));
        page.line(&[(&what, Ink::Label), (&text, Ink::Plain), (word, ink)]);
    }
    page.blank();
    let off = view.rows.iter().filter(|row| row.as_configured == Some(false)).count();
    let judged = view.rows.iter().filter(|row| row.as_configured.is_some()).count();
    match off {
        0 => page.entry_in("verdict", &format!("all {judged} figures as configured"), Ink::Good),
        _ => page.entry_in("verdict", &format!("{off} of {judged} figures not as configured"), Ink::Bad),
    }
    for note in &view.notes {
        page.entry("note", note);
    }
    page.into_text()
}
