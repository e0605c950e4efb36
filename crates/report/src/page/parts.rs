//! The parts of a page, for the live page, which has its own rendering.

use super::{Page, Piece, Section};
use crate::plot::Figure;

/// A part of a page in its order; folded parts follow their summary.
pub(crate) enum Part<'a> {
    /// A heading.
    Heading(&'a str),
    /// A paragraph.
    Text(&'a str),
    /// Text to be copied.
    Verbatim(&'a str),
    /// Heads, rows, and the columns of text other than the first.
    Table(&'a [String], &'a [Vec<String>], &'a [usize]),
    /// A plot.
    Figure(&'a Figure),
}

impl Page {
    /// The sentence under the title.
    pub(crate) fn lead_sentence(&self) -> &str {
        &self.lead
    }

    /// Every part of the sections.
    pub(crate) fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        self.sections.iter().for_each(|section| section.put_parts(&mut parts));
        parts
    }
}

impl Section {
    /// Every part of the section.
    pub(crate) fn parts(&self) -> Vec<Part<'_>> {
        let mut parts = Vec::new();
        self.put_parts(&mut parts);
        parts
    }

    fn put_parts<'a>(&'a self, parts: &mut Vec<Part<'a>>) {
        if !self.heading.is_empty() {
            parts.push(Part::Heading(&self.heading));
        }
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => parts.push(Part::Text(text)),
                Piece::Table(table) => {
                    let (head, rows, left) = table.cells();
                    parts.push(Part::Table(head, rows, left));
                }
                Piece::Figure(figure) => parts.push(Part::Figure(figure)),
                Piece::Verbatim { text, .. } => parts.push(Part::Verbatim(text)),
                Piece::Folded { section, .. } => section.put_parts(parts),
            }
        }
    }
}
