use std::collections::BTreeMap;
use std::sync::Arc;

use broker::{Kind, Message, Position, Subject};
use flate2::Compression;
use flate2::read::GzEncoder;
use std::io::Read as _;

use super::{read_position, store_messages};
use crate::data::{CrashPoint, Data};
use crate::testing::{NOW_NS, SECOND_NS, ZERO_NS, all, batch, data, found, number, stream};
use tap_protocol::{Batch, Hello, RefusalReason, SpoolUsage, log};

const DAYS_NS: u64 = 2 * 86_400 * SECOND_NS;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    GzEncoder::new(text, Compression::fast()).read_to_end(&mut packed).unwrap();
    packed
}

fn subject(kind: Kind, name: &str, digit: char) -> Subject {
    Subject { kind, name: name.to_owned(), id: stream(digit) }
}

fn message_of(subject: Subject, batch: &Batch, before: u64) -> Message {
    let numbers = [
        (log::SEQUENCE, batch.sequence),
        (log::ROWS_BEFORE, before),
        (log::ROWS_AFTER, before + batch.rows.len() as u64),
    ];
    let headers = numbers.iter().map(|(name, number)| ((*name).to_owned(), number.to_string())).collect();
    Message::new(subject, NOW_NS, headers, gzip(&serde_json::to_vec(batch).unwrap()).into())
}

/// Batch n of an agent has n % 4 rows.
fn numbered(sequence: u64) -> (Batch, u64) {
    let rows = |sequence: u64| sequence % 4;
    let ends: Vec<u64> = (0..rows(sequence)).map(|row| DAYS_NS - (20 - row) * SECOND_NS).collect();
    (batch(&stream('a'), sequence, &ends), (1..sequence).map(rows).sum())
}

fn message(sequence: u64) -> Message {
    let (batch, before) = numbered(sequence);
    message_of(subject(Kind::Tap, "a", 'a'), &batch, before)
}

fn at(through: u64) -> Position {
    Position { stream: "1".into(), through }
}

#[test]
fn batches_of_a_stream_are_stored_once_with_the_position() {
    let (_folder, data) = data();
    assert_eq!(read_position(&data).unwrap(), Position::default());
    let report = store_messages(&data, &[message(1), message(2), message(2)], &at(7), NOW_NS).unwrap();
    assert_eq!((report.rows, report.repeated, report.missed.len(), report.refused.len()), (3, 1, 0, 0));
    let report = store_messages(&data, &[message(1), message(3)], &at(8), NOW_NS).unwrap();
    assert_eq!((report.rows, report.repeated, report.missed.len()), (3, 1, 0));
    assert_eq!(read_position(&data).unwrap(), at(8));
    assert!(found(&data).len() == 6 && found(&data).values().all(|count| *count == 1));
}

#[test]
fn a_gap_is_counted_in_batches_and_rows_and_what_follows_is_stored() {
    let (_folder, data) = data();
    // The stream had discarded the first two batches, with three rows, before this manager read it.
    let report = store_messages(&data, &[message(3), message(7)], &at(1), NOW_NS).unwrap();
    let missed: Vec<_> =
        report.missed.iter().map(|(agent, missed)| (agent.as_str(), missed.batches, missed.rows)).collect();
    assert_eq!(missed, [("a", 2, Some(3)), ("a", 3, Some(3))]);
    let sums = "SELECT batches_missed * 100 + rows_missed FROM agents WHERE name = 'a'";
    assert_eq!((report.rows, number(&data, sums)), (6, 506));
    // A batch that comes too late is not stored: its rows are counted as missed.
    let report = store_messages(&data, &[message(5)], &at(2), NOW_NS).unwrap();
    assert_eq!((report.rows, report.repeated), (0, 1));
}

#[test]
fn a_manager_killed_before_or_after_the_transaction_has_each_row_once() {
    let messages: Vec<Message> = (1..=9).map(message).collect();
    for point in [CrashPoint::BatchesWritten, CrashPoint::BatchesCommitted] {
        let (folder, first) = data();
        store_messages(&first, &messages[..4], &at(4), NOW_NS).unwrap();
        first.crash_points.set(point);
        assert!(store_messages(&first, &messages[4..6], &at(6), NOW_NS).is_err());
        drop(first);
        let second = Data::open(folder.path()).unwrap();
        let through = read_position(&second).unwrap().through;
        assert_eq!(through, if point == CrashPoint::BatchesWritten { 4 } else { 6 });
        let rest = &messages[usize::try_from(through).unwrap()..];
        let report = store_messages(&second, rest, &at(9), NOW_NS).unwrap();
        assert_eq!((report.repeated, report.missed.len()), (0, 0), "{point:?}");
        let expected: u64 = (1..=9).map(|sequence| sequence % 4).sum();
        assert!(found(&second).len() as u64 == expected && found(&second).values().all(|count| *count == 1));
    }
}

/// Two managers read one stream that discards and repeats, and are killed at different times: what both had the chance
/// to read is equal in both, and rows stored and missed are the agent's in each.
#[test]
fn managers_of_one_stream_have_the_same_rows() {
    for seed in 1..20_u64 {
        let mut state = seed;
        let mut draw = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        // Some are discarded before anyone reads them, never the last.
        let kept: Vec<u64> = (1..=40).filter(|sequence| *sequence == 40 || draw(6) > 0).collect();
        let sealed: u64 = (1..=40).map(|sequence| sequence % 4).sum();
        let mut managers = Vec::new();
        for _ in 0..2 {
            let (folder, mut data) = data();
            loop {
                let through = usize::try_from(read_position(&data).unwrap().through).unwrap();
                if through == kept.len() {
                    break;
                }
                // Repeats of what was stored, then the next ones.
                let from = through.saturating_sub(usize::try_from(draw(3)).unwrap());
                let to = (through + 1 + usize::try_from(draw(5)).unwrap()).min(kept.len());
                let messages: Vec<Message> = kept[from..to].iter().map(|sequence| message(*sequence)).collect();
                let kill = match draw(6) {
                    0 => Some(CrashPoint::BatchesWritten),
                    1 => Some(CrashPoint::BatchesCommitted),
                    _ => None,
                };
                kill.iter().for_each(|point| data.crash_points.set(*point));
                let stored = store_messages(&data, &messages, &at(to as u64), NOW_NS + draw(1000) * SECOND_NS);
                if kill.is_some() {
                    assert!(stored.is_err());
                    drop(data);
                    data = Data::open(folder.path()).unwrap();
                }
            }
            let missed = number(&data, "SELECT rows_missed FROM agents WHERE name = 'a'");
            assert_eq!(found(&data).len() as u64 + missed.unsigned_abs(), sealed, "seed {seed}");
            let rows: BTreeMap<_, _> =
                all(&data).into_iter().map(|row| ((row.sequence, row.number), format!("{row:?}"))).collect();
            managers.push((folder, data, rows));
        }
        assert_eq!(managers[0].2, managers[1].2, "seed {seed}");
    }
}

#[test]
fn an_unmeasured_clock_is_absent_and_a_wrong_one_is_bounded_equally_by_all_managers() {
    let stored_at = |now_ns: u64| {
        let (folder, data) = data();
        // An hour ahead: sealed after the server had it.
        let (mut ahead, before) = numbered(3);
        ahead.sequence = 1;
        ahead.zero_own_unix_ns = ZERO_NS + 3_600 * SECOND_NS;
        store_messages(&data, &[message_of(subject(Kind::Tap, "a", 'a'), &ahead, before)], &at(1), now_ns).unwrap();
        let rows = all(&data);
        assert_eq!(
            number(&data, "SELECT count(*) FROM agents WHERE clock_offset_ns IS NULL AND clock_error_ns IS NULL"),
            1
        );
        drop(folder);
        rows
    };
    let (early, late) = (stored_at(NOW_NS), stored_at(NOW_NS + 86_400 * SECOND_NS));
    assert!(early == late && early.len() == 3);
    assert!(early.iter().all(|row| row.clock_offset_ns.is_none() && row.at_unix_ns <= NOW_NS));
}

fn refusals(data: &Arc<Data>, messages: &[Message]) -> Vec<RefusalReason> {
    let report = store_messages(data, messages, &at(1), NOW_NS).unwrap();
    assert_eq!((report.rows, report.repeated), (0, 0));
    report.refused.into_iter().map(|(_, refused)| refused.why).collect()
}

#[test]
fn what_no_agent_publishes_is_refused_and_reading_goes_on() {
    let (_folder, data) = data();
    let (one, _) = numbered(1);
    let tap = |name: &str, digit| subject(Kind::Tap, name, digit);
    let body = || gzip(&serde_json::to_vec(&one).unwrap());
    let without_headers = Message::new(tap("a", 'a'), NOW_NS, Vec::new(), body().into());
    let few = |before: &str, after: &str| {
        let headers =
            vec![(log::ROWS_BEFORE.to_owned(), before.to_owned()), (log::ROWS_AFTER.to_owned(), after.to_owned())];
        Message::new(tap("a", 'a'), NOW_NS, headers, body().into())
    };
    let huge = Message::new(tap("a", 'a'), NOW_NS, Vec::new(), vec![0; tap_protocol::BODY_MAX + 1].into());
    let foreign = [
        message_of(tap("A b", 'a'), &one, 0),
        message_of(tap("a", 'b'), &one, 0),
        without_headers,
        few("5", "5"),
        few("5", "4"),
        few("-1", "x"),
        huge,
        Message::new(subject(Kind::Hello, "a", 'a'), NOW_NS, Vec::new(), "{}".into()),
        Message::new(subject(Kind::Watch, "a", 'a'), NOW_NS, Vec::new(), "x".into()),
    ];
    let malformed = RefusalReason::Malformed;
    let expected =
        [malformed, malformed, malformed, malformed, malformed, malformed, RefusalReason::TooLarge, malformed];
    assert_eq!(refusals(&data, &foreign), expected);
    assert_eq!(number(&data, "SELECT count(*) FROM agents"), 0);
    // The stream of one agent under another's name.
    store_messages(&data, &[message(1)], &at(2), NOW_NS).unwrap();
    let (two, _) = numbered(2);
    assert_eq!(refusals(&data, &[message_of(tap("b", 'a'), &two, 1)]), [RefusalReason::Forbidden]);
    // A copy of the agent's folder, if the server did not notice it.
    let (mut other, _) = numbered(1);
    other.rows.clear();
    assert_eq!(refusals(&data, &[message_of(tap("a", 'a'), &other, 0)]), [RefusalReason::Conflict]);
}

#[test]
fn a_hello_makes_an_agent_known_until_the_limit() {
    let (_folder, data) = data();
    let hello = Hello {
        stream: stream('a'),
        boot: "boot".into(),
        host: "paper".into(),
        version: "1".into(),
        kernel: "6".into(),
        spool: SpoolUsage::default(),
        now_ns: 1,
        zero_own_unix_ns: ZERO_NS,
        settings: 0,
    };
    let of = |name: &str| {
        let body = serde_json::to_vec(&hello).unwrap();
        Message::new(subject(Kind::Hello, name, 'a'), NOW_NS + DAYS_NS, Vec::new(), body.into())
    };
    assert_eq!(store_messages(&data, &[of("a")], &at(1), NOW_NS).unwrap().refused, []);
    assert_eq!(number(&data, "SELECT count(*) FROM agents WHERE host = 'paper' AND clock_offset_ns IS NULL"), 1);
    // The server's clock is ahead: the agent is not seen in the future.
    assert_eq!(number(&data, "SELECT last_seen_at FROM agents"), NOW_NS as i64);
    data.change(|index| {
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9999) \
                    INSERT INTO agents (name, settings, first_seen_at, last_seen_at) SELECT 'x' || i, '{}', 1, 1 FROM n";
        index.execute(many, [])
    })
    .unwrap();
    assert_eq!(refusals(&data, &[of("one-too-many")]), [RefusalReason::Forbidden]);
    assert_eq!(store_messages(&data, &[of("a")], &at(1), NOW_NS).unwrap().refused, []);
}
