//! A removal deletes a run, and nothing else.

use std::fs;
use std::os::unix::fs::symlink;

use crate::support::{document, fresh_run, morning, requests};
use store::{RunStore, StoreError, disk_use, remove};

fn refused(outcome: store::Result<()>, words: &str) {
    match outcome {
        Err(StoreError::Refused { why, .. }) => assert!(why.contains(words), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn removal_deletes_all_files_of_a_run() {
    let (dir, run_store, run) = fresh_run();
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("precious"), "x").unwrap();
    symlink(outside.path(), run.path().join("link")).unwrap();
    symlink(outside.path().join("precious"), run.path().join("requests.parquet")).unwrap();
    let other = run_store.create("other", morning(), 1).unwrap();
    refused(remove(&run_store, run.path()), "still running");
    let path = run.path().to_owned();
    drop(run);
    // Remains of a killed removal, and a folder of another program.
    fs::create_dir_all(dir.path().join(".removed-20260101-000000-bench-abcd/requests")).unwrap();
    fs::create_dir(dir.path().join(".removed-mine")).unwrap();
    // Remains of a killed removal of the same run, which was imported again since.
    let same = format!(".removed-{}", path.file_name().unwrap().to_str().unwrap());
    fs::create_dir_all(dir.path().join(same).join("requests")).unwrap();
    remove(&run_store, &path).unwrap();
    let mut left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, [".removed-mine", other.id()]);
    assert!(outside.path().join("precious").exists());
}

#[test]
fn removal_refuses_folders_outside_the_run_store() {
    let (dir, run_store, run) = fresh_run();
    run.write_summary(&document(run.id())).unwrap();
    let path = run.path().to_owned();
    drop(run);
    let elsewhere = tempfile::tempdir().unwrap();
    let other = RunStore::at(elsewhere.path());
    refused(remove(&other, &path), "not a run of this run store");
    refused(remove(&run_store, dir.path()), "not a run of this run store");
    refused(remove(&run_store, &path.join("..").join("..")), "not a run of this run store");
    // A link in the run store to a run elsewhere.
    let link = elsewhere.path().join(path.file_name().unwrap());
    symlink(&path, &link).unwrap();
    refused(remove(&other, &link), "symbolic link");
    assert!(path.join("summary.json").exists());
    // The run store itself may be a link.
    let alias = elsewhere.path().join("alias");
    symlink(dir.path(), &alias).unwrap();
    remove(&RunStore::at(&alias), &alias.join(path.file_name().unwrap())).unwrap();
    assert!(!path.exists());
}

#[test]
fn disk_use_counts_bytes_blocks_and_files_of_a_run() {
    let (_dir, _book, run) = fresh_run();
    assert_eq!(disk_use(run.path()).unwrap().bytes, 0);
    let mut writer = run.requests();
    writer.push(&requests(0..100)).unwrap();
    writer.close_part().unwrap();
    fs::write(run.path().join("series.parquet"), [0; 100]).unwrap();
    fs::write(run.path().join("connect.hlog"), [0; 20]).unwrap();
    fs::write(run.path().join("first_byte.hlog"), [0; 20]).unwrap();
    fs::write(run.path().join("server.log"), [0; 7]).unwrap();
    symlink("/dev/zero", run.path().join("link")).unwrap();
    let used = disk_use(run.path()).unwrap();
    let part = fs::metadata(run.path().join("requests/000001.parquet")).unwrap().len();
    assert_eq!(used.parts["requests"], part);
    assert_eq!(
        (used.parts["series"], used.parts["hlog"], used.parts["other"]),
        (100, 40, 7 + "/dev/zero".len() as u64)
    );
    assert_eq!((used.bytes, used.files), (used.parts.values().sum::<u64>(), 6));
}
