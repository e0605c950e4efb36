//! Any program through the lab's gateway.

use std::ffi::OsString;

use super::{GatewayUsed, LabFacts, LabSpec, LinkFigures};
use crate::error::LabError;

/// What is to be run, as meant.
#[derive(Clone, Debug, PartialEq)]
pub struct Through {
    /// The lab.
    pub lab: LabSpec,
    /// A shell command at the server's end, which is up before the program starts.
    pub server: Option<String>,
    /// The program at the clients' end.
    pub command: Vec<OsString>,
}

/// How it went.
#[derive(Clone, Debug)]
pub struct ThroughOutcome {
    /// The program's exit status; 128 and the signal's number if one ended it, as in a shell.
    pub status: u8,
    /// What the gateway used while it ran.
    pub used: GatewayUsed,
    /// What the links did meanwhile.
    pub links: [LinkFigures; 2],
    /// What is to be said of the lab.
    pub facts: LabFacts,
}

/// Runs it. The program has the terminal, and Ctrl-C is for it alone. Must be called while this process has one thread.
/// `tell` gets a line about the lab before the program starts.
///
/// # Errors
/// A lab that cannot be made, a program that cannot be started.
pub fn through(_through: &Through, _tell: impl FnMut(&str)) -> Result<ThroughOutcome, LabError> {
    Err(LabError::Environment("the gateway's lab is not there yet".into()))
}
