//! A generator that was held up catches up with what connections it has.

use std::time::Duration;

use load::{Action, Load};

use crate::world::*;

/// Ten thousand a second over one connection that answers at once, and nothing is looked at for 20 ms. The driver then
/// connects and reads by turns, as a real one does: the requests of those 20 ms go out on connections that become idle,
/// not on one new connection each.
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
        // One connect in a turn, but all that is to be sent.
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
    // Each turn opens one more and uses all there are: 20 turns carry 210.
    assert!(opened <= 21, "{opened} connections for what one carries");
    assert_eq!(load.live().cap_hits, 0);
}
