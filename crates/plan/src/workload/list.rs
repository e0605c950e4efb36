//! A list of URLs in a file.

use std::path::Path;

/// Most URLs of a list.
pub const URLS_MAX: usize = 1_000_000;

/// A line of a list.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed<'a> {
    /// The URL as written.
    pub url: &'a str,
    /// The weight, if one is written.
    pub weight: Option<f64>,
}

/// Parses a list: one URL a line, optionally followed by a weight. Empty lines and lines that begin with `#` are
/// ignored. URLs are literal: braces are not placeholders.
///
/// # Errors
/// No URL, too many of them, or an invalid weight, with its line.
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
                        "{}:{number}: `{}` after the URL is not a valid weight: expected a number above 0",
                        file.display(),
                        word.escape_debug()
                    ));
                }
            },
            _ => {
                return Err(format!(
                    "{}:{number}: expected one URL, optionally followed by a weight (write %20 for a space)",
                    file.display()
                ));
            }
        };
        listed.push(Listed { url, weight });
    }
    match listed.len() {
        0 => Err(format!("{}: expected at least one URL", file.display())),
        number if number > URLS_MAX => Err(format!("{}: {number} URLs: expected at most {URLS_MAX}", file.display())),
        _ => Ok(listed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_lists_have_weights_and_comments() {
        let read = |text| read(text, Path::new("urls.txt"));
        let text = "# a list\n\n  http://h/a#b  \r\nhttp://h/c?d={e}\t2.5\n/f 1\n";
        let listed: Vec<(&str, Option<f64>)> = read(text).unwrap().iter().map(|line| (line.url, line.weight)).collect();
        assert_eq!(listed, [("http://h/a#b", None), ("http://h/c?d={e}", Some(2.5)), ("/f", Some(1.0))]);
        for (bad, words) in [
            ("", "at least one URL"),
            ("# only words\n", "at least one URL"),
            ("http://h/\nhttp://h/ 0\n", "urls.txt:2: `0`"),
            ("http://h/ -1", "not a valid weight"),
            ("http://h/ inf", "not a valid weight"),
            ("http://h/ NaN", "not a valid weight"),
            ("http://h/ x", "not a valid weight"),
            ("http://h/a b 1", "urls.txt:1: expected one URL"),
        ] {
            let message = read(bad).unwrap_err();
            assert!(message.contains(words), "{bad}: {message}");
        }
    }
}
