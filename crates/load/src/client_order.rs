//! Assigns clients to arrivals.

use stats::Rng;

use crate::arrivals::{Arrivals, Spacing};

/// The sequence of clients of an open loop's arrivals, or of a closed loop's connections.
#[derive(Clone, Debug)]
pub(crate) enum ClientOrder {
    /// One shuffled order, repeated. Every client gets exactly its share, and clients with neighbouring addresses,
    /// which may have similar distances, are not neighbours in time.
    Shuffled { order: Vec<u32>, at: usize },
    /// A uniform draw for each arrival, so that the arrivals of each client are a Poisson process too.
    Drawn { clients: u32, rng: Rng },
    /// 0, 1, 2 and so on, repeated.
    InTurn { clients: u32, next: u32 },
}

impl ClientOrder {
    /// The sequence for `clients` clients, at least 1.
    pub(crate) fn new(arrivals: &Arrivals, clients: u32, seed: u64) -> Self {
        let mut rng = Rng::named(seed, "clients");
        match arrivals {
            // Arrivals of a log have their own clients.
            Arrivals::Closed | Arrivals::Logged(_) => ClientOrder::InTurn { clients, next: 0 },
            Arrivals::Open { spacing: Spacing::Constant, .. } => {
                let mut order: Vec<u32> = (0..clients).collect();
                for last in (1..order.len()).rev() {
                    order.swap(last, rng.below(last as u64 + 1) as usize);
                }
                ClientOrder::Shuffled { order, at: 0 }
            }
            Arrivals::Open { .. } => ClientOrder::Drawn { clients, rng },
        }
    }

    pub(crate) fn take(&mut self) -> u32 {
        match self {
            ClientOrder::Shuffled { order, at } => {
                let client = order[*at];
                *at += 1;
                if *at == order.len() {
                    *at = 0;
                }
                client
            }
            ClientOrder::Drawn { clients, rng } => rng.below(u64::from(*clients)) as u32,
            ClientOrder::InTurn { clients, next } => {
                let client = *next;
                *next = if client + 1 == *clients { 0 } else { client + 1 };
                client
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use units::RequestRate;

    use super::*;

    fn take(arrivals: &Arrivals, clients: u32, n: usize) -> Vec<u32> {
        let mut order = ClientOrder::new(arrivals, clients, 3);
        (0..n).map(|_| order.take()).collect()
    }

    #[test]
    fn shuffled_order_has_every_client_once_per_round() {
        let rate = RequestRate::from_per_second(1.0).unwrap();
        let mut round = take(&Arrivals::constant(rate), 100, 200);
        assert_eq!(round[..100], round[100..]);
        let mut first = round.split_off(100);
        assert_ne!(first, (0..100).collect::<Vec<_>>());
        first.sort_unstable();
        assert_eq!(first, (0..100).collect::<Vec<_>>());
    }

    #[test]
    fn random_client_order_is_uniform() {
        let rate = RequestRate::from_per_second(1.0).unwrap();
        let mut counts = [0u32; 4];
        for client in take(&Arrivals::poisson(rate), 4, 40_000) {
            counts[client as usize] += 1;
        }
        // The limit is five times the standard deviation of a count, which is 87.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 435), "{counts:?}");
    }

    #[test]
    fn one_client_is_always_chosen() {
        let rate = RequestRate::from_per_second(1.0).unwrap();
        for arrivals in [Arrivals::Closed, Arrivals::constant(rate), Arrivals::poisson(rate)] {
            assert_eq!(take(&arrivals, 1, 3), [0, 0, 0]);
        }
        assert_eq!(take(&Arrivals::Closed, 2, 5), [0, 1, 0, 1, 0]);
    }
}
