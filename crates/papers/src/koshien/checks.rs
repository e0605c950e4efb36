//! Validity checks of the reproduction beyond those of its runs.

use schema::document::{Check, CheckState, Weight};

use super::capture::CaptureFigures;
use experiment::programs::httperf::HttperfReport;

/// httperf must have received every response, without errors of its own machine. The packet capture gives the rate.
pub fn of_httperf(name: &str, text: &HttperfReport) -> Check {
    let missing = text.connections.saturating_sub(text.good) + text.errors;
    Check {
        name: format!("{name}: httperf"),
        state: if missing == 0 { CheckState::Ok } else { CheckState::Failed },
        weight: Weight::Suspect,
        value: Some(missing as f64),
        limit: Some(0.0),
        unit: "requests".into(),
        why: if missing == 0 {
            "every request of httperf had a response".into()
        } else {
            "requests of httperf without a good response, and errors that it counted: the server or httperf's \
             machine was overloaded"
                .into()
        },
    }
}

/// Without steady seconds there is nothing to compare.
pub fn of_steadiness(name: &str, capture: &CaptureFigures) -> Check {
    let seconds = capture.steady.len();
    Check {
        name: format!("{name}: steady seconds"),
        state: if seconds > 0 { CheckState::Ok } else { CheckState::CouldNotRun },
        weight: Weight::Invalid,
        value: Some(seconds as f64),
        limit: None,
        unit: "s".into(),
        why: if seconds > 0 {
            "whole seconds between the warm-up and the last arrival, from which the figures are taken".into()
        } else {
            "no whole second lies between the warm-up and the last arrival: give a longer duration (-d)".into()
        },
    }
}
