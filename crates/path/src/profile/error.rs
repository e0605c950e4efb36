//! Errors of profiles.

use std::path::PathBuf;

/// The file and the error of a profile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("cannot read {what} `{file}`: {source}; give a file, or a name from `yamabiko profile list`", file = file.display())]
    Read {
        /// What the file should contain.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An invalid line.
    #[error("{file}:{line}: {message}", file = file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The error, and the expected form.
        message: String,
    },
    /// Every line is well formed, but the content is inconsistent.
    #[error("{file}: {message}", file = file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// The error, and the expected form.
        message: String,
    },
    /// A change of a class or link that the profile does not have.
    #[error("{0}")]
    Change(String),
}
