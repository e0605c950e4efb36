use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::data::CrashPoint;
use crate::day_files::{DAY_NS, day_named, day_of, files_in, name_of, number_of, path_of};
use crate::ingest::put;
use crate::retention::{self, Retention};
use crate::settings;
use crate::testing::{Found, NOW_NS, SECOND_NS, ZERO_NS, all, batch, data, files, found, known, number, stream};

/// End times, counted from the agents' zero, two days before now: yesterday and today.
const YESTERDAY_NS: u64 = DAY_NS;
const TODAY_NS: u64 = 2 * DAY_NS - 60 * SECOND_NS;

/// Three batches of two agents, with rows of two days.
fn fill(data: &Data) -> Found {
    let store_batch =
        |agent: &str, batch: &tap_protocol::Batch| drop(put(data, agent, batch, ZERO_NS, NOW_NS).unwrap());
    store_batch("a", &batch(&stream('a'), 1, &[YESTERDAY_NS, TODAY_NS, TODAY_NS + 1]));
    store_batch("b", &batch(&stream('b'), 1, &[TODAY_NS]));
    store_batch("a", &batch(&stream('a'), 2, &[YESTERDAY_NS, TODAY_NS - 1]));
    let rows = found(data);
    assert_eq!((rows.len(), rows.values().sum::<usize>()), (6, 6));
    rows
}

/// Opens the folder as after a kill.
fn reopened(data: Arc<Data>, folder: &Path) -> Arc<Data> {
    drop(data);
    let data = Data::open(folder).unwrap();
    recover(&data).unwrap();
    assert_eq!(files(&data), known(&data), "files that the index does not list are removed");
    data
}

fn placed(data: &Data) -> Round {
    let round = place(data, 0, NOW_NS).unwrap();
    assert!(!round.more);
    assert_eq!(files(data), known(data));
    round
}

#[test]
fn rows_are_written_to_the_files_of_their_days_in_order() {
    let (_folder, data) = data();
    let before = fill(&data);
    let rows = all(&data);
    data.change(|index| settings::set_group(index, "b", "shops", 1)).unwrap();
    let round = placed(&data);
    assert_eq!((round.rows, round.files, round.too_old), (6, 2, 0));
    assert_eq!(known(&data), ["2026-11-22/part-000001.parquet", "2026-11-23/part-000001.parquet"]);
    assert_eq!(number(&data, "SELECT count(*) FROM pending"), 0);
    assert_eq!(found(&data), before);
    // A row is written unchanged, except for the group at that time.
    let after = all(&data);
    for (before, after) in rows.iter().zip(&after) {
        let group = if after.agent == "b" { "shops" } else { "" };
        assert_eq!(*after, schema::FleetRow { group: group.to_owned(), ..before.clone() });
    }
    assert!(after.is_sorted_by_key(|row| (row.at_unix_ns, row.stream.clone(), row.sequence, row.number)));
    assert_eq!(after[0].at_unix_ns, ZERO_NS + YESTERDAY_NS);
    assert_eq!(placed(&data), Round::default(), "no row waits");
}

#[test]
fn a_kill_while_writing_day_files_neither_loses_nor_duplicates_rows() {
    for point in
        [CrashPoint::PartWritten, CrashPoint::PartsNamed, CrashPoint::PlacedWritten, CrashPoint::PlacedCommitted]
    {
        let (folder, data) = data();
        let before = fill(&data);
        data.crash_points.set(point);
        assert!(matches!(place(&data, 0, NOW_NS), Err(Error::Stopped(_))), "{point:?}");
        let remaining_files = files(&data);
        assert!(!remaining_files.is_empty(), "{point:?}: a killed manager does no clean-up");
        let data = reopened(data, folder.path());
        let is_placed = point == CrashPoint::PlacedCommitted;
        assert_eq!(number(&data, "SELECT count(*) FROM pending"), if is_placed { 0 } else { 3 }, "{point:?}");
        // Quality counts exactly the written rows, in the same transaction.
        assert_eq!(number(&data, "SELECT count(*) FROM quality") > 0, is_placed, "{point:?}");
        assert_eq!(found(&data), before, "{point:?}");
        placed(&data);
        assert_eq!(found(&data), before, "{point:?}");
        assert_eq!(number(&data, "SELECT sum(rows) FROM parts"), 6);
    }
}

#[test]
fn if_a_day_file_cannot_be_created_all_rows_wait_and_no_partial_file_stays() {
    let (_folder, data) = data();
    let before = fill(&data);
    // A file in place of the second day's folder.
    let folder = data.days().join("2026-11-23");
    std::fs::write(&folder, "").unwrap();
    assert!(place(&data, 0, NOW_NS).is_err());
    assert_eq!(known(&data), Vec::<String>::new());
    assert!(
        files_in(&data.days().join("2026-11-22")).unwrap().is_empty(),
        "the file of the first day was removed after the failure"
    );
    assert_eq!(number(&data, "SELECT count(*) FROM pending"), 3);
    std::fs::remove_file(&folder).unwrap();
    placed(&data);
    assert_eq!(found(&data), before);
}

#[test]
fn merging_small_files_neither_loses_nor_duplicates_rows() {
    let (_folder, data) = data();
    for sequence in 1..=8 {
        let ends: Vec<u64> = (0..5).map(|row| TODAY_NS - sequence * 7 + row * 3).collect();
        put(&data, "a", &batch(&stream('a'), sequence, &ends), ZERO_NS, NOW_NS).unwrap();
        placed(&data);
    }
    let (before, rows) = (found(&data), all(&data));
    assert_eq!(known(&data).len(), 8);
    let merged = merge(&data, &mut SkippedFiles::new(), NOW_NS).unwrap().unwrap();
    assert_eq!((merged.files, merged.trouble), (8, None));
    assert_eq!((known(&data), files(&data).len()), (vec!["2026-11-23/part-000009.parquet".to_owned()], 1));
    assert_eq!((found(&data), all(&data)), (before, rows));
    assert_eq!(merge(&data, &mut SkippedFiles::new(), NOW_NS).unwrap(), None);
    // A past day is merged after a time without new rows.
    put(&data, "a", &batch(&stream('a'), 9, &[TODAY_NS]), ZERO_NS, NOW_NS).unwrap();
    placed(&data);
    assert_eq!(
        merge(&data, &mut SkippedFiles::new(), NOW_NS + 600 * SECOND_NS).unwrap(),
        None,
        "files of the current day are not all merged"
    );
    assert!(merge(&data, &mut SkippedFiles::new(), NOW_NS + DAY_NS).unwrap().is_some());
    assert_eq!(known(&data).len(), 1);
}

#[test]
fn a_kill_during_a_merge_neither_loses_nor_duplicates_rows() {
    for point in [CrashPoint::MergedNamed, CrashPoint::MergedCommitted, CrashPoint::MergedHalfRemoved] {
        let (folder, data) = data();
        for sequence in 1..=8 {
            put(&data, "a", &batch(&stream('a'), sequence, &[TODAY_NS, TODAY_NS]), ZERO_NS, NOW_NS).unwrap();
            placed(&data);
        }
        let before = found(&data);
        data.crash_points.set(point);
        assert!(matches!(merge(&data, &mut SkippedFiles::new(), NOW_NS), Err(Error::Stopped(_))), "{point:?}");
        assert!(files(&data).len() > known(&data).len(), "{point:?}");
        assert_eq!(found(&data), before, "{point:?}: a reader of the index sees each row once");
        let data = reopened(data, folder.path());
        assert_eq!(found(&data), before, "{point:?}");
        let remaining_files = if point == CrashPoint::MergedNamed { 8 } else { 1 };
        assert_eq!(known(&data).len(), remaining_files, "{point:?}");
        while merge(&data, &mut SkippedFiles::new(), NOW_NS).unwrap().is_some() {}
        assert_eq!((found(&data), known(&data).len()), (before, 1), "{point:?}");
    }
}

#[test]
fn an_unreadable_file_is_excluded_from_merging_with_its_neighbours() {
    let (_folder, data) = data();
    for sequence in 1..=8 {
        put(&data, "a", &batch(&stream('a'), sequence, &[TODAY_NS]), ZERO_NS, NOW_NS).unwrap();
        placed(&data);
    }
    std::fs::write(path_of(&data, "2026-11-23", "part-000003.parquet"), "damaged").unwrap();
    let mut skipped_files = SkippedFiles::new();
    let merged = merge(&data, &mut skipped_files, NOW_NS).unwrap().unwrap();
    assert!(merged.trouble.is_some_and(|why| why.contains("part-000003")));
    assert_eq!((known(&data).len(), files(&data).len()), (8, 8));
    assert_eq!(merge(&data, &mut skipped_files, NOW_NS).unwrap(), None);
}

#[test]
fn an_unreadable_batch_is_stored_aside_and_others_are_written() {
    let (_folder, data) = data();
    fill(&data);
    data.change(|index| index.execute("UPDATE pending SET body = x'1f8b00' WHERE agent = 'b'", [])).unwrap();
    let round = placed(&data);
    assert_eq!((round.rows, &round.set_aside[..]), (5, &[("b".to_owned(), 1)][..]));
    assert_eq!(number(&data, "SELECT count(*) FROM set_aside WHERE agent = 'b' AND rows = 1"), 1);
    assert_eq!(number(&data, "SELECT rows_spoilt FROM agents WHERE name = 'b'"), 1);
    assert_eq!(found(&data).len(), 5);
}

#[test]
fn a_batch_that_the_index_rejects_does_not_block_others() {
    let (_folder, data) = data();
    fill(&data);
    let poison =
        "CREATE TRIGGER poison BEFORE INSERT ON quality WHEN new.agent = 'b' BEGIN SELECT raise(ABORT, 'no'); END";
    data.change(|index| index.execute_batch(poison)).unwrap();
    let mut rounds = Vec::new();
    while rounds.last().is_none_or(|round: &Round| round.more) {
        rounds.push(place(&data, 0, NOW_NS).unwrap());
        assert_eq!(files(&data), known(&data));
    }
    assert_eq!(rounds.iter().map(|round| round.rows).sum::<u64>(), 5);
    let aside: Vec<_> = rounds.iter().flat_map(|round| round.set_aside.clone()).collect();
    assert_eq!(aside, [("b".to_owned(), 1)]);
    assert_eq!(number(&data, "SELECT count(*) FROM pending"), 0);
    assert_eq!((found(&data).len(), found(&data).values().sum::<usize>()), (5, 5));
}

#[test]
fn a_removed_day_file_is_reported_and_dropped_from_the_index() {
    let (folder, data) = data();
    fill(&data);
    placed(&data);
    std::fs::remove_file(path_of(&data, "2026-11-22", "part-000001.parquet")).unwrap();
    let mut missing = Vec::new();
    let range = crate::export::Range { from_ns: 0, until_ns: NOW_NS, after: None };
    let exported = crate::export::rows(&data, &range, &mut |_| std::ops::ControlFlow::Continue(()));
    missing.extend(exported.unwrap().missing);
    assert_eq!(missing, ["2026-11-22/part-000001.parquet"]);
    // Foreign files stay.
    std::fs::write(data.days().join("2026-11-23/notes.txt"), "mine").unwrap();
    drop(data);
    let data = Data::open(folder.path()).unwrap();
    let recovered = recover(&data).unwrap();
    assert_eq!(recovered.vanished, [("2026-11-22".to_owned(), "part-000001.parquet".to_owned(), 2)]);
    assert_eq!(found(&data).len(), 4);
    assert!(files(&data).contains(&"2026-11-23/notes.txt".to_owned()));
    assert_eq!(recover(&data).unwrap(), Recovered::default());
}

#[test]
fn rows_of_expired_days_are_counted_and_days_expire_by_age_and_size() {
    let (folder, data) = data();
    let (notes, _writing) = Notes::start(Arc::clone(&data), Arc::new(|_| {})).unwrap();
    let today = day_of(NOW_NS);
    let age = |days: u64| Retention { age: Some(Duration::from_secs(days * 86_400)), bytes: None };
    fill(&data);
    let round = place(&data, age(0).oldest_day(NOW_NS), NOW_NS).unwrap();
    assert_eq!((round.rows, round.too_old), (4, 2));
    assert_eq!(number(&data, "SELECT rows_too_old FROM agents WHERE name = 'a'"), 2);
    put(&data, "a", &batch(&stream('a'), 3, &[YESTERDAY_NS]), ZERO_NS, NOW_NS).unwrap();
    assert_eq!(place(&data, today - 1, NOW_NS).unwrap().rows, 1);
    assert_eq!(retention::apply(&data, &notes, &age(1), NOW_NS).unwrap(), []);
    // A clock set years ahead removes nothing until two of its days have rows.
    assert_eq!(retention::apply(&data, &notes, &age(30), NOW_NS + 2000 * DAY_NS).unwrap(), []);
    // Killed after the index dropped the day and before its files were removed.
    data.crash_points.set(CrashPoint::DayForgotten);
    assert!(retention::apply(&data, &notes, &age(1), NOW_NS + DAY_NS).is_err());
    assert_eq!((files(&data).len(), known(&data).len()), (2, 1));
    drop((data, notes, _writing));
    let data = reopened(Data::open(folder.path()).unwrap(), folder.path());
    assert_eq!(found(&data).len(), 4);
    // The newest day stays, whatever its size.
    put(&data, "a", &batch(&stream('a'), 4, &[YESTERDAY_NS]), ZERO_NS, NOW_NS).unwrap();
    place(&data, 0, NOW_NS).unwrap();
    let (notes, _writing) = Notes::start(Arc::clone(&data), Arc::new(|_| {})).unwrap();
    let removed_days = retention::apply(&data, &notes, &Retention { age: None, bytes: Some(1) }, NOW_NS).unwrap();
    assert_eq!(removed_days.iter().map(|day| (&*day.day, day.rows)).collect::<Vec<_>>(), [("2026-11-22", 1)]);
    assert_eq!(files(&data), known(&data));
    assert!(!data.days().join("2026-11-22").exists());
}

#[test]
fn export_resumes_at_a_cursor_over_files_and_pending_batches() {
    use std::ops::ControlFlow;

    use crate::export::{Cursor, Range, rows};
    let (_folder, data) = data();
    fill(&data);
    placed(&data);
    put(&data, "b", &batch(&stream('b'), 2, &[YESTERDAY_NS + 5, TODAY_NS]), ZERO_NS, NOW_NS).unwrap();
    let everything = all(&data);
    assert_eq!(everything.len(), 8);
    // One row at a time, each from the previous cursor.
    let mut seen = Vec::new();
    let mut after: Option<Cursor> = None;
    loop {
        let range = Range { from_ns: 0, until_ns: NOW_NS, after: after.clone() };
        let mut one = None;
        rows(&data, &range, &mut |row| {
            one = Some(row);
            ControlFlow::Break(())
        })
        .unwrap();
        let Some(row) = one else { break };
        after = Some(Cursor::of(&row));
        seen.push(row);
    }
    assert_eq!(seen, everything);
    let count = |from_ns, until_ns| {
        rows(&data, &Range { from_ns, until_ns, after: None }, &mut |_| ControlFlow::Continue(())).unwrap().rows
    };
    let at = ZERO_NS + TODAY_NS;
    assert_eq!((count(at, at), count(at, at + 1), count(at, at + 2), count(0, at)), (0, 3, 4, 4));
}

#[test]
fn files_of_another_index_prevent_the_start_and_unlisted_files_are_moved() {
    let (folder, data) = data();
    fill(&data);
    recover(&data).unwrap();
    placed(&data);
    let (day, index) = (data.days().join("2026-11-23"), folder.path().join("index.sqlite"));
    // An older copy of the index is restored.
    data.checkpoint();
    let old_index = std::fs::read(&index).unwrap();
    put(&data, "b", &batch(&stream('b'), 2, &[TODAY_NS]), ZERO_NS, NOW_NS).unwrap();
    placed(&data);
    data.checkpoint();
    drop(data);
    std::fs::write(&index, old_index).unwrap();
    let data = Data::open(folder.path()).unwrap();
    assert_eq!(recover(&data).unwrap().aside, ["2026-11-23-part-000002.parquet"]);
    assert_eq!(files_in(&folder.path().join("unknown")).unwrap(), ["2026-11-23-part-000002.parquet"]);
    assert_eq!((files(&data), found(&data).len()), (known(&data), 6));
    // The index of another manager.
    drop(data);
    std::fs::remove_file(&index).unwrap();
    let data = Data::open(folder.path()).unwrap();
    let error = recover(&data).unwrap_err().to_string();
    assert!(error.contains("to another index"), "{error}");
    assert!(day.join("part-000001.parquet").exists());
}

#[test]
fn names_of_days_and_files_are_parsed() {
    assert_eq!((name_of(day_of(NOW_NS)), day_named("2026-11-23")), ("2026-11-23".to_owned(), Some(day_of(NOW_NS))));
    assert_eq!((day_named("2026-13-01"), day_named("lost+found")), (None, None));
    assert_eq!(
        (number_of("part-000017.parquet"), number_of("part-x.parquet"), number_of("a.parquet")),
        (Some(17), None, None)
    );
}

#[test]
fn the_day_writer_writes_new_batches_and_all_of_them_at_shutdown() {
    let (_folder, data) = data();
    let (notes, _writing) = Notes::start(Arc::clone(&data), Arc::new(|_| {})).unwrap();
    let retention = Retention { age: None, bytes: None };
    let mut day_writer = DayWriter::start(Arc::clone(&data), notes, retention).unwrap();
    let before = fill(&data);
    day_writer.notifier()(6);
    day_writer.stop();
    assert_eq!(number(&data, "SELECT count(*) FROM pending"), 0);
    assert_eq!(found(&data), before);
}
