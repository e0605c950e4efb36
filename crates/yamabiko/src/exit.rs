//! Exit statuses, and error messages on one line.

use std::process::ExitCode;

use clap::error::ErrorKind;
use experiment::ExperimentError;
use schema::{Document, Validity, Verdict};
use serve::ServeError;
use store::StoreError;
use testbed::TestbedError;

use crate::foreign_options;
use crate::left_out;
use crate::page_file;
use crate::terminal::print_message;

/// How a verb ended without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A valid result, or no result to judge.
    Success,
    /// The measurement is invalid (or suspect, with `--strict`).
    Invalid,
    /// The objective is not met.
    ObjectiveMissed,
    /// The environment lacks something.
    Lacking,
    /// Exit status of the program that `net`, `tap` or `gateway` ran.
    Program(u8),
    /// An exit status of ApacheBench, for `ab`.
    Ab(u8),
}

/// Wrong usage or plan.
const USAGE: u8 = 1;
/// The environment lacks something.
const ENVIRONMENT: u8 = 2;
const INVALID: u8 = 3;
const OBJECTIVE: u8 = 4;

/// The exit status of a run. An invalid measurement takes precedence over a missed objective, which it cannot show.
pub fn of_document(document: &Document, strict: bool) -> Exit {
    match document.validity.verdict {
        Verdict::Invalid => Exit::Invalid,
        Verdict::Suspect if strict => Exit::Invalid,
        _ if document.slo.as_ref().is_some_and(|slo| !slo.met) => Exit::ObjectiveMissed,
        _ => Exit::Success,
    }
}

/// The exit status of a capture.
pub fn of_validity(validity: &Validity) -> Exit {
    if validity.verdict == Verdict::Invalid { Exit::Invalid } else { Exit::Success }
}

/// The process's exit status; an error is printed as one line.
pub fn code(outcome: anyhow::Result<Exit>) -> ExitCode {
    match outcome {
        Ok(Exit::Success) => ExitCode::SUCCESS,
        Ok(Exit::Lacking) => ExitCode::from(ENVIRONMENT),
        Ok(Exit::Invalid) => ExitCode::from(INVALID),
        Ok(Exit::ObjectiveMissed) => ExitCode::from(OBJECTIVE),
        Ok(Exit::Program(status) | Exit::Ab(status)) => ExitCode::from(status),
        Err(error) => {
            let status = status(&error);
            let mut line = one_line(&error);
            if status == ENVIRONMENT && is_checked_by_doctor(&line) {
                line.push_str("; for details run: yamabiko doctor");
            }
            print_error(&line);
            ExitCode::from(status)
        }
    }
}

/// Reports refused arguments, or prints help or version; `words` are the command line.
pub fn usage(error: &clap::Error, words: &[String]) -> ExitCode {
    if let Some(line) = left_out::refusal(error, words) {
        print_error(&line);
    } else if error.use_stderr() && error.kind() != ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let mut text = error.to_string();
        // An error without context comes from a plan and is complete; the usage line would name no verb.
        if error.context().next().is_none() {
            text.truncate(text.find("\n\nUsage:").unwrap_or(text.len()));
        }
        print_error(&refusal(&text, foreign_options::is_misspelt(error), foreign_options::hint(error, words)));
    } else {
        // An error of a closed terminal is ignored.
        let _ = error.print();
    }
    let is_environment_error = error.to_string().contains(page_file::CANNOT_WRITE);
    match error.use_stderr() {
        true if is_environment_error => ExitCode::from(ENVIRONMENT),
        true => ExitCode::from(USAGE),
        false => ExitCode::SUCCESS,
    }
}

/// Prints one line on stderr, with control characters of servers and file names escaped.
pub fn print_error(line: &str) {
    print_message(format_args!("yamabiko: {}", escape_line(line)));
}

fn status(error: &anyhow::Error) -> u8 {
    // Contexts are searched, sources are not: a profile that cannot be read is a wrong plan.
    // An experiment's error has the status of its cause.
    if let Some(error) = error.downcast_ref::<ExperimentError>() {
        return match error {
            ExperimentError::Lab(TestbedError::Plan(_)) | ExperimentError::Plan(_) => USAGE,
            _ => ENVIRONMENT,
        };
    }
    #[cfg(feature = "web")]
    if let Some(error) = error.downcast_ref::<web::WebServerError>() {
        return if matches!(error, web::WebServerError::Secret(_)) { USAGE } else { ENVIRONMENT };
    }
    #[cfg(feature = "agent")]
    if let Some(error) = error.downcast_ref::<agent::AgentError>() {
        return if error.is_plan_error() { USAGE } else { ENVIRONMENT };
    }
    #[cfg(feature = "manager")]
    if let Some(error) = error.downcast_ref::<manager::Error>() {
        return if error.is_of_the_machine() { ENVIRONMENT } else { USAGE };
    }
    let lacking = match (
        error.downcast_ref::<TestbedError>(),
        error.downcast_ref::<StoreError>(),
        error.downcast_ref::<ServeError>(),
    ) {
        (Some(error), ..) => matches!(error, TestbedError::Environment(_) | TestbedError::System { .. }),
        (_, Some(error), _) => matches!(error, StoreError::Io { .. } | StoreError::DiskFull { .. }),
        (.., Some(error)) => !matches!(error, ServeError::Root { .. }),
        _ => error.is::<std::io::Error>(),
    };
    if lacking { ENVIRONMENT } else { USAGE }
}

/// Whether `doctor` checks the cause of the error: rights, devices, limits. It cannot check a misspelt device or file.
fn is_checked_by_doctor(line: &str) -> bool {
    DOCTOR_TEXTS.iter().any(|text| line.contains(text))
}

/// Texts in errors whose cause is the machine or the user's rights.
const DOCTOR_TEXTS: [&str; 7] = [
    "/dev/net/tun",
    "not permitted",
    "needs CAP_",
    "user namespaces",
    "--server-cpu",
    "open files",
    "congestion_control",
];

/// clap's message on one line: the refusal, its tip or a better hint, and the command for help.
fn refusal(text: &str, show_tip: bool, hint: Option<String>) -> String {
    let mut line = String::new();
    let mut usage = String::new();
    for part in text.lines().map(str::trim).filter(|part| !part.is_empty()) {
        if let Some(rest) = part.strip_prefix("Usage: ") {
            // The words before the first option are the verb.
            usage = rest
                .split_whitespace()
                .take_while(|word| !word.starts_with(['[', '<', '-']))
                .collect::<Vec<_>>()
                .join(" ");
        } else if let Some(tip) = part.strip_prefix("tip: ") {
            // The tip to pass an unknown option as a value is rarely useful.
            if !tip.contains("as a value") && show_tip && hint.is_none() {
                line.push_str(&format!("; {tip}"));
            }
        } else if !part.starts_with("For more information") {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(part.strip_prefix("error: ").unwrap_or(part));
        }
    }
    if let Some(hint) = hint {
        line.push_str(&format!("; {hint}"));
    }
    if !usage.is_empty() {
        line.push_str(&format!(" (see {usage} --help)"));
    }
    line
}

/// Control characters escaped, line breaks as ` | `.
fn escape_line(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.trim().chars() {
        match c {
            '\n' => plain.push_str(" | "),
            '\t' => plain.push(' '),
            c => plain.push(c),
        }
    }
    units::printable(&plain).into_owned()
}

/// Removes Rust's "(os error 2)" after the system's message.
pub fn without_os_error_number(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::new();
    while let Some((before, after)) = rest.split_once(" (os error ") {
        let Some((number, tail)) = after.split_once(')') else { break };
        if !number.bytes().all(|byte| byte.is_ascii_digit()) {
            break;
        }
        plain.push_str(before);
        rest = tail;
    }
    plain + rest
}

/// The chain of causes on one line, each once.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = without_os_error_number(&cause.to_string());
        if !line.contains(&text) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&text);
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_clap_becomes_one_line() {
        let text = "error: unexpected argument '--rat' found\n\n  tip: a similar argument exists: '--rate'\n\n\
                    Usage: yamabiko bench --rate <RATE> <URL>\n\nFor more information, try '--help'.\n";
        assert_eq!(
            refusal(text, true, None),
            "unexpected argument '--rat' found; a similar argument exists: '--rate' (see yamabiko bench --help)"
        );
    }

    #[test]
    fn control_characters_in_messages_are_escaped() {
        assert_eq!(escape_line("a\u{1b}[31mb\r\nc\td\u{9b}"), "a\\u{1b}[31mb\\r | c d\\u{9b}");
    }

    #[test]
    fn doctor_is_suggested_for_errors_that_it_checks() {
        assert!(is_checked_by_doctor("open /dev/net/tun: Permission denied; chmod 666 /dev/net/tun"));
        assert!(is_checked_by_doctor("socket AF_PACKET: Operation not permitted; run as root"));
        assert!(!is_checked_by_doctor("find device eth7: No such device"));
        assert!(!is_checked_by_doctor("creating /no/such/file: No such file or directory"));
    }

    #[test]
    fn os_error_numbers_are_removed() {
        assert_eq!(without_os_error_number("x: No such file (os error 2); y (os error 13)"), "x: No such file; y");
        assert_eq!(without_os_error_number("a (os error is odd)"), "a (os error is odd)");
    }
}
