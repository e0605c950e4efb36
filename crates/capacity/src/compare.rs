//! Comparison of two runs, or of two servers: whether they differ, and by how much.
//!
//! ```text
//!   stored runs       --> figures, and their variation within a run or from run to run     --.
//!                                                                                          |--> differences, intervals, verdicts
//!   two servers: A B B A, B A A B ..  --> testbed::bench each --> differences within blocks  --'
//! ```
//!
//! The interval covers what its data varies over ([`schema::ComparePart::method`]): variation within one run excludes
//! restarts of the server; several runs include them; blocks of interleaved runs include them and cancel the machine's
//! drift. One metric decides, with its own interval; the others share one error probability
//! ([`stats::compare::holm_confidences`]). Invalid runs make an invalid comparison.

mod fail_if;
mod hosts;
pub mod interleaved;
mod metric;
mod plans;
pub mod runs;

use std::path::PathBuf;

use schema::document::{Check, CheckState, Run, SCHEMA, Weight};
use schema::{CompareDocument, ComparePart, CompareVerdict, Validity};
use store::RunFolder;
use testbed::host;

pub use self::fail_if::FailIf;
pub use self::metric::{CompareOptions, Metric};
use experiment::ExperimentError;
use experiment::Order;

/// A finished comparison.
#[derive(Debug)]
pub struct CompareResult {
    /// The complete document.
    pub document: CompareDocument,
    /// Folder in the run store.
    pub folder: PathBuf,
}

impl CompareOptions {
    /// Refuses contradictory options.
    fn check(&self) -> Result<(), ExperimentError> {
        if self.confidence > 0.5 && self.confidence < 1.0 {
            return Ok(());
        }
        Err(ExperimentError::Plan("--confidence: expected above 50 % and below 100 %; 95 % is usual".to_owned()))
    }
}

/// Results of a comparison before they become a document.
struct ComparisonParts {
    part: ComparePart,
    checks: Vec<Check>,
    /// Total length of the measured phases, and of the warm-ups, in seconds.
    measured_s: f64,
    warmup_s: f64,
    interrupted: bool,
}

impl ComparisonParts {
    /// Adds the `--fail-if` terms, and writes the document.
    fn close(
        mut self,
        question: &CompareOptions,
        order: &Order,
        record: &RunFolder,
    ) -> Result<CompareResult, ExperimentError> {
        self.part.fail_if = question.fail_if.iter().map(|term| term.judge(&self.part.metrics)).collect();
        let unknown: Vec<&str> =
            self.part.fail_if.iter().filter(|term| term.failed.is_none()).map(|term| term.term.as_str()).collect();
        if !unknown.is_empty() {
            self.checks.push(Check {
                value: Some(unknown.len() as f64),
                ..check(
                    "fail_if_known",
                    CheckState::CouldNotRun,
                    Weight::Suspect,
                    format!("{}: has no interval here, so the term cannot be judged", unknown.join(", ")),
                )
            });
        }
        let known = self.part.headline().is_some_and(|metric| metric.verdict != CompareVerdict::NotKnown);
        if !known {
            self.checks.push(check(
                "headline_known",
                CheckState::CouldNotRun,
                Weight::Suspect,
                format!("{} has no interval, and it is the metric that decides", self.part.by),
            ));
        }
        let document = CompareDocument {
            schema: SCHEMA.into(),
            run: Run {
                id: record.id().into(),
                dir: record.path().display().to_string(),
                command: order.command.clone(),
                seed: order.seed,
                started_at: store::rfc3339(order.started),
                duration_s: self.measured_s,
                warmup_s: self.warmup_s,
                interrupted: self.interrupted,
                host: host::facts(&host::CorePlan::default(), 1)?,
                ..Run::default()
            },
            validity: Validity::from_checks(self.checks),
            compare: self.part,
        };
        record.write_summary(&document)?;
        Ok(CompareResult { document, folder: record.path().to_owned() })
    }
}

/// A check without figures.
fn check(name: &str, state: CheckState, weight: Weight, why: String) -> Check {
    Check { name: name.to_owned(), state, weight, value: None, limit: None, unit: String::new(), why }
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_out_of_range_is_refused() {
        let question = |confidence| CompareOptions { by: None, confidence, fail_if: Vec::new() };
        assert!(question(0.95).check().is_ok());
        for wrong in [0.5, 1.0, 95.0, f64::NAN] {
            assert!(question(wrong).check().is_err(), "{wrong}");
        }
    }
}
