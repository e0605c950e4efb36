//! Invariants for random events.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::event::{Attempt, Caveats, Closed, Run};

/// Random events of a few connections and images, in any order: a hostile program, lost records.
pub(crate) fn any_event() -> impl Strategy<Value = Event> {
    let what = (0u8..11, 0u64..4, 0u64..1_000_000, 0u64..50_000, any::<bool>(), 0u64..3);
    (1u32..4, what).prop_map(|(image, (kind, connection, at, bytes, flag, error))| {
        let at = Timestamp::from_nanos(at);
        let error = if error == 2 { 104 } else { 0 };
        let run = Run {
            connection,
            begin: at,
            first: at,
            end: at + Duration::from_nanos(bytes),
            bytes: if error == 0 { bytes } else { 0 },
            calls: 1,
            blocked: Duration::from_nanos(7),
            waited: Duration::ZERO,
            ended: flag,
            error,
        };
        let (blocked, waited) = (Duration::ZERO, Duration::ZERO);
        let attempt = Attempt { connection, begin: at, end: run.end, blocked, waited, error: 111, local: None };
        let caveats = Caveats { shared: flag, ..Caveats::default() };
        let closed = Closed { connection, begin: at, tcp_counts: None, caveats, forks: [0, bytes as u32 % 3] };
        let role = [Role::Connected, Role::Accepted, Role::Found][bytes as usize % 3];
        let (local, peer) = ("192.0.2.1:50000".parse().unwrap(), "192.0.2.80:80".parse().unwrap());
        let what = match kind {
            0 | 1 => {
                EventKind::Opened(Opened { connection, at, role, local, peer, nonblocking: flag, inherited: false })
            }
            2 => EventKind::Connected(attempt),
            3 => EventKind::ConnectFailed(attempt),
            4 | 5 => EventKind::Sent(run),
            6 | 7 => EventKind::Received(run),
            8 => EventKind::Closed(closed),
            9 => EventKind::Leaving(closed),
            _ => EventKind::Forked {
                at,
                parent_image: image % 3 + 1,
                parent_pid: 1,
                fork: bytes as u32 % 3,
                program: "p".into(),
            },
        };
        Event { origin: Origin { image, pid: image, tid: image, space: 0 }, what }
    })
}

proptest! {
    #[test]
    fn random_events_count_bytes_once_and_end_each_connection_once(
        events in prop::collection::vec((any_event(), 0u32..40), 0..200),
    ) {
        let mut exchanges = Exchanges::new(Vec::new());
        for (event, ended) in events {
            exchanges.apply(event);
            if ended < 4 {
                exchanges.image_ended(ended, Timestamp::from_nanos(2_000_000));
            }
        }
        exchanges.end();
        let mut rows = Vec::new();
        exchanges.drain(&mut rows);
        prop_assert_eq!((exchanges.open(), exchanges.in_flight()), (0, 0));
        let mut seen: HashMap<u64, (u32, bool, u64)> = HashMap::new();
        for row in &rows {
            let connection = row.connection.unwrap();
            let (count, ended, bytes) = seen.entry(connection).or_default();
            prop_assert!(!*ended, "a row after the last of connection {}", connection);
            if let Some(exchange) = row.exchange {
                prop_assert_eq!(exchange, *count);
                *count += 1;
            }
            *ended = row.last;
            *bytes += row.sent_bytes + row.received_bytes;
            if row.last {
                prop_assert!(row.connection_bytes.is_none_or(|all| all >= *bytes));
            }
            prop_assert_eq!(row.outcome == TapOutcome::Failed, row.error.is_some());
            prop_assert!(row.lookup_ns.is_none() || *count <= 1);
        }
        prop_assert_eq!(seen.len() as u64, exchanges.opened_so_far());
        prop_assert!(seen.values().all(|(_, ended, _)| *ended));
    }

    /// Alternating requests and responses, at either end: every byte is in one exchange, and the times add up.
    #[test]
    fn alternating_requests_and_responses_become_the_same_exchanges(
        turns in prop::collection::vec((1u64..2_000, 0u64..20, 1u64..90_000, 0u64..20, 0u64..300), 1..20),
        at_server in any::<bool>(),
    ) {
        let mut talk = if at_server { Conversation::accept() } else { Conversation::connect(3) };
        for &(request_bytes, request_ms, response_bytes, response_ms, think_ms) in &turns {
            if at_server {
                talk.receive_for(request_ms, request_bytes).wait(think_ms);
                talk.send_for(response_ms, response_bytes).wait(1);
            } else {
                talk.send_for(request_ms, request_bytes).wait(think_ms);
                talk.receive_for(response_ms, response_bytes).wait(1);
            }
        }
        talk.close();
        let all = rows(talk.events);
        prop_assert_eq!(all.len(), turns.len());
        for (row, &(request_bytes, request_ms, response_bytes, response_ms, think_ms)) in all.iter().zip(&turns) {
            let (request, response) = match row.side {
                TapSide::Client => (row.sent_bytes, row.received_bytes),
                TapSide::Server => (row.received_bytes, row.sent_bytes),
            };
            prop_assert_eq!((row.outcome, request, response), (TapOutcome::Succeeded, request_bytes, response_bytes));
            prop_assert_eq!(row.response_ns(), Some(ms(request_ms + think_ms + response_ms)));
            let parts = row.send_ns().unwrap() + row.wait_ns().unwrap() + row.receive_ns().unwrap();
            // `first` of a received run is its first return, here its begin.
            prop_assert_eq!(row.response_ns(), Some(parts));
        }
        let bytes: u64 = turns.iter().map(|turn| turn.0 + turn.2).sum();
        prop_assert_eq!(all.last().unwrap().connection_bytes, Some(bytes));
    }
}
