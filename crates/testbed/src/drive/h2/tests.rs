use std::time::Duration;

use load::{Action, Arrivals, HttpVersion, Load, LoadSpec, Retry, Reuse, Shard, Target, Workload};
use units::Timestamp;

use super::*;

/// Names of three streams of one connection.
fn keys() -> Vec<StreamKey> {
    let spec = LoadSpec {
        workload: Workload::of([Target::parse("http://h/").unwrap()]),
        absolute_form: false,
        version: HttpVersion::Http2,
        streams_max: 3,
        reuse: Reuse::KeepAlive,
        retry: Retry::IdleRace,
        arrivals: Arrivals::Closed,
        connections_max: 1,
        requests_max: Some(3),
        clients: 1,
        connect_timeout: Duration::from_secs(1),
        response_timeout: Duration::from_secs(1),
        shard: Shard::WHOLE,
        seed: 1,
        warmup: Duration::ZERO,
        duration: None,
    };
    let mut load = Load::new(spec, Timestamp::ZERO);
    load.handle_time(Timestamp::ZERO);
    let (mut keys, mut connected) = (Vec::new(), None);
    loop {
        match load.poll_action(Timestamp::ZERO) {
            Some(Action::Connect { key, .. }) => connected = Some(key),
            Some(Action::Open { stream, .. }) => keys.push(stream),
            Some(_) => {}
            None => match connected.take() {
                Some(key) => load.handle_connected(Timestamp::ZERO, key),
                None => return keys,
            },
        }
    }
}

#[test]
fn a_refused_request_does_not_shift_other_streams() {
    let mut http2 = Http2::new(Windows { stream: 1 << 20, connection: 1 << 20 });
    let request = |te: &str| Request::get("http://h/").header("te", te).body(()).unwrap();
    let keys = keys();
    let opened: Vec<Option<u32>> = keys
        .iter()
        .zip(["trailers", "gzip", "trailers"])
        .map(|(&key, te)| http2.open(key, &request(te), b""))
        .collect();
    assert!(matches!(opened[..], [Some(_), None, Some(_)]), "{opened:?}");
    for (key, number) in keys.iter().zip(opened) {
        let Some(number) = number else { continue };
        let index = http2.slot_of(number).unwrap();
        assert_eq!(http2.slots[index as usize].as_ref().unwrap().stream, *key, "stream {number}");
        http2.reset(number);
        assert_eq!(http2.slot_of(number), None);
    }
}
