//! Exit statuses, and how an error is told.

use std::process::ExitCode;

use lab::LabError;
use ledger::{Document, Verdict};

/// How a verb ended, when it did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A valid result, or nothing to judge.
    Fine,
    /// The measurement is invalid (or suspect, with `--strict`).
    Invalid,
    /// The objective is not met.
    ObjectiveMissed,
    /// The program that `net` ran ended with this status.
    Program(u8),
}

/// Wrong usage or plan.
const USAGE: u8 = 1;
/// The environment lacks something.
const ENVIRONMENT: u8 = 2;
const INVALID: u8 = 3;
const OBJECTIVE: u8 = 4;

/// What a run's document means for the exit status. An invalid measurement outranks a missed objective: nobody knows
/// whether it was missed.
pub fn of_document(document: &Document, strict: bool) -> Exit {
    match document.validity.verdict {
        Verdict::Invalid => Exit::Invalid,
        Verdict::Suspect if strict => Exit::Invalid,
        _ if document.slo.as_ref().is_some_and(|slo| !slo.met) => Exit::ObjectiveMissed,
        _ => Exit::Fine,
    }
}

/// The process's exit status; an error is printed as one line.
pub fn code(outcome: anyhow::Result<Exit>) -> ExitCode {
    match outcome {
        Ok(Exit::Fine) => ExitCode::SUCCESS,
        Ok(Exit::Invalid) => ExitCode::from(INVALID),
        Ok(Exit::ObjectiveMissed) => ExitCode::from(OBJECTIVE),
        Ok(Exit::Program(status)) => ExitCode::from(status),
        Err(error) => {
            eprintln!("yamabiko: {}", one_line(&error));
            ExitCode::from(match error.downcast_ref::<LabError>() {
                Some(LabError::Environment(_) | LabError::System { .. }) => ENVIRONMENT,
                _ => match error.downcast_ref::<std::io::Error>() {
                    Some(_) => ENVIRONMENT,
                    None => USAGE,
                },
            })
        }
    }
}

/// Arguments that clap refused, or help and version.
pub fn usage(error: &clap::Error) -> ExitCode {
    // Nothing can be done about a terminal that is gone.
    let _ = error.print();
    if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS }
}

/// The chain of causes on one line, each said once.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !line.contains(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
    }
    line
}
