//! Runs are created, listed and found.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::support::{document, fresh_run, morning, requests};
use schema::document::Load;
use store::{Brief, RunFolder, RunState, RunStore, StoreError, read_plan, read_summary};

#[test]
fn a_run_id_has_time_and_name() {
    let (_dir, _book, run) = fresh_run();
    let (front, letters) = run.id().rsplit_once('-').unwrap();
    assert_eq!(front, "20261120-093005-bench");
    assert!(letters.len() == 4 && letters.bytes().all(|letter| letter.is_ascii_lowercase()), "{letters}");
}

#[test]
fn two_runs_of_the_same_second_and_seed_have_different_ids() {
    let (_dir, run_store, first) = fresh_run();
    let second = run_store.create("bench", morning(), 7).unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(run_store.list().unwrap().len(), 2);
}

#[test]
fn a_hostile_run_name_stays_inside_the_run_store() {
    let (dir, run_store, _run) = fresh_run();
    let run = run_store.create("../../../tmp/x\u{1b}]0;\n", morning(), 1).unwrap();
    assert_eq!(run.path().parent().unwrap(), fs::canonicalize(dir.path()).unwrap());
    assert!(run.id().starts_with("20261120-093005-tmp-x-0-"), "{}", run.id());
}

#[test]
fn a_missing_run_store_is_empty() {
    let run_store = RunStore::at("/nonexistent/yamabiko");
    assert!(run_store.list().unwrap().is_empty());
    assert!(matches!(run_store.find("last"), Err(StoreError::NoSuchRun { .. })));
}

#[test]
fn an_error_creating_the_run_store_suggests_yamabiko_runs() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = RunStore::at(file.path().join("runs")).create("x", morning(), 1).unwrap_err();
    assert!(error.to_string().starts_with("mkdir "), "{error}");
}

#[test]
fn runs_are_found_by_last_id_prefix_and_path() {
    let (dir, run_store, first) = fresh_run();
    let second = run_store.create("demo", morning() + Duration::from_secs(1), 7).unwrap();
    assert_eq!(run_store.find("last").unwrap().file_name(), second.path().file_name());
    assert_eq!(run_store.find("last~0").unwrap().file_name(), second.path().file_name());
    assert_eq!(run_store.find("last~1").unwrap().file_name(), first.path().file_name());
    assert_eq!(run_store.find(first.id()).unwrap().file_name(), first.path().file_name());
    assert_eq!(run_store.find("20261120-093005").unwrap().file_name(), first.path().file_name());
    assert_eq!(run_store.find("20261120-093006-d").unwrap().file_name(), second.path().file_name());
    let candidates = match run_store.find("2026") {
        Err(StoreError::Ambiguous { candidates, .. }) => candidates,
        other => panic!("{other:?}"),
    };
    assert_eq!(candidates, [first.id(), second.id()]);
    for name in ["", "no-such-run", "../", "/"] {
        assert!(matches!(run_store.find(name), Err(StoreError::NoSuchRun { .. })), "{name}");
    }
    second.write_plan("x = 1\n").unwrap();
    let path = dir.path().join(second.id());
    assert_eq!(run_store.find(path.to_str().unwrap()).unwrap(), path);
}

#[test]
fn a_plan_with_credentials_is_readable_only_by_its_owner() {
    let (_dir, _book, run) = fresh_run();
    let mode_of = |plan: &str| {
        run.write_plan(plan).unwrap();
        assert_eq!(read_plan(run.path()).unwrap(), plan);
        fs::metadata(run.path().join("plan.toml")).unwrap().permissions().mode() & 0o777
    };
    // The umask may remove more permissions, but not those of the owner.
    assert_eq!(mode_of("headers = [\"Cookie: a=b\"]\n"), 0o600);
    let plain = run.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(mode_of("headers = [\"Accept: a\"]\n"), fs::metadata(plain).unwrap().permissions().mode() & 0o777);
}

#[test]
fn runs_of_one_second_are_ordered_by_plan_time() {
    let (_dir, run_store, run) = fresh_run();
    run.write_plan("first").unwrap();
    let mut runs = vec![run];
    for seed in 0..5 {
        let run = run_store.create("bench", morning(), seed).unwrap();
        run.write_plan("later").unwrap();
        let plan = fs::File::options().append(true).open(run.path().join("plan.toml")).unwrap();
        plan.set_modified(morning() + Duration::from_secs(1_000_000_000 + seed)).unwrap();
        runs.push(run);
    }
    assert_eq!(run_store.find("last").unwrap().file_name(), runs.last().unwrap().path().file_name());
}

#[test]
fn run_states_follow_lock_and_summary() {
    let (dir, run_store, run) = fresh_run();
    fs::create_dir(dir.path().join("not-a-run")).unwrap();
    let state = |run_store: &RunStore| {
        let mut list = run_store.list().unwrap();
        assert_eq!(list.len(), 1);
        list.remove(0).state
    };
    assert!(matches!(state(&run_store), RunState::Running { parts: 0, rows: 0 }));
    let mut writer = run.requests();
    writer.push(&requests(0..30)).unwrap();
    writer.close_part().unwrap();
    writer.push(&requests(30..40)).unwrap();
    assert!(matches!(state(&run_store), RunState::Running { parts: 1, rows: 30 }));

    // As after SIGKILL: no process has locked the folder, and rows outside of closed parts are lost.
    let path = run.path().to_owned();
    drop((writer, run));
    let error = read_summary(&path).unwrap_err();
    assert!(matches!(error, StoreError::Unfinished { parts: 1, rows: 30, .. }), "{error:?}");
    assert!(matches!(state(&run_store), RunState::Unfinished { parts: 1, rows: 30 }));
    fs::write(path.join("requests/000002.parquet"), b"PAR1").unwrap();
    assert!(matches!(state(&run_store), RunState::Unfinished { parts: 2, rows: 30 }));

    fs::write(path.join("summary.json"), b"{}").unwrap();
    assert!(matches!(state(&run_store), RunState::Unreadable { why } if why.contains("summary.json")));
}

#[test]
fn summary_and_plan_round_trip() {
    let (_dir, run_store, run) = fresh_run();
    let mut document = document(run.id());
    document.load = Some(Load {
        loop_kind: "open".into(),
        failed: BTreeMap::from([("response_timeout".to_owned(), 3)]),
        ..Load::default()
    });
    run.write_plan("rate = \"110/s\"\n").unwrap();
    run.write_summary(&document).unwrap();
    assert_eq!(read_summary(run.path()).unwrap(), document);
    assert_eq!(read_plan(run.path()).unwrap(), "rate = \"110/s\"\n");
    let text = fs::read_to_string(run.path().join("summary.json")).unwrap();
    let brief = Box::new(Brief::of(run.id(), &document, &text, ""));
    assert_eq!(run_store.list().unwrap().remove(0).state, RunState::Finished(brief));
}

#[test]
fn writing_a_summary_with_nan_is_refused() {
    let (_dir, _book, run) = fresh_run();
    let mut document = document(run.id());
    document.run.duration_s = f64::NAN;
    assert!(matches!(run.write_summary(&document), Err(StoreError::Summary { .. })));
    assert!(!run.path().join("summary.json").exists());
}

#[test]
fn the_error_of_a_missing_summary_names_the_file() {
    let error = read_summary(Path::new("/nonexistent")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/summary.json"), "{error}");
}

#[test]
fn a_run_is_resumed_by_one_process_at_a_time() {
    let (_dir, _book, run) = fresh_run();
    let path = run.path().to_owned();
    let error = RunFolder::reopen(path.clone(), morning()).unwrap_err().to_string();
    assert!(error.contains("the run is still running in another process"), "{error}");
    let id = run.id().to_owned();
    drop(run);
    assert_eq!(RunFolder::reopen(path.join("."), morning()).unwrap().id(), id);
    assert!(matches!(RunFolder::reopen(path.join("gone"), morning()), Err(StoreError::Io { .. })));
}
