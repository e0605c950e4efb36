//! Time that distances add to a request: round trips, transmission, and lifetime of a connection; pure functions.

use path::{EffectSpec, PathSpec};

/// TCP payload of a packet of 1,500 bytes, with timestamps.
const SEGMENT_BYTES: f64 = 1448.0;
/// Initial window of the kernel in segments, unless the plan sets it (RFC 6928).
pub const INITCWND: u32 = 10;

/// Traffic of a request, measured without distance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Traffic {
    /// Bytes to the server, whole packets.
    pub up_bytes: f64,
    /// Bytes from the server.
    pub down_bytes: f64,
    /// Packets to the server.
    pub up_packets: f64,
    /// Packets from the server.
    pub down_packets: f64,
    /// Bytes of the response itself.
    pub response_body_bytes: f64,
}

/// Use of connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionUse {
    /// One connection per request.
    pub close: bool,
    /// Mean round trips of the TLS handshake; 0 without TLS.
    pub tls_round_trips: f64,
    /// Initial window of the server in segments.
    pub initcwnd: u32,
}

/// One client, as far as it affects a request's time on the path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Distance {
    rtt_s: f64,
    /// Bytes per second of its own links; infinite without a rate.
    up: f64,
    down: f64,
}

/// Distances of the clients.
#[derive(Clone, Debug, PartialEq)]
pub struct PathModel {
    clients: Vec<Distance>,
    /// Bytes per second of the narrowest shared link, up and down.
    shared: (f64, f64),
    /// Largest mean packet loss of a direction.
    loss: f64,
}

impl PathModel {
    /// From a path.
    pub fn of(spec: &PathSpec) -> Self {
        let clients = spec.clients.iter().map(|client| Distance {
            rtt_s: client.rtt().as_secs_f64(),
            up: narrowest(&client.up.effects),
            down: narrowest(&client.down.effects),
        });
        // A partly shared link gives the other clients more; the lowest rate of any client is the limit.
        let shared = spec.shared.iter().fold((f64::INFINITY, f64::INFINITY), |least, link| {
            (least.0.min(narrowest(&link.up)), least.1.min(narrowest(&link.down)))
        });
        let loss = spec.clients.iter().map(|client| client.up.loss().max(client.down.loss())).fold(0.0, f64::max);
        PathModel { clients: clients.collect(), shared, loss }
    }

    /// Mean round trip of the clients.
    pub fn rtt_mean_s(&self) -> f64 {
        self.mean(|client| client.rtt_s)
    }

    /// Largest packet loss of a direction.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// Path time of request `index` of `count`, without the server: requests are spread evenly over all clients, so the
    /// mean over requests is that over clients.
    pub fn response_s(&self, (index, count): (usize, usize), connection_use: &ConnectionUse, traffic: &Traffic) -> f64 {
        match self.clients.get((index as u128 * self.clients.len() as u128 / count.max(1) as u128) as usize) {
            Some(client) => client.response_s(connection_use, traffic),
            None => 0.0,
        }
    }

    /// Mean path time.
    pub fn response_mean_s(&self, connection_use: &ConnectionUse, traffic: &Traffic) -> f64 {
        self.mean(|client| client.response_s(connection_use, traffic))
    }

    /// Requests per second that the links permit, up and down. All clients have the same share, so the narrowest own
    /// link or the shared one is full first. Infinite without rates.
    pub fn link_rates(&self, traffic: &Traffic) -> (f64, f64) {
        let count = self.clients.len() as f64;
        let least = |of: fn(&Distance) -> f64| self.clients.iter().map(of).fold(f64::INFINITY, f64::min);
        let up = (least(|client| client.up) * count).min(self.shared.0);
        let down = (least(|client| client.down) * count).min(self.shared.1);
        (up / traffic.up_bytes.max(1.0), down / traffic.down_bytes.max(1.0))
    }

    fn mean(&self, of: impl Fn(&Distance) -> f64) -> f64 {
        self.clients.iter().map(of).sum::<f64>() / self.clients.len().max(1) as f64
    }
}

impl Distance {
    fn response_s(&self, connection_use: &ConnectionUse, traffic: &Traffic) -> f64 {
        self.rtt_s * round_trips(connection_use, traffic.response_body_bytes)
            + traffic.up_bytes / self.up
            + traffic.down_bytes / self.down
    }
}

/// Round trips of a request: connect and TLS with a connection of its own, one for the request and the first window of
/// the response, and one more per doubling of the window (slow start, no loss, an acknowledgement per segment).
pub fn round_trips(connection_use: &ConnectionUse, response_body_bytes: f64) -> f64 {
    let before = if connection_use.close { 1.0 + connection_use.tls_round_trips } else { 0.0 };
    before + 1.0 + further_windows(response_body_bytes, connection_use.initcwnd)
}

/// Windows after the first, each twice as large: the least n with initcwnd (2^(n+1) - 1) segments or more.
fn further_windows(response_body_bytes: f64, initcwnd: u32) -> f64 {
    let segments = (response_body_bytes / SEGMENT_BYTES).ceil().max(1.0);
    let windows = (1.0 + segments / f64::from(initcwnd.max(1))).log2().ceil();
    (windows - 1.0).max(0.0)
}

/// Bytes per second of the narrowest rate among effects.
fn narrowest(effects: &[EffectSpec]) -> f64 {
    let rates = effects.iter().filter_map(|effect| match effect {
        EffectSpec::Bottleneck(bottleneck) => bottleneck.rate.mean().map(|rate| rate.bits_per_second() as f64 / 8.0),
        _ => None,
    });
    rates.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use plan::PathPlan;

    use super::*;

    const PLAIN: ConnectionUse = ConnectionUse { close: true, tls_round_trips: 0.0, initcwnd: INITCWND };
    const TEN_KB: Traffic = Traffic {
        up_bytes: 500.0,
        down_bytes: 11_000.0,
        up_packets: 8.0,
        down_packets: 10.0,
        response_body_bytes: 10_400.0,
    };

    #[test]
    fn further_windows_double_in_size() {
        // 10 segments fit into the first window, 11 into two, 30 into two, 31 into three.
        for (segments, expected) in
            [(1.0, 0.0), (10.0, 0.0), (11.0, 1.0), (30.0, 1.0), (31.0, 2.0), (70.0, 2.0), (71.0, 3.0)]
        {
            assert_eq!(further_windows(segments * SEGMENT_BYTES, 10), expected, "{segments}");
        }
        // Koshien (ENMA): 10 KB with a window of 2: 8 segments are 2 + 4 + 2, so three windows; with connect four round
        // trips.
        assert_eq!(round_trips(&ConnectionUse { initcwnd: 2, ..PLAIN }, 10_400.0), 4.0);
        assert_eq!(round_trips(&PLAIN, 10_400.0), 2.0);
        assert_eq!(round_trips(&ConnectionUse { close: false, ..PLAIN }, 10_400.0), 1.0);
        assert_eq!(round_trips(&ConnectionUse { tls_round_trips: 1.0, ..PLAIN }, 10_400.0), 3.0);
    }

    #[test]
    fn path_times_of_a_constant_distance_are_round_trips_and_transmission() {
        let mut plan = PathPlan { rtt: Some(Duration::from_millis(48)), ..PathPlan::default() };
        let model = PathModel::of(&testbed::distances::spec(&plan, 100).unwrap());
        assert!((model.rtt_mean_s() - 0.048).abs() < 1e-12);
        assert!((model.response_mean_s(&PLAIN, &TEN_KB) - 0.096).abs() < 1e-12);
        assert!((model.response_s((7, 10), &PLAIN, &TEN_KB) - 0.096).abs() < 1e-12);
        assert_eq!(model.link_rates(&TEN_KB), (f64::INFINITY, f64::INFINITY));
        plan.down = Some("8Mbit".parse().unwrap());
        let model = PathModel::of(&testbed::distances::spec(&plan, 100).unwrap());
        // 1 MB/s: 11 ms more, and 100 clients of 1 MB/s for 11 kB each.
        assert!((model.response_mean_s(&PLAIN, &TEN_KB) - 0.107).abs() < 1e-9);
        assert!((model.link_rates(&TEN_KB).1 - 100.0 * 1e6 / 11_000.0).abs() < 1e-6);
    }
}
