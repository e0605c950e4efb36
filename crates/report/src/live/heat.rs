//! How response times were spread, second by second: counts by time and value.

use std::collections::BTreeMap;

use ledger::{Bucket, DistributionRecord, Measure};

use super::seconds::POINTS_MAX;
use super::state::{Column, Heat, HeatHead, Piece};

/// Counts by second and row, and the percentiles of each second.
#[derive(Clone, Debug, Default)]
pub(super) struct Spread {
    seconds: BTreeMap<u32, BTreeMap<u16, u64>>,
}

/// Percentiles of one stretch of time in ns: the middle of the bucket in which they lie.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Percentiles {
    pub(super) p50: f64,
    pub(super) p90: f64,
    pub(super) p99: f64,
    pub(super) p99_9: f64,
}

impl Percentiles {
    /// The same, none of them above `most`.
    pub(super) fn at_most(self, most: f64) -> Self {
        let Percentiles { p50, p90, p99, p99_9 } = self;
        Percentiles { p50: p50.min(most), p90: p90.min(most), p99: p99.min(most), p99_9: p99_9.min(most) }
    }
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

    /// The percentiles of each second, in order.
    pub(super) fn percentiles(&self) -> Vec<(u32, Percentiles)> {
        let of = |(&second, counts): (&u32, &BTreeMap<u16, u64>)| {
            let total = counts.values().fold(0, |sum: u64, count| sum.saturating_add(*count));
            let at = |share: f64| {
                let rank = ((share * total as f64).ceil() as u64).max(1);
                let mut below = 0;
                let found = counts.iter().find(|&(_, &count)| {
                    below = u64::saturating_add(below, count);
                    below >= rank
                });
                let bucket = Bucket(*found.or(counts.iter().next_back()).map_or(&0, |(bucket, _)| bucket));
                (bucket.from_ns() as f64 + bucket.to_ns() as f64) / 2.0
            };
            (total > 0).then(|| (second, Percentiles { p50: at(0.5), p90: at(0.9), p99: at(0.99), p99_9: at(0.999) }))
        };
        self.seconds.iter().filter_map(of).collect()
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
                title: "Response times, spread".to_owned(),
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
    fn every_count_is_in_one_cell() {
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
    fn percentiles_lie_in_their_bucket() {
        let mut spread = Spread::default();
        spread.add([row(7, 1_000_000, 989), row(7, 50_000_000, 10), row(7, 900_000_000, 1)]);
        let [(second, found)] = spread.percentiles()[..] else { panic!("one second") };
        let near = |value: f64, wanted: f64| (value / wanted - 1.0).abs() < 0.13;
        assert_eq!(second, 7);
        assert!(
            near(found.p50, 1e6) && near(found.p90, 1e6) && near(found.p99, 50e6) && near(found.p99_9, 50e6),
            "{found:?}"
        );
    }
}
