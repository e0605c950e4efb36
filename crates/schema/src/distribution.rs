//! Distribution of the response times of one second: the data of a heat map.

use crate::record;

/// The distributed quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Measure {
    /// done - scheduled, of the requests completed in the second.
    ResponseTime,
}

impl Measure {
    /// All of them.
    pub const ALL: [Measure; 1] = [Measure::ResponseTime];

    /// The name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Measure::ResponseTime => "response_time",
        }
    }
}

record! {
    /// One non-empty bucket of one second: the data of a heat map. The buckets are the same in all
    /// seconds and runs, eight per doubling, so that counts add up. During the run a second has the requests that
    /// had ended when it was written.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct DistributionRecord in "distributions" {
        /// Index of the second since the run's zero.
        pub second: u32 [unit "s"],
        /// What is distributed: `response_time` is done - scheduled, of the requests completed in the second.
        pub measure: Measure,
        /// Lower edge of the bucket, inclusive.
        pub from_ns: u64,
        /// Upper edge of the bucket, exclusive.
        pub to_ns: u64,
        /// Requests in the bucket.
        pub count: u64 [unit "requests"],
    }
}

/// The buckets of a distribution: eight a doubling, below 16 ns one for each value.
///
/// A bucket is at most an eighth of its lower edge wide, the resolution of the eye on a logarithmic axis. From nothing
/// to an hour there are 318 of them; the times of one second lie in a few dozen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(pub u16);

impl Bucket {
    /// The bucket that holds a value.
    #[inline]
    pub const fn of(value_ns: u64) -> Bucket {
        Bucket(place(value_ns, PRECISION_BITS))
    }

    /// Lower edge of the bucket in ns, inclusive.
    pub const fn from_ns(self) -> u64 {
        lower(self.0, PRECISION_BITS)
    }

    /// Upper edge of the bucket in ns, exclusive; for the last bucket the largest possible value.
    pub const fn to_ns(self) -> u64 {
        upper(self.0, PRECISION_BITS)
    }
}

/// Finer buckets: 32 a doubling, below 64 ns one for each value. A bucket is at most a thirty-second of its lower edge
/// wide.
///
/// From nothing to an hour there are 1205 of them. Quantiles over a long time are computed from these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FineBucket(pub u16);

impl FineBucket {
    /// The bucket that holds a value.
    #[inline]
    pub const fn of(value_ns: u64) -> FineBucket {
        FineBucket(place(value_ns, FINE_BITS))
    }

    /// Its lower edge in ns, inclusive.
    pub const fn from_ns(self) -> u64 {
        lower(self.0, FINE_BITS)
    }

    /// Its upper edge in ns, exclusive; of the last bucket the largest value there is.
    pub const fn to_ns(self) -> u64 {
        upper(self.0, FINE_BITS)
    }

    /// Largest relative width of a bucket: an upper bound on the error of a quantile.
    pub const WIDTH: f64 = 1.0 / (1_u32 << FINE_BITS) as f64;

    /// The last there is.
    pub const LAST: FineBucket = FineBucket::of(u64::MAX);
}

/// The place of a value among buckets of which `2^bits` make a doubling.
const fn place(value: u64, bits: u32) -> u16 {
    let shift = match value.checked_ilog2() {
        Some(log) if log > bits => log - bits,
        _ => 0,
    };
    (((shift << bits) as u64) + (value >> shift)) as u16
}

const fn lower(place: u16, bits: u32) -> u64 {
    let shift = shift(place, bits);
    (place as u64 - ((shift as u64) << bits)) << shift
}

const fn upper(place: u16, bits: u32) -> u64 {
    lower(place, bits).saturating_add(1 << shift(place, bits))
}

const fn shift(place: u16, bits: u32) -> u32 {
    (place as u32 >> bits).saturating_sub(1)
}

/// Each doubling is cut into 2^3 buckets.
const PRECISION_BITS: u32 = 3;
/// And into 2^5.
const FINE_BITS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_contiguous_and_contain_their_edges() {
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
    fn a_doubling_has_eight_buckets() {
        for exponent in 4..40 {
            let (low, high) = (Bucket::of(1 << exponent), Bucket::of(1 << (exponent + 1)));
            assert_eq!(high.0 - low.0, 8);
        }
        assert_eq!(Bucket::of(3_600_000_000_000 - 1).0, 317);
    }

    #[test]
    fn fine_buckets_are_contiguous_and_contain_their_edges() {
        for at in 0..FineBucket::LAST.0 {
            let bucket = FineBucket(at);
            assert_eq!(FineBucket::of(bucket.from_ns()), bucket);
            assert_eq!(FineBucket::of(bucket.to_ns() - 1), bucket);
            assert_eq!(FineBucket(at + 1).from_ns(), bucket.to_ns());
            let width = (bucket.to_ns() - 1 - bucket.from_ns()) as f64;
            assert!(width <= bucket.from_ns() as f64 * FineBucket::WIDTH, "{at}");
        }
        assert_eq!(FineBucket::of(3_600_000_000_000 - 1).0, 1204);
        assert_eq!(FineBucket::LAST.to_ns(), u64::MAX);
    }
}
