//! Estimates the error of a statistic of one run by the block bootstrap: resampling the run's own blocks.
//!
//! Successive requests are not independent: a short disturbance delays many of them. So the resampled unit is not a
//! request but a block of all requests of a time span such as a second. Each resample has as many blocks as the run.

use crate::compare::Estimate;
use crate::normal;
use crate::rng::Rng;
use crate::student::t_quantile;

/// Minimum number of blocks for an estimate of their variation.
pub const BLOCKS_MIN: usize = 20;

/// Confidence interval of a statistic `of` of values in blocks. In each of `rounds` rounds, as many blocks as there are
/// get drawn with replacement, joined and passed to `of`, which may reorder them. `[NaN, NaN]` with fewer than two
/// blocks.
///
/// The ends are percentiles of the statistic over all rounds. The percentiles are expanded by the ratio of Student's t
/// to the normal distribution for the number of blocks, since plain percentiles cover too rarely with few blocks. Bias:
/// blocks that are short compared with the correlation time of the series make the interval too narrow; a tail
/// statistic (p99.9 of few values) rests on few values. Sources: E. Carlstein (1986) for non-overlapping blocks; T.
/// Hesterberg, "What teachers should know about the bootstrap" (2015) for the expanded percentiles.
pub fn block_bootstrap(
    blocks: &[&[f64]],
    mut of: impl FnMut(&mut [f64]) -> f64,
    rounds: u32,
    confidence: f64,
    rng: &mut Rng,
) -> [f64; 2] {
    if blocks.len() < 2 || rounds == 0 {
        return [f64::NAN; 2];
    }
    let mut drawn = Vec::with_capacity(blocks.iter().map(|block| block.len()).sum());
    let mut figures: Vec<f64> = (0..rounds)
        .map(|_| {
            drawn.clear();
            for _ in blocks {
                drawn.extend_from_slice(blocks[rng.below(blocks.len() as u64) as usize]);
            }
            of(&mut drawn)
        })
        .collect();
    figures.sort_by(f64::total_cmp);
    let below = expanded((1.0 - confidence) / 2.0, blocks.len());
    let at = |share: f64| {
        let rank = share * (figures.len() - 1) as f64;
        let (low, high) = (figures[rank.floor() as usize], figures[rank.ceil() as usize]);
        low + (high - low) * rank.fract()
    };
    [at(below), at(1.0 - below)]
}

/// The expanded percentile: the normal probability of the quantile that Student's t has at `share`, with a correction
/// for the biased variance of `blocks` blocks.
fn expanded(share: f64, blocks: usize) -> f64 {
    let n = blocks as f64;
    let target = (n / (n - 1.0)).sqrt() * t_quantile(share, n - 1.0);
    let (mut low, mut high) = (0.0, 0.5);
    for _ in 0..60 {
        let middle: f64 = 0.5 * (low + high);
        if normal::quantile(middle) < target { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Nearest-rank quantiles of values in blocks, in the order of `quantiles` (each above 0, at most 1), with their
/// standard errors by the block bootstrap. Values are `(block, value)`, with blocks numbered from 0; the function sorts
/// them. `None` with fewer than [`BLOCKS_MIN`] blocks that have a value, or for a quantile with fewer than
/// [`BEYOND_MIN`] values beyond it.
///
/// Each round is one pass over the sorted values for any number of quantiles: a million values and 400 rounds take a
/// second. Biases as in [`block_bootstrap`].
pub fn quantiles_of_blocks(
    values: &mut [(u32, u64)],
    quantiles: &[f64],
    rounds: u32,
    rng: &mut Rng,
) -> Vec<Option<Estimate>> {
    let mut sizes: Vec<u64> = Vec::new();
    for &(block, _) in values.iter() {
        let block = block as usize;
        if block >= sizes.len() {
            sizes.resize(block + 1, 0);
        }
        sizes[block] += 1;
    }
    let present: Vec<usize> = (0..sizes.len()).filter(|&block| sizes[block] > 0).collect();
    if present.len() < BLOCKS_MIN {
        return vec![None; quantiles.len()];
    }
    values.sort_unstable_by_key(|&(_, value)| value);
    let mut order: Vec<usize> = (0..quantiles.len()).collect();
    order.sort_by(|&a, &b| quantiles[a].total_cmp(&quantiles[b]));
    let mut weights = vec![1_u64; sizes.len()];
    let value = ranked(values, &weights, values.len() as u64, quantiles, &order);
    let mut sums = vec![(0.0, 0.0); quantiles.len()];
    for _ in 0..rounds {
        weights.fill(0);
        for _ in &present {
            weights[present[rng.below(present.len() as u64) as usize]] += 1;
        }
        let total = weights.iter().zip(&sizes).map(|(weight, size)| weight * size).sum();
        let drawn = ranked(values, &weights, total, quantiles, &order);
        // Deviations from the statistic itself avoid the subtraction of large squares.
        for ((sum, squares), (drawn, value)) in sums.iter_mut().zip(drawn.iter().zip(&value)) {
            let deviation = *drawn as f64 - *value as f64;
            *sum += deviation;
            *squares += deviation * deviation;
        }
    }
    let (rounds, blocks) = (f64::from(rounds), present.len() as f64);
    let estimate = |(index, &(sum, squares)): (usize, &(f64, f64))| {
        let variance = (squares - sum * sum / rounds) / (rounds - 1.0) * blocks / (blocks - 1.0);
        let beyond = (1.0 - quantiles[index]) * values.len() as f64;
        (beyond >= BEYOND_MIN).then(|| Estimate {
            value: value[index] as f64,
            standard_error: variance.max(0.0).sqrt(),
            freedom: blocks - 1.0,
        })
    };
    sums.iter().enumerate().map(estimate).collect()
}

/// Minimum number of values beyond a quantile; with fewer the quantile is nearly the maximum.
pub const BEYOND_MIN: f64 = 20.0;

/// Standard errors of statistics of blocks, by resampling the blocks in `rounds` rounds (two or more). Several sets of
/// blocks are resampled independently; `sizes` has the number of blocks of each set. `of` receives for each set the
/// weight of each block, and returns the statistics, always the same number. Paired data belong into the same block of
/// one set.
///
/// `None` for a statistic that is not finite in more than one round of twenty (otherwise those rounds are skipped), and
/// for all statistics with fewer than [`BLOCKS_MIN`] blocks in a set. Biases as in [`block_bootstrap`].
pub fn standard_errors(
    sizes: &[usize],
    rounds: u32,
    rng: &mut Rng,
    mut of: impl FnMut(&[Vec<u64>]) -> Vec<f64>,
) -> Vec<Option<f64>> {
    let mut weights: Vec<Vec<u64>> = sizes.iter().map(|&size| vec![1; size]).collect();
    // Deviations from the statistics themselves avoid the subtraction of large squares.
    let centre = of(&weights);
    let blocks_min = sizes.iter().copied().min().unwrap_or(0);
    if blocks_min < BLOCKS_MIN || rounds < 2 {
        return vec![None; centre.len()];
    }
    let mut sums = vec![(0.0, 0.0, 0_u32); centre.len()];
    for _ in 0..rounds {
        for set in &mut weights {
            set.fill(0);
            for _ in 0..set.len() {
                let drawn = rng.below(set.len() as u64) as usize;
                set[drawn] += 1;
            }
        }
        for ((sum, squares, count), (drawn, centre)) in sums.iter_mut().zip(of(&weights).into_iter().zip(&centre)) {
            let deviation = drawn - centre;
            if deviation.is_finite() {
                *sum += deviation;
                *squares += deviation * deviation;
                *count += 1;
            }
        }
    }
    // The variance is biased by the factor (n - 1) / n; with several sets the smallest one determines n.
    let blocks = blocks_min as f64;
    let error = |(sum, squares, count): (f64, f64, u32)| {
        let rounds_counted = f64::from(count);
        let variance = (squares - sum * sum / rounds_counted) / (rounds_counted - 1.0) * blocks / (blocks - 1.0);
        (count * 20 >= rounds * 19).then(|| variance.max(0.0).sqrt())
    };
    sums.into_iter().map(error).collect()
}

/// The quantiles of sorted values, weighted by block.
fn ranked(sorted: &[(u32, u64)], weights: &[u64], total: u64, quantiles: &[f64], order: &[usize]) -> Vec<u64> {
    let mut estimated = vec![0; quantiles.len()];
    let mut passed = 0;
    let mut order = order.iter().map(|&index| (index, ((quantiles[index] * total as f64).ceil() as u64).max(1)));
    let mut next = order.next();
    for &(block, value) in sorted {
        passed += weights[block as usize];
        while let Some((index, rank)) = next
            && passed >= rank
        {
            estimated[index] = value;
            next = order.next();
        }
        if next.is_none() {
            break;
        }
    }
    estimated
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantiles_of;

    /// A series with a correlation time of about 50 values, in blocks of 500: some 90 % of the variance of a block's
    /// mean is between blocks.
    fn series(rng: &mut Rng, blocks: usize) -> Vec<Vec<f64>> {
        let mut level = 0.0;
        let mut next = || {
            level = 0.98 * level + (rng.uniform() - 0.5);
            (level + 4.0 * rng.uniform()).exp()
        };
        (0..100).for_each(|_| {
            next();
        });
        (0..blocks).map(|_| (0..500).map(|_| next()).collect()).collect()
    }

    fn median(values: &mut [f64]) -> f64 {
        let at = values.len() / 2;
        *values.select_nth_unstable_by(at, f64::total_cmp).1
    }

    /// Of 200 intervals at 95 %, 190 are expected to cover; the binomial standard deviation is 3.1. The remaining
    /// correlation of blocks reduces the coverage a little.
    #[test]
    fn bootstrap_intervals_of_correlated_values_have_their_coverage() {
        let truth = {
            let mut all: Vec<f64> = series(&mut Rng::new(1, 0), 4000).concat();
            median(&mut all)
        };
        let (mut of_blocks, mut of_values, mut by_error) = (0, 0, 0);
        for stream in 0..200 {
            let mut rng = Rng::new(3, stream);
            let blocks = series(&mut rng, 24);
            let views: Vec<&[f64]> = blocks.iter().map(Vec::as_slice).collect();
            let [low, high] = block_bootstrap(&views, median, 200, 0.95, &mut rng);
            of_blocks += usize::from((low..=high).contains(&truth));
            // The plain bootstrap, which treats every value as independent.
            let all = blocks.concat();
            let singles: Vec<&[f64]> = all.chunks(1).collect();
            let [low, high] = block_bootstrap(&singles, median, 20, 0.95, &mut rng);
            of_values += usize::from((low..=high).contains(&truth));
            let mut numbered: Vec<(u32, u64)> = blocks
                .iter()
                .enumerate()
                .flat_map(|(block, values)| values.iter().map(move |&value| (block as u32, (value * 1e6) as u64)))
                .collect();
            let estimated = quantiles_of_blocks(&mut numbered, &[0.5], 200, &mut rng)[0].unwrap();
            let half = estimated.standard_error * t_quantile(0.975, estimated.freedom);
            by_error += usize::from((estimated.value - truth * 1e6).abs() <= half);
        }
        assert!((178..=199).contains(&of_blocks), "{of_blocks}");
        assert!((178..=199).contains(&by_error), "{by_error}");
        assert!(of_values < 120, "{of_values}");
    }

    #[test]
    fn bootstrap_quantiles_are_those_of_the_values() {
        let mut rng = Rng::new(5, 5);
        let all: Vec<u64> = (0..5000).map(|_| rng.below(1_000_000)).collect();
        let mut numbered: Vec<(u32, u64)> =
            all.iter().enumerate().map(|(at, &value)| (at as u32 / 100, value)).collect();
        // Quantiles may be requested in any order.
        let estimated = quantiles_of_blocks(&mut numbered, &[0.99, 0.5, 0.9], 50, &mut rng);
        let exact = quantiles_of(&all);
        let values: Vec<u64> = estimated.iter().map(|estimated| estimated.unwrap().value as u64).collect();
        assert_eq!(values, [exact.p99, exact.p50, exact.p90]);
        // The standard error for independent uniform values is sqrt(q (1 - q) / n) of the range.
        let error = estimated[1].unwrap().standard_error;
        assert!((error / (0.25_f64 / 5000.0).sqrt() / 1e6 - 1.0).abs() < 0.4, "{error}");
    }

    #[test]
    fn bootstrap_standard_errors_match_the_textbook() {
        let mut rng = Rng::new(9, 2);
        let mut draw = |count: usize| -> Vec<f64> { (0..count).map(|_| rng.uniform()).collect() };
        let (a, b) = (draw(40), draw(80));
        let deviation = |values: &[f64]| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
        };
        let expected = (deviation(&a) / 40.0 + deviation(&b) / 80.0).sqrt();
        let mean = |values: &[f64], weights: &[u64]| {
            values.iter().zip(weights).map(|(value, weight)| value * *weight as f64).sum::<f64>() / values.len() as f64
        };
        let estimated = standard_errors(&[40, 80], 2000, &mut Rng::new(9, 3), |weights| {
            let difference = mean(&b, &weights[1]) - mean(&a, &weights[0]);
            vec![difference, 7.0, f64::NAN]
        });
        assert!((estimated[0].unwrap() / expected - 1.0).abs() < 0.07, "{estimated:?} {expected}");
        assert_eq!((estimated[1], estimated[2]), (Some(0.0), None));
        assert_eq!(standard_errors(&[19, 80], 10, &mut Rng::new(9, 3), |_| vec![1.0]), [None]);
    }

    #[test]
    fn too_few_values_have_no_result() {
        let mut rng = Rng::new(1, 1);
        let mut few: Vec<(u32, u64)> = (0..19).map(|block| (block, 5)).collect();
        assert_eq!(quantiles_of_blocks(&mut few, &[0.5], 10, &mut rng), [None]);
        // 20 blocks of 50 values have only ten values beyond the p99.
        let mut some: Vec<(u32, u64)> = (0..1000).map(|at| (at / 50, u64::from(at % 50))).collect();
        let estimated = quantiles_of_blocks(&mut some, &[0.5, 0.99], 10, &mut rng);
        assert!(estimated[0].is_some() && estimated[1].is_none(), "{estimated:?}");
        assert!(block_bootstrap(&[&[1.0]], |values| values[0], 10, 0.95, &mut rng)[0].is_nan());
    }
}
