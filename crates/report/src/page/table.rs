//! A table on a page.

use crate::plot::escape;

/// Rows of text under column heads. The first column is aligned left, the others right, except those of
/// [`Table::left`].
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    left: Vec<usize>,
}

impl Table {
    /// An empty table. `head[0]` names the rows and may be empty; an empty `head` shows no head.
    pub fn new(head: &[&str]) -> Self {
        Table { head: head.iter().map(|&name| name.to_owned()).collect(), ..Table::default() }
    }

    /// Adds a row; it may be short.
    pub fn row<T: Into<String>>(mut self, cells: impl IntoIterator<Item = T>) -> Self {
        self.rows.push(cells.into_iter().map(Into::into).collect());
        self
    }

    /// Columns of text, from 0: they are aligned left and may wrap.
    pub fn left(mut self, columns: &[usize]) -> Self {
        self.left.extend_from_slice(columns);
        self
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Removes columns without any text, except the first.
    pub(super) fn without_empty_columns(self) -> Table {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let has = |column: usize| self.rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()));
        let columns_used: Vec<usize> = (0..columns).filter(|&column| column == 0 || has(column)).collect();
        if columns_used.len() == columns {
            return self;
        }
        let of = |cells: &Vec<String>| columns_used.iter().filter_map(|&column| cells.get(column).cloned()).collect();
        let left = columns_used
            .iter()
            .enumerate()
            .filter(|(_, column)| self.left.contains(column))
            .map(|(now, _)| now)
            .collect();
        Table { head: of(&self.head), rows: self.rows.iter().map(of).collect(), left }
    }

    /// Heads, rows, and the columns of text other than the first.
    pub(super) fn cells(&self) -> (&[String], &[Vec<String>], &[usize]) {
        (&self.head, &self.rows, &self.left)
    }

    pub(super) fn head(&self) -> &[String] {
        &self.head
    }

    pub(super) fn rows(&self) -> &[Vec<String>] {
        &self.rows
    }

    /// Whether a column is aligned left.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_columns_are_removed_except_the_first() {
        let table = Table::new(&["program", "why", "connections", "seen"]).left(&[1, 3]);
        let table = table.row(["curl", "", "6", "seen"]).row(["sh", "", "", ""]).without_empty_columns();
        assert_eq!(table.head, ["program", "connections", "seen"]);
        assert_eq!(table.rows, [["curl", "6", "seen"], ["sh", "", ""]]);
        assert_eq!(table.left, [2]);
        // A table without rows keeps its columns, and an empty first column stays.
        assert_eq!(Table::new(&["a", "b"]).without_empty_columns().head, ["a", "b"]);
        assert_eq!(Table::new(&["", "b"]).row(["", "1"]).without_empty_columns().rows, [["", "1"]]);
    }
}
