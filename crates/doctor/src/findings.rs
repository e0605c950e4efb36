//! Each fact judged: fine, worth knowing, or lacking; and where it is not fine, what it touches and what mends it.

mod machine;
mod network;
mod rights;
mod time;

use schema::doctor::{Area, Finding, State};

use super::facts::{Facts, Trial};

pub(super) use rights::namespaces_mend;

/// All findings, by area.
pub fn findings(facts: &Facts) -> Vec<Finding> {
    [rights::findings(facts), network::findings(facts), machine::findings(facts), time::findings(facts)].concat()
}

/// As it should be.
fn fine(area: Area, name: &str, found: impl Into<String>) -> Finding {
    Finding { area, name: name.into(), found: found.into(), state: State::Fine, touches: Vec::new(), mend: None }
}

/// Worth knowing, or lacking.
fn not_fine(
    state: State,
    area: Area,
    name: &str,
    found: impl Into<String>,
    touches: &[&str],
    mend: Option<String>,
) -> Finding {
    let touches = touches.iter().map(|&verb| verb.to_owned()).collect();
    Finding { state, touches, mend, ..fine(area, name, found) }
}

/// A trial: fine if it worked, `state` if it was refused; nothing where it was not tried.
fn tried(trial: &Trial, state: State, area: Area, name: &str, touches: &[&str]) -> Option<Finding> {
    match trial {
        Trial::Worked(found) => Some(fine(area, name, found)),
        Trial::Refused(refusal) => Some(not_fine(state, area, name, &refusal.what, touches, refusal.mend.clone())),
        Trial::NotTried => None,
    }
}
