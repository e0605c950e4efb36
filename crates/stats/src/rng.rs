//! The random number generator of the project.

use rand_core::{Infallible, SeedableRng, TryRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded random number generator (xoshiro256++). Every consumer uses its own stream, so that an additional draw in
/// one place does not change the draws of others.
#[derive(Clone, Debug)]
pub struct Rng(Xoshiro256PlusPlus);

impl Rng {
    /// The generator of `stream` under the run's `seed`. The same pair always gives the same sequence. Different
    /// streams are practically independent, as SplitMix64 hashes the pair into the state.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mixed = splitmix(seed ^ splitmix(stream.wrapping_add(0x9E37_79B9_7F4A_7C15)));
        Rng(Xoshiro256PlusPlus::seed_from_u64(mixed))
    }

    /// The generator of a stream with a name, such as "arrivals" or "loss". The stream is the FNV-1a hash of the label.
    pub fn named(seed: u64, label: &str) -> Self {
        let stream = label
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Rng::new(seed, stream)
    }

    /// A uniform number in `[0, 1)`, with 53 random bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// A uniform number in `0..bound`; 0 if `bound` is 0. The bias is below 2^-64 times `bound` (multiply-shift).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// True with probability `p`. For 0 and 1 no number is drawn.
    pub fn chance(&mut self, p: units::Probability) -> bool {
        match p.value() {
            p if p <= 0.0 => false,
            p if p >= 1.0 => true,
            p => self.uniform() < p,
        }
    }

    /// An exponential number with mean 1.
    pub fn exponential(&mut self) -> f64 {
        // 1 - u is in (0, 1], so the logarithm is finite.
        -(1.0 - self.uniform()).ln()
    }

    /// The next 64 bits.
    #[allow(clippy::should_implement_trait, reason = "an endless source of bits is not an iterator")]
    pub fn next(&mut self) -> u64 {
        let Ok(bits) = self.0.try_next_u64();
        bits
    }
}

/// Allows the distributions of `rand_distr` to use this generator.
impl TryRng for Rng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.0.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.0.try_next_u64()
    }

    fn try_fill_bytes(&mut self, destination: &mut [u8]) -> Result<(), Infallible> {
        self.0.try_fill_bytes(destination)
    }
}

fn splitmix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_repeats_and_named_streams_differ() {
        let draw = |seed, stream| {
            let mut rng = Rng::new(seed, stream);
            [rng.next(), rng.next(), rng.next()]
        };
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn mean_and_variance_of_random_draws_are_correct() {
        let mut rng = Rng::named(7, "moments");
        let n = 200_000;
        let uniform = (0..n).map(|_| rng.uniform()).sum::<f64>() / f64::from(n);
        let exponential = (0..n).map(|_| rng.exponential()).sum::<f64>() / f64::from(n);
        // The standard errors are 0.00065 and 0.0022; the limits are five times these.
        assert!((uniform - 0.5).abs() < 0.0033, "{uniform}");
        assert!((exponential - 1.0).abs() < 0.011, "{exponential}");
        assert!((0..1000).all(|_| rng.below(7) < 7));
    }
}
