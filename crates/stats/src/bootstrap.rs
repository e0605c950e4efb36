//! How well a figure of one run is known, by drawing the run's own blocks again.
//!
//! Requests that follow one another are not independent: a slow moment makes many of them slow. So what is drawn again
//! is not a request but a block of all requests of, say, a second, and the figures are made of as many blocks as there
//! were.

use crate::compare::Estimate;
use crate::normal;
use crate::rng::Rng;
use crate::student::t_quantile;

/// Fewest blocks that say anything of their scatter.
pub const BLOCKS_MIN: usize = 20;

/// Interval of a figure of values that come in blocks, `confidence` wide: `rounds` times as many blocks as there are,
/// drawn with replacement and joined, are given to `of`, which may reorder them. `[NaN, NaN]` with fewer than two
/// blocks.
///
/// The ends are percentiles of what came out, taken as far out as Student's t is from the normal for so many blocks,
/// since percentiles alone cover too seldom where blocks are few. Bias: a block that is short beside the memory of the
/// series makes the interval too narrow; a figure of the tail (p99.9 of few values) has few values to be drawn.
/// Sources: E. Carlstein (1986) for blocks that do not overlap; T. Hesterberg, "What teachers should know about the
/// bootstrap" (2015) for the ends.
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

/// The share of the normal distribution below which as much lies as below `share` of Student's t, with the scatter of
/// so many blocks corrected for its bias.
fn expanded(share: f64, blocks: usize) -> f64 {
    let n = blocks as f64;
    let wanted = (n / (n - 1.0)).sqrt() * t_quantile(share, n - 1.0);
    let (mut low, mut high) = (0.0, 0.5);
    for _ in 0..60 {
        let middle: f64 = 0.5 * (low + high);
        if normal::quantile(middle) < wanted { low = middle } else { high = middle }
    }
    0.5 * (low + high)
}

/// Nearest-rank quantiles of values that come in blocks, in the order of `quantiles` (each above 0, at most 1), with
/// their standard errors by the block bootstrap. Values are `(block, value)`, blocks numbered from 0; sorted here.
/// `None` with fewer than [`BLOCKS_MIN`] blocks that have a value, or where a quantile rests on fewer than
/// [`BEYOND_MIN`] values beyond it.
///
/// One pass over the sorted values a round, whatever the number of quantiles: a million values and 400 rounds take a
/// second. Biases as [`block_bootstrap`].
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
        // About the figure itself, so that squares of large numbers are not subtracted.
        for ((sum, squares), (drawn, value)) in sums.iter_mut().zip(drawn.iter().zip(&value)) {
            let off = *drawn as f64 - *value as f64;
            *sum += off;
            *squares += off * off;
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

/// A quantile rests on the values beyond it; of fewer it is nearly the largest value.
pub const BEYOND_MIN: f64 = 20.0;

/// Standard errors of figures that are made of blocks, by drawing the blocks again, `rounds` times, two or more. There may be several
/// sets of blocks, which are drawn apart from each other; `sizes` says how many blocks each has. `of` is given for each set how often each of its
/// blocks counts, and makes the figures: always as many. What both of a pair share is in one set: a block that has both.
///
/// `None` of a figure that is not finite in more than one round of twenty (those rounds are left out of the others), and of all
/// with fewer than [`BLOCKS_MIN`] blocks in a set. Biases as [`block_bootstrap`].
pub fn standard_errors(
    sizes: &[usize],
    rounds: u32,
    rng: &mut Rng,
    mut of: impl FnMut(&[Vec<u64>]) -> Vec<f64>,
) -> Vec<Option<f64>> {
    let mut weights: Vec<Vec<u64>> = sizes.iter().map(|&size| vec![1; size]).collect();
    // About the figures themselves, so that squares of large numbers are not subtracted.
    let centre = of(&weights);
    let least = sizes.iter().copied().min().unwrap_or(0);
    if least < BLOCKS_MIN || rounds < 2 {
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
            let off = drawn - centre;
            if off.is_finite() {
                *sum += off;
                *squares += off * off;
                *count += 1;
            }
        }
    }
    // A scatter within blocks is too small by as much; of several sets the smallest says.
    let blocks = least as f64;
    let error = |(sum, squares, count): (f64, f64, u32)| {
        let made = f64::from(count);
        let variance = (squares - sum * sum / made) / (made - 1.0) * blocks / (blocks - 1.0);
        (count * 20 >= rounds * 19).then(|| variance.max(0.0).sqrt())
    };
    sums.into_iter().map(error).collect()
}

/// The quantiles of sorted values, each as often as its block's weight says.
fn ranked(sorted: &[(u32, u64)], weights: &[u64], total: u64, quantiles: &[f64], order: &[usize]) -> Vec<u64> {
    let mut found = vec![0; quantiles.len()];
    let mut passed = 0;
    let mut order = order.iter().map(|&index| (index, ((quantiles[index] * total as f64).ceil() as u64).max(1)));
    let mut wanted = order.next();
    for &(block, value) in sorted {
        passed += weights[block as usize];
        while let Some((index, rank)) = wanted
            && passed >= rank
        {
            found[index] = value;
            wanted = order.next();
        }
        if wanted.is_none() {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quantiles_of;

    /// A series with a memory of about 50 values, in blocks of 500: some 0.9 of the variance of a block's mean lies
    /// between blocks.
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

    /// Of 200 intervals at 95 %, 190 should cover; the binomial's standard deviation is 3.1. Blocks that are not
    /// independent cost a little.
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
            // As if every value were independent.
            let all = blocks.concat();
            let singles: Vec<&[f64]> = all.chunks(1).collect();
            let [low, high] = block_bootstrap(&singles, median, 20, 0.95, &mut rng);
            of_values += usize::from((low..=high).contains(&truth));
            let mut numbered: Vec<(u32, u64)> = blocks
                .iter()
                .enumerate()
                .flat_map(|(block, values)| values.iter().map(move |&value| (block as u32, (value * 1e6) as u64)))
                .collect();
            let found = quantiles_of_blocks(&mut numbered, &[0.5], 200, &mut rng)[0].unwrap();
            let half = found.standard_error * t_quantile(0.975, found.freedom);
            by_error += usize::from((found.value - truth * 1e6).abs() <= half);
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
        // In any order of asking.
        let found = quantiles_of_blocks(&mut numbered, &[0.99, 0.5, 0.9], 50, &mut rng);
        let exact = quantiles_of(&all);
        let values: Vec<u64> = found.iter().map(|found| found.unwrap().value as u64).collect();
        assert_eq!(values, [exact.p99, exact.p50, exact.p90]);
        // Of uniform values that are independent: sqrt(q (1 - q) / n) of the range.
        let error = found[1].unwrap().standard_error;
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
        let wanted = (deviation(&a) / 40.0 + deviation(&b) / 80.0).sqrt();
        let mean = |values: &[f64], weights: &[u64]| {
            values.iter().zip(weights).map(|(value, weight)| value * *weight as f64).sum::<f64>() / values.len() as f64
        };
        let found = standard_errors(&[40, 80], 2000, &mut Rng::new(9, 3), |weights| {
            let difference = mean(&b, &weights[1]) - mean(&a, &weights[0]);
            vec![difference, 7.0, f64::NAN]
        });
        assert!((found[0].unwrap() / wanted - 1.0).abs() < 0.07, "{found:?} {wanted}");
        assert_eq!((found[1], found[2]), (Some(0.0), None));
        assert_eq!(standard_errors(&[19, 80], 10, &mut Rng::new(9, 3), |_| vec![1.0]), [None]);
    }

    #[test]
    fn too_few_values_have_no_result() {
        let mut rng = Rng::new(1, 1);
        let mut few: Vec<(u32, u64)> = (0..19).map(|block| (block, 5)).collect();
        assert_eq!(quantiles_of_blocks(&mut few, &[0.5], 10, &mut rng), [None]);
        // 20 blocks of 50 values: ten lie beyond the p99.
        let mut some: Vec<(u32, u64)> = (0..1000).map(|at| (at / 50, u64::from(at % 50))).collect();
        let found = quantiles_of_blocks(&mut some, &[0.5, 0.99], 10, &mut rng);
        assert!(found[0].is_some() && found[1].is_none(), "{found:?}");
        assert!(block_bootstrap(&[&[1.0]], |values| values[0], 10, 0.95, &mut rng)[0].is_nan());
    }
}
