//! Comparison of two running servers by interleaved runs.

use std::fs;
use std::time::Duration;

use plan::Plan;
use schema::compare_part::{CompareSide, ComparedBlock, ComparedRun, PlanDifference};
use schema::document::{Check, CheckState, Weight};
use schema::{ComparePart, Document, Validity, Verdict};
use stats::abba::{self, Blocks, RUNS_PER_BLOCK, Side};
use store::{RunFolder, RunStore};
use sys::signal::Interrupts;

use super::metric::{ComparedFigures, Evidence, Metric, coarse, judged, systematic_error_note};
use super::{CompareOptions, CompareResult, ComparisonParts, check, plans};
use experiment::ExperimentError;
use experiment::progress::ExperimentProgress;
use experiment::verdict::of_runs;
use experiment::{Order, Stage};

/// Time between two runs' loads: sandboxes, start of the server, last responses. 1.5 s were measured on two busy cores
/// with a server in Python.
const RUN_OVERHEAD: Duration = Duration::from_secs(1);
/// Number of void blocks after which the comparison ends; with many blocks see [`VOID_BLOCKS_ONE_IN`].
const VOID_BLOCKS_MIN: usize = 2;
/// The comparison ends if one in this number of blocks is void, if that is more than [`VOID_BLOCKS_MIN`].
const VOID_BLOCKS_ONE_IN: usize = 4;

/// Input of a comparison.
#[derive(Clone, Debug)]
pub struct InterleavedPlan {
    /// Plans of both sides: equal except for what is compared. Runs have different seeds; paired runs share one.
    pub sides: [Plan; 2],
    /// Description of each side.
    pub what: [String; 2],
    /// Number of blocks.
    pub blocks: Blocks,
    /// Whether to store each run.
    pub keep_runs: bool,
}

impl InterleavedPlan {
    /// Approximate duration, least and most; a run that ends by its number of requests counts as 10 s.
    pub fn time(&self) -> [Duration; 2] {
        let load = &self.sides[0].load;
        let run = load.duration.unwrap_or(Duration::from_secs(10)) + load.warmup + RUN_OVERHEAD;
        // One block more, because the first block does not count.
        let of = |blocks: usize| run * (RUNS_PER_BLOCK * (blocks + 1)) as u32;
        [of(self.blocks.min), of(self.blocks.max.max(self.blocks.min))]
    }

    fn check(&self) -> Result<(), ExperimentError> {
        let wrong = |why: &str| Err(ExperimentError::Plan(why.to_owned()));
        if self.blocks.min < 3 {
            return wrong("--blocks: expected 3 or more; fewer give no variation");
        }
        if !(self.blocks.half_width > 0.0 && self.blocks.half_width < 1.0) {
            return wrong("--until-seen: expected above 0 % and below 100 %; 2 % is usual");
        }
        Ok(())
    }
}

/// Makes the runs block by block. An interrupt ends it; measured blocks stay.
///
/// # Errors
/// Numbers are out of range, a plan cannot be carried out, or a server does not start. Unreliable runs are no error:
/// their block does not count, and many of them make the comparison invalid.
pub fn run(
    plan: &InterleavedPlan,
    question: &CompareOptions,
    order: &Order,
    run_store: &RunStore,
    interrupts: &Interrupts,
    stage: &mut dyn Stage,
) -> Result<CompareResult, ExperimentError> {
    question.check()?;
    plan.check()?;
    plan.sides.iter().try_for_each(Plan::check).map_err(testbed::TestbedError::from)?;
    let differ =
        plans::differences(&plan.sides[0].to_toml(), &plan.sides[1].to_toml()).map_err(ExperimentError::Plan)?;
    let by = question.by.unwrap_or(Metric::deciding(plan.sides[0].load.is_open()));
    let record = run_store.create("compare", order.started, order.seed)?;
    let gone = |_: &ExperimentError| {
        let _ = fs::remove_dir_all(record.path());
    };
    let text = plan.sides.each_ref().map(Plan::to_toml);
    record.write_plan(&text[0])?;
    let showing = ExperimentProgress::begin(&record, "compare", &order.command, order.seed, stage);
    let mut stage = showing.staging(stage);
    let measuring = Measuring { plan, question, order, run_store, by, blocks: Vec::new(), ended: None };
    let done = measuring.all(&record, differ, interrupts, &mut stage, &showing).inspect_err(gone)?;
    showing.done(&done.document.validity, |progress| progress.compare = Some(done.document.compare.clone()));
    Ok(done)
}

/// A block, complete or begun.
struct Block {
    sides: [Side; RUNS_PER_BLOCK],
    /// Fewer if interrupted.
    runs: Vec<(Document, String)>,
    why_not: String,
}

impl Block {
    fn counts(&self) -> bool {
        self.why_not.is_empty()
    }

    /// Second less first side, on the metric's scale: means of two runs each.
    fn difference(&self, metric: Metric) -> Option<f64> {
        let mut sums = [0.0; 2];
        for (side, (document, _)) in self.sides.iter().zip(&self.runs) {
            sums[side.index()] += metric.scaled(metric.of(document)?)?;
        }
        (self.runs.len() == RUNS_PER_BLOCK).then(|| (sums[1] - sums[0]) / 2.0)
    }
}

struct Measuring<'a> {
    plan: &'a InterleavedPlan,
    question: &'a CompareOptions,
    order: &'a Order,
    run_store: &'a RunStore,
    by: Metric,
    blocks: Vec<Block>,
    /// Why the comparison ended early.
    ended: Option<String>,
}

impl Measuring<'_> {
    fn all(
        mut self,
        record: &RunFolder,
        differ: Vec<PlanDifference>,
        interrupts: &Interrupts,
        stage: &mut dyn Stage,
        showing: &ExperimentProgress,
    ) -> Result<CompareResult, ExperimentError> {
        let rule = self.plan.blocks;
        let void_max = VOID_BLOCKS_MIN.max(rule.max.max(rule.min) / VOID_BLOCKS_ONE_IN);
        loop {
            let block = self.block(interrupts, stage)?;
            let interrupted = block.runs.len() < RUNS_PER_BLOCK;
            self.blocks.push(block);
            let checks = self.checks(false);
            showing.put(|progress| progress.compare = Some(self.closing(differ.clone(), checks, false).part));
            if interrupted || interrupts.count() > 0 {
                break;
            }
            let void = self.blocks.iter().skip(1).filter(|block| !block.counts()).count();
            if void > void_max {
                self.ended = Some(format!("{void} blocks were void: {}", self.reasons().join("; ")));
                break;
            }
            if rule.is_enough(&self.differences(self.by), self.question.confidence) {
                break;
            }
        }
        let interrupted = interrupts.count() > 0;
        let checks = self.checks(interrupted);
        let order = self.order;
        let question = self.question;
        self.closing(differ, checks, interrupted).close(question, order, record)
    }

    /// Four runs.
    fn block(&self, interrupts: &Interrupts, stage: &mut dyn Stage) -> Result<Block, ExperimentError> {
        let number = self.blocks.len() as u64;
        let sides = abba::order(self.order.seed, number);
        let mut block = Block { sides, runs: Vec::new(), why_not: String::new() };
        let mut runs_of_side = [0; 2];
        for side in sides {
            let mut plan = self.plan.sides[side.index()].clone();
            // The first run of A is paired with the first of B.
            plan.seed = self.order.seed.wrapping_add(2 * number + runs_of_side[side.index()]);
            runs_of_side[side.index()] += 1;
            let mut observer = stage.begin(&self.label(number, side));
            let run_store = self.plan.keep_runs.then_some(self.run_store);
            let outcome = testbed::bench(&plan, &self.order.command, run_store, interrupts, &mut *observer)?;
            if interrupts.count() > 0 {
                block.why_not = "interrupted".to_owned();
                return Ok(block);
            }
            if number == 0 && outcome.all_refused {
                return Err(ExperimentError::Plan(refused(side, &outcome.document)));
            }
            let id = outcome.document.run.id.clone();
            block.runs.push((outcome.document, if self.plan.keep_runs { id } else { String::new() }));
        }
        block.why_not = match number {
            0 => "the first block: it warms up machine and servers".to_owned(),
            _ => why_void(&block),
        };
        Ok(block)
    }

    /// What is being measured, and the difference so far.
    fn label(&self, number: u64, side: Side) -> String {
        let name = ["A", "B"][side.index()];
        let differences = self.differences(self.by);
        let difference = self.plan.blocks.difference(&differences, self.question.confidence);
        let so_far = difference.map(|difference| {
            let [low, high] = difference.interval.map(|end| 100.0 * end.exp_m1());
            format!(", {} of B {low:+.1} to {high:+.1} % so far", self.by.short())
        });
        match number {
            0 => format!("warm-up, {name}"),
            _ => format!("block {number}, {name}{}", so_far.filter(|_| self.by.is_relative()).unwrap_or_default()),
        }
    }

    fn differences(&self, metric: Metric) -> Vec<f64> {
        let counted = self.blocks.iter().filter(|block| block.counts());
        counted.filter_map(|block| block.difference(metric)).collect()
    }

    fn counted(&self) -> usize {
        self.blocks.iter().filter(|block| block.counts()).count()
    }

    fn reasons(&self) -> Vec<String> {
        let void = self.blocks.iter().enumerate().skip(1).filter(|(_, block)| !block.counts());
        void.map(|(number, block)| format!("block {number}: {}", block.why_not)).collect()
    }

    fn figures(&self) -> Vec<ComparedFigures> {
        let counted: Vec<&Block> = self.blocks.iter().filter(|block| block.counts()).collect();
        let figures = Metric::ALL.into_iter().map(|metric| {
            let mean = |expected: Side| -> Option<f64> {
                let runs = counted.iter().flat_map(|block| block.sides.iter().zip(&block.runs));
                let of = runs
                    .filter(|(side, _)| **side == expected)
                    .map(|(_, (document, _))| metric.scaled(metric.of(document)?));
                let of: Vec<f64> = of.collect::<Option<_>>()?;
                (!of.is_empty()).then(|| metric.figure(of.iter().sum::<f64>() / of.len() as f64))
            };
            let differences = self.differences(metric);
            let whole = differences.len() == counted.len();
            let evidence = if whole { Evidence::Blocks(differences, self.plan.blocks) } else { Evidence::None };
            let of = |expected: Side| {
                let runs = counted.iter().flat_map(|block| block.sides.iter().zip(&block.runs));
                runs.filter(move |(side, _)| **side == expected).map(|(_, (document, _))| document)
            };
            let systematic_error = coarse(metric, of(Side::A), of(Side::B));
            ComparedFigures { metric, a: mean(Side::A), b: mean(Side::B), evidence, systematic_error }
        });
        figures.filter(|figures| figures.a.is_some() || figures.b.is_some()).collect()
    }

    fn checks(&self, interrupted: bool) -> Vec<Check> {
        let names: Vec<String> = (0..self.blocks.len()).map(|number| format!("block {number}")).collect();
        let counted = self.blocks.iter().zip(&names).filter(|(block, _)| block.counts());
        let runs: Vec<(&str, &Validity)> = counted
            .flat_map(|(block, name)| block.runs.iter().map(|(document, _)| (name.as_str(), &document.validity)))
            .collect();
        let mut checks = if runs.is_empty() { Vec::new() } else { of_runs(runs.into_iter()) };
        let (void, count) = (self.reasons(), self.blocks.len().saturating_sub(1));
        let why = match &self.ended {
            Some(why) => format!("{why}; remove the disturbance and repeat"),
            None if void.is_empty() => "blocks with an unreliable run".to_owned(),
            None => format!("{count} blocks were made and these do not count: {}", void.join("; ")),
        };
        checks.push(Check {
            value: Some(void.len() as f64),
            unit: "blocks".to_owned(),
            ..check(
                "blocks_void",
                if self.ended.is_some() { CheckState::Failed } else { CheckState::Ok },
                Weight::Invalid,
                why,
            )
        });
        let (counted, least) = (self.counted(), self.plan.blocks.min);
        let cut = if interrupted { "interrupted: " } else { "" };
        checks.push(Check {
            value: Some(counted as f64),
            limit: Some(least as f64),
            unit: "blocks".to_owned(),
            ..check(
                "blocks_enough",
                if counted >= least { CheckState::Ok } else { CheckState::Failed },
                Weight::Suspect,
                format!("{cut}blocks that count; the limit is the planned minimum"),
            )
        });
        checks
    }

    fn closing(&self, plans_differ: Vec<PlanDifference>, checks: Vec<Check>, interrupted: bool) -> ComparisonParts {
        let figures = self.figures();
        let mut notes: Vec<String> =
            systematic_error_note(&figures, self.by, self.question.confidence).into_iter().collect();
        let metrics = judged(figures, self.by, self.question.confidence);
        let rule = self.plan.blocks;
        let differences = self.differences(self.by);
        let void = self.reasons();
        if !void.is_empty() {
            notes.push(format!("Blocks that do not count: {}.", void.join("; ")));
        }
        if let Some(difference) = rule.difference(&differences, self.question.confidence)
            && !rule.is_fixed()
            && self.by.is_relative()
            && difference.half_width() > rule.half_width
            && self.counted() >= rule.max
        {
            notes.push(format!(
                "After {} blocks the interval is {:.1} % on either side, not {:.1} % as requested: the machine is \
                 too unsteady, or runs are too short (-d).",
                self.counted(),
                100.0 * difference.half_width().exp_m1(),
                100.0 * rule.half_width
            ));
        }
        let all = || self.blocks.iter().flat_map(|block| block.runs.iter().map(|(document, _)| &document.run));
        let counted = self.counted() as u64;
        let side = |at: usize| {
            let expected = [Side::A, Side::B][at];
            let runs = self.blocks.iter().flat_map(|block| block.sides.iter().zip(&block.runs));
            let runs =
                runs.filter(|(side, (_, id))| **side == expected && !id.is_empty()).map(|(_, (_, id))| id.clone());
            CompareSide { what: self.plan.what[at].clone(), runs: runs.collect(), counted: 2 * counted }
        };
        ComparisonParts {
            part: ComparePart {
                method: "blocks".to_owned(),
                confidence: self.question.confidence,
                by: self.by.name().to_owned(),
                a: side(0),
                b: side(1),
                plans_differ,
                // Both sides ran on this machine.
                hosts_differ: Vec::new(),
                metrics,
                blocks: self.blocks.iter().map(text).collect(),
                fail_if: Vec::new(),
                notes,
            },
            checks,
            measured_s: all().map(|run| run.duration_s).sum(),
            warmup_s: all().map(|run| run.warmup_s).sum(),
            interrupted,
        }
    }
}

/// A message if nothing listens at a side's address.
fn refused(side: Side, document: &Document) -> String {
    let check = document.validity.checks.iter().find(|check| check.name == "server_answers");
    format!("{}: {}", ["A", "B"][side.index()], check.map_or("", |check| &check.why))
}

/// Why a block does not count; empty if it does. An unreliable run excludes the whole block, since half a block is not
/// free of drift.
fn why_void(block: &Block) -> String {
    let bad =
        block.sides.iter().zip(&block.runs).filter(|(_, (document, _))| document.validity.verdict == Verdict::Invalid);
    let reason = |(side, (document, _)): (&Side, &(Document, String))| {
        let failed = document
            .validity
            .checks
            .iter()
            .filter(|check| check.state == CheckState::Failed && check.weight == Weight::Invalid);
        let names: Vec<&str> = failed.map(|check| check.name.as_str()).collect();
        format!("a run of {} is invalid ({})", ["A", "B"][side.index()], names.join(", "))
    };
    bad.map(reason).collect::<Vec<_>>().join(", ")
}

fn text(block: &Block) -> ComparedBlock {
    let name = |side: &Side| ["A", "B"][side.index()];
    let run = |(side, (document, id)): (&Side, &(Document, String))| ComparedRun {
        side: name(side).to_owned(),
        run: id.clone(),
        verdict: document.validity.verdict.name().to_owned(),
        figures: Metric::ALL
            .into_iter()
            .filter_map(|metric| Some((metric.name().to_owned(), metric.of(document)?)))
            .collect(),
    };
    ComparedBlock {
        order: block.sides.iter().map(name).collect(),
        counted: block.counts(),
        why: block.why_not.clone(),
        runs: block.sides.iter().zip(&block.runs).map(run).collect(),
    }
}

#[cfg(test)]
mod tests;
