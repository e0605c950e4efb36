//! Months, kills and hostile programs, in simulated time.

use std::time::Duration;

use proptest::prelude::*;
use schema::TapOutcome;

use super::processes::IMAGES_MAX;
use super::*;
use crate::event::{Caveats, Closed, Opened, Origin, Role, Run};
use crate::exchange::tests::random_events::any_event;
use crate::rings::positions_for_test;

fn at(millis: u64) -> Timestamp {
    Timestamp::from_nanos(millis * 1_000_000)
}

/// An event of process `pid` of namespace `space`, reported by `image`.
fn event(image: u32, space: u32, pid: u32, what: EventKind) -> Event {
    Event { origin: Origin { image, pid, tid: pid, space }, what }
}

fn loaded(image: u32, space: u32, pid: u32, program: &str, millis: u64) -> Event {
    event(image, space, pid, EventKind::Loaded { at: at(millis), parent_pid: 1, program: program.into() })
}

fn opened(image: u32, space: u32, pid: u32, connection: u64, millis: u64) -> Event {
    let opened = Opened {
        connection,
        at: at(millis),
        role: Role::Connected,
        local: "192.0.2.1:50000".parse().unwrap(),
        peer: "192.0.2.80:80".parse().unwrap(),
        nonblocking: false,
        inherited: false,
    };
    event(image, space, pid, EventKind::Opened(opened))
}

fn closed(image: u32, space: u32, pid: u32, connection: u64, millis: u64) -> Event {
    let closed = Closed { connection, begin: at(millis), tcp_counts: None, caveats: Caveats::default(), forks: [0, 0] };
    event(image, space, pid, EventKind::Closed(closed))
}

fn sent(image: u32, space: u32, pid: u32, connection: u64, millis: u64) -> Event {
    let time = at(millis);
    let run = Run {
        connection,
        begin: time,
        first: time,
        end: time,
        bytes: 80,
        calls: 1,
        blocked: Duration::ZERO,
        waited: Duration::ZERO,
        ended: false,
        error: 0,
    };
    event(image, space, pid, EventKind::Sent(run))
}

fn entry(millis: u64, events: Vec<Event>) -> Entry {
    Entry { events, settle_until: Some(at(millis)), ..Entry::default() }
}

fn apply(state: &mut DaemonState, entry: &Entry) -> Vec<TapExchange> {
    let mut rows = Vec::new();
    state.apply(entry, &mut rows);
    rows
}

fn restored(state: &DaemonState) -> DaemonState {
    let bytes = postcard::to_stdvec(state).unwrap();
    let back: DaemonState = postcard::from_bytes(&bytes).unwrap();
    assert_eq!(&back, state);
    back
}

/// Any event, including those that only a daemon receives.
fn any_daemon_event() -> impl Strategy<Value = Event> {
    let other = (1u32..6, 0u32..3, 1u32..4, 0u8..6, 0u64..1_000_000).prop_map(|(image, space, pid, kind, ns)| {
        let at = Timestamp::from_nanos(ns);
        let what = match kind {
            0 => EventKind::Loaded { at, parent_pid: 1, program: format!("p{}", ns % 3) },
            1 => EventKind::Filtered { at, parent_pid: 1, program: "filtered".into() },
            2 => EventKind::Executing { at, pid, path: "/bin/x".into(), preloaded: true },
            3 => EventKind::Lost { records: ns },
            4 => EventKind::Aside { at, datagram_sockets: 1, uring_setups: (ns % 2) as u32, unfollowed: 0 },
            _ => EventKind::Resolved { begin: at, end: at, name: "n".into(), error: (ns % 2) as i32 },
        };
        event(image, space, pid, what)
    });
    prop_oneof![4 => any_event(), 1 => other]
}

fn any_entry() -> impl Strategy<Value = Entry> {
    let events = prop::collection::vec(any_daemon_event(), 0..12);
    let rare = (0u8..40, 1u64..3, prop::collection::vec(1u32..6, 0..2), any::<u32>());
    (events, rare, any::<bool>()).prop_map(|(events, (kind, ring, ended_images, number), settles)| {
        let owner = Owner { space: number % 3, pid: number % 4 };
        let why = (number % 2 == 0).then(|| "linked statically".to_owned());
        Entry {
            positions: positions_for_test(if kind < 3 { ring } else { 0 }),
            events,
            settle_until: settles.then_some(Timestamp::ZERO),
            ended_images: if kind > 30 { ended_images } else { Vec::new() },
            unreported: (kind == 4)
                .then(|| UnreportedProgram { owner, program: "x".into(), why })
                .into_iter()
                .collect(),
            partial: (kind == 5).then(|| ("p1".to_owned(), "Go".to_owned())).into_iter().collect(),
            unfollowed: (kind == 6).then_some(number),
            only: (kind == 7).then(|| if number.is_multiple_of(2) { Vec::new() } else { vec!["81".parse().unwrap()] }),
            end: kind == 8,
        }
    })
}

/// The rows of an entry as sorted text: their order is not defined.
fn sorted(mut rows: Vec<TapExchange>) -> Vec<String> {
    let mut text: Vec<String> = rows.drain(..).map(|row| format!("{row:?}")).collect();
    text.sort();
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_state_restored_after_any_entry_continues_identically(
        entries in prop::collection::vec(any_entry(), 1..40),
        snapshot in 0usize..40,
        query_after in prop::collection::vec(any::<bool>(), 40),
    ) {
        // 0.4 s apart, so that lingering connections end.
        let entries: Vec<Entry> = entries.into_iter().enumerate().map(|(number, mut entry)| {
            entry.settle_until = entry.settle_until.map(|_| at(1 + 400 * number as u64));
            let bytes = postcard::to_stdvec(&entry).unwrap();
            let back: Entry = postcard::from_bytes(&bytes).unwrap();
            assert_eq!(back, entry);
            entry
        }).collect();
        let step = |state: &mut DaemonState, number: usize| {
            let rows = sorted(apply(state, &entries[number]));
            let query_result = query_after[number].then(|| (state.take_programs(), state.take_lost()));
            (rows, query_result, state.gauges())
        };
        let mut uninterrupted = DaemonState::new(Vec::new());
        let straight: Vec<_> = (0..entries.len()).map(|number| step(&mut uninterrupted, number)).collect();
        let mut restarted = DaemonState::new(Vec::new());
        for (number, expected) in straight.iter().enumerate() {
            if number == snapshot {
                restarted = restored(&restarted);
            }
            let out = step(&mut restarted, number);
            prop_assert_eq!(&out, expected);
        }
        prop_assert_eq!(&restarted, &uninterrupted);
        prop_assert_eq!(uninterrupted.gauges().processes, uninterrupted.images().count() as u64);
    }
}

#[test]
fn the_same_pid_in_two_containers_is_two_processes() {
    let mut state = DaemonState::new(Vec::new());
    let events =
        vec![loaded(1, 4, 1, "one", 0), opened(1, 4, 1, 11, 1), loaded(2, 5, 1, "two", 2), opened(2, 5, 1, 12, 3)];
    assert_eq!(apply(&mut state, &entry(10, events)), []);
    assert_eq!((state.gauges().processes, state.gauges().open), (2, 2));
    let end_entry = Entry { ended_images: vec![1], ..entry(20, vec![sent(2, 5, 1, 12, 15)]) };
    let rows = apply(&mut state, &end_entry);
    assert_eq!((rows.len(), rows[0].program.as_deref(), rows[0].last), (1, Some("one"), true));
    assert_eq!(state.gauges(), Gauges { processes: 1, open: 1, in_flight: 1 });
    assert_eq!((state.latest(Owner { space: 4, pid: 1 }), state.latest(Owner { space: 5, pid: 1 })), (None, Some(2)));
}

#[test]
fn exec_ends_the_first_program_of_a_process() {
    let mut state = DaemonState::new(Vec::new());
    let owner = Owner { space: 4, pid: 7 };
    let events = vec![loaded(1, 4, 7, "sh", 0), opened(1, 4, 7, 9, 1), loaded(2, 4, 7, "exec", 5)];
    let rows = apply(&mut state, &entry(9, events));
    assert_eq!((rows.len(), state.latest(owner)), (0, Some(2)), "the second image may still have the connection");
    // Late events of the first image do not match the second.
    apply(&mut state, &entry(10, vec![sent(1, 4, 7, 9, 4)]));
    assert_eq!(state.latest(owner), Some(2));
    let rows = apply(&mut state, &Entry { ended_images: vec![1], ..entry(11, Vec::new()) });
    assert_eq!((rows.len(), state.latest(owner), state.gauges().processes), (1, Some(2), 1));
    // An image that could not read its namespace, while only one process is possible.
    let rows = apply(&mut state, &entry(20, vec![opened(2, 4, 7, 10, 12), loaded(3, 0, 7, "chroot", 15)]));
    assert_eq!((rows.len(), state.gauges().processes), (0, 1));
    apply(&mut state, &entry(30, vec![loaded(4, 5, 7, "a", 25), loaded(5, 6, 7, "b", 26), loaded(6, 0, 8, "c", 27)]));
    assert_eq!(
        state.gauges().processes,
        4,
        "an image of an unknown namespace replaces no process if several are possible"
    );
    let rows = apply(&mut state, &entry(1_200, Vec::new()));
    assert_eq!(
        (rows.len(), rows[0].closed_at),
        (1, Some(at(15))),
        "no image claimed the connection, so it ended with the exec"
    );
}

#[test]
fn the_last_records_of_an_ended_process_count_even_if_dated_late() {
    let mut state = DaemonState::new(Vec::new());
    apply(&mut state, &entry(10, vec![loaded(1, 4, 7, "late", 0), opened(1, 4, 7, 9, 1)]));
    let end_entry = Entry { ended_images: vec![1], ..entry(20, vec![closed(1, 4, 7, 9, 21)]) };
    let rows = apply(&mut state, &end_entry);
    assert_eq!((rows.len(), rows[0].closed_at, state.gauges()), (1, Some(at(21)), Gauges::default()));
    assert!(!state.waits());
}

#[test]
fn a_new_ring_or_boot_cuts_open_connections() {
    let of = |ring, millis, events| Entry { positions: positions_for_test(ring), ..entry(millis, events) };
    let mut state = DaemonState::new(Vec::new());
    let open = || vec![loaded(1, 4, 7, "p", 0), opened(1, 4, 7, 9, 1), sent(1, 4, 7, 9, 90_000)];
    assert_eq!(apply(&mut state, &of(1, 90_001, open())), []);
    // After a boot, times and image numbers start again.
    let rows = apply(&mut state, &of(2, 50, vec![loaded(1, 4, 7, "other", 10)]));
    assert_eq!((rows.len(), rows[0].outcome, rows[0].closed_at), (1, TapOutcome::Cut, None));
    assert_eq!((state.gauges().processes, state.program(1)), (1, "other"));
    assert_eq!(state.reader().ring(), 2);
    let rows = apply(&mut state, &of(2, 60, vec![opened(1, 4, 7, 9, 55)]));
    assert_eq!(rows, []);
    let rows = apply(&mut state, &Entry::end());
    assert_eq!((rows.len(), rows[0].connection, state.gauges()), (1, Some(1), Gauges::default()));
    assert_eq!(apply(&mut state, &Entry::end()), []);
}

#[test]
fn the_connection_filter_can_be_changed_while_running() {
    let mut state = DaemonState::new(vec!["81".parse().unwrap()]);
    apply(&mut state, &entry(5, vec![loaded(1, 4, 7, "p", 0), opened(1, 4, 7, 1, 1)]));
    assert_eq!(state.gauges().open, 0);
    apply(&mut state, &Entry::only(vec!["80".parse().unwrap()]));
    assert_eq!((state.only().len(), restored(&state).only().len()), (1, 1));
    apply(&mut state, &entry(10, vec![opened(1, 4, 7, 2, 6)]));
    apply(&mut state, &Entry::only(vec!["81".parse().unwrap()]));
    assert_eq!(state.gauges().open, 1, "known connections are still followed");
}

#[test]
fn only_changed_programs_are_reported() {
    let mut state = DaemonState::new(Vec::new());
    let executing = EventKind::Executing { at: at(1), pid: 8, path: "/opt/static".into(), preloaded: true };
    let events =
        vec![loaded(1, 4, 7, "sh", 0), event(1, 4, 7, executing), opened(1, 4, 7, 9, 2), closed(1, 4, 7, 9, 3)];
    apply(&mut state, &entry(10, events));
    let changes = state.take_programs();
    let sh = Change { name: "sh".into(), seen: 1, connections: 1, ..Change::default() };
    assert_eq!(changes, std::slice::from_ref(&sh));
    assert_eq!(state.take_programs(), []);
    assert_eq!(state.overdue(at(1)), []);
    let [late] = state.overdue(at(2)).try_into().unwrap();
    assert_eq!((late.owner, late.path.as_str(), late.preloaded), (Owner { space: 4, pid: 8 }, "/opt/static", true));
    let seen = |why: Option<&str>| UnreportedProgram {
        owner: late.owner,
        program: "static".into(),
        why: why.map(str::to_owned),
    };
    let unreported_entry = Entry { unreported: vec![seen(Some("linked statically"))], ..entry(20, Vec::new()) };
    apply(&mut state, &unreported_entry);
    // Each unreported program is counted once.
    apply(&mut state, &unreported_entry);
    let unseen = Change { name: "static".into(), unseen: 1, why: "linked statically".into(), ..Change::default() };
    assert_eq!((state.take_programs(), state.overdue(at(90))), (vec![unseen], vec![]));
    apply(&mut state, &Entry { partial: vec![("sh".into(), "Go".into())], ..Entry::default() });
    assert_eq!(state.take_programs(), [Change { name: "sh".into(), why: "Go".into(), ..Change::default() }]);
}

#[test]
fn losses_are_reported_once() {
    let mut state = DaemonState::new(Vec::new());
    let unfollowed = |number| Entry { unfollowed: Some(number), ..Entry::default() };
    apply(&mut state, &entry(10, vec![loaded(1, 4, 7, "p", 0), event(1, 4, 7, EventKind::Lost { records: 5 })]));
    apply(&mut state, &unfollowed(3));
    assert_eq!(state.take_lost(), Lost { records: 5, connections_left_out: 3 });
    let mut state = restored(&state);
    apply(&mut state, &unfollowed(4));
    apply(&mut state, &unfollowed(4));
    assert_eq!(state.take_lost(), Lost { records: 0, connections_left_out: 1 });
    // The counter of another ring starts at zero.
    apply(&mut state, &Entry { positions: positions_for_test(2), unfollowed: Some(2), ..Entry::default() });
    assert_eq!(state.take_lost(), Lost { records: 0, connections_left_out: 2 });
    assert_eq!(state.take_lost(), Lost::default());
}

#[test]
fn a_silent_connection_is_dropped_only_after_a_loss_of_records() {
    let minutes = |minutes: u64| minutes * 60_000;
    let mut state = DaemonState::new(Vec::new());
    let events = vec![
        loaded(1, 4, 7, "loses", 0),
        opened(1, 4, 7, 1, 1),
        opened(1, 4, 7, 2, 1),
        loaded(2, 4, 8, "quiet", 0),
        opened(2, 4, 8, 3, 1),
    ];
    apply(&mut state, &entry(10, events));
    apply(&mut state, &entry(minutes(1), vec![event(1, 4, 7, EventKind::Lost { records: 1 })]));
    // The second connection has an event after the loss: it is open.
    apply(&mut state, &entry(minutes(2), vec![sent(1, 4, 7, 2, minutes(2))]));
    assert_eq!(apply(&mut state, &entry(minutes(55), Vec::new())), []);
    let rows = apply(&mut state, &entry(minutes(75), Vec::new()));
    assert_eq!((rows.len(), rows[0].connection, state.gauges().open), (1, Some(0), 2));
    assert_eq!(apply(&mut state, &entry(minutes(60 * 24 * 30), Vec::new())), []);
    // Records of threads without a ring may belong to any connection.
    let unattributed_loss = event(0, 0, 0, EventKind::Lost { records: 1 });
    apply(&mut state, &entry(minutes(60 * 24 * 30) + 1, vec![unattributed_loss]));
    let rows = apply(&mut state, &entry(minutes(60 * 24 * 31), Vec::new()));
    assert_eq!((rows.len(), state.gauges().open, state.gauges().processes), (2, 0, 2));
}

#[test]
fn state_size_stays_bounded_over_thousands_of_ended_programs() {
    let mut state = DaemonState::new(Vec::new());
    let mut sizes = Vec::new();
    let mut connections = 0;
    for image in 1..=6_000u32 {
        let (now, pid) = (u64::from(image) * 1_000, image % 5_000 + 2);
        // Each process is another program, and starts a program that never reports.
        let executing =
            EventKind::Executing { at: at(now), pid: pid + 9_000, path: "/bin/gone".into(), preloaded: true };
        let events = vec![
            loaded(image, 4, pid, &format!("p{image}"), now),
            event(image, 4, pid, executing),
            event(image, 4, pid, EventKind::Resolved { begin: at(now), end: at(now), name: "n".into(), error: 0 }),
            opened(image, 4, pid, u64::from(image) * 2, now),
            closed(image, 4, pid, u64::from(image) * 2, now + 1),
            opened(image, 4, pid, u64::from(image) * 2 + 1, now + 2),
        ];
        let mut next = entry(now + 10, events);
        next.unreported = state
            .overdue(at(now))
            .into_iter()
            .map(|late| UnreportedProgram { owner: late.owner, program: "gone".into(), why: None })
            .collect();
        next.ended_images = if image > 3 { vec![image - 3] } else { Vec::new() };
        let mut rows = Vec::new();
        state.apply(&next, &mut rows);
        connections += rows.iter().filter(|row| row.last).count();
        assert!(state.take_programs().len() <= ProgramTable::PROGRAMS_MAX);
        state.take_lost();
        if image % 2_000 == 0 {
            sizes.push(postcard::to_stdvec(&state).unwrap().len());
        }
    }
    assert_eq!(connections, 2 * 6_000 - 3);
    assert_eq!((state.gauges().processes, state.gauges().open), (3, 3));
    // The latest 500 programs with their counts, and hardly anything else.
    assert!(sizes.iter().all(|size| *size < 40_000), "{sizes:?}");
    assert!(sizes[2] < sizes[1] + 2_000, "{sizes:?}");
}

#[test]
fn forged_images_are_limited_in_memory() {
    let mut state = DaemonState::new(Vec::new());
    let forged = IMAGES_MAX as u32 + 500;
    let events = (1..=forged).map(|image| sent(image, 4, image, 1, 1)).collect();
    apply(&mut state, &entry(10, events));
    assert_eq!((state.gauges().processes, state.take_lost().records), (IMAGES_MAX as u64, 500));
}
