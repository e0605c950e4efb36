//! Whether to believe the reproduction: what its runs say of themselves, and what they must show to count.

use schema::document::{Check, CheckState, Weight};

use super::wire_view::WireView;
use experiment::programs::httperf::HttperfReport;

/// httperf must have got every reply, without errors of its own machine. At which rate, the wire says.
pub fn of_httperf(name: &str, said: &HttperfReport) -> Check {
    let missing = said.connections.saturating_sub(said.good) + said.errors;
    Check {
        name: format!("{name}: httperf"),
        state: if missing == 0 { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(missing as f64),
        limit: Some(0.0),
        unit: "requests".into(),
        why: if missing == 0 {
            "every request of httperf got its reply".into()
        } else {
            "requests of httperf that got no good reply, and errors it counted: the server or httperf's own machine was \
             not up to it"
                .into()
        },
    }
}

/// Without a steady stretch there is nothing to compare.
pub fn of_steadiness(name: &str, seen: &WireView) -> Check {
    let seconds = seen.steady.len();
    Check {
        name: format!("{name}: steady seconds"),
        state: if seconds > 0 { CheckState::Ok } else { CheckState::CouldNotRun },
        weight: Weight::Invalid,
        value: Some(seconds as f64),
        limit: None,
        unit: "s".into(),
        why: if seconds > 0 {
            "whole seconds between the warm-up and the last arrival, which the figures are taken from".into()
        } else {
            "no whole second lies between the warm-up and the last arrival: make it longer".into()
        },
    }
}
