//! A list of URLs in a file.

use std::path::Path;

/// Most lines that ask for something.
pub const URLS_MAX: usize = 1_000_000;

/// A line of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<'a> {
    /// As written.
    pub url: &'a str,
    /// Where one was written.
    pub weight: Option<f64>,
}

/// Reads a list: one URL a line, behind it perhaps a weight. Empty lines, and lines that begin with `#`, are passed over.
/// URLs are taken as they are: braces are no places here.
///
/// # Errors
/// No URL at all, too many, or a weight that is none, with its line.
pub fn read<'a>(text: &'a str, file: &Path) -> Result<Vec<Listed<'a>>, String> {
    let mut listed = Vec::new();
    for (number, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let mut words = line.split_ascii_whitespace();
        let url = words.next().unwrap_or_default();
        let weight = match (words.next(), words.next()) {
            (None, _) => None,
            (Some(word), None) => match word.parse::<f64>() {
                Ok(weight) if weight > 0.0 && weight.is_finite() => Some(weight),
                _ => {
                    return Err(format!(
                        "{}:{number}: `{}` behind the URL is no weight: a number above 0 is wanted",
                        file.display(),
                        word.escape_debug()
                    ));
                }
            },
            _ => {
                return Err(format!(
                    "{}:{number}: one URL a line is wanted, behind it perhaps a weight (write %20 for a space)",
                    file.display()
                ));
            }
        };
        listed.push(Listed { url, weight });
    }
    match listed.len() {
        0 => Err(format!("{}: no URL stands in it", file.display())),
        number if number > URLS_MAX => {
            Err(format!("{}: {number} URLs are more than the {URLS_MAX} that are possible", file.display()))
        }
        _ => Ok(listed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_weights_and_comments() {
        let read = |text| read(text, Path::new("urls.txt"));
        let text = "# a list\n\n  http://h/a#b  \r\nhttp://h/c?d={e}\t2.5\n/f 1\n";
        let listed: Vec<(&str, Option<f64>)> = read(text).unwrap().iter().map(|line| (line.url, line.weight)).collect();
        assert_eq!(listed, [("http://h/a#b", None), ("http://h/c?d={e}", Some(2.5)), ("/f", Some(1.0))]);
        for (bad, words) in [
            ("", "no URL"),
            ("# only words\n", "no URL"),
            ("http://h/\nhttp://h/ 0\n", "urls.txt:2: `0`"),
            ("http://h/ -1", "no weight"),
            ("http://h/ inf", "no weight"),
            ("http://h/ NaN", "no weight"),
            ("http://h/ x", "no weight"),
            ("http://h/a b 1", "urls.txt:1: one URL a line"),
        ] {
            let said = read(bad).unwrap_err();
            assert!(said.contains(words), "{bad}: {said}");
        }
    }
}
