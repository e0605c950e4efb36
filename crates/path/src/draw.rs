//! The random draws of one link.

use units::Probability;

/// A source of random 64-bit numbers: the SplitMix64 sequence, whose n-th number is a hash of `key + n`. Every random
/// effect of every link has its own sequence. The fate of a client's packets therefore depends on the seed, the client,
/// the direction and the number of packets before *on that link*, never on the traffic of other clients.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The sequence of `key`, which must be a well mixed number; or the remainder of a sequence, from its
    /// [`Self::key`].
    #[inline]
    pub(crate) fn new(key: u64) -> Self {
        Draw(key)
    }

    /// The key from which the remainder of the sequence continues.
    #[inline]
    pub(crate) fn key(self) -> u64 {
        self.0
    }

    /// The next 64 bits.
    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Uniform in `0..bound`; 0 when `bound` is 0. The bias is below 2^-64 times `bound` (multiply-shift).
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// A probability to draw against, in units of 2^-53; 2^53 always hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Threshold(u64);

impl Threshold {
    pub(crate) fn new(probability: Probability) -> Self {
        // Rounded up, so that no probability above 0 becomes "never".
        Threshold((probability.value() * (1u64 << 53) as f64).ceil() as u64)
    }

    /// Whether the next draw hits.
    #[inline]
    pub(crate) fn hit(self, draw: &mut Draw) -> bool {
        draw.next() >> 11 < self.0
    }
}

/// A probability with its own draws.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chance {
    threshold: Threshold,
    draw: Draw,
}

impl Chance {
    pub(crate) fn new(probability: Probability, draw: Draw) -> Self {
        Chance { threshold: Threshold::new(probability), draw }
    }

    /// Whether the next draw hits.
    #[inline]
    pub(crate) fn hit(&mut self) -> bool {
        self.threshold.hit(&mut self.draw)
    }
}
