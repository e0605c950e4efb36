//! Errors of an experiment.

use std::path::PathBuf;

use store::StoreError;
use testbed::TestbedError;

/// What ends an experiment. A run with a verdict other than valid does not: its checks have the reasons.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The testbed could not make a run.
    #[error(transparent)]
    Lab(#[from] TestbedError),
    /// The peer of a measurement could not be reached, or refused; the error is that of the measuring crate.
    #[error(transparent)]
    Peer(Box<dyn std::error::Error + Send + Sync>),
    /// The run store could not be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A server on this host could not be started.
    #[error(transparent)]
    System(#[from] sys::Error),
    /// A program that the experiment needs is not installed.
    #[error("{program} is not installed; {fix}")]
    Missing {
        /// The program's name.
        program: &'static str,
        /// How to install the program.
        fix: &'static str,
    },
    /// The plan cannot be carried out.
    #[error("{0}")]
    Plan(String),
    /// A disk has too little free space.
    #[error("{0}")]
    Room(String),
    /// A file of the experiment could not be written or read.
    #[error("{}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A foreign program printed something that cannot be parsed.
    #[error("{program}: {why}")]
    Program {
        /// The program's name.
        program: &'static str,
        /// The error, with the program's own output.
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
