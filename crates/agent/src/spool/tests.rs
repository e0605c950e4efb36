use std::path::Path;

use super::*;
use crate::disk::fuse::Fuse;
use schema::TapExchange;
use schema::{TapAddress, TapRow};
use tap_protocol::{Lacks, Program};

fn open(folder: &Path, bytes_max: u64) -> (Spool, Vec<String>) {
    let mut notes = Vec::new();
    let disk = Disk::open(folder).unwrap();
    let spool = Spool::open(&disk, "web-1", bytes_max, &mut |note| notes.push(note)).unwrap();
    (spool, notes)
}

fn batch(rows: u32) -> Batch {
    let row = |pid| TapRow { pid, ..TapRow::of(&TapExchange::BLANK, &TapAddress::Plain) };
    let program = Program { name: "p".into(), seen: 1, ..Program::default() };
    Batch {
        stream: String::new(),
        sequence: 0,
        boot: "b".into(),
        zero_own_unix_ns: 1,
        sealed_at_ns: 2,
        settings: 1,
        share: 1.0,
        levels: Levels { processes: 1, open: 1, in_flight: 1 },
        lacks: Lacks { records: 1, ..Lacks::default() },
        programs: vec![program],
        rows: (0..rows).map(row).collect(),
    }
}

fn seal(spool: &Spool, rows: u32, through: u64) {
    let mut meta = Meta { rows: rows.into(), through, boot: "b".into(), ..Meta::default() };
    spool.seal(&mut batch(rows), &mut meta).unwrap();
}

/// What would be sent next.
fn next(spool: &Spool) -> Option<(Waiting, Batch)> {
    next_as(spool, false)
}

fn next_as(spool: &Spool, bare: bool) -> Option<(Waiting, Batch)> {
    let waiting = spool.oldest(bare).unwrap()?;
    let mut json = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*waiting.body), &mut json).unwrap();
    Some((waiting, serde_json::from_slice(&json).unwrap()))
}

#[test]
fn batches_are_numbered_from_one_and_wait_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, notes) = open(folder.path(), 1 << 20);
    assert!(notes.is_empty() && next(&spool).is_none() && spool.last() == Meta::default());
    (1..=3).for_each(|n| seal(&spool, n, u64::from(n) * 10));
    let stream = spool.stream();
    drop(spool);
    let (spool, notes) = open(folder.path(), 1 << 20);
    assert!(notes.is_empty() && spool.stream() == stream);
    for n in 1..=3 {
        let (waiting, batch) = next(&spool).unwrap();
        assert_eq!((waiting.sequence, batch.sequence, batch.rows.len() as u64), (n, n, n));
        assert_eq!((&batch.stream, batch.lacks.rows_dropped), (&stream.id, 0));
        spool.stored(waiting.number).unwrap();
    }
    assert_eq!((spool.stand().batches, spool.stand().rows, spool.stand().oldest), (0, 0, 0));
    drop(spool);
    // What was sealed is known though all of it was sent.
    let (spool, _) = open(folder.path(), 1 << 20);
    assert!(next(&spool).is_none());
    assert_eq!((spool.last().number, spool.last().through), (3, 30));
    seal(&spool, 1, 40);
    assert_eq!(next(&spool).unwrap().1.sequence, 4);
    spool.stored(4).unwrap();
    let files = spool.disk.names("", file::SUFFIX).unwrap();
    assert_eq!(files.len(), 1, "{files:?}");
}

#[test]
fn beyond_the_bound_the_oldest_lose_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    // Three of them fit, and 16 may wait.
    let (spool, _) = open(folder.path(), 40_960);
    for n in 1..=12 {
        seal(&spool, 1_000, n);
    }
    let stand = spool.stand();
    assert_eq!(stand.batches, 12);
    assert_eq!(stand.rows + spool.rows_dropped(), 12_000);
    assert!(stand.rows < 12_000);
    let (waiting, batch) = next(&spool).unwrap();
    assert!(waiting.is_cut && batch.rows.is_empty());
    assert_eq!((batch.lacks.rows_dropped, batch.lacks.records, batch.programs.len()), (1_000, 1, 1));
    drop(spool);
    let (spool, _) = open(folder.path(), 40_960);
    assert_eq!(spool.stand(), stand);
    // With more than may wait the newest takes up what comes.
    for n in 13..=40 {
        seal(&spool, 10, n);
    }
    assert_eq!(spool.stand().batches, 16);
    assert_eq!((spool.last().number, spool.last().through), (16, 40));
    let (mut rows, mut records) = (0, 0);
    while let Some((waiting, batch)) = next(&spool) {
        rows += batch.rows.len() as u64 + batch.lacks.rows_dropped;
        records += batch.lacks.records;
        spool.stored(waiting.number).unwrap();
    }
    assert_eq!((rows, records), (12_000 + 280, 40));
}

#[test]
fn what_was_taken_away_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(folder.path(), 1 << 20);
    (1..=5).for_each(|n| seal(&spool, n, u64::from(n)));
    drop(spool);
    let files = folder.path().join("spool");
    std::fs::remove_file(files.join(file::name(2))).unwrap();
    std::fs::write(files.join(file::name(3)), "something else").unwrap();
    let (spool, notes) = open(folder.path(), 1 << 20);
    assert_eq!(notes.len(), 2, "{notes:?}");
    let mut told = Vec::new();
    while let Some((waiting, batch)) = next(&spool) {
        assert_eq!(batch.sequence, waiting.sequence);
        told.push((batch.sequence, batch.rows.len(), batch.lacks.rows_dropped));
        spool.stored(waiting.number).unwrap();
    }
    assert_eq!(told, [(1, 1, 0), (2, 0, 5), (3, 0, 0), (4, 4, 0), (5, 5, 0)]);
}

#[test]
fn a_stream_goes_on_or_another_is_begun() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(folder.path(), 1 << 20);
    (1..=6).for_each(|n| seal(&spool, n, u64::from(n)));
    spool.stored(2).unwrap();
    let first = spool.stream();
    assert_eq!(next(&spool).unwrap().1.sequence, 3);
    assert_eq!(spool.go_on_from(3).unwrap(), Fit::GoesOn);
    assert_eq!((next(&spool).unwrap().1.sequence, spool.stream().id == first.id), (4, true));
    // One that knows less than is here begins anew with the oldest that is.
    assert_eq!(spool.go_on_from(1).unwrap(), Fit::Lacks);
    let (waiting, batch) = next(&spool).unwrap();
    assert_eq!((waiting.number, batch.sequence, batch.rows.len()), (4, 1, 4));
    assert!(batch.stream == spool.stream().id && batch.stream != first.id && spool.stream().seed == first.seed);
    assert_eq!(spool.go_on_from(1).unwrap(), Fit::GoesOn);
    drop(spool);
    let (spool, _) = open(folder.path(), 1 << 20);
    seal(&spool, 7, 7);
    assert_eq!(next(&spool).unwrap().1.sequence, 2);
    // One that knows more than was ever sealed: what was found here at the start may be stored already.
    assert_eq!(spool.go_on_from(9).unwrap(), Fit::IsAhead(11));
    let mut told = Vec::new();
    while let Some((waiting, batch)) = next(&spool) {
        told.push((batch.sequence, batch.rows.len(), batch.lacks.rows_dropped));
        spool.stored(waiting.number).unwrap();
    }
    assert_eq!(told, [(1, 0, 5), (2, 0, 6), (3, 7, 0)]);
    // None waits, and the manager lost some.
    assert_eq!(spool.go_on_from(2).unwrap(), Fit::Lacks);
    seal(&spool, 8, 8);
    assert_eq!(next(&spool).unwrap().1.sequence, 1);
}

#[test]
fn another_name_begins_another_stream() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(folder.path(), 1 << 20);
    (1..=2).for_each(|n| seal(&spool, 1, n));
    spool.stored(1).unwrap();
    let disk = Disk::open(folder.path()).unwrap();
    let renamed = Spool::open(&disk, "web-2", 1 << 20, &mut |_| {}).unwrap();
    assert_ne!(renamed.stream().id, spool.stream().id);
    assert_eq!(next(&renamed).unwrap().1.sequence, 1);
}

#[test]
fn a_refused_batch_is_set_aside_and_goes_on_as_a_count() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(folder.path(), 64 << 20);
    for n in 1..=25 {
        seal(&spool, 2, n);
        spool.set_aside(n).unwrap();
        let (waiting, batch) = next(&spool).unwrap();
        assert!(waiting.is_cut && batch.lacks.rows_dropped == 2);
        spool.stored(n).unwrap();
    }
    assert_eq!(spool.refused.names("", file::SUFFIX).unwrap().len(), REFUSED_MAX);
    let aside = Whole::read(std::fs::read(spool.refused().join(file::name(25))).unwrap()).unwrap();
    assert_eq!(aside.batch().unwrap().rows.len(), 2);
    // And if not even that is taken, bare.
    seal(&spool, 0, 26);
    let bare = next_as(&spool, true).unwrap().1;
    assert!(bare.programs.is_empty() && bare.levels == Levels::default() && bare.lacks.records == 1);
}

#[test]
fn a_full_disk_takes_the_rows_that_wait_longest() {
    let folder = tempfile::tempdir().unwrap();
    let fuse = Fuse::default();
    let disk = Disk::with_fuse(folder.path(), &fuse).unwrap();
    let spool = Spool::open(&disk, "web-1", 1 << 20, &mut |_| {}).unwrap();
    (1..=3).for_each(|n| seal(&spool, 5, n));
    fuse.fill(true);
    let mut meta = Meta { rows: 5, through: 4, boot: "b".into(), ..Meta::default() };
    assert!(is_full(&spool.seal(&mut batch(5), &mut meta).unwrap_err()));
    assert_eq!((spool.stand().rows, spool.rows_dropped(), spool.last().through), (0, 15, 3));
    assert!(!spool.let_go().unwrap());
    fuse.fill(false);
    spool.seal(&mut batch(5), &mut meta).unwrap();
    assert_eq!((spool.stand().batches, spool.stand().rows), (4, 5));
}

#[test]
fn waiting_ends_with_a_batch_or_with_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let spool = std::sync::Arc::new(open(folder.path(), 1 << 20).0);
    let hour = Duration::from_secs(3_600);
    let waits = {
        let spool = spool.clone();
        std::thread::spawn(move || (spool.wait_for_batch(hour), spool.pause(hour)))
    };
    seal(&spool, 1, 1);
    spool.end();
    let (_, goes_on) = waits.join().unwrap();
    assert!(!goes_on && !spool.wait_for_batch(hour));
}
