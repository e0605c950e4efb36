//! Sections of a report's page, shown on the live page as well.

use super::state::{Drawing, Piece, Section, Table, Text};
use crate::page::parts::Part;
use crate::page::{self, Page};
use crate::plot::{Figure, Width};

/// The sections of a page. `id` is the prefix of their ids.
pub(super) fn sections_of(page: &Page, id: &str) -> Vec<Section> {
    let mut sections = sections(page.parts(), id);
    // The live page has this part already.
    sections.retain(|section| section.heading != "Repeat it");
    sections
}

/// One section of a page; nothing for an empty section.
pub(super) fn section_of(section: &page::Section, id: &str) -> Vec<Section> {
    sections(section.parts(), id)
}

/// A plot as a piece.
pub(super) fn drawing(figure: &Figure, id: String) -> Option<Piece> {
    (!figure.is_empty()).then(|| {
        let wide = figure.is_wide();
        Piece::Drawing(Drawing {
            id,
            title: figure.title().to_owned(),
            about: figure.about().to_owned(),
            wide,
            large: figure.inline(if wide { Width::Full } else { Width::Half }),
            small: figure.inline(Width::Narrow),
        })
    })
}

fn sections(parts: Vec<Part<'_>>, id: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for (at, part) in parts.into_iter().enumerate() {
        if let Part::Heading(heading) = part {
            sections.push(Section::new(format!("{id}-{at}"), heading));
            continue;
        }
        if sections.is_empty() {
            sections.push(Section::new(id, ""));
        }
        let section = sections.last_mut().expect("there is one now");
        // The id is the piece's position in its section, so that it stays the same when a previous section grows.
        let id = format!("{}-{}", section.id, section.pieces.len());
        section.pieces.extend(piece(part, id));
    }
    sections.retain(|section| !section.pieces.is_empty());
    sections
}

fn piece(part: Part<'_>, id: String) -> Option<Piece> {
    match part {
        Part::Heading(_) => None,
        Part::Text(text) => Some(Piece::Text(Text { id, text: text.to_owned(), verbatim: false })),
        Part::Verbatim(text) => Some(Piece::Text(Text { id, text: text.to_owned(), verbatim: true })),
        Part::Figure(figure) => drawing(figure, id),
        Part::Table(head, rows, left) => Some(Piece::Table(Table {
            id,
            head: head.to_vec(),
            left: left.to_vec(),
            // A browser cannot redraw a hundred thousand rows each second.
            rows: rows.iter().take(ROWS_MAX).cloned().collect(),
            ..Table::default()
        })),
    }
}

/// Largest number of rows of a table on the live page.
const ROWS_MAX: usize = 500;
