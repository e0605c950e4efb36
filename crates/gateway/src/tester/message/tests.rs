//! Tests of messages and their limits.

use proptest::prelude::*;

use super::*;
use crate::tester::report::SentReport;

fn any_test() -> impl Strategy<Value = Test> {
    prop_oneof![
        (any::<bool>(), any::<u16>(), any::<Option<u32>>(), any::<[u32; 3]>(), any::<bool>()).prop_map(
            |(up, streams, socket_bytes, [message_bytes, lasts_ms, omit_ms], probes)| Test::Stream {
                up,
                streams,
                socket_bytes,
                message_bytes,
                lasts_ms,
                omit_ms,
                probes
            }
        ),
        any::<[u32; 3]>().prop_map(|[request, response, lasts_ms]| Test::Transactions { request, response, lasts_ms }),
        (any::<u16>(), any::<u32>()).prop_map(|(parallel, lasts_ms)| Test::Connections { parallel, lasts_ms }),
        (any::<bool>(), any::<u16>(), any::<u32>(), any::<[u32; 2]>(), any::<bool>()).prop_map(
            |(up, ip_bytes, rate, [lasts_ms, settle_ms], probes)| Test::Packets {
                up,
                ip_bytes,
                per_second: f64::from(rate) / 3.0,
                lasts_ms,
                settle_ms,
                probes
            }
        ),
        any::<u32>().prop_map(|lasts_ms| Test::Probes { lasts_ms }),
    ]
}

proptest! {
    #[test]
    fn messages_round_trip(test in any_test(), trial: u32, sent: Option<u64>, bytes: u64, cpu_s in 0.0..1e3) {
        for message in [ToServer::Ready { trial, test: test.clone() }, ToServer::Report { trial, sent }] {
            let text = serde_json::to_vec(&message).unwrap();
            prop_assert!(text.len() < crate::tester::frame::TEXT_MAX);
            prop_assert_eq!(serde_json::from_slice::<ToServer>(&text).unwrap(), message);
        }
        let sent = Some(SentReport { sent: bytes, ..SentReport::default() });
        let seen = EndReport { bytes, cpu_s, sent, ..EndReport::default() };
        let message = ToClient::Report { trial, seen };
        let text = serde_json::to_vec(&message).unwrap();
        prop_assert_eq!(serde_json::from_slice::<ToClient>(&text).unwrap(), message);
        // A test that passes the check has a limited length and number of streams.
        if test.check().is_ok() {
            prop_assert!(test.lasts_ms() <= LASTS_MS_MAX && test.streams() <= STREAMS_MAX);
            prop_assert!(test.packets() as f64 <= PER_SECOND_MAX * f64::from(LASTS_MS_MAX) / 1e3);
        }
    }
}

#[test]
fn unknown_message_fields_are_rejected() {
    for text in [
        r#"{"do":"ready","trial":1,"test":{"test":"probes","lasts_ms":5,"to":"192.0.2.1"}}"#,
        r#"{"do":"go","trial":1,"now":true}"#,
        r#"{"do":"alive","x":1}"#,
        r#"{"do":"dance"}"#,
        r#"{"trial":1}"#,
        r#"{"do":"go","trial":-1}"#,
        r#"{"do":"go","trial":4294967296}"#,
        "",
        "[]",
    ] {
        assert!(serde_json::from_slice::<ToServer>(text.as_bytes()).is_err(), "{text}");
    }
}

/// Tests each limit with the nearest valid and invalid value.
#[test]
fn test_parameters_outside_their_limits_are_rejected() {
    let stream = |streams, socket_bytes, message_bytes, lasts_ms, omit_ms| Test::Stream {
        up: true,
        streams,
        socket_bytes,
        message_bytes,
        lasts_ms,
        omit_ms,
        probes: false,
    };
    let packets = |ip_bytes, per_second, settle_ms| Test::Packets {
        up: true,
        ip_bytes,
        per_second,
        lasts_ms: 1000,
        settle_ms,
        probes: false,
    };
    let connections = |parallel| Test::Connections { parallel, lasts_ms: 1 };
    let transactions = |request, response| Test::Transactions { request, response, lasts_ms: 1 };
    let good = [
        stream(1, None, 1, 1, 0),
        stream(STREAMS_MAX, Some(BYTES_MAX), BYTES_MAX, LASTS_MS_MAX, LASTS_MS_MAX - 1),
        packets(52, 0.001, 0),
        packets(9000, PER_SECOND_MAX, SETTLE_MS_MAX),
        connections(1),
        connections(PARALLEL_MAX),
        transactions(1, BYTES_MAX),
        Test::Probes { lasts_ms: LASTS_MS_MAX },
    ];
    for test in good {
        assert_eq!(test.check(), Ok(()), "{test:?}");
    }
    let bad = [
        stream(0, None, 1, 1, 0),
        stream(STREAMS_MAX + 1, None, 1, 1, 0),
        stream(1, Some(0), 1, 1, 0),
        stream(1, Some(BYTES_MAX + 1), 1, 1, 0),
        stream(1, None, 0, 1, 0),
        stream(1, None, BYTES_MAX + 1, 1, 0),
        stream(1, None, 1, 0, 0),
        stream(1, None, 1, LASTS_MS_MAX + 1, 0),
        stream(1, None, 1, 10, 10),
        packets(51, 1.0, 0),
        packets(9001, 1.0, 0),
        packets(64, 0.0, 0),
        packets(64, -1.0, 0),
        packets(64, f64::NAN, 0),
        packets(64, PER_SECOND_MAX * 1.001, 0),
        packets(64, 1.0, SETTLE_MS_MAX + 1),
        connections(0),
        connections(PARALLEL_MAX + 1),
        transactions(0, 1),
        transactions(1, BYTES_MAX + 1),
        Test::Probes { lasts_ms: 0 },
    ];
    for test in bad {
        assert!(test.check().is_err(), "{test:?}");
    }
}

#[test]
fn hello_of_a_newer_version_is_parsed() {
    let text = br#"{"do":"hello","version":"9.9 \u0007","protocol":2,"and":["more"]}"#;
    assert_eq!(hello(text), Some(("9.9".to_owned(), 2)));
    for text in [&br#"{"do":"go","version":"1","protocol":1}"#[..], br#"{"do":"hello","version":"1"}"#, b"x"] {
        assert_eq!(hello(text), None);
    }
}
