//! A full disk loses no data written before. `/dev/full` fails every write with ENOSPC, so a link to `/dev/full` in
//! place of the next file simulates a disk that is full at exactly that time.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{document, fresh_run, requests};
use store::{StoreError, read_requests};

#[test]
fn after_a_full_disk_earlier_parts_stay_and_the_first_error_is_returned() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    writer.push(&requests(0..100)).unwrap();
    writer.close_part().unwrap();
    symlink("/dev/full", run.path().join("requests/000002.parquet.unfinished")).unwrap();

    writer.push(&requests(100..200)).unwrap();
    let first = writer.close_part().unwrap_err();
    assert!(first.is_disk_full(), "{first:?}");
    assert!(first.to_string().contains("no space left"), "{first}");
    assert!(first.to_string().contains("000002.parquet"), "{first}");

    // The table has a gap from here on, so the writer stays closed and returns the first error on each call.
    for _ in 0..3 {
        assert_eq!(writer.push(&requests(200..300)).unwrap_err().to_string(), first.to_string());
        assert_eq!(writer.close_part().unwrap_err().to_string(), first.to_string());
    }
    assert_eq!(writer.rows(), 100);
    assert_eq!(writer.finish().unwrap_err().to_string(), first.to_string());
    let back: Vec<_> = read_requests(run.path()).unwrap().map(Result::unwrap).collect();
    assert_eq!(back, requests(0..100));
    let left: Vec<_> = fs::read_dir(run.path().join("requests")).unwrap().map(|f| f.unwrap().file_name()).collect();
    assert_eq!(left, ["000001.parquet"]);
}

#[test]
fn joining_on_a_full_disk_keeps_the_parts() {
    let (_dir, _book, run) = fresh_run();
    let mut writer = run.requests();
    writer.push(&requests(0..100)).unwrap();
    symlink("/dev/full", run.path().join("requests.parquet.unfinished")).unwrap();
    assert!(writer.finish().unwrap_err().is_disk_full());
    assert!(!run.path().join("requests.parquet").exists());
    assert!(!run.path().join("requests.parquet.unfinished").exists());
    assert_eq!(read_requests(run.path()).unwrap().count(), 100);
}

#[test]
fn a_summary_is_complete_or_absent() {
    let (_dir, _book, run) = fresh_run();
    symlink("/dev/full", run.path().join("summary.json.unfinished")).unwrap();
    assert!(run.write_summary(&document(run.id())).unwrap_err().is_disk_full());
    assert!(!run.path().join("summary.json").exists());
    run.write_summary(&document(run.id())).unwrap();
    let before = fs::read(run.path().join("summary.json")).unwrap();
    symlink("/dev/full", run.path().join("summary.json.unfinished")).unwrap();
    assert!(run.write_summary(&document("other")).is_err());
    assert_eq!(fs::read(run.path().join("summary.json")).unwrap(), before);
}

#[test]
fn a_failure_other_than_a_full_disk_is_distinguished() {
    let (_dir, _book, run) = fresh_run();
    fs::write(run.path().join("requests"), b"a file where the folder should be").unwrap();
    let mut writer = run.requests();
    writer.push(&requests(0..1)).unwrap();
    let error = writer.close_part().unwrap_err();
    assert!(matches!(&error, StoreError::Io { operation: "mkdir", .. }), "{error:?}");
}
