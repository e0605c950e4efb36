//! A check without its outcome.

use schema::document::{Check, CheckState, Weight};

/// A check without its outcome.
pub(super) struct Draft {
    name: String,
    weight: Weight,
    unit: String,
}

impl Draft {
    pub(super) fn new(name: &str, weight: Weight, unit: &str) -> Self {
        Draft { name: name.into(), weight, unit: unit.into() }
    }

    pub(super) fn at_most(self, value: f64, limit: f64, ok_text: &str, failed_text: &str) -> Check {
        let ok = value <= limit;
        let state = if ok { CheckState::Ok } else { CheckState::Failed };
        self.end(state, Some(value), Some(limit), if ok { ok_text } else { failed_text })
    }

    pub(super) fn ok(self, why: &str) -> Check {
        self.end(CheckState::Ok, None, None, why)
    }

    pub(super) fn failed(self, why: &str) -> Check {
        self.end(CheckState::Failed, None, None, why)
    }

    pub(super) fn could_not_run(self, why: &str) -> Check {
        self.end(CheckState::CouldNotRun, None, None, why)
    }

    pub(super) fn not_applicable(self, why: &str) -> Check {
        self.end(CheckState::NotApplicable, None, None, why)
    }

    pub(super) fn end(self, state: CheckState, value: Option<f64>, limit: Option<f64>, why: &str) -> Check {
        Check { name: self.name, state, weight: self.weight, value, limit, unit: self.unit, why: why.into() }
    }
}
