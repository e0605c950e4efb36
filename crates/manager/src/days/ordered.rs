//! Merges several sorted files, and rows in memory, into one sorted sequence, read group by group.
//!
//! The caller opens the files, and a file is read only when the sequence reaches its first row: files written one
//! after another overlap little, so two or three groups are in memory, however many files there are.

use schema::FleetRow;
use std::cmp::Ordering;
use std::collections::VecDeque;

use store::PartFile;

use crate::error::Result;

/// The order of all files and pages: by end time, then by row name.
pub(crate) fn order(a: &FleetRow, b: &FleetRow) -> Ordering {
    (a.at_unix_ns, &a.stream, a.sequence, a.number).cmp(&(b.at_unix_ns, &b.stream, b.sequence, b.number))
}

/// A sorted file, or sorted rows.
pub(crate) struct Source {
    /// The earliest end time of the source's rows.
    first_ns: u64,
    /// The file and its next group; `None`: all its rows are in `ready`.
    file: Option<(PartFile<FleetRow>, usize)>,
    ready: VecDeque<FleetRow>,
}

impl Source {
    pub(crate) fn file(first_ns: u64, file: PartFile<FleetRow>) -> Source {
        Source { first_ns, file: Some((file, 0)), ready: VecDeque::new() }
    }

    pub(crate) fn rows(mut rows: Vec<FleetRow>) -> Source {
        rows.sort_unstable_by(order);
        Source { first_ns: rows.first().map_or(0, |row| row.at_unix_ns), file: None, ready: rows.into() }
    }

    /// Reads until a row is ready, or the source has ended.
    fn fill(&mut self, range: &std::ops::Range<u64>) -> Result<()> {
        while self.ready.is_empty()
            && let Some((file, group)) = &mut self.file
        {
            if *group >= file.groups() {
                self.file = None;
                break;
            }
            let at = *group;
            *group += 1;
            let is_outside = file.range_of(at, "at_unix_ns").is_some_and(|(least, greatest)| {
                greatest.cast_unsigned() < range.start || least.cast_unsigned() >= range.end
            });
            if is_outside {
                continue;
            }
            let mut rows = Vec::new();
            file.read_group(at, &mut rows)?;
            rows.retain(|row| range.contains(&row.at_unix_ns));
            self.ready = rows.into();
        }
        Ok(())
    }
}

/// The merged sequence.
pub(crate) struct Ordered {
    range: std::ops::Range<u64>,
    /// Sources not read yet, sorted by start; the earliest is the last.
    unread: Vec<Source>,
    /// Sources with a row ready.
    active: Vec<Source>,
}

impl Ordered {
    /// A sequence of rows that end within this time range, ns since 1970.
    pub(crate) fn new(mut sources: Vec<Source>, range: std::ops::Range<u64>) -> Ordered {
        sources.sort_by_key(|source| std::cmp::Reverse(source.first_ns));
        Ordered { range, unread: sources, active: Vec::new() }
    }

    fn advance(&mut self) -> Result<Option<FleetRow>> {
        loop {
            let least = self.next_source();
            let least_ns = least.and_then(|at| self.active[at].ready.front()).map(|row| row.at_unix_ns);
            if let Some(next) = self.unread.last()
                && least_ns.is_none_or(|least| next.first_ns <= least)
            {
                let mut source = self.unread.pop().expect("the list was just checked to have an entry");
                source.ready.retain(|row| self.range.contains(&row.at_unix_ns));
                source.fill(&self.range)?;
                if !source.ready.is_empty() {
                    self.active.push(source);
                }
                continue;
            }
            let Some(at) = least else { return Ok(None) };
            let source = &mut self.active[at];
            let row = source.ready.pop_front();
            source.fill(&self.range)?;
            if source.ready.is_empty() {
                self.active.swap_remove(at);
            }
            return Ok(row);
        }
    }

    /// The source with the next row.
    fn next_source(&self) -> Option<usize> {
        let fronts = self.active.iter().enumerate().filter_map(|(at, source)| Some((at, source.ready.front()?)));
        fronts.min_by(|(_, a), (_, b)| order(a, b)).map(|(at, _)| at)
    }
}

impl Iterator for Ordered {
    type Item = Result<FleetRow>;

    fn next(&mut self) -> Option<Result<FleetRow>> {
        self.advance().transpose()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use store::PartWriter;

    use super::*;

    fn row(at_unix_ns: u64, number: u32) -> FleetRow {
        FleetRow { at_unix_ns, number, ..FleetRow::BLANK }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn merged_sources_yield_each_row_once_in_order(
            files in prop::collection::vec(prop::collection::vec(0_u64..100, 0..40), 0..6),
            loose in prop::collection::vec(0_u64..100, 0..10),
            from in 0_u64..60,
            length in 0_u64..100,
        ) {
            let folder = tempfile::tempdir().unwrap();
            let mut number = 0;
            let mut all = Vec::new();
            let mut sources = Vec::new();
            for (at, ends) in files.iter().enumerate() {
                let mut rows: Vec<FleetRow> = ends.iter().map(|end| { number += 1; row(*end, number) }).collect();
                rows.sort_unstable_by(order);
                let path = folder.path().join(format!("{at}.parquet"));
                let mut writer = PartWriter::begin(&path).unwrap();
                // Files have row groups of seven rows.
                rows.chunks(7).for_each(|group| writer.append(group).unwrap());
                writer.finish().unwrap();
                let first = rows.first().map_or(0, |row| row.at_unix_ns);
                sources.push(Source::file(first, PartFile::open(&path).unwrap()));
                all.extend(rows);
            }
            let loose: Vec<FleetRow> = loose.iter().map(|end| { number += 1; row(*end, number) }).collect();
            all.extend(loose.clone());
            sources.push(Source::rows(loose));
            let range = from..from + length;
            all.retain(|row| range.contains(&row.at_unix_ns));
            all.sort_unstable_by(order);
            let found: Vec<FleetRow> = Ordered::new(sources, range).map(Result::unwrap).collect();
            prop_assert_eq!(found, all);
        }
    }
}
