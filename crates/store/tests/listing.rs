//! The list of runs, with and without the catalogue: the same list, whatever state the catalogue is in.

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

/// A run store with runs of every kind: three that ended, one that was killed.
fn shelf(dir: &Path) -> RunStore {
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

/// What a list says, without how it came about.
fn said(listing: &Listing) -> Vec<String> {
    listing.entries.iter().map(|entry| format!("{entry:?}")).collect()
}

#[test]
fn lists_with_and_without_catalogue_are_equal() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = shelf(dir.path());
    let folders = run_store.listing_of_folders().unwrap();
    assert!(!dir.path().join("catalogue.sqlite").exists());
    assert_eq!((folders.read, folders.catalogue.clone()), (4, CatalogueUse::Unasked));
    let first = run_store.listing().unwrap();
    assert_eq!((first.read, first.catalogue.clone()), (4, CatalogueUse::Kept));
    let second = run_store.listing().unwrap();
    assert_eq!((second.read, second.catalogue.clone()), (0, CatalogueUse::Kept));
    assert_eq!((said(&first), said(&second)), (said(&folders), said(&folders)));
    assert!(matches!(&second.entries[2].state, RunState::Finished(brief)
        if brief.verb() == "bench" && brief.load.as_ref().is_some_and(|load| load.offered_rate_per_s == 330.0)));
    assert!(matches!(second.entries[3].state, RunState::Unfinished { parts: 1, rows: 30 }));
    assert_eq!(second.entries[1].tags, ["n1"]);
}

#[test]
fn changed_runs_are_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = shelf(dir.path());
    let entries = run_store.listing().unwrap().entries;
    let all_again = |run_store: &RunStore, read: usize| {
        let listing = run_store.listing().unwrap();
        assert_eq!(listing.read, read);
        assert_eq!(said(&listing), said(&run_store.listing_of_folders().unwrap()));
        assert_eq!(run_store.listing().unwrap().read, 0);
    };
    // A tag; a summary written anew; one written over in place, as an editor does; a run removed; a part that came.
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
    // What cannot be read today another version may read tomorrow: it is looked at each time.
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

/// It has had its summary since it was interrupted.
#[test]
fn a_resumed_search_counts_as_running_immediately() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = RunStore::at(dir.path());
    let run = run_store.create("capacity", morning(), 1).unwrap();
    let stands = |run: &RunFolder, phase| {
        let standing =
            RunProgress { schema: PROGRESS_SCHEMA.into(), run: run.id().into(), phase, ..RunProgress::default() };
        run.standing().write(&standing).unwrap();
    };
    stands(&run, RunPhase::Done);
    run.write_summary(&document(run.id())).unwrap();
    let path = run.path().to_owned();
    drop(run);
    let state = || {
        let (with, without) = (run_store.listing().unwrap(), run_store.listing_of_folders().unwrap());
        assert_eq!(said(&with), said(&without));
        with.entries[0].state.clone()
    };
    assert!(matches!(state(), RunState::Finished(_)));
    assert_eq!(run_store.listing().unwrap().read, 0, "it is known");
    let again = RunFolder::reopen(path, morning()).unwrap();
    stands(&again, RunPhase::Starting);
    assert!(matches!(state(), RunState::Running { .. }));
    // Killed, it is what it was when it was interrupted first, as soon as no fork of this process has its folder.
    drop(again);
    let ended = || {
        std::thread::yield_now();
        matches!(run_store.listing().unwrap().entries[0].state, RunState::Finished(_))
    };
    assert!((0..LISTS_MAX).any(|_| ended()));
    assert_eq!(run_store.listing().unwrap().read, 0);
}

/// A fork lasts milliseconds, and so does a list.
const LISTS_MAX: usize = 3000;

#[test]
fn a_broken_missing_or_unreachable_catalogue_does_not_change_the_list() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = shelf(dir.path());
    let right = said(&run_store.listing_of_folders().unwrap());
    let path = dir.path().join("catalogue.sqlite");
    let repaired = |what: &[u8]| {
        fs::write(&path, what).unwrap();
        let listing = run_store.listing().unwrap();
        assert_eq!((said(&listing), listing.read), (right.clone(), 4));
        assert_eq!(run_store.listing().unwrap().read, 0);
    };
    repaired(b"");
    repaired(&b"not a database ".repeat(300));
    let whole = fs::read(&path).unwrap();
    // Cut short: some of it may still be right. If the damage is found only when it is written to, the list after the next has it whole;
    // and nobody throws it away while another process has the run store's folder, as one that was just forked from this one has.
    fs::write(&path, &whole[..whole.len() - 1000]).unwrap();
    let mut last = usize::MAX;
    for _ in 0..LISTS_MAX {
        let listing = run_store.listing().unwrap();
        assert_eq!(said(&listing), right);
        last = listing.read;
        if last == 0 {
            break;
        }
        std::thread::yield_now();
    }
    assert_eq!(last, 0, "it is whole again in the end");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let listing = run_store.listing().unwrap();
    assert!(said(&listing) == right && matches!(listing.catalogue, CatalogueUse::Without(_)), "{listing:?}");
    assert!(run_store.rebuild().unwrap_err().to_string().contains("catalogue.sqlite"));
    fs::remove_dir(&path).unwrap();
    assert_eq!(run_store.rebuild().unwrap().read, 4);
    assert_eq!(run_store.listing().unwrap().read, 0);
}

/// A row of a catalogue that came from elsewhere (a run store copied whole) is of other files.
#[test]
fn a_copied_run_store_is_read_from_its_folders() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = shelf(&dir.path().join("a"));
    run_store.list().unwrap();
    let status =
        std::process::Command::new("cp").arg("-a").arg(run_store.root()).arg(dir.path().join("b")).status().unwrap();
    assert!(status.success());
    let copy = RunStore::at(dir.path().join("b"));
    let listing = copy.listing().unwrap();
    assert_eq!((listing.read, said(&listing)), (4, said(&copy.listing_of_folders().unwrap())));
}

#[test]
fn a_user_without_write_permission_can_list_runs() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = shelf(dir.path());
    let right = said(&run_store.listing_of_folders().unwrap());
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write everywhere; as another user it was not tried.
    let listing = run_store.listing().unwrap();
    assert_eq!(said(&listing), right);
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn concurrent_lists_and_run_ends_agree() {
    let dir = tempfile::tempdir().unwrap();
    let run_store = shelf(dir.path());
    std::thread::scope(|scope| {
        for number in 0..4_u64 {
            let run_store = &run_store;
            scope.spawn(move || {
                for turn in 0..4 {
                    let moment = morning() + Duration::from_secs(100 + 10 * number + turn);
                    let run = run_store.create("bench", moment, number).unwrap();
                    run.write_summary(&document(run.id())).unwrap();
                    let id = run.id().to_owned();
                    drop(run);
                    assert!(run_store.list().unwrap().iter().any(|entry| entry.id == id));
                }
            });
        }
    });
    let (with, without) = (run_store.listing().unwrap(), run_store.listing_of_folders().unwrap());
    assert_eq!((said(&with), with.entries.len()), (said(&without), 20));
}

/// Ten thousand runs: the second list reads none of them, and a new one costs one.
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
