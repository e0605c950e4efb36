//! Why an experiment could not go on.

use std::path::PathBuf;

use store::StoreError;
use testbed::LabError;

/// What stops an experiment. A run whose figures are not to be trusted does not: its checks say so.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The testbed could not make a run.
    #[error(transparent)]
    Lab(#[from] LabError),
    /// The other end of a measurement could not be reached, or refused; the error is the one of the crate that measures.
    #[error(transparent)]
    Peer(Box<dyn std::error::Error + Send + Sync>),
    /// The results directory could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A server on this host could not be started.
    #[error(transparent)]
    System(#[from] sys::Error),
    /// A program that the experiment needs is not installed.
    #[error("{program} is not installed; {fix}")]
    Missing {
        /// Its name.
        program: &'static str,
        /// How to fix that.
        fix: &'static str,
    },
    /// The plan cannot be carried out.
    #[error("{0}")]
    Plan(String),
    /// A disk has too little room.
    #[error("{0}")]
    Room(String),
    /// A file of the experiment's own could not be written or read.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A program ran but said something that is not understood.
    #[error("{program}: {why}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What was wrong, with its own words.
        why: String,
    },
}

impl ExperimentError {
    /// The error of a file: turns an I/O error into one that names `path`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> ExperimentError {
        let path = path.into();
        move |source| ExperimentError::File { path, source }
    }
}
