//! distributions.parquet: one row a second and bucket, how the times of the second are distributed.

use std::borrow::Cow;

use schema::{DistributionRecord, Measure};

use super::{Field, Row, signed, unsigned};

/// An edge of the bucket, or what is in it.
macro_rules! number {
    ($field:ident, $unit:literal, $about:literal) => {
        Field::integer(
            stringify!($field),
            $unit,
            $about,
            |row: &DistributionRecord| Some(signed(row.$field)),
            |row, value| row.$field = unsigned(value),
        )
    };
}

impl Row for DistributionRecord {
    const TABLE: &'static str = "distributions";
    const ROW: &'static str = "One bucket of one second that is not empty: what a heat map is drawn from. The buckets are the same in all seconds \
        and runs, eight a doubling, so that counts add up. While the run goes, a second has the requests that had ended when it \
        was written.";

    const BLANK: DistributionRecord =
        DistributionRecord { second: 0, measure: Measure::ResponseTime, from_ns: 0, to_ns: 0, count: 0 };

    const FIELDS: &'static [Field<DistributionRecord>] = &[
        Field::integer(
            "second",
            "s",
            "Index of the second since the run's zero.",
            |row: &DistributionRecord| Some(i64::from(row.second)),
            |row, value| row.second = value as u32,
        ),
        Field::text(
            "measure",
            "What is distributed: `response_time` is done - intended, of the requests completed in the second.",
            |row: &DistributionRecord| Some(Cow::Borrowed(row.measure.name())),
            |row, value| {
                Measure::from_name(value).is_some_and(|measure| {
                    row.measure = measure;
                    true
                })
            },
        ),
        number!(from_ns, "ns", "Lower edge of the bucket, inclusive."),
        number!(to_ns, "ns", "Upper edge of the bucket, exclusive."),
        number!(count, "requests", "Requests in it."),
    ];
}
