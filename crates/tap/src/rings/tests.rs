use std::net::SocketAddr;
use std::os::unix::fs::FileExt as _;

use super::layout::RECORD_BYTES;
use super::*;
use crate::event::{Event, EventKind, Role};
use proptest::prelude::*;
use tempfile::TempDir;

const SMALL: Capacity = Capacity { records: 8, slots: 3, small_slots: 0, ready: 2 };

fn small() -> (TempDir, Folder, Rings) {
    with(SMALL)
}

fn with(capacity: Capacity) -> (TempDir, Folder, Rings) {
    let parent = tempfile::tempdir().unwrap();
    let folder = Folder::create(Some(parent.path())).unwrap();
    let rings = Rings::create(&folder, Clock::start(), capacity).unwrap();
    (parent, folder, rings)
}

/// The tap user's file.
pub(super) fn memory(rings: &Rings) -> &Shared {
    &rings.ring_files[&FIRST].memory
}

/// The Rust equivalent of a writing thread: claims `slot`, writes.
pub(super) fn claim_slot(rings: &Rings, slot: u32, pid: u32) {
    memory(rings).half(header::SLOTS_USED).fetch_max(slot + 1, Ordering::AcqRel);
    rings.state(slot).store(u64::from(pid) << 32 | u64::from(state::OWNED), Ordering::Release);
    memory(rings).half(slot_at(slot) + slot::IMAGE).store(pid, Ordering::Relaxed);
}

pub(super) fn write(rings: &Rings, slot: u32, words: [u64; 8]) {
    let head = memory(rings).word(slot_at(slot) + slot::HEAD).load(Ordering::Relaxed);
    let at = head % u64::from(rings.shape.records(slot));
    let offset = (rings.shape.at(slot) + at * RECORD_BYTES as u64) as usize;
    for (index, word) in words.into_iter().enumerate() {
        memory(rings).word(offset + index * 8).store(word, Ordering::Relaxed);
    }
    memory(rings).word(slot_at(slot) + slot::HEAD).store(head + 1, Ordering::Release);
}

fn drain(rings: &mut Rings) -> Vec<Event> {
    let mut events = Vec::new();
    let count = rings.drain(&mut |event| events.push(event));
    assert_eq!(count, events.len());
    events
}

pub(super) fn sent(bytes: u64) -> [u64; 8] {
    [u64::from(layout::kind::SENT) | 3 << 32, 77, 0, 0, 0, bytes, 0, 0]
}

#[test]
fn a_ring_is_read_in_order_and_wraps_around() {
    let (_parent, _folder, mut rings) = small();
    claim_slot(&rings, 1, 42);
    for round in 0..5 {
        for at in 0..7 {
            write(&rings, 1, sent(round * 10 + at));
        }
        let bytes: Vec<_> = drain(&mut rings)
            .into_iter()
            .map(|event| match event {
                Event { origin: Origin { image: 42, pid: 42, .. }, what: EventKind::Sent(run) } => {
                    (run.bytes, run.calls)
                }
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(bytes, (0..7).map(|at| (round * 10 + at, 3)).collect::<Vec<_>>());
    }
}

#[test]
fn slots_of_ended_threads_become_free() {
    let (_parent, _folder, mut rings) = small();
    claim_slot(&rings, 0, 1);
    claim_slot(&rings, 1, 2);
    assert_eq!(drain(&mut rings), []);
    write(&rings, 0, sent(1));
    write(&rings, 1, sent(2));
    rings.state(0).store(1 << 32 | u64::from(state::RELEASED), Ordering::Release);
    let mut events = Vec::new();
    rings.reclaim(&mut |origin| origin.pid != 2, &mut |event| events.push(event));
    assert_eq!(events.len(), 1, "the records of an ended thread are read before its slot is freed");
    assert_eq!(rings.state(1).load(Ordering::Relaxed), u64::from(state::FREE));
    assert_eq!(drain(&mut rings).len(), 1);
    assert_eq!(rings.state(0).load(Ordering::Relaxed), u64::from(state::FREE));
    assert_eq!(rings.owners(), []);
}

#[test]
fn ring_memory_is_reserved_ahead_of_the_writer() {
    let (_parent, folder, mut rings) = with(Capacity { records: 4096, slots: 1, small_slots: 2, ready: 0 });
    let reserved_records =
        |rings: &Rings, slot| memory(rings).word(slot_at(slot) + slot::RESERVED).load(Ordering::Relaxed);
    let blocks = || std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(folder.ring()).unwrap());
    let before = blocks();
    for slot in [0, 2] {
        assert_eq!(reserved_records(&rings, slot), 256);
        claim_slot(&rings, slot, 7);
        let mut written = 0;
        for expected in [256, 512, 1024, 2048, 4096, 4096] {
            let expected = expected.min(u64::from(rings.shape.records(slot)));
            assert_eq!(reserved_records(&rings, slot), expected, "slot {slot} after {written}");
            // Up to the reserved memory, and not to the end of the ring.
            let until = expected.min(written + 1000);
            (written..until).for_each(|at| write(&rings, slot, sent(at)));
            assert_eq!(drain(&mut rings).len() as u64, until.saturating_sub(written));
            written = written.max(until);
        }
    }
    assert!(blocks() > before);
    assert_eq!(rings.shape.records(2), 1024);
    assert_eq!(rings.shape.file_bytes(), rings.shape.records_at() + (4096 + 2 * 1024) * 64);
}

#[test]
fn a_record_dated_in_the_future_is_discarded() {
    let (_parent, _folder, mut rings) = small();
    claim_slot(&rings, 0, 9);
    let latest = rings.ticks.latest();
    let mut late = sent(1);
    late[4] = latest * 2;
    write(&rings, 0, late);
    write(&rings, 0, sent(2));
    let events = drain(&mut rings);
    assert!(matches!(events[0].what, EventKind::Sent(run) if run.bytes == 2), "{events:?}");
    assert_eq!((events[1].what.clone(), events.len()), (EventKind::Lost { records: 1 }, 2));
    assert_eq!(rings.invalid_records(), 1);
}

#[test]
fn a_truncated_ring_file_ends_the_tap_of_its_user_and_not_the_reader() {
    let cut =
        |folder: &Folder, bytes| OpenOptions::new().write(true).open(folder.ring()).unwrap().set_len(bytes).unwrap();
    for bytes in [0, 4096] {
        let (_parent, folder, mut rings) = small();
        claim_slot(&rings, 0, 9);
        write(&rings, 0, sent(1));
        assert_eq!(drain(&mut rings).len(), 1);
        cut(&folder, bytes);
        assert_eq!(drain(&mut rings), []);
        assert!(rings.is_truncated());
        assert_eq!(rings.take_users_of_truncated_files(), [geteuid().as_raw()]);
        assert_eq!(rings.reclaim(&mut |_| false, &mut |_| {}), 0);
    }
    // Between the check of the file and the read.
    let (_parent, folder, rings) = small();
    claim_slot(&rings, 0, 9);
    write(&rings, 0, sent(5));
    cut(&folder, 0);
    assert_eq!(rings.record(0, 0).0, [0; 8]);
    assert!(memory(&rings).is_truncated());
    // The next mapping at the same address is not affected.
    drop(rings);
    let (_parent, _folder, mut rings) = small();
    assert_eq!(drain(&mut rings), []);
    assert!(!rings.is_truncated());
}

#[test]
fn overwritten_header_constants_are_restored() {
    let (_parent, _folder, mut rings) = small();
    claim_slot(&rings, 0, 9);
    write(&rings, 0, sent(1));
    assert_eq!((drain(&mut rings).len(), rings.headers_restored()), (1, 0));
    for at in (0..112).step_by(4).filter(|at| ![28, 40, 44, 60, 68, 96, 100, 108].contains(at)) {
        let before = memory(&rings).half(at).load(Ordering::Relaxed);
        memory(&rings).half(at).store(!before, Ordering::Relaxed);
        let headers_restored = rings.headers_restored();
        drain(&mut rings);
        assert_eq!(rings.headers_restored(), headers_restored + 1, "offset {at}");
        if at != header::SLOTS_USED {
            assert_eq!(memory(&rings).half(at).load(Ordering::Relaxed), before, "offset {at}");
        }
    }
    write(&rings, 0, sent(2));
    assert_eq!(drain(&mut rings).len(), 1);
    // Used slots are read even if the header's count is wrong.
    memory(&rings).half(header::SLOTS_USED).store(0, Ordering::Relaxed);
    write(&rings, 0, sent(3));
    assert_eq!(drain(&mut rings).len(), 1);
}

#[test]
fn records_about_images_of_other_users_are_discarded() {
    let (_parent, folder, mut rings) = small();
    let set = rings.set();
    let ring_file = ring_server::create(folder.path(), &set, 3, geteuid().as_raw() + 1);
    if !geteuid().is_root() {
        assert!(ring_file.is_err(), "only root can create a file of another user");
        return;
    }
    rings.ring_files.insert(3, ring_file.unwrap());
    let slot = |rings: &Rings, image: u32, words: [u64; 8]| {
        let other = &rings.ring_files[&3].memory;
        other.half(slot_at(0) + slot::IMAGE).store(image, Ordering::Relaxed);
        let at = other.word(slot_at(0) + slot::HEAD).load(Ordering::Relaxed);
        for (index, word) in words.into_iter().enumerate() {
            other.word(rings.shape.at(0) as usize + at as usize * 64 + index * 8).store(word, Ordering::Relaxed);
        }
        other.word(slot_at(0) + slot::HEAD).fetch_add(1, Ordering::Relaxed);
    };
    rings.ring_files[&3].memory.half(header::SLOTS_USED).store(1, Ordering::Relaxed);
    rings.ring_files[&3].memory.word(slot_at(0)).store(7 << 32 | u64::from(state::OWNED), Ordering::Relaxed);
    slot(&rings, 1, sent(5));
    let received: Vec<EventKind> = drain(&mut rings).into_iter().map(|event| event.what).collect();
    assert_eq!(received, [EventKind::Lost { records: 1 }], "a record with an image of another user is counted as lost");
    slot(&rings, 3 << 24 | 1, sent(5));
    let mut forked = [0; 8];
    forked[0] = u64::from(layout::kind::FORKED);
    forked[4] = 77;
    slot(&rings, 3 << 24 | 1, forked);
    let events = drain(&mut rings);
    assert_eq!((events[0].origin.image, rings.user_of(3 << 24 | 1)), (3 << 24 | 1, Some(geteuid().as_raw() + 1)));
    assert!(
        matches!(events[0].what, EventKind::Sent(run) if run.connection == 77),
        "in a run, connection numbers are not separated by user"
    );
    assert!(
        matches!(events[1].what, EventKind::Forked { parent_image: 0, .. }),
        "a parent in another user's ring is dropped"
    );
    rings.separate_users = true;
    slot(&rings, 3 << 24 | 1, sent(5));
    let events = drain(&mut rings);
    assert!(matches!(events[0].what, EventKind::Sent(run) if run.connection == 77 | 3 << 48), "{events:?}");
}

#[test]
fn dropped_records_are_reported_once() {
    let (_parent, _folder, mut rings) = small();
    claim_slot(&rings, 0, 9);
    memory(&rings).word(slot_at(0) + slot::DROPPED).store(5, Ordering::Relaxed);
    memory(&rings).word(header::UNCLAIMED).store(3, Ordering::Relaxed);
    let lost = |events: Vec<Event>| -> Vec<_> {
        events
            .into_iter()
            .map(|event| match event.what {
                EventKind::Lost { records } => (event.origin.image, records),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    assert_eq!(lost(drain(&mut rings)), [(9, 5), (0, 3)]);
    assert_eq!(drain(&mut rings), []);
    // Invalid counters: emptied and counted.
    memory(&rings).word(slot_at(0) + slot::HEAD).store(u64::MAX, Ordering::Relaxed);
    assert_eq!(lost(drain(&mut rings)), [(9, 8)]);
    assert_eq!(drain(&mut rings), []);
    // Impossible counts: no sum overflows.
    memory(&rings).word(slot_at(0) + slot::HEAD).store(u64::MAX / 2, Ordering::Relaxed);
    memory(&rings).word(slot_at(0) + slot::DROPPED).store(u64::MAX, Ordering::Relaxed);
    memory(&rings).word(header::UNCLAIMED).store(u64::MAX, Ordering::Relaxed);
    assert_eq!(lost(drain(&mut rings)), [(9, 8 + (1 << 32)), (0, 1 << 32)]);
    let folder = tempfile::tempdir().unwrap();
    let other = ring_server::create(folder.path(), &rings.set(), 1, geteuid().as_raw()).unwrap();
    other.memory.word(header::UNCLAIMED).store(u64::MAX, Ordering::Relaxed);
    rings.ring_files.insert(1, other);
    assert_eq!(lost(drain(&mut rings)), [(1 << 24, 1 << 32)]);
    assert_eq!(rings.unclaimed_reported(), u64::MAX);
}

#[test]
fn addresses_paths_and_names_are_decoded() {
    let (_parent, _folder, mut rings) = small();
    claim_slot(&rings, 0, 9);
    let mut bytes = [0; 64];
    bytes[0] = layout::kind::OPENED;
    bytes[1] = 1 | 4;
    bytes[34..40].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    bytes[40..56].copy_from_slice(&"2001:2::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
    bytes[56..60].copy_from_slice(&[80, 0, 0x90, 0x1f]);
    let words = |bytes: [u8; 64]| {
        let mut words = [0; 8];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = u64::from_ne_bytes(bytes.try_into().unwrap());
        }
        words
    };
    write(&rings, 0, words(bytes));
    let path = format!("/{}", "long/".repeat(18));
    for (number, part) in path.as_bytes().chunks(40).enumerate() {
        let mut bytes = [0; 64];
        bytes[0] = layout::kind::EXECUTING;
        bytes[1] = if number == 2 { 3 } else { 1 };
        bytes[4] = number as u8;
        bytes[8] = 7;
        bytes[24..24 + part.len()].copy_from_slice(part);
        write(&rings, 0, words(bytes));
    }
    let events = drain(&mut rings);
    let EventKind::Opened(opened) = &events[0].what else { panic!("{events:?}") };
    assert_eq!(opened.local, "127.0.0.1:80".parse::<SocketAddr>().unwrap());
    assert_eq!(opened.peer, "[2001:2::1]:8080".parse::<SocketAddr>().unwrap());
    assert_eq!((opened.role, opened.nonblocking), (Role::Accepted, true));
    let EventKind::Executing { pid, path: read, preloaded, .. } = &events[1].what else { panic!("{events:?}") };
    assert_eq!((*pid, read, *preloaded), (7, &path, true));
    assert_eq!(events.len(), 2);
}

#[test]
fn disk_space_is_reserved_for_the_writable_part_of_a_ring() {
    let (_parent, folder, rings) = small();
    let file = File::open(folder.ring()).unwrap();
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).unwrap();
    assert_eq!(u64::from_le_bytes(magic), layout::MAGIC);
    let blocks = std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    assert!(blocks * 512 >= rings.shape.records_at() + 2 * 8 * 64);
    assert_eq!(rings.images(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// With any contents of the file, reading terminates, and events are in order.
    #[test]
    fn random_bytes_in_a_ring_do_no_harm(
        words in prop::collection::vec(any::<[u64; 8]>(), 1..16),
        kinds in prop::collection::vec(0..20_u64, 16),
        state in any::<u64>(),
        head in any::<u64>(),
    ) {
        let (_parent, _folder, mut rings) = small();
        for (words, kind) in words.iter().zip(kinds) {
            let mut words = *words;
            words[0] = words[0] & !0xff | kind;
            // Possible times: others count as invalid.
            if kind % 2 == 0 {
                words[2..5].iter_mut().for_each(|word| *word >>= 24);
            }
            write(&rings, 0, words);
            write(&rings, 1, words);
            let mut events = Vec::new();
            rings.drain(&mut |event| events.push(event));
            for event in events {
                if let EventKind::Sent(run) | EventKind::Received(run) = event.what {
                    prop_assert!(run.begin <= run.first && run.first <= run.end);
                    prop_assert!(run.blocked.checked_add(run.waited).is_some());
                    prop_assert!(run.end >= Timestamp::ZERO);
                }
            }
        }
        rings.state(0).store(state, Ordering::Relaxed);
        memory(&rings).word(slot_at(1) + slot::HEAD).store(head, Ordering::Relaxed);
        drain(&mut rings);
        rings.reclaim(&mut |_| false, &mut |_| {});
        drain(&mut rings);
    }
}
