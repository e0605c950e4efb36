//! Why a profile cannot be used.

use std::path::PathBuf;

/// What is wrong with a profile, and with which file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The file cannot be read.
    #[error("cannot read {what} `{file}`: {source}; give a file, or a name from `yamabiko profile list`", file = file.display())]
    Read {
        /// What it was to be.
        what: &'static str,
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A line that does not say what it should.
    #[error("{file}:{line}: {message}", file = file.display())]
    Line {
        /// The file.
        file: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// Every line is well formed, but together they make no profile.
    #[error("{file}: {message}", file = file.display())]
    Content {
        /// The file.
        file: PathBuf,
        /// What is wrong, and what would be right.
        message: String,
    },
    /// A change of what the path does not have.
    #[error("{0}")]
    Change(String),
}
