//! Files of a running run: read repeatedly, at any time, and after a kill.

use std::fs;

use crate::support::{fresh_run, requests};
use schema::progress::PROGRESS_SCHEMA;
use schema::{Bucket, DistributionRecord, LoadProgress, Measure, RunPhase, RunProgress, SecondRecord};
use store::{Fresh, Tail, read_distributions, read_progress, read_series};

fn second(second: u32, completed: u64) -> SecondRecord {
    SecondRecord { second, completed, ..SecondRecord::default() }
}

fn bucket(second: u32, value_ns: u64, count: u64) -> DistributionRecord {
    let bucket = Bucket::of(value_ns);
    let (from_ns, to_ns) = (bucket.from_ns(), bucket.to_ns());
    DistributionRecord { second, measure: Measure::ResponseTime, from_ns, to_ns, count }
}

#[test]
fn a_tail_reads_each_part_once_and_then_the_finished_table() {
    let (_dir, _book, run) = fresh_run();
    let mut tail = Tail::<SecondRecord>::new(run.path());
    assert_eq!(tail.poll().unwrap(), Fresh { rows: Vec::new(), replaces_earlier: false }, "there is no table yet");
    let mut writer = run.series();
    for part in 0..3 {
        writer.push(&[second(2 * part, 5), second(2 * part + 1, 5)]).unwrap();
        writer.close_part().unwrap();
        if part == 1 {
            let fresh = tail.poll().unwrap();
            assert_eq!(fresh.rows.iter().map(|row| row.second).collect::<Vec<_>>(), [0, 1, 2, 3]);
        }
    }
    assert_eq!(tail.poll().unwrap(), Fresh { rows: vec![second(4, 5), second(5, 5)], replaces_earlier: false });
    assert_eq!(tail.poll().unwrap().rows, []);
    let exact: Vec<SecondRecord> = (0..7).map(|at| second(at, 6)).collect();
    let table = run.series().finish_with_rows(&exact).unwrap();
    assert_eq!(table.rows, 7);
    assert!(!run.path().join("series").exists());
    assert!(!tail.is_at_end());
    assert_eq!(tail.poll().unwrap(), Fresh { rows: exact.clone(), replaces_earlier: true });
    assert!(tail.is_at_end());
    assert_eq!(tail.poll().unwrap(), Fresh { rows: Vec::new(), replaces_earlier: false });
    // A tail that starts later reads the finished table once.
    assert_eq!(Tail::<SecondRecord>::new(run.path()).poll().unwrap(), Fresh { rows: exact, replaces_earlier: false });
}

/// A part that a power cut left empty is reported once, and the rows before and after it are read.
#[test]
fn an_unreadable_part_does_not_hide_the_others() {
    let (_dir, _book, run) = fresh_run();
    let mut tail = Tail::<SecondRecord>::new(run.path());
    let mut writer = run.series();
    for at in 0..3 {
        writer.push(&[second(at, 1)]).unwrap();
        writer.close_part().unwrap();
    }
    fs::write(run.path().join("series/000002.parquet"), "").unwrap();
    assert_eq!(tail.poll().unwrap(), Fresh { rows: vec![second(0, 1), second(2, 1)], replaces_earlier: false });
    let message = tail.poll().unwrap_err().to_string();
    assert!(message.contains("000002.parquet"), "{message}");
    writer.push(&[second(3, 1)]).unwrap();
    writer.close_part().unwrap();
    assert_eq!(tail.poll().unwrap(), Fresh { rows: vec![second(3, 1)], replaces_earlier: false });
}

/// The finished table is written before the parts are removed: a reader finds all rows at any time.
#[test]
fn rows_are_readable_at_every_time_while_parts_are_joined() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.series();
    for at in 0..50 {
        writer.push(&[second(at, 1)]).unwrap();
        writer.close_part().unwrap();
    }
    let dir = run.path().to_owned();
    let (ready, go) = std::sync::mpsc::channel();
    let looks = std::thread::spawn(move || {
        let mut looks = 0;
        loop {
            let rows: Vec<SecondRecord> = read_series(&dir).unwrap().map(Result::unwrap).collect();
            assert_eq!(rows.len(), 50, "look {looks}");
            let is_order = rows.iter().map(|row| row.second).eq(0..50);
            assert!(is_order, "{rows:?}");
            looks += 1;
            // The first read is before the join starts.
            let _ = ready.send(());
            if rows[0].completed == 2 {
                return looks;
            }
        }
    });
    go.recv().unwrap();
    let exact: Vec<SecondRecord> = (0..50).map(|at| second(at, 2)).collect();
    run.series().finish_with_rows(&exact).unwrap();
    assert!(looks.join().unwrap() >= 1);
}

/// A reader that listed the parts before they were joined finds the remaining rows in the table.
#[test]
fn a_reader_finds_removed_parts_in_the_joined_table() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    for part in 0..4 {
        writer.push(&requests(part * 10..(part + 1) * 10)).unwrap();
        writer.close_part().unwrap();
    }
    let mut rows = store::read_requests(run.path()).unwrap();
    let mut read: Vec<_> = rows.by_ref().take(15).map(Result::unwrap).collect();
    writer.finish().unwrap();
    read.extend(rows.map(Result::unwrap));
    assert_eq!(read, requests(0..40));
}

#[test]
fn distributions_round_trip_and_add_up() {
    let (_dir, _book, run) = fresh_run();
    let rows = [bucket(0, 1_000_000, 3), bucket(0, 2_000_000, 1), bucket(1, 1_000_001, 4)];
    let mut writer = run.distributions();
    writer.push(&rows[..2]).unwrap();
    writer.close_part().unwrap();
    writer.push(&rows[2..]).unwrap();
    writer.close_part().unwrap();
    let read = |what: &str| -> Vec<DistributionRecord> {
        read_distributions(run.path())
            .unwrap()
            .map(|row| row.unwrap_or_else(|error| panic!("{what}: {error}")))
            .collect()
    };
    assert_eq!(read("parts"), rows);
    assert_eq!(rows[0].from_ns, rows[2].from_ns, "the buckets of all seconds are the same");
    run.distributions().finish_with_rows(&rows).unwrap();
    assert_eq!(read("the table"), rows);
    assert!(!run.path().join("distributions").exists());
}

#[test]
fn progress_of_a_run_without_a_process_is_killed() {
    let (_dir, _book, run) = fresh_run();
    let dir = run.path().to_owned();
    assert_eq!(read_progress(&dir).unwrap(), None);
    let file = run.progress_file();
    let mut progress =
        RunProgress { run: run.id().into(), phase: RunPhase::Measured, at_s: 1.5, ..RunProgress::default() };
    file.write(&progress).unwrap();
    assert_eq!(read_progress(&dir).unwrap(), Some(progress.clone()), "the run is still running");
    drop(run);
    assert_eq!(read_progress(&dir).unwrap().unwrap().phase, RunPhase::Killed);
    assert!(fs::read_to_string(dir.join("progress.json")).unwrap().contains("measured"), "the file is unchanged");
    progress.phase = RunPhase::Done;
    file.write(&progress).unwrap();
    assert_eq!(read_progress(&dir).unwrap().unwrap().phase, RunPhase::Done);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file remains");
    fs::write(dir.join("progress.json"), "{").unwrap();
    assert!(read_progress(&dir).unwrap_err().to_string().contains("progress.json"));
}

#[test]
fn a_full_disk_leaves_the_parts_and_no_partial_table() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.series();
    writer.push(&[second(0, 1)]).unwrap();
    writer.close_part().unwrap();
    std::os::unix::fs::symlink("/dev/full", run.path().join("series.parquet.unfinished")).unwrap();
    assert!(run.series().finish_with_rows(&[second(0, 2)]).unwrap_err().is_disk_full());
    let rows: Vec<SecondRecord> = read_series(run.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows, [second(0, 1)]);
    run.series().finish_with_rows(&[second(0, 2)]).unwrap();
}

#[test]
fn nullable_tap_columns_are_null_and_rows_round_trip() {
    let progress = RunProgress {
        schema: PROGRESS_SCHEMA.into(),
        verb: "bench".into(),
        phase: RunPhase::Measured,
        load: Some(LoadProgress { loop_kind: "open".into(), offered: 3, ..LoadProgress::default() }),
        ..RunProgress::default()
    };
    let text = serde_json::to_string(&progress).unwrap();
    assert!(text.contains(r#""phase":"measured""#) && text.contains(r#""loop":"open""#), "{text}");
    for absent in ["duration_s", "path", "watch", "validity", "under", "ended", "capacity", "by_distance"] {
        assert!(!text.contains(&format!("\"{absent}\"")), "{absent} in {text}");
    }
    assert_eq!(serde_json::from_str::<RunProgress>(&text).unwrap(), progress);
    use RunPhase::{Done, Drain, Killed, Measured, Starting, Warmup};
    for phase in [Starting, Warmup, Measured, Drain, Done, Killed] {
        assert_eq!(serde_json::to_string(&phase).unwrap(), format!("\"{}\"", phase.name()));
        assert_eq!(phase.is_over(), matches!(phase, Done | Killed));
    }
}
