//! Any table of a run as text: comma-separated values (RFC 4180) and JSON lines. Column names, units and order are
//! those of docs/concepts/columns.md.
//!
//! Row by row: a table may have more rows than fit in memory.

use std::borrow::Cow;
use std::io::{self, Write};

use schema::table::{Column, Record, Value as CellValue};
use serde_json::{Map, Value};

/// Writes a head and a line per row, as [`write_csv_head`] and [`write_csv`] do.
///
/// # Errors
/// A row cannot be read, or `out` cannot be written: `io::Error::other` holds the former.
pub fn csv<R: Record>(rows: impl Iterator<Item = store::Result<R>>, out: &mut dyn Write) -> io::Result<u64> {
    let columns = R::columns();
    write_csv_head(&columns, out)?;
    let mut count = 0;
    for row in rows {
        write_csv(&columns, &row.map_err(io::Error::other)?, out)?;
        count += 1;
    }
    Ok(count)
}

/// Writes the names of the columns, ended by CRLF.
///
/// # Errors
/// `out` cannot be written.
pub fn write_csv_head<R>(columns: &[Column<R>], out: &mut dyn Write) -> io::Result<()> {
    let names: Vec<&str> = columns.iter().map(|column| column.description.name.as_str()).collect();
    write!(out, "{}\r\n", names.join(","))
}

/// Writes a row as a line, ended by CRLF. A missing value is an empty field. Text is quoted if necessary; control characters
/// and spreadsheet formulas are escaped ([`harmless`]).
///
/// # Errors
/// `out` cannot be written.
pub fn write_csv<R>(columns: &[Column<R>], row: &R, out: &mut dyn Write) -> io::Result<()> {
    let mut line = String::new();
    for (at, column) in columns.iter().enumerate() {
        if at > 0 {
            line.push(',');
        }
        match column.get(row) {
            CellValue::Null => {}
            CellValue::Integer(value) => line.push_str(&value.to_string()),
            CellValue::Float(value) => line.push_str(&value.to_string()),
            CellValue::Flag(value) => line.push_str(if value { "true" } else { "false" }),
            CellValue::Text(text) => push_field(&mut line, &text),
        }
    }
    line.push_str("\r\n");
    out.write_all(line.as_bytes())
}

/// Writes a JSON object a line, as [`write_json`] does.
///
/// # Errors
/// As for [`csv`].
pub fn jsonl<R: Record>(rows: impl Iterator<Item = store::Result<R>>, out: &mut dyn Write) -> io::Result<u64> {
    let columns = R::columns();
    let mut count = 0;
    for row in rows {
        write_json(&columns, &row.map_err(io::Error::other)?, out)?;
        count += 1;
    }
    Ok(count)
}

/// Writes a row as a JSON object and a line feed.
///
/// # Errors
/// `out` cannot be written.
pub fn write_json<R>(columns: &[Column<R>], row: &R, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, &object(columns, row))?;
    out.write_all(b"\n")
}

/// A row as a JSON object. A missing value is null.
pub fn object<R>(columns: &[Column<R>], row: &R) -> Map<String, Value> {
    let cell = |column: &Column<R>| match column.get(row) {
        CellValue::Null => Value::Null,
        CellValue::Integer(value) => Value::from(value),
        CellValue::Float(value) => Value::from(value),
        CellValue::Flag(value) => Value::from(value),
        CellValue::Text(text) => Value::from(text.into_owned()),
    };
    columns.iter().map(|column| (column.description.name.clone(), cell(column))).collect()
}

/// Adds a field of CSV (RFC 4180): quoted if necessary, never a spreadsheet formula, without control characters.
pub fn push_field(line: &mut String, text: &str) {
    let text = harmless(text);
    if text.contains(['"', ',']) {
        line.push('"');
        line.push_str(&text.replace('"', "\"\""));
        line.push('"');
    } else {
        line.push_str(&text);
    }
}

/// Text for a cell. A spreadsheet takes a cell that begins with `=`, `+`, `-` or `@` (also in full width or after white space)
/// for a formula, so an apostrophe is put before it. Control characters become `\xNN`.
fn harmless(text: &str) -> Cow<'_, str> {
    // Spreadsheets ignore white space before the sign (OWASP, CSV injection). A number is not a formula.
    let is_formula =
        text.trim_start().starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']) && text.parse::<f64>().is_err();
    if !is_formula && !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::from(if is_formula { "'" } else { "" });
    for c in text.chars() {
        if c.is_control() {
            c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| safe.push_str(&format!("\\x{byte:02x}")));
        } else {
            safe.push(c);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{RequestRecord, SecondRecord, WireRequest};

    fn written<R: Record>(
        of: impl Fn(std::vec::IntoIter<store::Result<R>>, &mut dyn Write) -> io::Result<u64>,
        rows: &[R],
    ) -> String {
        let mut out = Vec::new();
        let rows: Vec<store::Result<R>> = rows.iter().cloned().map(Ok).collect();
        let count = rows.len() as u64;
        assert_eq!(of(rows.into_iter(), &mut out).unwrap(), count);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn csv_has_every_column_and_empty_cells_for_missing_values() {
        let row = RequestRecord { sequence: 7, bytes_received: 300, ..RequestRecord::BLANK };
        let text = written(csv, &[row]);
        let lines: Vec<&str> = text.split("\r\n").collect();
        let (head, cells): (Vec<&str>, Vec<&str>) = (lines[0].split(',').collect(), lines[1].split(',').collect());
        assert_eq!(
            (head.len(), cells.len(), lines[2]),
            (RequestRecord::columns().len(), RequestRecord::columns().len(), "")
        );
        let cell = |name: &str| cells[head.iter().position(|known| *known == name).unwrap()];
        assert_eq!(
            [cell("sequence"), cell("bytes_received"), cell("started_at_ns"), cell("cause")],
            ["7", "300", "", ""]
        );
        let object: Value = serde_json::from_str(&written(jsonl, &[row])).unwrap();
        assert_eq!((&object["sequence"], &object["started_at_ns"]), (&Value::from(7), &Value::Null));
        assert_eq!(object.as_object().unwrap().len(), RequestRecord::columns().len());
    }

    #[test]
    fn csv_and_json_keep_fractions_and_booleans() {
        let row = SecondRecord { measured: true, in_flight_mean: 0.1, ..SecondRecord::default() };
        assert!(written(csv, &[row]).contains(",true") || written(csv, &[row]).contains("true,"));
        let object: Value = serde_json::from_str(&written(jsonl, &[row])).unwrap();
        assert_eq!((&object["measured"], object["in_flight_mean"].as_f64()), (&Value::from(true), Some(0.1)));
    }

    #[test]
    fn csv_cell_is_never_a_spreadsheet_formula() {
        for (text, cell) in [
            ("=1+1", "'=1+1"),
            ("+1;2", "'+1;2"),
            ("-cmd|' /C calc'!A0", "'-cmd|' /C calc'!A0"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\t=1", "'\\x09=1"),
            ("\r=1", "'\\x0d=1"),
            (" =1", "' =1"),
            ("＝1", "'＝1"),
            ("=\"a\",b", "\"'=\"\"a\"\",b\""),
            ("-1.5", "-1.5"),
            ("/a=b", "/a=b"),
            ("", ""),
        ] {
            let mut line = String::new();
            push_field(&mut line, text);
            assert_eq!(line, cell, "{text:?}");
        }
    }

    #[test]
    fn csv_escapes_text_from_requests() {
        let row = WireRequest {
            path: Some(b"/a,\"b\"\r\n"[..].into()),
            host: Some(b"=1+1"[..].into()),
            ..WireRequest::BLANK
        };
        let text = written(csv, &[row]);
        assert_eq!(text.matches("\r\n").count(), 2, "{text:?}");
        assert!(text.contains("'=1+1,\"/a,\"\"b\"\"\\x0d\\x0a\""), "{text:?}");
    }
}
