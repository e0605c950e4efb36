//! What a path really gives: asked beside got.

use super::super::Style;
use super::super::page::{Ink, MARGIN, Page, length};
use crate::figures::plain;

/// A check of a path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckView {
    /// The path, by name.
    pub name: String,
    /// In the order measured.
    pub rows: Vec<CheckRow>,
    /// A sentence each.
    pub notes: Vec<String>,
}

/// One figure; its texts with their units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckRow {
    /// What was measured.
    pub what: String,
    /// What was asked for; empty where nothing was.
    pub asked: String,
    /// What was measured.
    pub got: String,
    /// Least and most that is as asked; empty where nothing is judged.
    pub between: String,
    /// Whether it is as asked; `None`: shown, not judged.
    pub as_asked: Option<bool>,
}

/// A table with a verdict in each row, and one below.
pub fn check(view: &CheckView, style: Style) -> String {
    let mut page = Page::new(style);
    page.line(&[(&" ".repeat(MARGIN), Ink::Plain), (&view.name, Ink::Strong)]);
    page.blank();
    let heads = ["", "asked", "got", "as asked if"];
    let cells = |row: &CheckRow| [&row.what, &row.asked, &row.got, &row.between].map(|text| plain(text));
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
        let (word, ink) = match row.as_asked {
            Some(true) => ("  ok", Ink::Good),
            Some(false) => ("  NOT AS ASKED", Ink::Bad),
            None => ("", Ink::Plain),
        };
        let what = format!("{:MARGIN$}{}", "", pad(&cells[0], 0));
        page.line(&[(&what, Ink::Label), (&text, Ink::Plain), (word, ink)]);
    }
    page.blank();
    let off = view.rows.iter().filter(|row| row.as_asked == Some(false)).count();
    let judged = view.rows.iter().filter(|row| row.as_asked.is_some()).count();
    match off {
        0 => page.entry_in("verdict", &format!("the path gives what was asked: {judged} of {judged}"), Ink::Good),
        _ => page.entry_in("verdict", &format!("{off} of {judged} are not as asked"), Ink::Bad),
    }
    for note in &view.notes {
        page.entry("note", note);
    }
    page.into_text()
}
