//! Checks and verdict, and the objective.

use serde::{Deserialize, Serialize};

/// Validity checks and their verdict.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Validity {
    /// Follows from the checks.
    pub verdict: Verdict,
    /// Every check, run or not.
    pub checks: Vec<Check>,
}

/// The verdict of the validity checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every check that applies ran and passed.
    Valid,
    /// A check that applies could not run, or one that only casts doubt failed.
    Suspect,
    /// A check failed: the figures are not what they claim to be.
    Invalid,
}

impl Verdict {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Valid => "valid",
            Verdict::Suspect => "suspect",
            Verdict::Invalid => "invalid",
        }
    }
}

/// One validity check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// Snake-case name, one per kind of check.
    pub name: String,
    /// Outcome.
    pub state: CheckState,
    /// Effect of a failure on the verdict.
    pub weight: Weight,
    /// The figure; absent if the check did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// The limit for the figure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// Unit of both.
    pub unit: String,
    /// One sentence for a person: what was compared, and if it failed, what to do.
    pub why: String,
}

impl Check {
    /// A check without a figure and a limit.
    pub fn without_figure(name: impl Into<String>, state: CheckState, weight: Weight, why: impl Into<String>) -> Self {
        Check { name: name.into(), state, weight, value: None, limit: None, unit: String::new(), why: why.into() }
    }
}

/// Effect of a failed check on the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Failure makes the run invalid.
    Invalid,
    /// Failure makes the run suspect.
    Suspect,
}

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// Ran and passed.
    Ok,
    /// Ran and failed.
    Failed,
    /// Applies to the plan but could not run.
    CouldNotRun,
    /// Does not apply to the plan.
    NotApplicable,
}

impl Validity {
    /// Derives the verdict from the checks.
    pub fn from_checks(checks: Vec<Check>) -> Self {
        let verdict = checks
            .iter()
            .map(|check| match (check.state, check.weight) {
                (CheckState::Ok | CheckState::NotApplicable, _) => Verdict::Valid,
                (CheckState::CouldNotRun, _) | (CheckState::Failed, Weight::Suspect) => Verdict::Suspect,
                (CheckState::Failed, Weight::Invalid) => Verdict::Invalid,
            })
            .max()
            .unwrap_or(Verdict::Valid);
        Validity { verdict, checks }
    }
}

/// The objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slo {
    /// The objective as typed.
    pub objective: String,
    /// Whether every term is met.
    pub met: bool,
    /// Each term.
    pub terms: Vec<SloTerm>,
}

/// One term of an objective.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SloTerm {
    /// The term as typed, such as `p99 < 200ms`.
    pub term: String,
    /// The figure, in `unit`.
    pub value: f64,
    /// The limit, in `unit`.
    pub limit: f64,
    /// `ns` or `ratio`.
    pub unit: String,
    /// Whether the term is met.
    pub met: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(state: CheckState, weight: Weight) -> Check {
        Check { name: "x".into(), state, weight, value: None, limit: None, unit: String::new(), why: String::new() }
    }

    #[test]
    fn the_verdict_is_that_of_the_worst_check() {
        let verdict = |checks: &[(CheckState, Weight)]| {
            Validity::from_checks(checks.iter().map(|&(state, weight)| check(state, weight)).collect()).verdict
        };
        assert_eq!(verdict(&[]), Verdict::Valid);
        assert_eq!(
            verdict(&[(CheckState::Ok, Weight::Invalid), (CheckState::NotApplicable, Weight::Invalid)]),
            Verdict::Valid
        );
        assert_eq!(
            verdict(&[(CheckState::Ok, Weight::Invalid), (CheckState::CouldNotRun, Weight::Invalid)]),
            Verdict::Suspect
        );
        assert_eq!(verdict(&[(CheckState::Failed, Weight::Suspect)]), Verdict::Suspect);
        assert_eq!(
            verdict(&[(CheckState::Failed, Weight::Suspect), (CheckState::Failed, Weight::Invalid)]),
            Verdict::Invalid
        );
    }
}
