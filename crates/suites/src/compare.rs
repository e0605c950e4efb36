//! Two runs, or two servers: whether they differ, and by how much.
//!
//! ```text
//!   runs of the book  --> figures, and how they scatter within a run or from run to run  --.
//!                                                                                          |--> differences, intervals, verdicts
//!   two servers: A B B A, B A A B ..  --> lab::bench each --> differences within blocks  --'
//! ```
//!
//! What an interval is made of says what it is about ([`ledger::ComparePart::method`]): the scatter within one run says
//! nothing of what another start of the server would show; several runs do; blocks of runs in turns do, and take the
//! machine's drift out. One metric decides, and has its own interval; the others share one chance of crying wolf
//! ([`stats::compare::holm_confidences`]). Invalid runs make an invalid comparison.

mod fail_if;
mod hosts;
pub mod live;
mod metric;
mod plans;
pub mod runs;

use std::collections::BTreeMap;
use std::path::PathBuf;

use lab::host;
use ledger::document::{Check, CheckState, Run, SCHEMA, Weight};
use ledger::{CompareDocument, ComparePart, CompareVerdict, Validity};
use store::RunFolder;

pub use self::fail_if::FailIf;
pub use self::metric::{Metric, Question};
use crate::error::SuiteError;
use crate::reproduce::Order;

/// A comparison that was made, all in its document.
#[derive(Debug)]
pub struct CompareDone {
    /// Its document.
    pub document: CompareDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

impl Question {
    /// Refuses what cannot be meant.
    fn check(&self) -> Result<(), SuiteError> {
        if self.confidence > 0.5 && self.confidence < 1.0 {
            return Ok(());
        }
        Err(SuiteError::Plan("--confidence: above 50 % and below 100 %; 95 % is usual".to_owned()))
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
    fn close(mut self, question: &Question, order: &Order, record: &RunFolder) -> Result<CompareDone, SuiteError> {
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

/// The checks of many runs in a few lines: each that did not hold in some, with how many and the first's reason, and
/// one for what held in all.
fn carried<'a>(runs: impl Iterator<Item = (&'a str, &'a Validity)>) -> Vec<Check> {
    let mut of_all = 0;
    let mut by_name: BTreeMap<(&str, u8), (Vec<&str>, &Check)> = BTreeMap::new();
    for (run, validity) in runs {
        of_all += 1;
        for check in &validity.checks {
            let state = match check.state {
                CheckState::Failed => 0,
                CheckState::CouldNotRun => 1,
                CheckState::Ok | CheckState::NotApplicable => continue,
            };
            by_name.entry((&check.name, state)).or_insert_with(|| (Vec::new(), check)).0.push(run);
        }
    }
    if by_name.is_empty() {
        return vec![Check {
            value: Some(f64::from(of_all)),
            unit: "runs".to_owned(),
            ..check(
                "runs_valid",
                CheckState::Ok,
                Weight::Invalid,
                "every check that applies held in every run that counts".to_owned(),
            )
        }];
    }
    let told = by_name.into_values().map(|(runs, first)| {
        let named = match &runs[..] {
            [some @ .., last] if some.len() < 4 => [some, &[*last]].concat().join(", "),
            _ => format!("{}, {} and {} more", runs[0], runs[1], runs.len() - 2),
        };
        Check {
            why: format!("in {} of {of_all} runs ({named}): {}", runs.len(), first.why),
            name: format!("runs: {}", first.name),
            ..first.clone()
        }
    });
    told.collect()
}

#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests {
    use ledger::Verdict;

    use super::*;

    fn failing(name: &str, state: CheckState, weight: Weight) -> Validity {
        Validity::from_checks(vec![check(name, state, weight, "too late".to_owned())])
    }

    #[test]
    fn verdicts_of_runs_are_carried_over() {
        let fine = failing("a", CheckState::Ok, Weight::Invalid);
        let late = failing("generator_on_time", CheckState::Failed, Weight::Invalid);
        let blind = failing("wire", CheckState::CouldNotRun, Weight::Invalid);
        let verdict =
            |of: &[&Validity]| Validity::from_checks(carried(of.iter().map(|&validity| ("x", validity)))).verdict;
        assert_eq!(verdict(&[&fine, &fine]), Verdict::Valid);
        assert_eq!(verdict(&[&fine, &blind]), Verdict::Suspect);
        assert_eq!(verdict(&[&fine, &blind, &late]), Verdict::Invalid);
        let told = carried([("A", &late), ("B", &fine), ("C", &late)].into_iter());
        assert_eq!(told.len(), 1);
        assert_eq!(
            (told[0].name.as_str(), told[0].why.as_str()),
            ("runs: generator_on_time", "in 2 of 3 runs (A, C): too late")
        );
        let many = vec![("x", &late); 9];
        assert_eq!(carried(many.into_iter())[0].why, "in 9 of 9 runs (x, x and 7 more): too late");
    }

    #[test]
    fn a_confidence_has_a_range() {
        let question = |confidence| Question { by: None, confidence, fail_if: Vec::new() };
        assert!(question(0.95).check().is_ok());
        for wrong in [0.5, 1.0, 95.0, f64::NAN] {
            assert!(question(wrong).check().is_err(), "{wrong}");
        }
    }
}
