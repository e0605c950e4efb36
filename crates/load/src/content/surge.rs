//! File sizes of SURGE: a log-normal body with a Pareto tail.
//!
//! Source: Barford and Crovella, "Generating representative web workloads for network and server performance
//! evaluation" (1998). The parameters are from memory and not verified against the paper: body log-normal(9.357, 1.318)
//! below 133 KB, 93 % of files; tail Pareto from 133 KB with exponent 1.1; popularity by Zipf's law with exponent 1,
//! independent of size. The tail is truncated at 100 MB: with an exponent so near 1 a single file could otherwise
//! outweigh all others, and results would depend strongly on the seed.

use stats::Rng;

/// Exponent of popularity.
pub(super) const ALPHA: f64 = 1.0;

/// Mean of the logarithm of a body's bytes.
pub(super) const BODY_MU: f64 = 9.357;
/// Standard deviation of the logarithm of a body's bytes.
pub(super) const BODY_SIGMA: f64 = 1.318;
/// Share of files in the tail.
pub(super) const TAIL_SHARE: f64 = 0.07;
/// Smallest file of the tail, in bytes.
pub(super) const TAIL_FROM: f64 = 133_000.0;
/// Exponent of the tail.
pub(super) const TAIL_ALPHA: f64 = 1.1;
/// Largest file, in bytes.
pub(super) const SIZE_MAX: f64 = 1e8;

/// Size in bytes of the object of a rank; depends only on seed and rank.
pub(super) fn size(seed: u64, rank: u32) -> u64 {
    let mut rng = Rng::new(seed ^ 0x7375_7267_6500_0000, u64::from(rank));
    let bytes = if rng.uniform() < TAIL_SHARE {
        // The inverse of the Pareto distribution; 1 - u is never 0.
        (TAIL_FROM * (1.0 - rng.uniform()).powf(-1.0 / TAIL_ALPHA)).min(SIZE_MAX)
    } else {
        body(&mut rng)
    };
    bytes.round().max(1.0) as u64
}

fn body(rng: &mut Rng) -> f64 {
    loop {
        let bytes = (BODY_MU + BODY_SIGMA * normal(rng)).exp();
        // Sizes in the range of the tail are drawn again: 3 % of draws.
        if bytes < TAIL_FROM {
            return bytes;
        }
    }
}

/// Draws from the standard normal distribution by the Box-Muller method.
fn normal(rng: &mut Rng) -> f64 {
    let radius = (2.0 * rng.exponential()).sqrt();
    radius * (std::f64::consts::TAU * rng.uniform()).cos()
}
