//! Mean value analysis of a closed loop of users.

/// A station of the network: a resource with a queue, or a delay without one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// Total service demand of a request at the station, in seconds: 0 or more.
    pub demand_s: f64,
    /// Number of servers: a whole number of 1 or more, or infinite for a delay (a path, a sleep).
    pub servers: f64,
}

impl Station {
    /// A station of one server with a queue.
    pub const fn queue(demand_s: f64) -> Self {
        Station { demand_s, servers: 1.0 }
    }

    /// A delay without a queue.
    pub const fn delay(demand_s: f64) -> Self {
        Station { demand_s, servers: f64::INFINITY }
    }
}

/// The solution for a number of users.
#[derive(Clone, Debug, PartialEq)]
pub struct MvaPoint {
    /// Number of users.
    pub users: u32,
    /// Requests per second.
    pub rate_per_s: f64,
    /// Mean response time in seconds over all stations, without the think time.
    pub response_s: f64,
    /// Mean number of requests at each station, including those in service.
    pub queue: Vec<f64>,
    /// Utilization of each station, 0 to 1; 0 for a delay.
    pub busy: Vec<f64>,
}

/// Rates and response times of 1, 2, .. `users` users with the mean think time `think_s` in seconds and one class of
/// requests.
///
/// Exact for processor sharing, for delays, and for queues in order of arrival with exponential service times;
/// approximate for other queues. Also exact for stations with several servers. Source: M. Reiser, S. S. Lavenberg,
/// "Mean-value analysis of closed multichain queuing networks" (1980). The probability that a station of several
/// servers is empty is computed from the network without that station (M. Reiser, 1981), since the original difference
/// of nearly equal numbers loses all precision near saturation. The cost is proportional to users times servers, and to
/// two to the power of the number of stations with several servers.
///
/// # Panics
/// If a demand or the think time is negative or not finite, if a number of servers is neither a whole number of 1 or
/// more nor infinite, or with more than eight stations of several servers.
pub fn mva(stations: &[Station], think_s: f64, users: u32) -> Vec<MvaPoint> {
    assert!(think_s.is_finite() && think_s >= 0.0, "think time of {think_s} s");
    for station in stations {
        let whole = station.servers >= 1.0 && (station.servers.is_infinite() || station.servers.fract() == 0.0);
        assert!(station.demand_s.is_finite() && station.demand_s >= 0.0 && whole, "{station:?}");
    }
    let several: Vec<usize> = (0..stations.len())
        .filter(|&index| stations[index].servers > 1.0 && stations[index].servers.is_finite())
        .collect();
    assert!(several.len() <= 8, "{} stations of several servers", several.len());
    let mut solver = Solver { stations, think_s, users, several: &several, solved: vec![None; 1 << several.len()] };
    solver.solve(solver.solved.len() - 1);
    solver.points()
}

/// Solves the network, and the networks without some of its stations of several servers.
struct Solver<'a> {
    stations: &'a [Station],
    think_s: f64,
    users: u32,
    several: &'a [usize],
    /// Solutions by the set of stations of several servers in the network, as bits.
    solved: Vec<Option<Vec<MvaPoint>>>,
}

impl Solver<'_> {
    fn points(mut self) -> Vec<MvaPoint> {
        self.solved.pop().flatten().expect("the whole network is solved last")
    }

    fn solve(&mut self, present: usize) {
        if self.solved[present].is_some() {
            return;
        }
        for bit in (0..self.several.len()).filter(|bit| present & 1 << bit != 0) {
            self.solve(present & !(1 << bit));
        }
        self.solved[present] = Some(self.recursion(present));
    }

    fn recursion(&self, present: usize) -> Vec<MvaPoint> {
        let count = self.stations.len();
        let bit_of = |index: usize| self.several.iter().position(|&several| several == index);
        let is_present = |index: usize| bit_of(index).is_none_or(|bit| present & 1 << bit != 0);
        // Probabilities that 0, 1, .. m - 2 requests are at a station of m servers.
        let mut probabilities: Vec<Vec<f64>> = (0..count)
            .map(|index| {
                let servers = if bit_of(index).is_some() { self.stations[index].servers as usize } else { 1 };
                let mut probabilities = vec![0.0; servers - 1];
                if let Some(none) = probabilities.first_mut() {
                    *none = 1.0;
                }
                probabilities
            })
            .collect();
        let mut queue = vec![0.0; count];
        let mut points = Vec::with_capacity(self.users as usize);
        for users in 1..=self.users {
            let waits: Vec<f64> = (0..count)
                .map(|index| {
                    let Station { demand_s, servers } = self.stations[index];
                    if !is_present(index) {
                        0.0
                    } else if servers.is_infinite() {
                        demand_s
                    } else {
                        // An arriving request sees the queue of the network with one user fewer.
                        let idle: f64 = probabilities[index]
                            .iter()
                            .zip(1..)
                            .map(|(probability, less)| probability * (servers - f64::from(less)))
                            .sum();
                        demand_s / servers * (1.0 + queue[index] + idle)
                    }
                })
                .collect();
            let response_s: f64 = waits.iter().sum();
            let rate_per_s = f64::from(users) / (self.think_s + response_s);
            for index in (0..count).filter(|&index| is_present(index)) {
                // At an infinite rate no station has a demand.
                queue[index] = if waits[index] == 0.0 { 0.0 } else { rate_per_s * waits[index] };
                let demand_s = self.stations[index].demand_s;
                let Some(bit) = bit_of(index) else { continue };
                let without = self.solved[present & !(1 << bit)].as_ref().expect("the smaller network is solved first");
                let of = &mut probabilities[index];
                for at in (1..of.len()).rev() {
                    of[at] = rate_per_s * demand_s / at as f64 * of[at - 1];
                }
                let alone = without[users as usize - 1].rate_per_s;
                of[0] *= if alone.is_infinite() { 0.0 } else { rate_per_s / alone };
            }
            let busy = |index: usize| {
                if waits[index] == 0.0 {
                    0.0
                } else {
                    rate_per_s * self.stations[index].demand_s / self.stations[index].servers
                }
            };
            points.push(MvaPoint {
                users,
                rate_per_s,
                response_s,
                queue: queue.clone(),
                busy: (0..count).map(busy).collect(),
            });
        }
        points
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-12), "{a} {b}");
    }

    /// The load-dependent capacity of a station with `present` requests, for the convolution.
    fn capacity(station: &Station, present: usize) -> f64 {
        station.servers.min(present as f64)
    }

    /// Rates by convolution (Buzen 1973): an independent algorithm, for few users.
    fn convolution(stations: &[Station], think_s: f64, users: usize) -> Vec<f64> {
        let all = stations.iter().copied().chain([Station::delay(think_s)]);
        let mut sums = vec![0.0; users + 1];
        sums[0] = 1.0;
        for station in all {
            let mut own = vec![1.0; users + 1];
            for present in 1..=users {
                own[present] = own[present - 1] * station.demand_s / capacity(&station, present);
            }
            sums = (0..=users).map(|n| (0..=n).map(|at| sums[n - at] * own[at]).sum()).collect();
        }
        (1..=users).map(|n| sums[n - 1] / sums[n]).collect()
    }

    /// Two queues of 2 and 1 s, two users, no think time, by hand: G = 1, 3, 7, so the rates are 1/3 and 3/7 per
    /// second; R1 = 2 (1 + 2/3), R2 = 1 (1 + 1/3).
    #[test]
    fn mean_value_analysis_of_two_queues_matches_hand_computation() {
        let points = mva(&[Station::queue(2.0), Station::queue(1.0)], 0.0, 2);
        near(points[0].rate_per_s, 1.0 / 3.0);
        near(points[1].rate_per_s, 3.0 / 7.0);
        near(points[1].response_s, 14.0 / 3.0);
        near(points[1].queue[0], 10.0 / 7.0);
        near(points[1].queue[1], 4.0 / 7.0);
        near(points[1].busy[0], 6.0 / 7.0);
    }

    /// Two servers of 2 s, a think time of 2 s and three users, by hand with g = 1, 2, 2, 2 and z = 1, 2, 2, 4/3.
    #[test]
    fn mean_value_analysis_of_two_servers_matches_hand_computation() {
        let points = mva(&[Station { demand_s: 2.0, servers: 2.0 }], 2.0, 3);
        // G(1) = 2 + 2, G(2) = 2 + 4 + 2, G(3) = 2 + 4 + 4 + 4/3.
        near(points[0].rate_per_s, 1.0 / 4.0);
        near(points[1].rate_per_s, 4.0 / 8.0);
        near(points[2].rate_per_s, 8.0 / (34.0 / 3.0));
        near(points[2].response_s, 3.0 / points[2].rate_per_s - 2.0);
    }

    #[test]
    fn without_queues_the_response_time_is_the_demand() {
        let points = mva(&[], 2.0, 3);
        near(points[2].rate_per_s, 1.5);
        assert!(mva(&[Station::queue(0.0)], 0.0, 1)[0].rate_per_s.is_infinite());
        assert!(mva(&[Station::queue(1.0)], 0.0, 0).is_empty());
    }

    /// Near saturation with many servers the original recursion loses all precision.
    #[test]
    fn mean_value_analysis_is_exact_for_many_servers() {
        let points = mva(&[Station { demand_s: 0.064, servers: 64.0 }], 0.5, 2_000);
        for pair in points.windows(2) {
            assert!(pair[1].rate_per_s >= pair[0].rate_per_s * (1.0 - 1e-12), "{pair:?}");
        }
        let last = points.last().unwrap();
        near(last.rate_per_s, 1000.0);
        near(last.response_s, 1.5);
        // As long as no request waits, every request has its own server.
        near(points[49].rate_per_s, 50.0 / 0.564);
    }

    fn station() -> impl Strategy<Value = Station> {
        (0.001_f64..2.0, prop_oneof![Just(1.0), Just(2.0), Just(3.0), Just(7.0), Just(f64::INFINITY)])
            .prop_map(|(demand_s, servers)| Station { demand_s, servers })
    }

    proptest! {
        #[test]
        fn mean_value_analysis_agrees_with_convolution(
            stations in prop::collection::vec(station(), 1..5),
            think_s in 0.0_f64..5.0,
        ) {
            let points = mva(&stations, think_s, 20);
            for (point, rate_per_s) in points.iter().zip(convolution(&stations, think_s, 20)) {
                prop_assert!((point.rate_per_s / rate_per_s - 1.0).abs() < 1e-9, "{} {rate_per_s}", point.rate_per_s);
            }
        }

        /// Asymptotic bounds for any distribution (Denning and Buzen 1978), and Little's law over all users.
        #[test]
        fn mean_value_analysis_respects_its_asymptotic_bounds(
            stations in prop::collection::vec(station(), 1..5),
            think_s in 0.0_f64..5.0,
            users in 1_u32..300,
        ) {
            let points = mva(&stations, think_s, users);
            let demand_s: f64 = stations.iter().map(|station| station.demand_s).sum();
            let rates = stations.iter().map(|station| station.servers / station.demand_s);
            let rate_max = rates.fold(f64::INFINITY, f64::min);
            for point in &points {
                let n = f64::from(point.users);
                prop_assert!(point.rate_per_s <= rate_max.min(n / (demand_s + think_s)) * (1.0 + 1e-9), "{point:?}");
                prop_assert!(point.rate_per_s >= 1.0 / (demand_s + think_s) * (1.0 - 1e-9));
                let everywhere = point.queue.iter().sum::<f64>() + point.rate_per_s * think_s;
                prop_assert!((everywhere / n - 1.0).abs() < 1e-9, "{everywhere} {n}");
                prop_assert!(point.busy.iter().all(|busy| (0.0..=1.0 + 1e-9).contains(busy)), "{point:?}");
            }
        }
    }
}
