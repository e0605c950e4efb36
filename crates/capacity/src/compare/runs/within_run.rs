//! Variation of figures within one run, by batch means and block bootstrap.

use std::path::Path;

use schema::{Document, RequestRecord, ServerSecond};
use stats::Rng;
use stats::bootstrap::{BLOCKS_MIN, quantiles_of_blocks};
use stats::compare::Estimate;

use crate::compare::metric::Metric;
use experiment::ExperimentError;

/// A block is a second: longer than effects that requests share (a stall, a burst), short enough for enough blocks. In
/// runs with fewer than [`BLOCKS_MIN`] seconds it is half a second.
const BLOCK_NS: u64 = 1_000_000_000;
const SHORT_BLOCK_NS: u64 = BLOCK_NS / 2;
/// Number of batches of consecutive blocks for means, so that effects longer than a block are included.
const BATCHES: usize = stats::interval::BATCHES;
/// Rounds of the bootstrap: 400 give a standard error within 4 %.
const ROUNDS: u32 = 400;
/// Largest number of rows; of more an even sample is used, which is precise enough.
const ROWS_MAX: u64 = 4_000_000;
const QUANTILES: [(Metric, f64); 3] = [(Metric::P50, 0.5), (Metric::P90, 0.9), (Metric::P99, 0.99)];

/// One run, block by block.
pub(super) struct RunVariation {
    blocks: Vec<Block>,
    /// One for each of [`QUANTILES`].
    quantiles: Vec<Option<Estimate>>,
    /// CPU time of the server by time, about one reading a second.
    cpu: Vec<f64>,
}

/// Figures of a block. Requests count in the block of their scheduled time, completions in the block of their end.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    offered: f64,
    response_sum_ns: f64,
    errors: f64,
    completed: f64,
}

impl RunVariation {
    /// Why the variation of this run is unknown, if it is.
    pub(super) fn missing(document: &Document) -> Option<String> {
        let run = &document.run;
        let least_s = (BLOCKS_MIN as u64 * SHORT_BLOCK_NS) as f64 / 1e9;
        if run.recorded.is_none_or(|recorded| recorded.requests == 0) {
            return Some(format!("{} has no table of requests", run.id));
        }
        (run.duration_s + 1e-6 < least_s)
            .then(|| format!("{} took {:.1} s, and {least_s} are needed", run.id, run.duration_s))
    }

    /// Reads them from the run's folder.
    ///
    /// # Errors
    /// The tables cannot be read, or have no row of the measured phase.
    pub(super) fn read(dir: &Path, document: &Document, rng: &mut Rng) -> Result<Self, ExperimentError> {
        let run = &document.run;
        let is_short = run.duration_s + 1e-6 < (BLOCKS_MIN as u64 * BLOCK_NS) as f64 / 1e9;
        let block_ns = if is_short { SHORT_BLOCK_NS } else { BLOCK_NS };
        let count = ((run.duration_s + 1e-6) * 1e9 / block_ns as f64).floor() as usize;
        let rows = run.recorded.map_or(0, |recorded| recorded.requests);
        let each = rows.div_ceil(ROWS_MAX).max(1);
        let statuses_expected = document.load.as_ref().is_some_and(|load| load.statuses_expected);
        let mut first = None;
        let mut records = Vec::new();
        for record in store::read_requests(dir)? {
            let record: RequestRecord = record?;
            let intended = record.scheduled_at.as_nanos();
            first = Some(first.map_or(intended, |first: u64| first.min(intended)));
            if record.sequence.is_multiple_of(each) {
                let is_error = is_error(record.failure.is_some(), record.status, statuses_expected);
                records.push((intended, record.done_at.as_nanos(), is_error, record.failure.is_none()));
            }
        }
        let Some(first) = first else {
            return Err(ExperimentError::Plan(format!(
                "{}: it has no table of requests, which a comparison of single runs needs; give several runs per side",
                run.id
            )));
        };
        // In documents of earlier versions the field is missing: the warm-up begins with the first request.
        let text = run.recorded.map_or(0, |recorded| recorded.measured_from_ns);
        let from = if text > 0 { text } else { first + (run.warmup_s * 1e9) as u64 };
        let block_of = |at: u64| at.checked_sub(from).map(|since| (since / block_ns) as usize).filter(|&at| at < count);
        let mut blocks = vec![Block::default(); count];
        let mut times = Vec::new();
        for (intended, done, error, whole) in records {
            if let Some(at) = block_of(intended) {
                let time = done.saturating_sub(intended);
                blocks[at].offered += 1.0;
                blocks[at].response_sum_ns += time as f64;
                blocks[at].errors += f64::from(u8::from(error));
                times.push((at as u32, time));
            }
            if let Some(at) = block_of(done).filter(|_| whole) {
                blocks[at].completed += 1.0;
            }
        }
        let quantiles = quantiles_of_blocks(&mut times, &QUANTILES.map(|(_, quantile)| quantile), ROUNDS, rng);
        let seconds: Vec<ServerSecond> = store::read_server_series(dir)?.collect::<Result<_, _>>()?;
        let used =
            |row: &ServerSecond| (row.cpu_user_s + row.cpu_system_s + row.cpu_receive_s.unwrap_or(0.0)) / row.elapsed_s;
        let cpu = seconds.iter().filter(|row| row.elapsed_s > 0.0).map(used).collect();
        Ok(RunVariation { blocks, quantiles, cpu })
    }

    /// Random error of a figure of the run, on its metric's scale; the figure is that of the document.
    pub(super) fn estimate(&self, metric: Metric, document: &Document) -> Option<Estimate> {
        let figure = metric.of(document)?;
        if metric == Metric::Errors {
            let error = self.ratio_error(|block| (block.errors, block.offered))?;
            return Some(Estimate { value: figure, standard_error: error, freedom: DEGREES_OF_FREEDOM });
        }
        let mean = |sum: fn(&Block) -> f64, over: fn(&Block) -> f64| -> Option<Estimate> {
            let (sums, overs): (f64, f64) =
                self.batched().iter().fold((0.0, 0.0), |(a, b), block| (a + sum(block), b + over(block)));
            let standard_error = self.ratio_error(|block| (sum(block), over(block)))?;
            (overs > 0.0).then(|| Estimate { value: sums / overs, standard_error, freedom: DEGREES_OF_FREEDOM })
        };
        let estimate = match metric {
            Metric::Mean => mean(|block| block.response_sum_ns, |block| block.offered)?,
            Metric::Rate => mean(|block| block.completed, |_| 1.0)?,
            Metric::Cpu if self.cpu.len() >= BATCHES => batch_mean(&self.cpu)?,
            Metric::P50 | Metric::P90 | Metric::P99 => {
                let at = QUANTILES.iter().position(|&(of, _)| of == metric)?;
                self.quantiles[at]?
            }
            _ => return None,
        };
        let scaled = estimate.ln()?;
        Some(Estimate { value: metric.scaled(figure)?, ..scaled })
    }

    /// Blocks merged into batches; leading blocks that do not fill a batch are ignored.
    fn batched(&self) -> Vec<Block> {
        let length = self.blocks.len() / BATCHES;
        let stored = &self.blocks[self.blocks.len() - length * BATCHES..];
        let join = |blocks: &[Block]| {
            blocks.iter().fold(Block::default(), |sum, block| Block {
                offered: sum.offered + block.offered,
                response_sum_ns: sum.response_sum_ns + block.response_sum_ns,
                errors: sum.errors + block.errors,
                completed: sum.completed + block.completed,
            })
        };
        stored.chunks_exact(length.max(1)).map(join).collect()
    }

    /// Standard error of a ratio of sums, with independent batches: from the residuals of the numerator.
    fn ratio_error(&self, of: impl Fn(&Block) -> (f64, f64)) -> Option<f64> {
        let parts: Vec<(f64, f64)> = self.batched().iter().map(of).collect();
        let count = parts.len() as f64;
        let (sum, over): (f64, f64) = parts.iter().fold((0.0, 0.0), |(a, b), part| (a + part.0, b + part.1));
        let ratio = sum / over;
        let left: f64 = parts.iter().map(|(sum, over)| (sum - ratio * over).powi(2)).sum();
        let error = (left * count / (count - 1.0)).sqrt() / over;
        (count >= 2.0 && error.is_finite()).then_some(error)
    }
}

const DEGREES_OF_FREEDOM: f64 = BATCHES as f64 - 1.0;

/// Mean of consecutive values, by batches.
fn batch_mean(values: &[f64]) -> Option<Estimate> {
    let length = values.len() / BATCHES;
    let stored = &values[values.len() - length * BATCHES..];
    let means: Vec<f64> =
        stored.chunks_exact(length.max(1)).map(|batch| batch.iter().sum::<f64>() / length as f64).collect();
    Estimate::of_mean(&means)
}

/// Errors as an objective counts them ([`plan::slo`]): failures, and statuses other than 2xx and 3xx unless the plan
/// gives expected statuses.
fn is_error(failed: bool, status: u16, statuses_expected: bool) -> bool {
    failed || !statuses_expected && !(200..400).contains(&status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_blocks(blocks: Vec<Block>) -> RunVariation {
        RunVariation { blocks, quantiles: vec![None; QUANTILES.len()], cpu: Vec::new() }
    }

    #[test]
    fn errors_are_counted_as_by_an_objective() {
        let of = |status, expected| is_error(false, status, expected);
        assert_eq!([200, 204, 304, 404, 503].map(|status| of(status, false)), [false, false, false, true, true]);
        assert!(
            is_error(true, 200, true) && !of(404, true),
            "the plan gives expected statuses, and this one did not fail"
        );
    }

    fn nearly_normal(rng: &mut Rng) -> f64 {
        (0..12).map(|_| rng.uniform()).sum::<f64>() - 6.0
    }

    /// Seconds of 50 to 150 requests whose mean varies about 10 with a correlation of some seconds: of 400 intervals at
    /// 95 %, 380 should cover it.
    #[test]
    fn interval_of_a_correlated_mean_covers_the_truth() {
        let hits = (0..400)
            .filter(|&stream| {
                let mut rng = Rng::new(61, stream);
                let mut level = 0.0;
                let blocks = (0..120).map(|_| {
                    level = 0.5 * level + nearly_normal(&mut rng);
                    let offered = 50.0 + 100.0 * rng.uniform();
                    let sum = offered * (10.0 + level) + offered.sqrt() * 5.0 * nearly_normal(&mut rng);
                    Block { offered, response_sum_ns: sum, ..Block::default() }
                });
                let variation = of_blocks(blocks.collect());
                let error = variation.ratio_error(|block| (block.response_sum_ns, block.offered)).unwrap();
                let sums = variation
                    .batched()
                    .iter()
                    .fold((0.0, 0.0), |(a, b), block| (a + block.response_sum_ns, b + block.offered));
                // t with 19 degrees of freedom.
                (sums.0 / sums.1 - 10.0).abs() <= 2.093 * error
            })
            .count();
        assert!((358..=396).contains(&hits), "{hits}");
    }

    #[test]
    fn constant_run_has_no_variation() {
        let blocks = vec![Block { offered: 100.0, response_sum_ns: 1e9, completed: 100.0, errors: 0.0 }; 25];
        let variation = of_blocks(blocks);
        assert_eq!(variation.batched().len(), 20);
        assert_eq!(variation.ratio_error(|block| (block.response_sum_ns, block.offered)), Some(0.0));
        // Zero over zero is unknown.
        assert_eq!(variation.ratio_error(|block| (block.errors, block.errors)), None);
    }
}
