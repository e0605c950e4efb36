//! A rate over time from a CSV table, such as `profile learn` writes.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use load::arrivals::{RateOverTime, Stretch};

/// A larger file is refused: it is not a table of rates. A table with a row per second for a year is 600 MB smaller.
const BYTES_MAX: u64 = 256 << 20;

/// The rates of a table, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct RateFile {
    /// One rate per row; after the last row its rate stays.
    pub rate: RateOverTime,
    /// The column that the rates come from.
    pub column: &'static str,
}

/// Columns that rates are read from; the first that exists and is not all zero is used.
const COLUMNS: [&str; 3] = ["rate_per_s", "requests", "connections"];

impl RateFile {
    /// Reads a CSV file with a header: `length_s` (seconds that a row lasts), and `rate_per_s`, or counts of
    /// `requests`, or of `connections` if no row has requests.
    ///
    /// # Errors
    /// An unreadable file, a missing column, or a field that is not a number, with its line.
    pub fn read(file: &Path) -> Result<Self, String> {
        let name = file.display();
        let mut text = String::new();
        let opened = File::open(file).map_err(|error| format!("--rate-file {name}: {error}"))?;
        let read = opened.take(BYTES_MAX + 1).read_to_string(&mut text);
        read.map_err(|error| format!("--rate-file {name}: {error}"))?;
        if text.len() as u64 > BYTES_MAX {
            return Err(format!(
                "--rate-file {name}: larger than {} MB, which is not a table of rates",
                BYTES_MAX >> 20
            ));
        }
        RateFile::parse(&text).map_err(|why| format!("--rate-file {name}: {why}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut lines = text.trim_start_matches('\u{feff}').lines().enumerate().filter(|(_, line)| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#')
        });
        let (_, header) = lines.next().ok_or("the file is empty")?;
        let names: Vec<&str> = header.split(',').map(str::trim).collect();
        let place = |name: &str| names.iter().position(|&other| other == name);
        let length = place("length_s").ok_or("there is no column length_s")?;
        let columns = COLUMNS.map(place);
        if columns == [None; 3] {
            return Err("none of the columns rate_per_s, requests and connections exists".into());
        }
        let mut rows: Vec<(usize, f64, [Option<f64>; 3])> = Vec::new();
        for (line, row) in lines {
            let fields: Vec<&str> = row.split(',').map(str::trim).collect();
            let number = |place: usize| -> Result<Option<f64>, String> {
                match fields.get(place).copied().unwrap_or_default() {
                    "" => Ok(None),
                    field => match field.parse::<f64>() {
                        Ok(value) if value.is_finite() && value >= 0.0 => Ok(Some(value)),
                        _ => Err(format!("line {}: `{}` is not a number of 0 or more", line + 1, field.escape_debug())),
                    },
                }
            };
            let lasts = number(length)?.ok_or_else(|| format!("line {}: length_s is missing", line + 1))?;
            let mut values = [None; 3];
            for (value, place) in values.iter_mut().zip(columns) {
                *value = place.map_or(Ok(None), number)?;
            }
            rows.push((line, lasts, values));
        }
        let has_values =
            |column: &usize| rows.iter().any(|(_, _, values)| values[*column].is_some_and(|value| value > 0.0));
        let column = (0..COLUMNS.len()).find(has_values).ok_or("all rates are 0")?;
        let mut stretches = Vec::with_capacity(rows.len());
        for &(line, lasts_s, values) in &rows {
            // The first and the last row of a capture may be very short.
            let Ok(lasts) = Duration::try_from_secs_f64(lasts_s) else {
                return Err(format!("line {}: length_s is too large", line + 1));
            };
            if lasts.is_zero() {
                continue;
            }
            let value = values[column].unwrap_or(0.0);
            let per_s = if column == 0 { value } else { value / lasts_s };
            stretches.push(Stretch { lasts, from_per_s: per_s, to_per_s: per_s });
        }
        let rate = RateOverTime::new(&stretches).map_err(|(row, why)| format!("row {}: {why}", row + 1))?;
        Ok(RateFile { rate, column: COLUMNS[column] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(text: &str) -> Vec<f64> {
        let read = RateFile::parse(text).unwrap();
        let seconds = read.rate.length().as_secs_f64().ceil() as u64;
        (0..seconds).map(|second| read.rate.per_second(Duration::from_secs(second))).collect()
    }

    #[test]
    fn rate_file_reads_the_table_of_profile_learn() {
        let learnt = "start_s,length_s,connections,requests\n0,1,5,20\n1,1,0,0\n2,0.5,3,10\n";
        assert_eq!(rates(learnt), [20.0, 0.0, 20.0]);
        assert_eq!(RateFile::parse(learnt).unwrap().column, "requests");
        let unread = "start_s,length_s,connections,requests\n0,1,5,\n1,1,7,\n";
        assert_eq!((rates(unread), RateFile::parse(unread).unwrap().column), (vec![5.0, 7.0], "connections"));
        assert_eq!(rates("\u{feff}# made by hand\nlength_s, rate_per_s\n2, 12.5\n"), [12.5, 12.5]);
    }

    #[test]
    fn invalid_rate_tables_are_refused_with_the_line() {
        for (text, why) in [
            ("", "empty"),
            ("start_s,requests\n0,1\n", "no column length_s"),
            ("length_s,bytes\n1,1\n", "none of the columns"),
            ("length_s,requests\n1,0\n", "all rates are 0"),
            ("length_s,requests\n1,-5\n", "line 2"),
            ("length_s,requests\n1,5\nNaN,1\n", "line 3"),
            ("length_s,requests\n,5\n", "length_s is missing"),
            ("length_s,requests\n1e300,5\n", "too large"),
            ("length_s,rate_per_s\n1,1e12\n", "row 1"),
        ] {
            let error = RateFile::parse(text).unwrap_err();
            assert!(error.contains(why), "{text:?}: {error}");
        }
    }
}
