//! The list of runs is the same with and without the catalogue, in any state of the catalogue.

#[path = "store/support.rs"]
#[allow(dead_code, reason = "a part of what the tests of the run_store share")]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use schema::document::Load;
use schema::progress::PROGRESS_SCHEMA;
use schema::{RunPhase, RunProgress};
use store::{CatalogueUse, Listing, RunFolder, RunState, RunStore, change_tags};
use support::{document, fresh_run, morning, requests};

/// A run store with three finished runs and one killed run.
fn store_with_runs(dir: &Path) -> RunStore {
    let run_store = RunStore::at(dir);
    for number in 0..3 {
        let run = run_store.create("bench", morning() + Duration::from_secs(number), number).unwrap();
        let mut document = document(run.id());
        document.run.command = format!("yamabiko bench http://server/{number}");
        document.load = Some(Load { offered_rate_per_s: 110.0 * (number + 1) as f64, ..Load::default() });
        run.write_summary(&document).unwrap();
        change_tags(dir, run.path(), &[format!("n{number}")], &[]).unwrap();
    }
    let killed = run_store.create("bench", morning() + Duration::from_secs(9), 9).unwrap();
    let mut writer = killed.requests();
    writer.push(&requests(0..30)).unwrap();
    writer.close_part().unwrap();
    run_store
}

/// The entries of a list as text, without how they were read.
fn entries_text(listing: &Listing) -> Vec<String> {
    listing.entries.iter().map(|entry| format!("{entry:?}")).collect()
}

#[test]
fn lists_with_and_without_catalogue_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = store_with_runs(dir.path());
    let folders = run_store.listing_of_folders().unwrap();
    assert!(!dir.path().join("catalogue.sqlite").exists());
    assert_eq!((folders.read, folders.catalogue.clone()), (4, CatalogueUse::Unused));
    let first = run_store.listing().unwrap();
    assert_eq!((first.read, first.catalogue.clone()), (4, CatalogueUse::UpToDate));
    let second = run_store.listing().unwrap();
    assert_eq!((second.read, second.catalogue.clone()), (0, CatalogueUse::UpToDate));
    assert_eq!((entries_text(&first), entries_text(&second)), (entries_text(&folders), entries_text(&folders)));
    assert!(matches!(&second.entries[2].state, RunState::Finished(brief)
        if brief.verb() == "bench" && brief.load.as_ref().is_some_and(|load| load.offered_rate_per_s == 330.0)));
    assert!(matches!(second.entries[3].state, RunState::Unfinished { parts: 1, rows: 30 }));
    assert_eq!(second.entries[1].tags, ["n1"]);
}

#[test]
fn changed_runs_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = store_with_runs(dir.path());
    let entries = run_store.listing().unwrap().entries;
    let all_again = |run_store: &RunStore, read: usize| {
        let listing = run_store.listing().unwrap();
        assert_eq!(listing.read, read);
        assert_eq!(entries_text(&listing), entries_text(&run_store.listing_of_folders().unwrap()));
        assert_eq!(run_store.listing().unwrap().read, 0);
    };
    // A new tag, a replaced summary, a summary edited in place, a removed run, and a new part.
    change_tags(dir.path(), &entries[0].dir, &["new".into()], &[]).unwrap();
    all_again(&run_store, 1);
    let summary = entries[1].dir.join("summary.json");
    let text = fs::read_to_string(&summary).unwrap();
    fs::write(&summary, text.replace("http://server/1", "http://server/longer")).unwrap();
    all_again(&run_store, 1);
    fs::write(summary.with_extension("new"), &text).unwrap();
    fs::rename(summary.with_extension("new"), &summary).unwrap();
    all_again(&run_store, 1);
    fs::remove_dir_all(&entries[2].dir).unwrap();
    all_again(&run_store, 0);
    let parts = entries[3].dir.join("requests");
    fs::copy(parts.join("000001.parquet"), parts.join("000002.parquet")).unwrap();
    all_again(&run_store, 1);
    assert!(matches!(run_store.list().unwrap()[2].state, RunState::Unfinished { parts: 2, rows: 60 }));
    // Each list reads an unreadable document again, because another version may read it.
    fs::write(&summary, "{}").unwrap();
    assert!(matches!(run_store.list().unwrap()[1].state, RunState::Unreadable { .. }));
    assert_eq!(run_store.listing().unwrap().read, 1);
}

#[test]
fn a_running_run_is_read_by_every_list() {
    let (_dir, run_store, run) = fresh_run();
    for _ in 0..2 {
        let listing = run_store.listing().unwrap();
        assert!(listing.read == 1 && matches!(listing.entries[0].state, RunState::Running { parts: 0, .. }));
    }
    run.write_summary(&document(run.id())).unwrap();
    assert!(matches!(run_store.list().unwrap()[0].state, RunState::Finished(_)));
    assert_eq!(run_store.listing().unwrap().read, 0);
}

/// A resumed search has had its summary since its interruption.
#[test]
fn a_resumed_search_counts_as_running_immediately() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = RunStore::at(dir.path());
    let run = run_store.create("capacity", morning(), 1).unwrap();
    let write_phase = |run: &RunFolder, phase| {
        let progress =
            RunProgress { schema: PROGRESS_SCHEMA.into(), run: run.id().into(), phase, ..RunProgress::default() };
        run.progress_file().write(&progress).unwrap();
    };
    write_phase(&run, RunPhase::Done);
    run.write_summary(&document(run.id())).unwrap();
    let path = run.path().to_owned();
    drop(run);
    let state = || {
        let (with, without) = (run_store.listing().unwrap(), run_store.listing_of_folders().unwrap());
        assert_eq!(entries_text(&with), entries_text(&without));
        with.entries[0].state.clone()
    };
    assert!(matches!(state(), RunState::Finished(_)));
    assert_eq!(run_store.listing().unwrap().read, 0, "the catalogue has the run");
    let again = RunFolder::reopen(path, morning()).unwrap();
    write_phase(&again, RunPhase::Starting);
    assert!(matches!(state(), RunState::Running { .. }));
    // After a kill the run is again listed as interrupted, once no forked child of this process shares the folder's
    // lock.
    drop(again);
    let ended = || {
        std::thread::yield_now();
        matches!(run_store.listing().unwrap().entries[0].state, RunState::Finished(_))
    };
    assert!((0..LISTS_MAX).any(|_| ended()));
    assert_eq!(run_store.listing().unwrap().read, 0);
}

/// Retries, because a forked child of this process shares locks for some milliseconds.
const LISTS_MAX: usize = 3000;

#[test]
fn a_broken_missing_or_unreachable_catalogue_does_not_change_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = store_with_runs(dir.path());
    let right = entries_text(&run_store.listing_of_folders().unwrap());
    let path = dir.path().join("catalogue.sqlite");
    let repaired = |what: &[u8]| {
        fs::write(&path, what).unwrap();
        let listing = run_store.listing().unwrap();
        assert_eq!((entries_text(&listing), listing.read), (right.clone(), 4));
        assert_eq!(run_store.listing().unwrap().read, 0);
    };
    repaired(b"");
    repaired(&b"not a database ".repeat(300));
    let whole = fs::read(&path).unwrap();
    // A truncated catalogue may still have correct rows. If only a write detects the damage, the list after the next
    // has an intact catalogue. No process deletes it while another one has locked the run store's folder, such as a
    // child that was just forked from this process.
    fs::write(&path, &whole[..whole.len() - 1000]).unwrap();
    let mut last = usize::MAX;
    for _ in 0..LISTS_MAX {
        let listing = run_store.listing().unwrap();
        assert_eq!(entries_text(&listing), right);
        last = listing.read;
        if last == 0 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(last, 0, "the catalogue is intact at the end");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let listing = run_store.listing().unwrap();
    assert!(entries_text(&listing) == right && matches!(listing.catalogue, CatalogueUse::Without(_)), "{listing:?}");
    assert!(run_store.rebuild().unwrap_err().to_string().contains("catalogue.sqlite"));
    fs::remove_dir(&path).unwrap();
    assert_eq!(run_store.rebuild().unwrap().read, 4);
    assert_eq!(run_store.listing().unwrap().read, 0);
}

/// The rows of a copied catalogue (in a copy of the whole run store) have the keys of other files.
#[test]
fn a_copied_run_store_is_read_from_its_folders() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = store_with_runs(&dir.path().join("a"));
    run_store.list().unwrap();
    let status =
        std::process::Command::new("cp").arg("-a").arg(run_store.root()).arg(dir.path().join("b")).status().unwrap();
    assert!(status.success());
    let copy = RunStore::at(dir.path().join("b"));
    let listing = copy.listing().unwrap();
    assert_eq!((listing.read, entries_text(&listing)), (4, entries_text(&copy.listing_of_folders().unwrap())));
}

#[test]
fn a_user_without_write_permission_can_list_runs() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = store_with_runs(dir.path());
    let right = entries_text(&run_store.listing_of_folders().unwrap());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write everywhere, so as root this reads through a writable catalogue.
    let listing = run_store.listing().unwrap();
    assert_eq!(entries_text(&listing), right);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn concurrent_lists_and_run_ends_agree() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = store_with_runs(dir.path());
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let run_store = &run_store;
            scope.spawn(move || {
                for turn in 0..4 {
                    let time = morning() + Duration::from_secs(100 + 10 * number + turn);
                    let run = run_store.create("bench", time, number).unwrap();
                    run.write_summary(&document(run.id())).unwrap();
                    let id = run.id().to_owned();
                    drop(run);
                    assert!(run_store.list().unwrap().iter().any(|entry| entry.id == id));
                }
            });
        }
    });
    let (with, without) = (run_store.listing().unwrap(), run_store.listing_of_folders().unwrap());
    assert_eq!((entries_text(&with), with.entries.len()), (entries_text(&without), 20));
}

/// With ten thousand runs, the second list reads no folder, and a list after a new run reads one.
#[test]
fn ten_thousand_runs_are_listed_from_the_catalogue() {
    let dir = tempfile::tempdir().unwrap();
    let text = serde_json::to_string(&document("x")).unwrap();
    for number in 0..10_000 {
        let run = dir.path().join(format!("20260101-{number:06}-bench-abcd"));
        fs::create_dir(&run).unwrap();
        fs::write(run.join("summary.json"), &text).unwrap();
    }
    let run_store = RunStore::at(dir.path());
    assert_eq!(run_store.listing().unwrap().read, 10_000);
    assert_eq!(run_store.listing().unwrap().read, 0);
    let run = run_store.create("bench", morning(), 1).unwrap();
    run.write_summary(&document(run.id())).unwrap();
    let listing = run_store.listing().unwrap();
    assert_eq!((listing.read, listing.entries.len()), (1, 10_001));
}
