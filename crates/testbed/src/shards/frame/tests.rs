use load::{ConnectionEnd, GaugeSample, Stall};
use proptest::prelude::*;
use schema::RequestRecord;

use super::*;
use crate::connect_call::ConnectCall;

fn timestamp() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_nanos)
}

fn optional_timestamp() -> impl Strategy<Value = Option<Timestamp>> {
    proptest::option::of(timestamp())
}

fn request() -> impl Strategy<Value = RequestRecord> {
    let numbers = (any::<u64>(), any::<u32>(), any::<Option<u64>>(), any::<Option<u64>>(), any::<u32>());
    let timestamps = (
        timestamp(),
        optional_timestamp(),
        optional_timestamp(),
        optional_timestamp(),
        optional_timestamp(),
        optional_timestamp(),
        timestamp(),
    );
    let facts = (any::<u16>(), any::<u64>(), any::<u32>(), any::<bool>(), any::<u64>(), any::<Option<u32>>());
    let failure = proptest::option::of(proptest::sample::select(&schema::FailureCause::ALL[..]));
    (numbers, timestamps, facts, failure).prop_map(|(numbers, timestamps, facts, failure)| RequestRecord {
        sequence: numbers.0,
        client: numbers.1,
        connection: numbers.2,
        session: numbers.3,
        url: numbers.4,
        stream: facts.5,
        scheduled_at: timestamps.0,
        started_at: timestamps.1,
        connected_at: timestamps.2,
        secured_at: timestamps.3,
        sent_at: timestamps.4,
        first_byte_at: timestamps.5,
        done_at: timestamps.6,
        status: facts.0,
        bytes_received: facts.1,
        head_bytes: facts.2,
        keep_alive: facts.3,
        bytes_sent: facts.4,
        attempts: 1,
        early_response: false,
        queued: facts.4 % 2 == 1,
        failure,
    })
}

fn batch() -> impl Strategy<Value = Batch> {
    let connection = (
        any::<u64>(),
        any::<u32>(),
        timestamp(),
        optional_timestamp(),
        optional_timestamp(),
        timestamp(),
        any::<u32>(),
        any::<u64>(),
    )
        .prop_map(|it| ConnectionEnd {
            connection: it.0,
            client: it.1,
            opened_at: it.2,
            connected_at: it.3,
            secured_at: it.4,
            closed_at: it.5,
            requests: it.6,
            bytes_received: it.7,
        });
    let called = (any::<u64>(), any::<u32>(), any::<u16>(), any::<std::net::IpAddr>()).prop_map(|it| ConnectCall {
        connection: it.0,
        client: it.1,
        port: it.2,
        server: it.3,
    });
    let sample =
        any::<[u64; 3]>().prop_map(|[in_flight, connections, backlog]| GaugeSample { in_flight, connections, backlog });
    let stall = || (timestamp(), timestamp()).prop_map(|(from, to)| Stall { from, to });
    let many = 0..20usize;
    (
        proptest::collection::vec(request(), many.clone()),
        proptest::collection::vec(connection, many.clone()),
        proptest::collection::vec(called, many.clone()),
        proptest::collection::vec(sample, many.clone()),
        proptest::collection::vec(stall(), many.clone()),
        proptest::collection::vec(stall(), many),
        optional_timestamp(),
        any::<bool>(),
    )
        .prop_map(|it| Batch {
            requests: it.0,
            connections: it.1,
            connect_calls: it.2,
            samples: it.3,
            stalls: it.4,
            late_wakeups: it.5,
            measured_end: it.6,
            last: it.7,
            ..Batch::default()
        })
}

proptest! {
    #[test]
    fn a_batch_reads_back_as_it_was_written(batch in batch()) {
        let mut bytes = Vec::new();
        write_message(&mut bytes, &ShardMessage::Progress(Box::new(ShardProgress::of(&Progress::default())))).unwrap();
        let message = ShardMessage::Batch(Box::new(batch));
        write_message(&mut bytes, &message).unwrap();
        let mut from = &bytes[..];
        prop_assert!(matches!(read_message(&mut from).unwrap(), Some(ShardMessage::Progress(_))));
        let received = read_message(&mut from).unwrap().unwrap();
        prop_assert_eq!(format!("{received:?}"), format!("{message:?}"));
        prop_assert!(read_message(&mut from).unwrap().is_none());
    }

    #[test]
    fn truncated_and_invalid_frames_are_errors(
        batch in batch(),
        cut in any::<proptest::sample::Index>(),
        noise in proptest::collection::vec(any::<u8>(), 0..64)
    ) {
        let mut bytes = Vec::new();
        write_message(&mut bytes, &ShardMessage::Batch(Box::new(batch))).unwrap();
        let cut = 1 + cut.index(bytes.len() - 1);
        prop_assert!(read_message(&mut &bytes[..cut]).is_err());
        // Any result is accepted, except a panic.
        let _ = read_message(&mut &noise[..]);
        let _ = read_stop_request(&mut &noise[..]);
    }
}

#[test]
fn oversized_frames_and_unexpected_bytes_are_refused() {
    let mut bytes = Vec::new();
    write_stop_request(&mut bytes, StopRequest { times: 1, at: Timestamp::from_nanos(7) }).unwrap();
    assert_eq!(
        read_stop_request(&mut &bytes[..]).unwrap(),
        Some(StopRequest { times: 1, at: Timestamp::from_nanos(7) })
    );
    assert!(read_message(&mut &bytes[..]).is_err(), "a frame of a shard is not a stop request");
    let mut longer = bytes.clone();
    longer[0] += 1;
    longer.push(0);
    assert!(read_stop_request(&mut &longer[..]).is_err());
    let huge = [0xff, 0xff, 0xff, 0xff, BATCH];
    assert!(read_message(&mut &huge[..]).is_err());
}
