//! Detects the capabilities of the terminal, and writes to it.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use report::Style;

/// The style for results on stdout: colour on a terminal unless NO_COLOR is set.
pub fn style() -> Style {
    let width =
        std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).or_else(sys::limits::terminal_width);
    Style {
        color: colors_on(std::io::stdout().is_terminal()),
        width: u16::try_from(width.unwrap_or(100)).unwrap_or(u16::MAX),
        unicode: locale_is_utf8(),
    }
}

/// The style for results on stderr, for verbs whose stdout belongs to the measured program.
pub fn error_style() -> Style {
    let is_terminal = std::io::stderr().is_terminal();
    Style { color: colors_on(is_terminal), ..style() }
}

/// Writes a line to stderr, and ignores errors: `eprintln!` would panic at a closed pipe or a full disk. Control and
/// bidirectional characters from names, headers, URLs or peers are escaped.
pub fn print_message(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", units::printable_lines(&line.to_string()));
}

/// Writes results to stdout. On a terminal characters are escaped as by [`print_message`], except the colours of
/// [`style`]; a pipe or a file receives the text unchanged.
///
/// # Errors
/// Those of write(2).
pub fn write_out(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout();
    if stdout.is_terminal() {
        stdout.write_all(escape_except_colours(text).as_bytes())
    } else {
        stdout.write_all(text.as_bytes())
    }
}

/// Escapes unprintable characters except colours (SGR sequences, `ESC [ 1 ; 31 m`), line feeds and tabs.
fn escape_except_colours(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(units::is_unprintable) {
        shown.push_str(&rest[..at]);
        rest = &rest[at..];
        let after = rest
            .strip_prefix("\u{1b}[")
            .map_or("", |after| after.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';'));
        let escape_length = if after.starts_with('m') {
            rest.len() - after.len() + 1
        } else if rest.starts_with(['\n', '\t']) {
            1
        } else {
            0
        };
        shown.push_str(&rest[..escape_length]);
        rest = &rest[escape_length..];
        if escape_length == 0 {
            let end = rest.chars().next().map_or(0, char::len_utf8);
            shown.push_str(&units::printable(&rest[..end]));
            rest = &rest[end..];
        }
    }
    shown + rest
}

/// Whether to use colours on stdout or stderr.
fn colors_on(is_terminal: bool) -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_terminal && !no_color && std::env::var("TERM").as_deref() != Ok("dumb")
}

fn locale_is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_default();
    // A container or service may have no locale; current terminals show UTF-8.
    locale.is_empty() || locale.to_ascii_lowercase().replace('-', "").contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_kept_and_other_escape_sequences_escaped() {
        for (text, shown) in [
            ("\u{1b}[1;31mred\u{1b}[0m\n\tplain\n", "\u{1b}[1;31mred\u{1b}[0m\n\tplain\n"),
            ("\u{1b}[2Jcleared", "\\u{1b}[2Jcleared"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\u{202e}b\r", "a\\u{202e}b\\r"),
            ("end\u{1b}[", "end\\u{1b}["),
        ] {
            assert_eq!(escape_except_colours(text), shown);
        }
    }
}
