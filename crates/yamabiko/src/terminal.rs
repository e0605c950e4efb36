//! What the terminal can show.

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

/// The style for results on stderr, where stdout is a program's own.
pub fn error_style() -> Style {
    let is_terminal = std::io::stderr().is_terminal();
    Style { color: colors_on(is_terminal), ..style() }
}

/// Writes a line to stderr. Where nobody reads it any more (`2>&1 | head`), or the disk behind it is full, the run goes
/// on: `eprintln!` would panic.
pub fn say(line: impl Display) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Whether to use colours on it.
fn colors_on(is_terminal: bool) -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    is_terminal && !no_color && std::env::var("TERM").as_deref() != Ok("dumb")
}

fn locale_is_utf8() -> bool {
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .unwrap_or_default();
    // A bare environment (a container, a service) says nothing; every terminal of today shows UTF-8.
    locale.is_empty() || locale.to_ascii_lowercase().replace('-', "").contains("utf8")
}
