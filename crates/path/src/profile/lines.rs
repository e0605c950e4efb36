//! Lines of the files to which a profile refers.

use std::path::Path;

use units::parse_duration;
use units::time::saturating_nanos;

use super::Files;
use super::error::ProfileError;

/// The text of a file; `what` names its expected content in errors.
pub(super) fn read(what: &'static str, file: &Path, files: Files<'_>) -> Result<String, ProfileError> {
    files(file).map_err(|source| ProfileError::Read { what, file: file.to_owned(), source })
}

/// Lines with their numbers, without blank lines and comments.
pub(super) fn content(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// The values of a line of CSV.
pub(super) fn cells(line: &str) -> impl Iterator<Item = &str> {
    line.split(',').map(str::trim)
}

/// A time with its unit, in nanoseconds.
pub(super) fn typed_rtt(cell: &str) -> Result<u64, String> {
    parse_duration(cell).map(saturating_nanos).map_err(|error| error.to_string())
}

/// An error in a line, counted from 1.
pub(super) fn line_error(file: &Path, line: usize, message: impl Into<String>) -> ProfileError {
    ProfileError::Line { file: file.to_owned(), line, message: message.into() }
}

/// An error in a file whose lines are well formed.
pub(super) fn content_error(file: &Path, message: &str) -> ProfileError {
    ProfileError::Content { file: file.to_owned(), message: message.to_owned() }
}
