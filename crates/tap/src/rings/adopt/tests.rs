//! Readers that are killed at every step: each record is read once, and no slot is taken from its writer.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use proptest::prelude::*;
use tempfile::TempDir;
use units::Timestamp;

use super::super::layout::{RECORD_BYTES, slot, state};
use super::super::shared::Shared;
use super::super::tests::sent;
use super::super::{Positions, map, shape_of, slot_at};
use super::*;
use crate::event::{Event, EventKind};

const SMALL: Capacity = Capacity { records: 8, slots: 3, small_slots: 0, ready: 2 };

struct TestFolder {
    _parent: TempDir,
    path: PathBuf,
}

impl TestFolder {
    fn new() -> TestFolder {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("tap");
        TestFolder { _parent: parent, path }
    }

    fn open(&self, before: Option<&ReaderState>) -> (DaemonFolder, Rings, Adoption) {
        self.open_with(SMALL, before)
    }

    fn open_with(&self, capacity: Capacity, before: Option<&ReaderState>) -> (DaemonFolder, Rings, Adoption) {
        let folder = DaemonFolder::open(&self.path).unwrap();
        let (rings, adoption) = Rings::adopt(&folder, Clock::of_boot(), capacity, before).unwrap();
        (folder, rings, adoption)
    }
}

/// Programs: the Rust equivalent of `interposer/process.h`, with separate mappings.
struct Programs {
    memory: Shared,
    images: u32,
    /// The writing image of each slot.
    writers: HashMap<u32, u32>,
    /// Written records, by image.
    written: Vec<(u32, u64)>,
    dropped: u64,
}

impl Programs {
    fn of(folder_of_agent: &TestFolder) -> Programs {
        let file = std::fs::File::options().read(true).write(true).open(folder_of_agent.path.join("ring")).unwrap();
        let bytes = file.metadata().unwrap().len();
        let memory = map(&file, bytes).unwrap();
        Programs { memory, images: 0, writers: HashMap::new(), written: Vec::new(), dropped: 0 }
    }

    fn word(&self, slot: u32, at: usize) -> &std::sync::atomic::AtomicU64 {
        self.memory.word(slot_at(slot) + at)
    }

    /// A new image takes the first free slot.
    fn claim(&mut self) {
        self.images += 1;
        let shape = shape_of(&self.memory);
        for number in 0..shape.slots {
            let free = u64::from(state::FREE);
            if self.word(number, slot::STATE).load(Ordering::Relaxed) != free {
                continue;
            }
            assert!(!self.writers.contains_key(&number), "a slot was freed although a program writes to it");
            self.memory.half(header::SLOTS_USED).fetch_max(number + 1, Ordering::AcqRel);
            let owned = u64::from(self.images) << 32 | u64::from(state::OWNED);
            self.word(number, slot::STATE).store(owned, Ordering::Release);
            assert_eq!(
                self.memory.half(slot_at(number) + slot::IMAGE).load(Ordering::Relaxed),
                0,
                "a free slot has no image"
            );
            self.memory.half(slot_at(number) + slot::IMAGE).store(self.images, Ordering::Relaxed);
            self.memory.half(slot_at(number) + slot::SPACE).store(9, Ordering::Relaxed);
            self.writers.insert(number, self.images);
            return;
        }
        self.memory.word(header::UNCLAIMED).fetch_add(1, Ordering::Relaxed);
        self.dropped += 1;
    }

    fn write(&mut self, number: u32) {
        let Some(image) = self.writers.get(&number).copied() else { return };
        let shape = shape_of(&self.memory);
        let (head, tail) = (
            self.word(number, slot::HEAD).load(Ordering::Relaxed),
            self.word(number, slot::TAIL).load(Ordering::Acquire),
        );
        if head >= tail + u64::from(shape.records(number)) {
            self.word(number, slot::DROPPED).fetch_add(1, Ordering::Relaxed);
            self.dropped += 1;
            return;
        }
        let place = (head % u64::from(shape.records(number))) as usize;
        let offset = shape.at(number) as usize + place * RECORD_BYTES;
        let bytes = self.written.len() as u64;
        for (index, word) in sent(bytes).into_iter().enumerate() {
            self.memory.word(offset + index * 8).store(word, Ordering::Relaxed);
        }
        self.word(number, slot::HEAD).store(head + 1, Ordering::Release);
        self.written.push((image, bytes));
    }

    /// A normal end, as of a thread.
    fn release(&mut self, number: u32) {
        if let Some(image) = self.writers.remove(&number) {
            let released = u64::from(image) << 32 | u64::from(state::RELEASED);
            self.word(number, slot::STATE).store(released, Ordering::Release);
        }
    }

    /// An end without a report.
    fn kill(&mut self, number: u32) -> Option<u32> {
        self.writers.remove(&number)
    }
}

/// The agent: its disk, and the state that it loses when killed.
struct Agent {
    journal: ReaderState,
    rows: Vec<(u32, u64)>,
    lost: u64,
    ended: HashSet<u32>,
}

impl Agent {
    fn collect(&self, rings: &mut Rings) -> (Positions, Vec<Event>) {
        let mut events = Vec::new();
        let ended = &self.ended;
        let positions =
            rings.collect_and_free(&mut |origin| ended.contains(&origin.image), &mut |event| events.push(event));
        (positions, events)
    }

    fn store_in_journal(&mut self, positions: &Positions, events: Vec<Event>) {
        let bytes = postcard::to_stdvec(positions).unwrap();
        let positions: Positions = postcard::from_bytes(&bytes).unwrap();
        self.journal.add(&positions);
        self.journal = postcard::from_bytes(&postcard::to_stdvec(&self.journal).unwrap()).unwrap();
        for Event { origin, what } in events {
            match what {
                EventKind::Sent(run) => self.rows.push((origin.image, run.bytes)),
                EventKind::Lost { records } => self.lost += records,
                other => panic!("{other:?}"),
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Claim,
    Write(u32),
    Release(u32),
    Kill(u32),
    Round,
    /// Killed after reading, before storing.
    KilledBefore,
    /// Killed after storing, with this number of slots committed and freed.
    KilledWithin(usize, usize),
    /// Killed after the commit.
    KilledAfter,
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        2 => Just(Step::Claim),
        12 => (0..3_u32).prop_map(Step::Write),
        1 => (0..3_u32).prop_map(Step::Release),
        1 => (0..3_u32).prop_map(Step::Kill),
        3 => Just(Step::Round),
        1 => Just(Step::KilledBefore),
        2 => (0..4_usize, 0..3_usize).prop_map(|(slots, free)| Step::KilledWithin(slots, free)),
        1 => Just(Step::KilledAfter),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_reader_killed_at_any_step_reads_each_record_once(
        steps in prop::collection::vec(any_step(), 1..160),
        budget in prop_oneof![Just(2_u64), Just(1_000)],
    ) {
        let folder_of_agent = TestFolder::new();
        let (folder, rings, adoption) = folder_of_agent.open(None);
        prop_assert_eq!(adoption, Adoption::Nothing);
        let mut open = (folder, Rings { budget, ..rings });
        let mut programs = Programs::of(&folder_of_agent);
        let mut agent = Agent { journal: ReaderState::default(), rows: Vec::new(), lost: 0, ended: HashSet::new() };
        // Some final rounds: everything is stored, and all slots are free.
        let end = [Step::Release(0), Step::Kill(1), Step::Release(2)].into_iter().chain([Step::Round; 6]);
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Claim => programs.claim(),
                Step::Write(slot) => programs.write(slot),
                Step::Release(slot) => programs.release(slot),
                Step::Kill(slot) => agent.ended.extend(programs.kill(slot)),
                Step::Round | Step::KilledBefore | Step::KilledWithin(..) | Step::KilledAfter => {
                    let (positions, events) = agent.collect(&mut open.1);
                    if !matches!(step, Step::KilledBefore) {
                        agent.store_in_journal(&positions, events);
                    }
                    match step {
                        Step::Round | Step::KilledAfter => open.1.commit(&positions),
                        Step::KilledWithin(slots, free) => {
                            let mut part = positions.clone();
                            part.slots.truncate(slots);
                            part.free.truncate(free);
                            part.unclaimed_reported = None;
                            open.1.commit(&part);
                        }
                        _ => {}
                    }
                    if !matches!(step, Step::Round) {
                        drop(open);
                        let (folder, rings, adoption) = folder_of_agent.open(Some(&agent.journal));
                        prop_assert_eq!(adoption, Adoption::Adopted);
                        open = (folder, Rings { budget, ..rings });
                    }
                }
            }
        }
        agent.rows.sort_unstable_by_key(|(_, bytes)| *bytes);
        prop_assert_eq!(&agent.rows, &programs.written);
        prop_assert_eq!(agent.lost, programs.dropped);
        for number in 0..3 {
            prop_assert_eq!(programs.word(number, slot::STATE).load(Ordering::Relaxed), u64::from(state::FREE));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// A program may overwrite anything in the ring while no agent runs: reading terminates and still works.
    #[test]
    fn a_ring_overwritten_by_a_program_is_still_readable(
        damage in prop::collection::vec((0..3_u32, 0..18_usize, any::<u64>()), 1..40),
        counters in any::<[u64; 3]>(),
    ) {
        let folder_of_agent = TestFolder::new();
        let (folder, mut rings, _) = folder_of_agent.open(None);
        let mut journal = ReaderState::default();
        let mut programs = Programs::of(&folder_of_agent);
        programs.claim();
        (0..5).for_each(|_| programs.write(0));
        let positions = rings.collect(&mut |_| {});
        journal.add(&positions);
        rings.commit(&positions);
        drop((folder, rings));
        for (number, word, value) in damage {
            programs.word(number, word * 8).store(value, Ordering::Relaxed);
        }
        programs.memory.word(header::UNCLAIMED).store(counters[0], Ordering::Relaxed);
        programs.memory.word(header::UNCLAIMED_REPORTED).store(counters[1], Ordering::Relaxed);
        programs.memory.half(header::SLOTS_USED).store(counters[2] as u32, Ordering::Relaxed);
        for before in [None, Some(&journal)] {
            let (folder, mut rings, adoption) = folder_of_agent.open(before);
            prop_assert_eq!(adoption, Adoption::Adopted);
            for round in 0..3 {
                let mut events = 0;
                let positions = rings.collect_and_free(&mut |_| round == 1, &mut |_| events += 1);
                prop_assert!(events <= 3 * 9 + 1, "{} events", events);
                rings.commit(&positions);
            }
            drop((folder, rings));
        }
    }
}

#[test]
fn a_reader_without_stored_positions_resumes_at_the_tail_of_the_ring() {
    let folder_of_agent = TestFolder::new();
    let (folder, mut rings, _) = folder_of_agent.open(None);
    let mut programs = Programs::of(&folder_of_agent);
    let mut agent = Agent { journal: ReaderState::default(), rows: Vec::new(), lost: 0, ended: HashSet::new() };
    programs.claim();
    (0..12).for_each(|_| programs.write(0));
    let (positions, events) = agent.collect(&mut rings);
    agent.store_in_journal(&positions, events);
    rings.commit(&positions);
    assert_eq!((agent.rows.len(), agent.lost), (8, 4));
    programs.write(0);
    drop((folder, rings));
    // Without stored positions, with those of another ring, and with older ones than the file's.
    let mut foreign_state = ReaderState::default();
    foreign_state.add(&Positions { ring: 4711, ..positions.clone() });
    let mut older = ReaderState::default();
    older.add(&Positions { slots: Vec::new(), ..positions });
    for before in [None, Some(&foreign_state), Some(&older)] {
        let (folder, mut rings, adoption) = folder_of_agent.open(before);
        let (_, events) = agent.collect(&mut rings);
        assert_eq!(adoption, Adoption::Adopted);
        let [Event { what: EventKind::Sent(run), .. }] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(run.bytes, 8, "no record is read twice, and drops are not reported again");
        drop((folder, rings));
    }
    // The file's position is invalid: the stored one counts.
    programs.word(0, slot::TAIL).store(u64::MAX - 3, Ordering::Relaxed);
    let (_folder, mut rings, _) = folder_of_agent.open(Some(&agent.journal));
    let (_, events) = agent.collect(&mut rings);
    assert_eq!(events.len(), 1);
}

#[test]
fn a_path_split_over_records_is_completed_by_the_next_reader() {
    let part = |number: u8, last: bool, text: &[u8]| {
        let mut bytes = [0; RECORD_BYTES];
        (bytes[0], bytes[1], bytes[4], bytes[8]) = (layout::kind::EXECUTING, if last { 3 } else { 1 }, number, 7);
        bytes[24..24 + text.len()].copy_from_slice(text);
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap());
        }
        words
    };
    let folder_of_agent = TestFolder::new();
    let (folder, mut rings, _) = folder_of_agent.open(None);
    super::super::tests::claim_slot(&rings, 0, 5);
    super::super::tests::write(&rings, 0, part(0, false, b"/a/very/"));
    let mut agent = Agent { journal: ReaderState::default(), rows: Vec::new(), lost: 0, ended: HashSet::new() };
    let (positions, events) = agent.collect(&mut rings);
    assert_eq!(events, []);
    agent.store_in_journal(&positions, events);
    drop((folder, rings));
    let (_folder, mut rings, _) = folder_of_agent.open(Some(&agent.journal));
    super::super::tests::write(&rings, 0, part(1, true, b"long/path"));
    let (_, events) = agent.collect(&mut rings);
    let [Event { what: EventKind::Executing { path, .. }, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(path, "/a/very/long/path");
}

#[test]
fn an_invalid_or_foreign_ring_is_recreated_and_programs_keep_the_old_one() {
    let folder_of_agent = TestFolder::new();
    let (folder, rings, adoption) = folder_of_agent.open(None);
    let (first, ring) = (rings.ring(), folder.ring());
    assert_eq!(adoption, Adoption::Nothing);
    drop((folder, rings));
    let set = |offset: usize, bytes: &[u8]| {
        use std::os::unix::fs::FileExt as _;
        let file = std::fs::File::options().write(true).open(&ring).unwrap();
        file.write_all_at(bytes, offset as u64).unwrap();
    };
    let mut seen = HashSet::from([first]);
    let mut next = |folder_of_agent: &TestFolder, capacity| {
        let old_ring = Programs::of(folder_of_agent);
        let (_folder, rings, adoption) = folder_of_agent.open_with(capacity, None);
        assert_eq!(adoption, Adoption::Replaced);
        assert!(seen.insert(rings.ring()), "each ring has a number of its own");
        assert_eq!(
            old_ring.word(0, slot::HEAD).fetch_add(1, Ordering::Relaxed),
            0,
            "programs that mapped the old ring still write to it"
        );
    };
    set(header::MAGIC, b"ayytap02");
    next(&folder_of_agent, SMALL);
    set(header::BOOT, &[7; 16]);
    next(&folder_of_agent, SMALL);
    set(header::SLOTS, &[255; 4]);
    next(&folder_of_agent, SMALL);
    std::fs::File::options().write(true).open(&ring).unwrap().set_len(5_000).unwrap();
    let (folder, rings, adoption) = folder_of_agent.open_with(SMALL, None);
    assert_eq!(adoption, Adoption::Replaced, "a truncated ring");
    drop((folder, rings));
    next(&folder_of_agent, Capacity { records: 16, ..SMALL });
    let (folder, rings, adoption) = folder_of_agent.open_with(Capacity { records: 16, ..SMALL }, None);
    assert_eq!(adoption, Adoption::Adopted);
    drop((folder, rings));
    // A symbolic link.
    let target_file = folder_of_agent.path.join("aside");
    std::fs::rename(&ring, &target_file).unwrap();
    std::os::unix::fs::symlink(&target_file, &ring).unwrap();
    let before = std::fs::read(&target_file).unwrap();
    let (folder, _rings, adoption) = folder_of_agent.open(None);
    assert_eq!(adoption, Adoption::Nothing);
    assert!(std::fs::symlink_metadata(folder.ring()).unwrap().is_file());
    assert_eq!(std::fs::read(&target_file).unwrap(), before);
}

#[test]
fn full_rings_are_read_in_several_rounds_without_skipping_records() {
    let folder_of_agent = TestFolder::new();
    let (folder, rings, _) = folder_of_agent.open(None);
    let mut rings = Rings { budget: 2, ..rings };
    let origin = rings.ticks.latest();
    // The first thread wrote ten milliseconds of ticks later than the second, one after the other.
    let step = rings.ticks.of(std::time::Duration::from_millis(1));
    for number in [0, 1] {
        super::super::tests::claim_slot(&rings, number, number + 1);
        for record in 0..8 {
            let mut words = sent(record);
            words[4] = origin - step * (40 - record * 2 - u64::from(number == 0) * 10);
            super::super::tests::write(&rings, number, words);
        }
    }
    let before = rings.ticks.now();
    let (mut rounds, mut until, mut all) = (0, Timestamp::ZERO, 0);
    while until < before {
        let mut times = Vec::new();
        let positions = rings.collect(&mut |event| times.push(crate::order::event_time(&event.what)));
        rings.commit(&positions);
        assert!(times.len() <= 4 && times.iter().all(|time| *time >= until), "{times:?}, {until}");
        assert!(rings.read_until() >= until);
        (rounds, until, all) = (rounds + 1, rings.read_until(), all + times.len());
        assert_eq!(rings.is_behind(), until < before);
    }
    assert_eq!((rounds, all), (4, 16));
    drop(folder);
}

#[test]
fn a_commit_with_positions_of_another_ring_changes_nothing() {
    let folder_of_agent = TestFolder::new();
    let (_folder, mut rings, _) = folder_of_agent.open(None);
    let mut programs = Programs::of(&folder_of_agent);
    programs.claim();
    programs.write(0);
    let positions = rings.collect(&mut |_| {});
    rings.commit(&Positions { ring: 1, ..positions.clone() });
    assert_eq!(programs.word(0, slot::TAIL).load(Ordering::Relaxed), 0);
    rings.commit(&positions);
    assert_eq!(programs.word(0, slot::TAIL).load(Ordering::Relaxed), 1);
    assert!(rings.collect(&mut |_| {}).is_empty() || rings.ticks.kind() == layout::clock::TSC);
}

#[test]
fn the_next_reader_converts_old_ticks_to_the_same_times() {
    let folder_of_agent = TestFolder::new();
    let (folder, mut rings, _) = folder_of_agent.open(None);
    let mut journal = ReaderState::default();
    journal.add(&rings.collect(&mut |_| {}));
    let (ticks, time_before) = (rings.ticks.latest(), rings.ticks.at(rings.ticks.latest()));
    drop((folder, rings));
    let (_folder, rings, _) = folder_of_agent.open(Some(&journal));
    let time_after = rings.ticks.at(ticks);
    assert!(
        time_before.since(time_after).max(time_after.since(time_before)) < std::time::Duration::from_millis(1),
        "{time_before} {time_after}"
    );
    // Times are those of the boot.
    assert!(time_before.as_nanos().abs_diff(sys::clock::monotonic_ns()) < 600_000_000_000);
}
