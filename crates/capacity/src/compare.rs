//! Two runs, or two servers: whether they differ, and by how much.
//!
//! ```text
//!   runs of the book  --> figures, and how they scatter within a run or from run to run  --.
//!                                                                                          |--> differences, intervals, verdicts
//!   two servers: A B B A, B A A B ..  --> testbed::bench each --> differences within blocks  --'
//! ```
//!
//! What an interval is made of says what it is about ([`schema::ComparePart::method`]): the scatter within one run says
//! nothing of what another start of the server would show; several runs do; blocks of runs in turns do, and take the
//! machine's drift out. One metric decides, and has its own interval; the others share one chance of crying wolf
//! ([`stats::compare::holm_confidences`]). Invalid runs make an invalid comparison.

mod fail_if;
mod hosts;
pub mod live;
mod metric;
mod plans;
pub mod runs;

use std::path::PathBuf;

use schema::document::{Check, CheckState, Run, SCHEMA, Weight};
use schema::{CompareDocument, ComparePart, CompareVerdict, Validity};
use store::RunFolder;
use testbed::host;

pub use self::fail_if::FailIf;
pub use self::metric::{CompareQuestion, Metric};
use experiment::ExperimentError;
use experiment::Order;

/// A comparison that was made, all in its document.
#[derive(Debug)]
pub struct CompareDone {
    /// Its document.
    pub document: CompareDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

impl CompareQuestion {
    /// Refuses what cannot be meant.
    fn check(&self) -> Result<(), ExperimentError> {
        if self.confidence > 0.5 && self.confidence < 1.0 {
            return Ok(());
        }
        Err(ExperimentError::Plan("--confidence: above 50 % and below 100 %; 95 % is usual".to_owned()))
    }
}

/// What a comparison leaves, before it is a document.
struct Closing {
    part: ComparePart,
    checks: Vec<Check>,
    /// Length of all measured phases together, and of all warm-ups, in seconds.
    measured_s: f64,
    warmup_s: f64,
    interrupted: bool,
}

impl Closing {
    /// Adds what `--fail-if` asked, writes the document, and is done.
    fn close(
        mut self,
        question: &CompareQuestion,
        order: &Order,
        record: &RunFolder,
    ) -> Result<CompareDone, ExperimentError> {
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
                    format!(
                        "{}: there is no interval of it here, so nobody knows whether it is so",
                        unknown.join(", ")
                    ),
                )
            });
        }
        let known = self.part.headline().is_some_and(|metric| metric.verdict != CompareVerdict::NotKnown);
        if !known {
            self.checks.push(check(
                "headline_known",
                CheckState::CouldNotRun,
                Weight::Suspect,
                format!("there is no interval of {}, which was to decide", self.part.by),
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
        Ok(CompareDone { document, folder: record.path().to_owned() })
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
    fn a_confidence_has_a_range() {
        let question = |confidence| CompareQuestion { by: None, confidence, fail_if: Vec::new() };
        assert!(question(0.95).check().is_ok());
        for wrong in [0.5, 1.0, 95.0, f64::NAN] {
            assert!(question(wrong).check().is_err(), "{wrong}");
        }
    }
}
