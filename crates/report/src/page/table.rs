//! A table on a page.

use crate::plot::escape;

/// Rows of text under heads. The first column names the rows and stands left; the others are figures and stand right,
/// unless [`Table::left`] says otherwise.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    left: Vec<usize>,
}

impl Table {
    /// An empty table. `head[0]` names the rows and may be empty; an empty `head` shows none.
    pub fn new(head: &[&str]) -> Self {
        Table { head: head.iter().map(|&name| name.to_owned()).collect(), ..Table::default() }
    }

    /// Adds a row; it may be short.
    pub fn row<T: Into<String>>(mut self, cells: impl IntoIterator<Item = T>) -> Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// Columns, from 0, that hold words: they stand left and may break into lines.
    pub fn left(mut self, columns: &[usize]) -> Self {
        self.left.extend_from_slice(columns);
        self
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Heads, rows, and the columns that hold words besides the first.
    pub(super) fn cells(&self) -> (&[String], &[Vec<String>], &[usize]) {
        (&self.head, &self.rows, &self.left)
    }

    pub(super) fn head(&self) -> &[String] {
        &self.head
    }

    pub(super) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Whether a column's cells stand left.
    pub(super) fn is_left(&self, column: usize) -> bool {
        column == 0 || self.left.contains(&column)
    }

    pub(super) fn html(&self) -> String {
        let mut html = String::from("<div class=\"scroll\"><table>");
        if self.head.iter().any(|name| !name.is_empty()) {
            html.push_str("<thead><tr>");
            for (at, name) in self.head.iter().enumerate() {
                html.push_str(&format!("<th scope=\"col\"{}>{}</th>", self.class(at), escape(name)));
            }
            html.push_str("</tr></thead>");
        }
        html.push_str("<tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (at, cell) in row.iter().enumerate() {
                html.push_str(&match at {
                    0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
                    _ => format!("<td{}>{}</td>", self.class(at), escape(cell)),
                });
            }
            html.push_str("</tr>");
        }
        html + "</tbody></table></div>"
    }

    fn class(&self, column: usize) -> &'static str {
        if self.is_left(column) { " class=\"words\"" } else { "" }
    }
}
