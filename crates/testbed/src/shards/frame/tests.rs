use load::{ConnectionEnd, GaugeSample};
use proptest::prelude::*;
use schema::RequestRecord;

use super::*;
use crate::connect_call::Called;

fn moment() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp::from_nanos)
}

fn maybe() -> impl Strategy<Value = Option<Timestamp>> {
    proptest::option::of(moment())
}

fn request() -> impl Strategy<Value = RequestRecord> {
    let numbers = (any::<u64>(), any::<u32>(), any::<Option<u64>>(), any::<Option<u64>>(), any::<u32>());
    let moments = (moment(), maybe(), maybe(), maybe(), maybe(), maybe(), moment());
    let facts = (any::<u16>(), any::<u64>(), any::<u32>(), any::<bool>(), any::<u64>(), any::<Option<u32>>());
    let failure = proptest::option::of(proptest::sample::select(&schema::FailureCause::ALL[..]));
    (numbers, moments, facts, failure).prop_map(|(numbers, moments, facts, failure)| RequestRecord {
        sequence: numbers.0,
        client: numbers.1,
        connection: numbers.2,
        session: numbers.3,
        url: numbers.4,
        stream: facts.5,
        scheduled_at: moments.0,
        started_at: moments.1,
        connected_at: moments.2,
        secured_at: moments.3,
        sent_at: moments.4,
        first_byte_at: moments.5,
        done_at: moments.6,
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
    let connection = (any::<u64>(), any::<u32>(), moment(), maybe(), maybe(), moment(), any::<u32>(), any::<u64>())
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
    let called = (any::<u64>(), any::<u32>(), any::<u16>(), any::<std::net::IpAddr>()).prop_map(|it| Called {
        connection: it.0,
        client: it.1,
        port: it.2,
        server: it.3,
    });
    let sample =
        any::<[u64; 3]>().prop_map(|[in_flight, connections, backlog]| GaugeSample { in_flight, connections, backlog });
    let many = 0..20usize;
    (
        proptest::collection::vec(request(), many.clone()),
        proptest::collection::vec(connection, many.clone()),
        proptest::collection::vec(called, many.clone()),
        proptest::collection::vec(sample, many),
        maybe(),
        any::<bool>(),
    )
        .prop_map(|(requests, connections, called, samples, measured_end, last)| Batch {
            requests,
            connections,
            called,
            samples,
            measured_end,
            last,
            ..Batch::default()
        })
}

proptest! {
    #[test]
    fn a_batch_survives_writing_and_reading(batch in batch()) {
        let mut bytes = Vec::new();
        say(&mut bytes, &Said::Progress(Box::new(Standing::of(&Progress::default())))).unwrap();
        let said = Said::Batch(Box::new(batch));
        say(&mut bytes, &said).unwrap();
        let mut from = &bytes[..];
        prop_assert!(matches!(hear(&mut from).unwrap(), Some(Said::Progress(_))));
        let heard = hear(&mut from).unwrap().unwrap();
        prop_assert_eq!(format!("{heard:?}"), format!("{said:?}"));
        prop_assert!(hear(&mut from).unwrap().is_none());
    }

    #[test]
    fn truncated_and_invalid_frames_are_errors_and_take_no_memory(batch in batch(), cut in any::<proptest::sample::Index>(), noise in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut bytes = Vec::new();
        say(&mut bytes, &Said::Batch(Box::new(batch))).unwrap();
        let cut = 1 + cut.index(bytes.len() - 1);
        prop_assert!(hear(&mut &bytes[..cut]).is_err());
        // Any result is accepted, except a panic.
        let _ = hear(&mut &noise[..]);
        let _ = asked(&mut &noise[..]);
    }
}

#[test]
fn oversized_frames_and_unexpected_bytes_are_refused() {
    let mut bytes = Vec::new();
    ask(&mut bytes, Ask { times: 1, at: Timestamp::from_nanos(7) }).unwrap();
    assert_eq!(asked(&mut &bytes[..]).unwrap(), Some(Ask { times: 1, at: Timestamp::from_nanos(7) }));
    assert!(hear(&mut &bytes[..]).is_err(), "a frame of a shard is not a stop request");
    let mut longer = bytes.clone();
    longer[0] += 1;
    longer.push(0);
    assert!(asked(&mut &longer[..]).is_err());
    let huge = [0xff, 0xff, 0xff, 0xff, BATCH];
    assert!(hear(&mut &huge[..]).is_err());
}
