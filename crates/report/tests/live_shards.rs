//! The table of all shards on the live page of shard 0.

use std::time::{Duration, SystemTime};

use report::live::state::{Piece, Section, Table};
use report::live::{Follower, State, step};
use schema::document::ClockOffset;
use schema::{RunPhase, RunProgress, ShardProgress, ShardResponseTime, ShardState, ShardsProgress};
use store::{RunFolder, RunStore};

fn shard(index: u32, state: ShardState) -> ShardProgress {
    let is_known = state == ShardState::Measured;
    ShardProgress {
        index,
        host: format!("load{index}<b>"),
        state,
        offered_per_s: is_known.then_some(100.0),
        achieved_per_s: is_known.then_some(99.0),
        errors: Some(u64::from(index)),
        response_time: is_known.then_some(ShardResponseTime { count: 9, p50_ns: 2_000_000, p99_ns: 40_000_000 }),
        clock: (index > 0).then_some(ClockOffset { offset_ns: -1_500_000, bound_ns: 200_000, round_trips: 16 }),
        silent_s: (index > 0).then_some(12),
        ..ShardProgress::default()
    }
}

fn begin(run_store: &RunStore) -> (RunFolder, Follower) {
    let folder = run_store.create("bench", SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_167_005), 7).unwrap();
    let follower = Follower::new(folder.path());
    (folder, follower)
}

fn polled(follower: &mut Follower) -> State {
    follower.poll();
    follower.state()
}

fn write_progress(folder: &RunFolder, verb: &str) {
    let progress = RunProgress { verb: verb.into(), phase: RunPhase::Measured, ..RunProgress::default() };
    // An experiment is one by its step or current run.
    let ended = if verb == "capacity" { vec!["first".into()] } else { Vec::new() };
    folder.progress_file().write(&RunProgress { ended, ..progress }).unwrap();
}

fn section(state: &State) -> Option<&Section> {
    state.sections.iter().find(|section| section.id == "shards")
}

fn table(state: &State) -> &Table {
    let found = section(state).unwrap().pieces.iter().find_map(|piece| match piece {
        Piece::Table(table) => Some(table),
        _ => None,
    });
    found.unwrap()
}

fn texts(state: &State) -> String {
    let texts = section(state).unwrap().pieces.iter().filter_map(|piece| match piece {
        Piece::Text(text) => Some(text.text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn all_shards_are_a_table_with_sums_of_rates_and_no_percentiles_of_all() {
    for verb in ["bench", "capacity"] {
        let root = tempfile::tempdir().unwrap();
        let (folder, mut follower) = begin(&RunStore::at(root.path()));
        write_progress(&folder, verb);
        let before = polled(&mut follower);
        assert!(section(&before).is_none(), "a run of one machine has no shards");
        let lost = ShardProgress { why: "connect: no ports left".into(), ..shard(3, ShardState::Failed) };
        let shards =
            vec![shard(0, ShardState::Measured), shard(1, ShardState::Measured), shard(2, ShardState::Lost), lost];
        store::write_shards_progress(folder.path(), &ShardsProgress::of(shards)).unwrap();
        let state = polled(&mut follower);
        let rows = &table(&state).rows;
        let cells = |row: usize| rows[row].iter().map(String::as_str).collect::<Vec<_>>();
        assert_eq!(
            cells(1),
            [
                "1",
                "load1<b>",
                "measuring",
                "100.0/s",
                "99.0/s",
                "1",
                "2.00 ms",
                "40.0 ms",
                "-1.50 ms ± 200 us",
                "12 s ago"
            ]
        );
        assert_eq!((rows[0][8].as_str(), rows[0][9].as_str()), ("reference", ""));
        assert_eq!(cells(2)[2..8], ["lost", "-", "-", "2", "-", "-"]);
        assert_eq!(rows[3][2], "failed: connect: no ports left");
        assert_eq!(cells(4), ["Sum", "", "", "200.0/s of 2", "198.0/s of 2", "6", "", "", "", ""]);
        let texts = texts(&state);
        assert!(texts.contains("4 shards: 2 measuring, 1 lost, 1 failed. Lost or failed: 2/4, 3/4."), "{texts}");
        assert!(!texts.contains("written nothing"), "{texts}");
        // A viewer that is there gets the new table alone.
        assert!(step(&before, &state).is_none(), "a new section is a new page");
        let shards = vec![shard(0, ShardState::Measured), shard(1, ShardState::Drain)];
        store::write_shards_progress(folder.path(), &ShardsProgress::of(shards)).unwrap();
        let change = step(&state, &polled(&mut follower)).unwrap();
        assert!(change.contains("shards-table") && change.contains("finishing"), "{change}");
    }
}

#[test]
fn what_is_old_or_unreadable_says_so() {
    let root = tempfile::tempdir().unwrap();
    let (folder, mut follower) = begin(&RunStore::at(root.path()));
    let shards = ShardsProgress::of(vec![shard(0, ShardState::Measured), shard(1, ShardState::Measured)]);
    store::write_shards_progress(folder.path(), &shards).unwrap();
    write_progress(&folder, "bench");
    let file = std::fs::File::options().write(true).open(folder.path().join("shards.json")).unwrap();
    for (age_s, is_old) in [(3, false), (9, true)] {
        let written = std::fs::metadata(folder.path().join("progress.json")).unwrap().modified().unwrap();
        file.set_modified(written - Duration::from_secs(age_s)).unwrap();
        let texts = texts(&polled(&mut follower));
        assert_eq!(texts.contains("has written nothing for 9 s"), is_old, "{texts}");
    }
    std::fs::write(folder.path().join("shards.json"), "{").unwrap();
    let state = polled(&mut follower);
    let notes = state.sections.iter().find(|section| section.id == "notes").unwrap();
    assert!(format!("{notes:?}").contains("shards.json"), "{notes:?}");
}

#[test]
fn ten_thousand_shards_are_a_bounded_table_with_those_that_are_missing() {
    let root = tempfile::tempdir().unwrap();
    let (folder, mut follower) = begin(&RunStore::at(root.path()));
    write_progress(&folder, "bench");
    let state = |index| if index == 9_876 { ShardState::Lost } else { ShardState::Measured };
    let shards = (0..10_000).map(|index| shard(index, state(index))).collect();
    store::write_shards_progress(folder.path(), &ShardsProgress::of(shards)).unwrap();
    let state = polled(&mut follower);
    let rows = &table(&state).rows;
    assert_eq!((rows.len(), rows[0][0].as_str(), rows[1][0].as_str()), (501, "9876", "0"));
    assert_eq!((rows[500][1].as_str(), rows[500][3].as_str()), ("500 of 10,000 are shown", "999,900/s of 9999"));
}
