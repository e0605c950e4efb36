//! States of all facts: ok, note or missing, with the affected verbs or figures and the fix.

mod machine;
mod network;
mod rights;
mod time;

use schema::doctor::{Area, Finding, State};

use super::facts::{Facts, Trial};

pub(super) use rights::namespaces_fix;

/// All findings, by area.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    [rights::findings(facts), network::findings(facts), machine::findings(facts), time::findings(facts)].concat()
}

/// A finding without a problem.
fn ok(area: Area, name: &str, found: impl Into<String>) -> Finding {
    Finding { area, name: name.into(), found: found.into(), state: State::Ok, touches: Vec::new(), fix: None }
}

/// A finding of state note or missing.
fn not_ok(
    state: State,
    area: Area,
    name: &str,
    found: impl Into<String>,
    touches: &[&str],
    fix: Option<String>,
) -> Finding {
    let touches = touches.iter().map(|&verb| verb.to_owned()).collect();
    Finding { state, touches, fix, ..ok(area, name, found) }
}

/// The finding of a trial: ok if it worked, `state` if it was refused; none if it was not tried.
fn tried(trial: &Trial, state: State, area: Area, name: &str, touches: &[&str]) -> Option<Finding> {
    match trial {
        Trial::Worked(found) => Some(ok(area, name, found)),
        Trial::Refused(refusal) => Some(not_ok(state, area, name, &refusal.what, touches, refusal.fix.clone())),
        Trial::NotTried => None,
    }
}
