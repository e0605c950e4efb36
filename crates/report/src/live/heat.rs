//! Distribution of response times by second: counts by time and value.

use std::collections::BTreeMap;

use schema::{Bucket, DistributionRecord, Measure, SecondRecord};

use super::seconds::POINTS_MAX;
use super::state::{Column, Heat, HeatHead, Piece};
use crate::buckets::{Filled, between, quantile, quantile_if_known};

/// Counts by second and row, and the percentiles of each second.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    seconds: BTreeMap<u32, BTreeMap<u16, u64>>,
}

/// Percentiles of an interval of time in ns, precise to the width of their buckets; NaN with too few values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p99_9: f64,
}

impl Percentiles {
    /// Median and p99 for any interval with a value, as in the series; other percentiles only if a value lies beyond
    /// them.
    fn of(buckets: &[Filled]) -> Self {
        let known = |share| quantile_if_known(buckets, share).unwrap_or(f64::NAN);
        let any = |share| quantile(buckets, share).unwrap_or(f64::NAN);
        Percentiles { p50: any(0.5), p90: known(0.9), p99: any(0.99), p99_9: known(0.999) }
    }

    /// The percentiles limited to `most`. NaN stays NaN.
    pub(super) fn at_most(self, most: f64) -> Self {
        let cap = |value: f64| if value > most { most } else { value };
        let Percentiles { p50, p90, p99, p99_9 } = self;
        Percentiles { p50: cap(p50), p90: cap(p90), p99: cap(p99), p99_9: cap(p99_9) }
    }

    /// The percentiles limited by the exact median and p99 of the series of this second, so that they do not contradict
    /// the series. NaN stays NaN.
    pub(super) fn limited_by(self, row: &SecondRecord) -> Self {
        Percentiles {
            p90: between(self.p90, (row.response_p50_ns, row.response_p99_ns)),
            p99_9: between(self.p99_9, (row.response_p99_ns, row.response_max_ns)),
            ..self
        }
    }
}

/// Counts by bucket, rising.
fn filled(counts: &BTreeMap<u16, u64>) -> Vec<Filled> {
    let filled = |(&bucket, &count): (&u16, &u64)| {
        let bucket = Bucket(bucket);
        Filled { from_ns: bucket.from_ns(), to_ns: bucket.to_ns(), count }
    };
    counts.iter().map(filled).collect()
}

impl Spread {
    /// Adds rows of the table.
    pub(super) fn add(&mut self, rows: impl IntoIterator<Item = DistributionRecord>) {
        for row in rows {
            if row.measure == Measure::ResponseTime {
                let bucket = Bucket::of(row.from_ns).0;
                let count = self.seconds.entry(row.second).or_default().entry(bucket).or_default();
                *count = count.saturating_add(row.count);
            }
        }
        // The oldest seconds of a run of days are removed.
        while self.seconds.len() > SECONDS_MAX {
            self.seconds.pop_first();
        }
    }

    pub(super) fn clear(&mut self) {
        self.seconds.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.seconds.is_empty()
    }

    /// All rows, in the form of the table.
    pub(super) fn rows(&self) -> Vec<DistributionRecord> {
        let of_a_second = |(&second, counts): (&u32, &BTreeMap<u16, u64>)| {
            let row = |filled: Filled| DistributionRecord {
                second,
                measure: Measure::ResponseTime,
                from_ns: filled.from_ns,
                to_ns: filled.to_ns,
                count: filled.count,
            };
            filled(counts).into_iter().map(row).collect::<Vec<_>>()
        };
        self.seconds.iter().flat_map(of_a_second).collect()
    }

    /// The percentiles of each interval of `width` seconds, by its first second (a multiple of `width`), in order. Each
    /// is computed from all values of the interval, because percentiles cannot be averaged.
    pub(super) fn percentiles(&self, width: u32) -> Vec<(u32, Percentiles)> {
        let mut stretches: BTreeMap<u32, BTreeMap<u16, u64>> = BTreeMap::new();
        for (second, counts) in &self.seconds {
            let sum = stretches.entry(second / width * width).or_default();
            for (&bucket, &count) in counts {
                let cell: &mut u64 = sum.entry(bucket).or_default();
                *cell = cell.saturating_add(count);
            }
        }
        stretches.iter().map(|(&second, counts)| (second, Percentiles::of(&filled(counts)))).collect()
    }

    /// The heat map; `None` without values. A row has two neighbouring buckets, the resolution of a screen.
    pub(super) fn piece(&self) -> Option<Piece> {
        let (&first, &last) = (self.seconds.keys().next()?, self.seconds.keys().next_back()?);
        let mut width = 1;
        while (last / width - first / width) as usize >= COLUMNS_MAX {
            width *= 2;
        }
        let mut columns: BTreeMap<u32, BTreeMap<u16, u64>> = BTreeMap::new();
        for (second, counts) in &self.seconds {
            let column = columns.entry(second / width * width).or_default();
            for (bucket, count) in counts {
                let cell: &mut u64 = column.entry(bucket / BUCKETS_A_ROW).or_default();
                *cell = cell.saturating_add(*count);
            }
        }
        let rows = || columns.values().flat_map(|cells| cells.keys().copied());
        // The range grows by several rows, so that not every new extreme changes the whole map.
        let lowest = rows().min()? / ROWS_AT_A_TIME * ROWS_AT_A_TIME;
        let beyond = (rows().max()? / ROWS_AT_A_TIME + 1) * ROWS_AT_A_TIME;
        let edges = (lowest..=beyond).map(|row| Bucket((row * BUCKETS_A_ROW).min(LAST_BUCKET)).from_ns()).collect();
        let about = match width {
            1 => "Each column is a second, each row a range of response times: the stronger the colour, the more requests of \
                  that second."
                .to_owned(),
            width => format!(
                "Each column is {width} seconds, each row a range of response times: the stronger the colour, the more \
                 requests of that time."
            ),
        };
        let cells = |cells: BTreeMap<u16, u64>| {
            cells.into_iter().flat_map(|(row, count)| [u64::from(row - lowest), count]).collect()
        };
        Some(Piece::Heat(Heat {
            head: HeatHead {
                id: "heat".to_owned(),
                title: "Distribution of response times over time".to_owned(),
                about,
                seconds: width,
                lowest,
                edges,
            },
            columns: columns.into_iter().map(|(x, counts)| Column { x, cells: cells(counts) }).collect(),
        }))
    }
}

const COLUMNS_MAX: usize = POINTS_MAX / 2;
const BUCKETS_A_ROW: u16 = 2;
/// The bucket of the largest possible value.
const LAST_BUCKET: u16 = Bucket::of(u64::MAX).0;
const ROWS_AT_A_TIME: u16 = 4;
/// A day.
const SECONDS_MAX: usize = 86_400;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(second: u32, value_ns: u64, count: u64) -> DistributionRecord {
        let bucket = Bucket::of(value_ns);
        let (from_ns, to_ns) = (bucket.from_ns(), bucket.to_ns());
        DistributionRecord { second, measure: Measure::ResponseTime, from_ns, to_ns, count }
    }

    #[test]
    fn heat_map_counts_every_request_once() {
        let mut spread = Spread::default();
        assert!(spread.piece().is_none() && spread.is_empty());
        spread.add((0..3000).flat_map(|second| [row(second, 1_000_000, 90), row(second, 80_000_000, 10)]));
        let Some(Piece::Heat(heat)) = spread.piece() else { panic!("no map") };
        assert_eq!((heat.head.seconds, heat.columns.len()), (8, 375));
        let rows = heat.head.edges.len() as u64 - 1;
        for column in &heat.columns {
            let cells: Vec<_> = column.cells.chunks(2).map(|cell| (cell[0], cell[1])).collect();
            assert_eq!(cells.iter().map(|(_, count)| count).sum::<u64>(), 800);
            for (row, count) in cells {
                assert!(row < rows);
                let value = if count == 720 { 1_000_000 } else { 80_000_000 };
                assert!((heat.head.edges[row as usize]..heat.head.edges[row as usize + 1]).contains(&value));
            }
        }
    }

    #[test]
    fn heat_map_percentiles_lie_in_their_buckets() {
        let mut spread = Spread::default();
        spread.add([row(7, 1_000_000, 989), row(7, 50_000_000, 10), row(7, 900_000_000, 1)]);
        let [(second, found)] = spread.percentiles(1)[..] else { panic!("one second") };
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.13;
        assert_eq!(second, 7);
        assert!(
            near(found.p50, 1e6) && near(found.p90, 1e6) && near(found.p99, 50e6) && near(found.p99_9, 50e6),
            "{found:?}"
        );
    }

    /// The percentiles of merged seconds are those of all values: neither the mean of medians nor the maximum of p99s.
    #[test]
    fn merged_seconds_have_percentiles_of_all_values() {
        let mut spread = Spread::default();
        // Three seconds of 1 ms, and few values of 900 ms in the fourth, beyond the p99 of all values.
        spread.add((4..7).map(|second| row(second, 1_000_000, 1000)));
        spread.add([row(7, 900_000_000, 10), row(8, 50_000_000, 1)]);
        let [(four, found), (eight, single)] = spread.percentiles(4)[..] else { panic!("two stretches") };
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.13;
        assert_eq!((four, eight), (4, 8));
        assert!(near(found.p50, 1e6) && near(found.p99, 1e6) && near(found.p99_9, 900e6), "{found:?}");
        // A single value has a median, as in the series, and no percentile with values beyond it.
        assert!(near(single.p50, 50e6) && single.p90.is_nan() && single.p99_9.is_nan(), "{single:?}");
        let capped = single.at_most(47e6);
        assert!(capped.p50 == 47e6 && capped.p99_9.is_nan(), "{capped:?}");
        let rows = spread.rows();
        assert_eq!((rows.len(), rows[3], rows[4].count), (5, row(7, 900_000_000, 10), 1));
    }
}
