//! Results by the distance of the client.

use std::collections::BTreeMap;

use schema::RequestRecord;
use schema::document::DistanceBand;
use serde::{Deserialize, Serialize};

use super::Part;

/// Results by band of configured RTT, with edges at 1, 2, 5, 10, 20, 50 us and so on; only bands with clients.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Distances {
    /// Index into `bands` for each client.
    band_of_client: Vec<u16>,
    bands: Vec<Band>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Band {
    from: u64,
    to: u64,
    clients: u64,
    part: Part,
}

impl Distances {
    pub(super) fn new(clients_rtt_ns: &[u64]) -> Self {
        let mut clients = BTreeMap::<(u64, u64), u64>::new();
        for &rtt_ns in clients_rtt_ns {
            *clients.entry(edges(rtt_ns)).or_default() += 1;
        }
        let bands: Vec<Band> = clients
            .into_iter()
            .map(|((from, to), clients)| Band { from, to, clients, part: Part::default() })
            .collect();
        let position = |rtt_ns: u64| bands.partition_point(|band| band.to <= rtt_ns) as u16;
        Distances { band_of_client: clients_rtt_ns.iter().map(|&rtt_ns| position(rtt_ns)).collect(), bands }
    }

    pub(super) fn add(&mut self, record: &RequestRecord) {
        if let Some(&band) = self.band_of_client.get(record.client as usize) {
            self.bands[usize::from(band)].part.add(record);
        }
    }

    /// Whether both have the same clients and bands.
    pub(super) fn is_of_same_clients(&self, other: &Distances) -> bool {
        let edges = |of: &Distances| of.bands.iter().map(|band| (band.from, band.to, band.clients)).collect::<Vec<_>>();
        self.band_of_client == other.band_of_client && edges(self) == edges(other)
    }

    pub(super) fn merge(&mut self, other: &Distances) {
        assert_eq!(self.band_of_client, other.band_of_client, "parts of one load have the same clients");
        self.bands.iter_mut().zip(&other.bands).for_each(|(band, other)| band.part.merge(&other.part));
    }

    pub(super) fn bands(&self) -> Vec<DistanceBand> {
        self.bands
            .iter()
            .map(|band| DistanceBand {
                rtt_ns_from: band.from,
                rtt_ns_to: band.to,
                clients: band.clients,
                completed: band.part.completed,
                failed: band.part.failed,
                response_time_ns: band.part.response_time.quantiles(),
            })
            .collect()
    }
}

/// All RTTs below this are one band, which counts as no distance.
const LOWEST_EDGE_NS: u64 = 1_000;

/// The edges `[from, to)` of the band of an RTT.
fn edges(rtt_ns: u64) -> (u64, u64) {
    if rtt_ns < LOWEST_EDGE_NS {
        return (0, LOWEST_EDGE_NS);
    }
    let decade = 10u64.pow(rtt_ns.ilog10());
    match rtt_ns / decade {
        1 => (decade, 2 * decade),
        2..=4 => (2 * decade, 5 * decade),
        _ => (5 * decade, decade.saturating_mul(10)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_bands_have_edges_at_1_2_5() {
        assert_eq!(edges(0), (0, 1_000));
        assert_eq!(edges(999), (0, 1_000));
        assert_eq!(edges(1_000), (1_000, 2_000));
        assert_eq!(edges(1_999), (1_000, 2_000));
        assert_eq!(edges(2_000), (2_000, 5_000));
        assert_eq!(edges(4_999), (2_000, 5_000));
        assert_eq!(edges(48_000_000), (20_000_000, 50_000_000));
        assert_eq!(edges(50_000_000), (50_000_000, 100_000_000));
        assert_eq!(edges(99_999_999), (50_000_000, 100_000_000));
    }

    #[test]
    fn every_client_is_in_one_distance_band_and_empty_bands_are_omitted() {
        let distances = Distances::new(&[48_000_000, 0, 50_000_000, 48_000_001, 3_000_000_000]);
        let bands = distances.bands();
        let brief: Vec<_> = bands.iter().map(|band| (band.rtt_ns_from, band.clients)).collect();
        assert_eq!(brief, [(0, 1), (20_000_000, 2), (50_000_000, 1), (2_000_000_000, 1)]);
        assert_eq!(distances.band_of_client, [1, 0, 2, 1, 3]);
    }
}
