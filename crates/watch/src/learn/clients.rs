//! Clients: their numbers of connections, and the variation of their RTTs.
//!
//! Clients are stored by a hash of the address, and if there are too many, those with the largest hashes are removed:
//! the rest is a uniform sample of all clients, independent of their traffic, and the largest remaining hash gives an
//! estimate of their number (bottom-k sampling: E. Cohen, H. Kaplan, "Summarizing data using bottom-k sketches", PODC
//! 2007).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use stats::{Histogram, Rng};

use super::By;

/// Figures of one client.
#[derive(Clone, Debug, Default)]
pub(super) struct Client {
    pub(super) connections: u64,
    pub(super) requests: u64,
    /// Number of known RTTs.
    known: u64,
    /// A uniform sample of them (reservoir sampling).
    rtts_ns: Vec<u64>,
}

/// Distribution of the connections over the clients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares {
    /// Number of clients in these figures.
    pub clients: u64,
    /// Mean number of connections per client.
    pub connections_mean: f64,
    /// Median number of connections per client.
    pub connections_p50: u64,
    /// Share of all connections of the busiest hundredth of the clients (at least one client).
    pub busiest_hundredth: f64,
    /// Share of all connections of the busiest tenth.
    pub busiest_tenth: f64,
    /// The clients with most connections, at most five, each with at least a hundredth of all; empty if the clients are
    /// a sample.
    pub heavy: Vec<Heavy>,
}

/// A client with a large share of all connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heavy {
    /// Address of the client; in IPv6 the first of its /64.
    pub address: IpAddr,
    /// Connections of the client.
    pub connections: u64,
    /// Their share of all.
    pub share: f64,
}

/// Variation of the RTTs of one client between connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Number of clients with enough connections.
    pub clients: u64,
    /// Median over them of the median absolute deviation from the client's own median.
    pub deviation_ns: u64,
    /// The `jitter` of a profile with the same deviation: uniform from -v to +v each way, so the sum is a triangular
    /// distribution, of which half lies within 2 (1 - 1/sqrt 2) v.
    pub jitter_ns: u64,
}

#[derive(Debug)]
pub(super) struct Clients {
    /// By hash, then address.
    held: BTreeMap<(u64, u128), Client>,
    held_max: usize,
    is_sampled: bool,
    seed: u64,
    rng: Rng,
}

impl Clients {
    pub(super) fn new(held_max: usize, seed: u64) -> Clients {
        let rng = Rng::named(seed, "learn");
        Clients { held: BTreeMap::new(), held_max, is_sampled: false, seed: rng.clone().next(), rng }
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, address: IpAddr, rtt_ns: Option<u64>, requests: u64) {
        let key = key(address);
        let place = (self.hash(key), key);
        if self.is_sampled && self.held.last_key_value().is_some_and(|(last, _)| place > *last) {
            return;
        }
        let client = self.held.entry(place).or_default();
        client.connections += 1;
        client.requests += requests;
        if let Some(rtt_ns) = rtt_ns {
            client.known += 1;
            if client.rtts_ns.len() < RTTS_MAX {
                client.rtts_ns.push(rtt_ns);
            } else if let Some(sample) = client.rtts_ns.get_mut(self.rng.below(client.known) as usize) {
                *sample = rtt_ns;
            }
        }
        if self.held.len() > self.held_max {
            self.is_sampled = true;
            self.held.pop_last();
        }
    }

    /// Whether only a sample of the clients is stored.
    pub(super) fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Number of clients: exact if all are stored, otherwise estimated.
    pub(super) fn count(&self) -> u64 {
        match self.held.last_key_value() {
            // The largest of k values, uniform over the whole range, is at about k / (n + 1) of it.
            Some((&(largest, _), _)) if self.is_sampled => {
                ((self.held.len() - 1) as f64 * (u64::MAX as f64 / largest.max(1) as f64)).round() as u64
            }
            _ => self.held.len() as u64,
        }
    }

    /// Each client's median RTT, weighted by `weight`.
    pub(super) fn medians(&self, weight: impl Fn(&Client) -> u64) -> Histogram {
        let mut histogram = Histogram::new();
        for client in self.held.values() {
            if let Some(median) = median(&mut client.rtts_ns.clone()) {
                histogram.record_n(median, weight(client));
            }
        }
        histogram
    }

    /// Kish's effective sample size; of a sample, scaled to all clients.
    pub(super) fn effective(&self, by: By) -> f64 {
        let weight = |client: &Client| match by {
            By::Connection => client.known as f64,
            By::Request => client.requests as f64,
            By::Client => f64::from(u8::from(client.known > 0)),
        };
        let (sum, squares) = self.held.values().fold((0.0, 0.0), |(sum, squares), client| {
            let weight = weight(client);
            (sum + weight, squares + weight * weight)
        });
        if squares == 0.0 { 0.0 } else { sum * sum / squares * self.count() as f64 / self.held.len() as f64 }
    }

    pub(super) fn shares(&self) -> Shares {
        let mut busiest: Vec<(u64, u128)> =
            self.held.iter().map(|(&(_, key), client)| (client.connections, key)).collect();
        busiest.sort_unstable_by(|a, b| b.cmp(a));
        let all: u64 = busiest.iter().map(|client| client.0).sum();
        let (clients, all) = (busiest.len(), all as f64);
        if clients == 0 {
            return Shares::default();
        }
        let share_of = |part: usize| {
            let count = clients.div_ceil(part).max(1);
            busiest[..count].iter().map(|client| client.0).sum::<u64>() as f64 / all
        };
        let heavy = busiest.iter().take(HEAVY_MAX).filter(|client| client.0 as f64 >= all * HEAVY_SHARE);
        Shares {
            clients: clients as u64,
            connections_mean: all / clients as f64,
            connections_p50: busiest[clients / 2].0,
            busiest_hundredth: share_of(100),
            busiest_tenth: share_of(10),
            heavy: heavy
                .filter(|_| !self.is_sampled)
                .map(|&(connections, key)| Heavy {
                    address: address(key),
                    connections,
                    share: connections as f64 / all,
                })
                .collect(),
        }
    }

    pub(super) fn spread(&self) -> Option<Spread> {
        let mut deviations: Vec<u64> = self
            .held
            .values()
            .filter(|client| client.rtts_ns.len() >= SPREAD_MIN)
            .filter_map(|client| {
                let mut rtts_ns = client.rtts_ns.clone();
                let centre = median(&mut rtts_ns)?;
                rtts_ns.iter_mut().for_each(|rtt_ns| *rtt_ns = rtt_ns.abs_diff(centre));
                median(&mut rtts_ns)
            })
            .collect();
        let clients = deviations.len() as u64;
        let deviation_ns = median(&mut deviations)?;
        let jitter_ns = (deviation_ns as f64 / (2.0 * (1.0 - 0.5f64.sqrt()))).round() as u64;
        Some(Spread { clients, deviation_ns, jitter_ns })
    }

    /// A client's position: the same for one seed, unpredictable for senders of packets.
    fn hash(&self, key: u128) -> u64 {
        mix(mix(self.seed ^ key as u64) ^ (key >> 64) as u64)
    }
}

/// Identity of a client. An IPv6 host has a /64 and changes addresses within it (RFC 8981).
pub(super) fn key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_ipv6_mapped()),
        IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => u128::from(address),
        IpAddr::V6(address) => u128::from(address) >> 64 << 64,
    }
}

fn address(key: u128) -> IpAddr {
    Ipv6Addr::from(key).to_canonical()
}

/// SplitMix64's finaliser: every bit of the input reaches every bit of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ value >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ value >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ value >> 31
}

/// The middle value, or the mean of the two middle ones. Sorts.
fn median(values: &mut [u64]) -> Option<u64> {
    values.sort_unstable();
    let upper = *values.get(values.len() / 2)?;
    if !values.len().is_multiple_of(2) {
        return Some(upper);
    }
    let lower = values[values.len() / 2 - 1];
    Some(lower + (upper - lower) / 2)
}

/// RTTs stored per client: its median is then within a sixth of rank, and the errors of many clients average out.
const RTTS_MAX: usize = 16;
/// Minimum number of RTTs of a client for a deviation.
const SPREAD_MIN: usize = 4;
const HEAVY_MAX: usize = 5;
const HEAVY_SHARE: f64 = 0.01;

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(number: u32) -> IpAddr {
        IpAddr::V4(number.into())
    }

    #[test]
    fn sampled_clients_represent_all_clients() {
        let mut clients = Clients::new(4096, 7);
        let (all, stored) = (200_000u32, 4096.0f64);
        // Three rounds, so that a client that was left out returns; client i has the RTT i.
        for _ in 0..3 {
            for number in 0..all {
                clients.add(v4(number), Some(1 + u64::from(number)), 2);
            }
        }
        assert!(clients.is_sampled() && clients.held.len() == 4096);
        assert!(clients.held.values().all(|client| client.connections == 3 && client.requests == 6));
        // Four standard errors.
        let error = 4.0 / stored.sqrt();
        assert!((clients.count() as f64 / f64::from(all) - 1.0).abs() < error, "{}", clients.count());
        for q in [0.1, 0.5, 0.9] {
            let measured = clients.medians(|_| 1).value_at(q) as f64 / f64::from(all);
            assert!((measured - q).abs() < error * 0.5, "{q}: {measured}");
        }
        assert!(clients.shares().heavy.is_empty());
    }

    #[test]
    fn clients_up_to_the_limit_are_not_sampled() {
        let mut clients = Clients::new(10, 1);
        (0..10).for_each(|number| clients.add(v4(number), Some(5), 0));
        assert_eq!((clients.is_sampled(), clients.count()), (false, 10));
        clients.add(v4(10), Some(5), 0);
        assert!(clients.is_sampled());
    }

    #[test]
    fn client_shares_give_the_effective_sample_size() {
        let mut clients = Clients::new(1000, 1);
        (0..90).for_each(|_| clients.add(v4(0), Some(5), 0));
        (1..=10).for_each(|number| clients.add(v4(number), Some(5), 3));
        let shares = clients.shares();
        assert_eq!((shares.clients, shares.connections_p50), (11, 1));
        assert!((shares.busiest_hundredth - 0.9).abs() < 1e-9 && (shares.busiest_tenth - 0.91).abs() < 1e-9);
        assert_eq!(shares.heavy[0], Heavy { address: v4(0), connections: 90, share: 0.9 });
        assert_eq!(shares.heavy.len(), 5);
        assert!((clients.effective(By::Connection) - 10_000.0 / 8110.0).abs() < 1e-9);
        assert!((clients.effective(By::Request) - 10.0).abs() < 1e-9);
        assert!((clients.effective(By::Client) - 11.0).abs() < 1e-9);
    }

    #[test]
    fn ipv6_addresses_of_one_64_network_are_one_client() {
        let mut clients = Clients::new(1000, 1);
        for address in ["2001:db8::1", "2001:db8::ffff:2", "2001:db8:0:1::1", "::ffff:10.0.0.1", "10.0.0.1"] {
            clients.add(address.parse().unwrap(), None, 0);
        }
        assert_eq!(clients.count(), 3);
        let addresses: Vec<IpAddr> = clients.shares().heavy.iter().map(|heavy| heavy.address).collect();
        assert!(addresses.contains(&"2001:db8::".parse().unwrap()) && addresses.contains(&v4(0x0A00_0001)));
    }

    /// A jitter is recovered from the variation that it causes.
    #[test]
    fn jitter_is_recovered_from_the_variation_of_rtts() {
        let mut clients = Clients::new(1000, 1);
        let mut rng = Rng::new(3, 3);
        assert_eq!(clients.spread(), None);
        for number in 0..500 {
            for _ in 0..40 {
                let way = |rng: &mut Rng| 20_000_000 + rng.below(4_000_001) - 2_000_000;
                let rtt_ns = way(&mut rng) + way(&mut rng);
                clients.add(v4(number), Some(rtt_ns), 1);
            }
        }
        let spread = clients.spread().unwrap();
        assert_eq!(spread.clients, 500);
        // With few samples each, the deviation is slightly too small.
        assert!((spread.jitter_ns as f64 / 2e6 - 1.0).abs() < 0.1, "{spread:?}");
    }
}
