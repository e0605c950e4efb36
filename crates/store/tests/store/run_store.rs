//! Runs are made, listed and found.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use crate::support::{document, fresh_run, morning, requests};
use schema::document::Load;
use store::{Brief, RunFolder, RunState, RunStore, StoreError, read_plan, read_summary};

#[test]
fn an_id_says_when_and_what() {
    let (_dir, _book, run) = fresh_run();
    let (front, letters) = run.id().rsplit_once('-').unwrap();
    assert_eq!(front, "20261120-093005-bench");
    assert!(letters.len() == 4 && letters.bytes().all(|letter| letter.is_ascii_lowercase()), "{letters}");
}

#[test]
fn the_same_second_and_seed_still_make_two_runs() {
    let (_dir, book, first) = fresh_run();
    let second = book.create("bench", morning(), 7).unwrap();
    assert_ne!(first.id(), second.id());
    assert_eq!(book.list().unwrap().len(), 2);
}

#[test]
fn a_hostile_name_stays_inside_the_book() {
    let (dir, book, _run) = fresh_run();
    let run = book.create("../../../tmp/x\u{1b}]0;\n", morning(), 1).unwrap();
    assert_eq!(run.path().parent().unwrap(), fs::canonicalize(dir.path()).unwrap());
    assert!(run.id().starts_with("20261120-093005-tmp-x-0-"), "{}", run.id());
}

#[test]
fn a_book_that_is_not_there_is_empty() {
    let book = RunStore::at("/nonexistent/yamabiko");
    assert!(book.list().unwrap().is_empty());
    assert!(matches!(book.find("last"), Err(StoreError::NoSuchRun { .. })));
}

#[test]
fn a_book_that_cannot_be_made_says_what_to_do() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = RunStore::at(file.path().join("runs")).create("x", morning(), 1).unwrap_err();
    assert!(error.to_string().starts_with("mkdir "), "{error}");
}

#[test]
fn runs_are_found_by_last_id_beginning_and_path() {
    let (dir, book, first) = fresh_run();
    let second = book.create("demo", morning() + Duration::from_secs(1), 7).unwrap();
    assert_eq!(book.find("last").unwrap().file_name(), second.path().file_name());
    assert_eq!(book.find("last~0").unwrap().file_name(), second.path().file_name());
    assert_eq!(book.find("last~1").unwrap().file_name(), first.path().file_name());
    assert_eq!(book.find(first.id()).unwrap().file_name(), first.path().file_name());
    assert_eq!(book.find("20261120-093005").unwrap().file_name(), first.path().file_name());
    assert_eq!(book.find("20261120-093006-d").unwrap().file_name(), second.path().file_name());
    let candidates = match book.find("2026") {
        Err(StoreError::Ambiguous { candidates, .. }) => candidates,
        other => panic!("{other:?}"),
    };
    assert_eq!(candidates, [first.id(), second.id()]);
    for asked in ["", "no-such-run", "../", "/"] {
        assert!(matches!(book.find(asked), Err(StoreError::NoSuchRun { .. })), "{asked}");
    }
    second.write_plan("x = 1\n").unwrap();
    let path = dir.path().join(second.id());
    assert_eq!(book.find(path.to_str().unwrap()).unwrap(), path);
}

#[test]
fn a_plan_with_credentials_is_for_its_owner_alone() {
    let (_dir, _book, run) = fresh_run();
    let mode_of = |plan: &str| {
        run.write_plan(plan).unwrap();
        assert_eq!(read_plan(run.path()).unwrap(), plan);
        fs::metadata(run.path().join("plan.toml")).unwrap().permissions().mode() & 0o777
    };
    // The umask may take more, and never what the owner needs.
    assert_eq!(mode_of("headers = [\"Cookie: a=b\"]\n"), 0o600);
    let plain = run.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(mode_of("headers = [\"Accept: a\"]\n"), fs::metadata(plain).unwrap().permissions().mode() & 0o777);
}

#[test]
fn within_one_second_the_plan_tells_the_order() {
    let (_dir, book, run) = fresh_run();
    run.write_plan("first").unwrap();
    let mut runs = vec![run];
    for seed in 0..5 {
        let run = book.create("bench", morning(), seed).unwrap();
        run.write_plan("later").unwrap();
        let plan = fs::File::options().append(true).open(run.path().join("plan.toml")).unwrap();
        plan.set_modified(morning() + Duration::from_secs(1_000_000_000 + seed)).unwrap();
        runs.push(run);
    }
    assert_eq!(book.find("last").unwrap().file_name(), runs.last().unwrap().path().file_name());
}

#[test]
fn states_of_a_run() {
    let (dir, book, run) = fresh_run();
    fs::create_dir(dir.path().join("not-a-run")).unwrap();
    let state = |book: &RunStore| {
        let mut list = book.list().unwrap();
        assert_eq!(list.len(), 1);
        list.remove(0).state
    };
    assert!(matches!(state(&book), RunState::Running { parts: 0, rows: 0 }));
    let mut writer = run.requests();
    writer.push(&requests(0..30)).unwrap();
    writer.close_part().unwrap();
    writer.push(&requests(30..40)).unwrap();
    assert!(matches!(state(&book), RunState::Running { parts: 1, rows: 30 }));

    // As after SIGKILL: nobody holds the folder, and what was not in a closed part is gone.
    let path = run.path().to_owned();
    drop((writer, run));
    let error = read_summary(&path).unwrap_err();
    assert!(matches!(error, StoreError::Unfinished { parts: 1, rows: 30, .. }), "{error:?}");
    assert!(matches!(state(&book), RunState::Unfinished { parts: 1, rows: 30 }));
    fs::write(path.join("requests/000002.parquet"), b"PAR1").unwrap();
    assert!(matches!(state(&book), RunState::Unfinished { parts: 2, rows: 30 }));

    fs::write(path.join("summary.json"), b"{}").unwrap();
    assert!(matches!(state(&book), RunState::Unreadable { why } if why.contains("summary.json")));
}

#[test]
fn summary_and_plan_come_back() {
    let (_dir, book, run) = fresh_run();
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
    assert_eq!(book.list().unwrap().remove(0).state, RunState::Finished(brief));
}

#[test]
fn a_figure_that_is_not_a_number_is_refused_at_writing() {
    let (_dir, _book, run) = fresh_run();
    let mut document = document(run.id());
    document.run.duration_s = f64::NAN;
    assert!(matches!(run.write_summary(&document), Err(StoreError::Summary { .. })));
    assert!(!run.path().join("summary.json").exists());
}

#[test]
fn a_missing_summary_names_its_file() {
    let error = read_summary(Path::new("/nonexistent")).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/summary.json"), "{error}");
}

#[test]
fn a_run_is_gone_on_with_by_one_process_at_a_time() {
    let (_dir, _book, run) = fresh_run();
    let path = run.path().to_owned();
    let error = RunFolder::reopen(path.clone(), morning()).unwrap_err().to_string();
    assert!(error.contains("the run goes on in another process"), "{error}");
    let id = run.id().to_owned();
    drop(run);
    assert_eq!(RunFolder::reopen(path.join("."), morning()).unwrap().id(), id);
    assert!(matches!(RunFolder::reopen(path.join("gone"), morning()), Err(StoreError::Io { .. })));
}
