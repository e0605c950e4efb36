//! How response times were spread, second by second: counts by time and value.

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

/// Percentiles of one stretch of time in ns, right to the width of their buckets; not a number where there are too few values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p99_9: f64,
}

impl Percentiles {
    /// Median and 99 % as a series has them of any second with a value, the others where a value lies beyond them.
    fn of(buckets: &[Filled]) -> Self {
        let known = |share| quantile_if_known(buckets, share).unwrap_or(f64::NAN);
        let any = |share| quantile(buckets, share).unwrap_or(f64::NAN);
        Percentiles { p50: any(0.5), p90: known(0.9), p99: any(0.99), p99_9: known(0.999) }
    }

    /// The same, none of them above `most`. What is not a number stays so.
    pub(super) fn at_most(self, most: f64) -> Self {
        let cap = |value: f64| if value > most { most } else { value };
        let Percentiles { p50, p90, p99, p99_9 } = self;
        Percentiles { p50: cap(p50), p90: cap(p90), p99: cap(p99), p99_9: cap(p99_9) }
    }

    /// What stands beside the median and the 99 % of a series that is counted more finely: none of these contradicts one of those. What is
    /// not a number stays so.
    pub(super) fn beside(self, row: &SecondRecord) -> Self {
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
    /// Takes rows of the table.
    pub(super) fn add(&mut self, rows: impl IntoIterator<Item = DistributionRecord>) {
        for row in rows {
            if row.measure == Measure::ResponseTime {
                let bucket = Bucket::of(row.from_ns).0;
                let count = self.seconds.entry(row.second).or_default().entry(bucket).or_default();
                *count = count.saturating_add(row.count);
            }
        }
        // The oldest go where a run goes on for days.
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

    /// All rows, as the table has them.
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

    /// The percentiles of each stretch of `width` seconds that begins at a multiple of that, by its first second, in order: of
    /// all its values, since counts add up and percentiles do not.
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

    /// The map; `None` where there is nothing to show. Two neighbouring buckets make a row, since a screen has no more.
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
        // Grown by a few at a time, so that not every new extreme makes the whole map anew.
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
/// The bucket of the largest value there is.
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
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.13;
        assert_eq!(second, 7);
        assert!(
            near(found.p50, 1e6) && near(found.p90, 1e6) && near(found.p99, 50e6) && near(found.p99_9, 50e6),
            "{found:?}"
        );
    }

    /// Of seconds that go together: no mean of medians and no largest of their p99, but what all of them come to.
    #[test]
    fn merged_seconds_have_percentiles_of_all_values() {
        let mut spread = Spread::default();
        // In the median 1 ms, 1 ms, 1 ms and of few values 900 ms; 99 % of all are far below those.
        spread.add((4..7).map(|second| row(second, 1_000_000, 1000)));
        spread.add([row(7, 900_000_000, 10), row(8, 50_000_000, 1)]);
        let [(four, found), (eight, single)] = spread.percentiles(4)[..] else { panic!("two stretches") };
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.13;
        assert_eq!((four, eight), (4, 8));
        assert!(near(found.p50, 1e6) && near(found.p99, 1e6) && near(found.p99_9, 900e6), "{found:?}");
        // Of one value there is a median, as the series has it, and nothing that would lie below others.
        assert!(near(single.p50, 50e6) && single.p90.is_nan() && single.p99_9.is_nan(), "{single:?}");
        let capped = single.at_most(47e6);
        assert!(capped.p50 == 47e6 && capped.p99_9.is_nan(), "{capped:?}");
        let rows = spread.rows();
        assert_eq!((rows.len(), rows[3], rows[4].count), (5, row(7, 900_000_000, 10), 1));
    }
}
