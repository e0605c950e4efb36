use std::path::Path;

use super::*;
use crate::disk::crash_point::CrashPoint;
use schema::TapExchange;
use schema::{TapAddress, TapRow};
use tap_protocol::{Losses, Program};

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
        gauges: Gauges { processes: 1, open: 1, in_flight: 1 },
        losses: Losses { records: 1, ..Losses::default() },
        programs: vec![program],
        rows: (0..rows).map(row).collect(),
    }
}

fn seal(spool: &Spool, rows: u32, through: u64) {
    let mut meta = Meta { rows: rows.into(), through, boot: "b".into(), ..Meta::default() };
    spool.seal(&mut batch(rows), &mut meta).unwrap();
}

/// The next batch to be sent.
fn next(spool: &Spool) -> Option<(PendingBatch, Batch)> {
    next_as(spool, false)
}

fn next_as(spool: &Spool, counts_only: bool) -> Option<(PendingBatch, Batch)> {
    let waiting = spool.oldest(counts_only).unwrap()?;
    let mut json = Vec::new();
    std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*waiting.body), &mut json).unwrap();
    Some((waiting, serde_json::from_slice(&json).unwrap()))
}

#[test]
fn batches_are_numbered_from_one_and_survive_a_restart() {
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
        assert_eq!((&batch.stream, batch.losses.rows_dropped), (&stream.id, 0));
        spool.stored(waiting.number).unwrap();
    }
    assert_eq!((spool.usage().batches, spool.usage().rows, spool.usage().oldest), (0, 0, 0));
    drop(spool);
    // The position is known although all batches were sent.
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
fn beyond_the_limit_the_oldest_batches_lose_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    // Three batches fit, and 16 may wait.
    let (spool, _) = open(folder.path(), 40_960);
    for n in 1..=12 {
        seal(&spool, 1_000, n);
    }
    let usage = spool.usage();
    assert_eq!(usage.batches, 12);
    assert_eq!(usage.rows + spool.rows_dropped(), 12_000);
    assert!(usage.rows < 12_000);
    let (waiting, batch) = next(&spool).unwrap();
    assert!(waiting.is_truncated && batch.rows.is_empty());
    assert_eq!((batch.losses.rows_dropped, batch.losses.records, batch.programs.len()), (1_000, 1, 1));
    drop(spool);
    let (spool, _) = open(folder.path(), 40_960);
    assert_eq!(spool.usage(), usage);
    // Beyond the maximum the newest batch takes the new counts.
    for n in 13..=40 {
        seal(&spool, 10, n);
    }
    assert_eq!(spool.usage().batches, 16);
    assert_eq!((spool.last().number, spool.last().through), (16, 40));
    let (mut rows, mut records) = (0, 0);
    while let Some((waiting, batch)) = next(&spool) {
        rows += batch.rows.len() as u64 + batch.losses.rows_dropped;
        records += batch.losses.records;
        spool.stored(waiting.number).unwrap();
    }
    assert_eq!((rows, records), (12_000 + 280, 40));
}

#[test]
fn removed_spool_files_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(folder.path(), 1 << 20);
    (1..=5).for_each(|n| seal(&spool, n, u64::from(n)));
    drop(spool);
    let files = folder.path().join("spool");
    std::fs::remove_file(files.join(file::name(2))).unwrap();
    std::fs::write(files.join(file::name(3)), "something else").unwrap();
    let (spool, notes) = open(folder.path(), 1 << 20);
    assert_eq!(notes.len(), 2, "{notes:?}");
    let mut sent = Vec::new();
    while let Some((waiting, batch)) = next(&spool) {
        assert_eq!(batch.sequence, waiting.sequence);
        sent.push((batch.sequence, batch.rows.len(), batch.losses.rows_dropped));
        spool.stored(waiting.number).unwrap();
    }
    assert_eq!(sent, [(1, 1, 0), (2, 0, 5), (3, 0, 0), (4, 4, 0), (5, 5, 0)]);
}

#[test]
fn a_stream_resumes_or_a_new_one_starts() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(folder.path(), 1 << 20);
    (1..=6).for_each(|n| seal(&spool, n, u64::from(n)));
    spool.stored(2).unwrap();
    let first = spool.stream();
    assert_eq!(next(&spool).unwrap().1.sequence, 3);
    assert_eq!(spool.resume_after(3).unwrap(), StreamFit::Continues);
    assert_eq!((next(&spool).unwrap().1.sequence, spool.stream().id == first.id), (4, true));
    // A manager that has less starts a new stream with the oldest batch here.
    assert_eq!(spool.resume_after(1).unwrap(), StreamFit::ManagerBehind);
    let (waiting, batch) = next(&spool).unwrap();
    assert_eq!((waiting.number, batch.sequence, batch.rows.len()), (4, 1, 4));
    assert!(batch.stream == spool.stream().id && batch.stream != first.id && spool.stream().seed == first.seed);
    assert_eq!(spool.resume_after(1).unwrap(), StreamFit::Continues);
    drop(spool);
    let (spool, _) = open(folder.path(), 1 << 20);
    seal(&spool, 7, 7);
    assert_eq!(next(&spool).unwrap().1.sequence, 2);
    // A manager that has more than was sealed: batches found at the start may already be stored.
    assert_eq!(spool.resume_after(9).unwrap(), StreamFit::ManagerAhead(11));
    let mut sent = Vec::new();
    while let Some((waiting, batch)) = next(&spool) {
        sent.push((batch.sequence, batch.rows.len(), batch.losses.rows_dropped));
        spool.stored(waiting.number).unwrap();
    }
    assert_eq!(sent, [(1, 0, 5), (2, 0, 6), (3, 7, 0)]);
    // No batch waits, and the manager has lost stored batches.
    assert_eq!(spool.resume_after(2).unwrap(), StreamFit::ManagerBehind);
    seal(&spool, 8, 8);
    assert_eq!(next(&spool).unwrap().1.sequence, 1);
}

#[test]
fn a_new_agent_name_starts_a_new_stream() {
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
fn a_rejected_batch_is_stored_aside_and_sent_as_counts() {
    let folder = tempfile::tempdir().unwrap();
    let (spool, _) = open(folder.path(), 64 << 20);
    for n in 1..=25 {
        seal(&spool, 2, n);
        spool.set_aside(n).unwrap();
        let (waiting, batch) = next(&spool).unwrap();
        assert!(waiting.is_truncated && batch.losses.rows_dropped == 2);
        spool.stored(n).unwrap();
    }
    assert_eq!(spool.refused.names("", file::SUFFIX).unwrap().len(), REFUSED_MAX);
    let rejected = SpoolFile::read(std::fs::read(spool.refused().join(file::name(25))).unwrap()).unwrap();
    assert_eq!(rejected.batch().unwrap().rows.len(), 2);
    // If even that is rejected, the batch is sent with counts only.
    seal(&spool, 0, 26);
    let counts_only = next_as(&spool, true).unwrap().1;
    assert!(
        counts_only.programs.is_empty() && counts_only.gauges == Gauges::default() && counts_only.losses.records == 1
    );
}

#[test]
fn on_a_full_disk_the_oldest_rows_are_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let crash_point = CrashPoint::default();
    let disk = Disk::with_crash_point(folder.path(), &crash_point).unwrap();
    let spool = Spool::open(&disk, "web-1", 1 << 20, &mut |_| {}).unwrap();
    (1..=3).for_each(|n| seal(&spool, 5, n));
    crash_point.fill(true);
    let mut meta = Meta { rows: 5, through: 4, boot: "b".into(), ..Meta::default() };
    assert!(is_full(&spool.seal(&mut batch(5), &mut meta).unwrap_err()));
    assert_eq!((spool.usage().rows, spool.rows_dropped(), spool.last().through), (0, 15, 3));
    assert!(!spool.drop_oldest_rows().unwrap());
    crash_point.fill(false);
    spool.seal(&mut batch(5), &mut meta).unwrap();
    assert_eq!((spool.usage().batches, spool.usage().rows), (4, 5));
}

#[test]
fn waiting_for_a_batch_ends_with_a_batch_or_at_shutdown() {
    let folder = tempfile::tempdir().unwrap();
    let spool = std::sync::Arc::new(open(folder.path(), 1 << 20).0);
    let one_hour = Duration::from_secs(3_600);
    let waits = {
        let spool = spool.clone();
        std::thread::spawn(move || (spool.wait_for_batch(one_hour), spool.pause(one_hour)))
    };
    seal(&spool, 1, 1);
    spool.end();
    let (_, continues) = waits.join().unwrap();
    assert!(!continues && !spool.wait_for_batch(one_hour));
}
