//! The random draws of one link.

use units::Probability;

/// A source of random numbers of 8 bytes: the SplitMix64 sequence, whose n-th number is a hash of `key + n`. Every
/// random effect of every link has its own, so what happens to a client's packets depends on the seed, the client,
/// the direction and how many packets went before *on that link*, never on the traffic of other clients.
///
/// Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draw(u64);

impl Draw {
    /// The sequence of `key`, itself a well mixed number; or the rest of one, from its [`Self::key`].
    #[inline]
    pub(crate) fn new(key: u64) -> Self {
        Draw(key)
    }

    /// What the rest of the sequence is made of.
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

/// A probability, to be drawn against: in units of 2^-53; 2^53 itself always comes true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Threshold(u64);

impl Threshold {
    pub(crate) fn new(probability: Probability) -> Self {
        // Rounded up, so that no probability above 0 becomes "never".
        Threshold((probability.value() * (1u64 << 53) as f64).ceil() as u64)
    }

    /// Whether it comes true, by the next draw.
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

    /// Whether it comes true this time.
    #[inline]
    pub(crate) fn hit(&mut self) -> bool {
        self.threshold.hit(&mut self.draw)
    }
}
