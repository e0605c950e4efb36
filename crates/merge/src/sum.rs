//! The counts of all shards, added one after another.

use load::SummedSamples;
use schema::document::WallClock;
use testbed::shard_state::{self, Counting, Facts, PathHistograms, ShardEnd, ShardState};
use units::Timestamp;
use validity::evidence::{StoredRows, UnintendedDrops};

use crate::error::MergeError;
use crate::source::{Source, Sources};

/// The sums over the shards with a result.
#[derive(Debug)]
pub(crate) struct Sum {
    /// The counts of all records.
    pub counting: Counting,
    /// The gauges at each sampling time.
    pub samples: SummedSamples,
    /// The loops of all machines as one.
    pub end: ShardEnd,
    /// Start of the load, on the clock of each run.
    pub start: Timestamp,
    /// The measured phase; its end is that of the last shard.
    pub measured: (Timestamp, Timestamp),
    /// Facts of each shard, in the order of the sources.
    pub facts: Vec<Facts>,
    /// Timing errors of all paths; absent without a path.
    pub path: Option<PathHistograms>,
}

impl Sum {
    /// Adds the states of all shards. One is in memory at a time.
    ///
    /// # Errors
    /// A shard has no state, its state is damaged, or it is of another load.
    pub fn of(sources: &Sources) -> Result<Self, MergeError> {
        let mut shards = sources.complete.iter();
        let first = shards.next().expect("at least one shard has a result");
        let state = read(first)?;
        let mut sum = Sum {
            counting: state.counting,
            samples: SummedSamples::default(),
            end: state.facts.end.clone(),
            start: state.facts.start,
            measured: state.facts.measured,
            path: state.path,
            facts: vec![state.facts],
        };
        sum.samples.add(&state.samples).map_err(|why| unreadable(first, why))?;
        for source in shards {
            sum.add(source, read(source)?)?;
        }
        let ends: Vec<ShardEnd> = sum.facts.iter().map(|facts| on_its_own_core(&facts.end)).collect();
        sum.end = ShardEnd::merged(&ends);
        Ok(sum)
    }

    fn add(&mut self, source: &Source, state: ShardState) -> Result<(), MergeError> {
        let ShardState { facts, counting, samples, path } = state;
        let begins = (self.start, self.measured.0) == (facts.start, facts.measured.0);
        if !begins || path.is_some() != self.path.is_some() || !self.counting.is_of_same_load(&counting) {
            return Err(unreadable(source, "its counts are of another load than those of the first shard".into()));
        }
        self.counting.merge_machine(counting);
        self.samples.add(&samples).map_err(|why| unreadable(source, why))?;
        self.measured.1 = self.measured.1.max(facts.measured.1);
        if let (Some(path), Some(other)) = (&mut self.path, &path) {
            path.merge(other);
        }
        self.facts.push(facts);
        Ok(())
    }

    /// Packets that any testbed lost; `None` if unknown for one of them.
    pub fn unintended_drops(&self, sources: &Sources) -> Option<UnintendedDrops> {
        let mut all = UnintendedDrops::default();
        for (facts, source) in self.facts.iter().zip(&sources.complete) {
            let drops = facts.unintended_drops.as_ref()?;
            all.packets += drops.packets;
            all.not_received += drops.not_received;
            if drops.packets > 0 {
                let separator = if all.places.is_empty() { "" } else { "; " };
                all.places += &format!("{separator}shard {}: {}", sources.name(source.index), drops.places);
            }
        }
        Some(all)
    }

    /// Rows of all tables of requests; `None` if a shard has none.
    pub fn table(&self) -> Option<StoredRows> {
        self.facts.iter().try_fold(StoredRows { rows: 0, one_in: 1 }, |all, facts| {
            let table = facts.table?;
            Some(StoredRows { rows: all.rows + table.rows, one_in: all.one_in.max(table.one_in) })
        })
    }

    /// The first error of writing a shard's files, with the shard.
    pub fn store_error(&self, sources: &Sources) -> Option<String> {
        let mut shards = self.facts.iter().zip(&sources.complete);
        shards.find_map(|(facts, source)| {
            let error = facts.store_error.as_ref()?;
            Some(format!("shard {}: {error}", sources.name(source.index)))
        })
    }

    /// Number of refused connections, if every shard ended early because all were refused.
    pub fn all_refused(&self) -> Option<u64> {
        self.facts.iter().map(|facts| facts.all_refused).sum()
    }
}

/// The largest difference between the clocks of two machines, in nanoseconds; `None` if the error of one is unknown.
pub(crate) fn clock_difference<'a>(clocks: impl Iterator<Item = &'a WallClock>) -> Option<u64> {
    // Runs of one boot have the same clock.
    let mut bounds = std::collections::BTreeMap::<&str, Option<u64>>::new();
    for clock in clocks {
        let bound = bounds.entry(&clock.boot_id).or_insert(Some(0));
        *bound = bound.and_then(|bound| Some(bound.max(clock.bound_ns?)));
    }
    // Without an identifier of its boot a machine cannot be told from another.
    if bounds.len() == 1 && !bounds.contains_key("") {
        return Some(0);
    }
    let mut bounds = bounds.into_values().collect::<Option<Vec<u64>>>()?;
    bounds.sort_unstable();
    Some(bounds.iter().rev().take(2).fold(0, |sum: u64, &bound| sum.saturating_add(bound)))
}

/// A core's number is that of a machine: the loops of two machines do not share a core of the same number.
fn on_its_own_core(end: &ShardEnd) -> ShardEnd {
    ShardEnd { core: None, ..end.clone() }
}

fn read(source: &Source) -> Result<ShardState, MergeError> {
    shard_state::read(&source.dir).map_err(|error| {
        let why = if error.kind() == std::io::ErrorKind::NotFound {
            format!("it has no {}, so it cannot be merged", shard_state::FILE)
        } else {
            error.to_string()
        };
        unreadable(source, why)
    })
}

fn unreadable(source: &Source, why: String) -> MergeError {
    MergeError::Unreadable { run: source.dir.clone(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(boot_id: &str, bound_ns: Option<u64>) -> WallClock {
        WallClock { boot_id: boot_id.into(), source: None, offset_ns: None, bound_ns }
    }

    #[test]
    fn clocks_of_one_boot_are_one_clock_and_others_differ_by_both_bounds() {
        let difference = |clocks: &[WallClock]| clock_difference(clocks.iter());
        assert_eq!(difference(&[clock("a", None), clock("a", None)]), Some(0));
        assert_eq!(difference(&[clock("a", Some(5)), clock("b", Some(7)), clock("c", Some(1))]), Some(12));
        assert_eq!(difference(&[clock("a", Some(5)), clock("a", Some(9)), clock("b", Some(1))]), Some(10));
        assert_eq!(difference(&[clock("a", Some(5)), clock("b", None)]), None);
        assert_eq!(difference(&[clock("", None), clock("", None)]), None, "the machines are unknown");
        assert_eq!(difference(&[clock("a", Some(u64::MAX)), clock("b", Some(7))]), Some(u64::MAX));
    }
}
