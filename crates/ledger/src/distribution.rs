//! How the times of one second are distributed: what a heat map is drawn from.

/// What is distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// done - intended, of the requests completed in the second.
    ResponseTime,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 1] = [Measure::ResponseTime];

    /// As in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::ResponseTime => "response_time",
        }
    }

    /// The measure of this name.
    pub fn from_name(name: &str) -> Option<Measure> {
        Measure::ALL.into_iter().find(|measure| measure.name() == name)
    }
}

/// One row of distributions.parquet: a bucket of one second that is not empty.
///
/// The buckets are the same in all seconds and all runs ([`Bucket`]), so that the counts of seconds, and of runs, add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DistributionRecord {
    /// Index of the second since the run's zero.
    pub second: u32,
    /// What is distributed.
    pub measure: Measure,
    /// Lower edge of the bucket in ns, inclusive.
    pub from_ns: u64,
    /// Upper edge of the bucket in ns, exclusive.
    pub to_ns: u64,
    /// Values in it.
    pub count: u64,
}

/// The buckets of a distribution: eight a doubling, below 16 ns one for each value.
///
/// A bucket is at most an eighth of its lower edge wide, what the eye tells apart on a logarithmic axis. From nothing to an
/// hour there are 318 of them; the times of one second lie in a few dozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(pub u16);

impl Bucket {
    /// The bucket that holds a value.
    #[inline]
    pub const fn of(value_ns: u64) -> Bucket {
        let shift = match value_ns.checked_ilog2() {
            Some(log) if log > PRECISION_BITS => log - PRECISION_BITS,
            _ => 0,
        };
        Bucket(((shift << PRECISION_BITS) as u64 + (value_ns >> shift)) as u16)
    }

    /// Its lower edge in ns, inclusive.
    pub const fn from_ns(self) -> u64 {
        let shift = self.shift();
        (self.0 as u64 - ((shift as u64) << PRECISION_BITS)) << shift
    }

    /// Its upper edge in ns, exclusive; of the last bucket the largest value there is.
    pub const fn to_ns(self) -> u64 {
        self.from_ns().saturating_add(1 << self.shift())
    }

    const fn shift(self) -> u32 {
        (self.0 as u32 >> PRECISION_BITS).saturating_sub(1)
    }
}

/// Each doubling is cut into 2^3 buckets.
const PRECISION_BITS: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_touch_and_each_holds_its_edges() {
        for at in 0..495 {
            let bucket = Bucket(at);
            assert_eq!(Bucket::of(bucket.from_ns()), bucket);
            assert_eq!(Bucket::of(bucket.to_ns() - 1), bucket);
            assert_eq!(Bucket(at + 1).from_ns(), bucket.to_ns());
        }
        assert_eq!(Bucket::of(u64::MAX), Bucket(495));
        assert_eq!((Bucket(495).from_ns(), Bucket(495).to_ns()), (0xf << 60, u64::MAX));
    }

    #[test]
    fn a_doubling_has_eight() {
        for exponent in 4..40 {
            let (low, high) = (Bucket::of(1 << exponent), Bucket::of(1 << (exponent + 1)));
            assert_eq!(high.0 - low.0, 8);
        }
        assert_eq!(Bucket::of(3_600_000_000_000 - 1).0, 317);
    }

    #[test]
    fn names_are_read_back() {
        for measure in Measure::ALL {
            assert_eq!(Measure::from_name(measure.name()), Some(measure));
        }
        assert_eq!(Measure::from_name("nothing"), None);
    }
}
