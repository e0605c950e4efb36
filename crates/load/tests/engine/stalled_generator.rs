//! A generator that stalled catches up with its existing connections.

use std::time::Duration;

use load::{Action, Load};

use crate::world::*;

/// The generator stalls for 20 ms at 10,000 requests per second, with a server that responds immediately. The driver
/// then alternates between connecting and reading, as a real driver does. The requests of those 20 ms use connections
/// that become idle, not one new connection each.
#[test]
fn a_short_generator_stall_does_not_open_a_connection_per_arrival() {
    let mut spec = spec(constant(10_000.0));
    spec.clients = 1;
    let mut load = Load::new(spec, at(Duration::ZERO));
    let mut now = at(Duration::from_millis(20));
    load.handle_time(now);
    assert_eq!(load.live().backlog, 201);
    let mut answered = 0;
    while load.live().in_flight + load.live().backlog > 0 {
        let mut sent = Vec::new();
        let mut connected = Vec::new();
        // One Connect per turn, but all Sends.
        while let Some(action) = load.poll_action(now) {
            match action {
                Action::Connect { key, .. } => {
                    connected.push(key);
                    break;
                }
                Action::Send { key, bytes, .. } => sent.push((key, bytes.len())),
                Action::Open { .. } | Action::Reset { .. } => unreachable!("HTTP/1 has no streams"),
                Action::Close { .. } => {}
            }
        }
        now += Duration::from_micros(20);
        for key in connected {
            load.handle_connected(now, key);
        }
        for (key, length) in sent {
            load.handle_sent(now, key, length);
            load.handle_bytes(now, key, OK);
            answered += 1;
        }
    }
    assert_eq!(answered, 201);
    let opened = load.live().connections_opened;
    // Each turn opens one more connection and uses all of them: 20 turns carry 210 requests.
    assert!(opened <= 21, "{opened} connections");
    assert_eq!(load.live().cap_hits, 0);
}
