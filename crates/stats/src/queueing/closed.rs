//! A closed loop of users, exactly: mean value analysis.

/// Somewhere that a request needs time at: a resource with a queue, or a delay that everybody has to himself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Station {
    /// What a request needs there in all, in seconds: 0 or more.
    pub demand_s: f64,
    /// How many can be served at once: a whole number of 1 or more, or infinite for a delay (a path, a sleep).
    pub servers: f64,
}

impl Station {
    /// One server with a queue.
    pub const fn queue(demand_s: f64) -> Self {
        Station { demand_s, servers: 1.0 }
    }

    /// A delay.
    pub const fn delay(demand_s: f64) -> Self {
        Station { demand_s, servers: f64::INFINITY }
    }
}

/// What so many users come to.
#[derive(Clone, Debug, PartialEq)]
pub struct MvaPoint {
    /// Users.
    pub users: u32,
    /// Requests a second.
    pub rate_per_s: f64,
    /// Mean response time in seconds: all stations, without thinking.
    pub response_s: f64,
    /// Mean number of requests at each station, those being served included.
    pub queue: Vec<f64>,
    /// Share of each station's servers that is busy, 0 to 1; 0 for a delay, which never is.
    pub busy: Vec<f64>,
}

/// Rate and response time of 1, 2, .. `users` who think for `think_s` seconds in the mean, ask, and wait for the
/// answer, one class of requests.
///
/// Exact for stations that share their time equally among those present, for delays, and for queues in order of arrival
/// whose times are exponential; near it for other queues. Several servers at a station are exact too. Source: M.
/// Reiser, S. S. Lavenberg, "Mean-value analysis of closed multichain queuing networks" (1980); the chance that a
/// station of several servers is empty comes from the network without it (M. Reiser, 1981), since the original's
/// difference of nearly equal numbers loses all digits near saturation. The time grows with users times servers, and
/// with two to the power of stations of several servers.
///
/// # Panics
/// Demands or thinking below 0 or not finite; servers that are no whole number of 1 or more, nor infinite; more than
/// eight stations of several servers.
pub fn mva(stations: &[Station], think_s: f64, users: u32) -> Vec<MvaPoint> {
    assert!(think_s.is_finite() && think_s >= 0.0, "thinking of {think_s} s");
    for station in stations {
        let whole = station.servers >= 1.0 && (station.servers.is_infinite() || station.servers.fract() == 0.0);
        assert!(station.demand_s.is_finite() && station.demand_s >= 0.0 && whole, "{station:?}");
    }
    let several: Vec<usize> = (0..stations.len())
        .filter(|&index| stations[index].servers > 1.0 && stations[index].servers.is_finite())
        .collect();
    assert!(several.len() <= 8, "{} stations of several servers", several.len());
    let mut rates = Rates { stations, think_s, users, several: &several, known: vec![None; 1 << several.len()] };
    rates.find(rates.known.len() - 1);
    rates.points()
}

/// Rates of the network and of those without some of its stations of several servers.
struct Rates<'a> {
    stations: &'a [Station],
    think_s: f64,
    users: u32,
    several: &'a [usize],
    /// By a set of stations of several servers that are there, as bits: the points.
    known: Vec<Option<Vec<MvaPoint>>>,
}

impl Rates<'_> {
    fn points(mut self) -> Vec<MvaPoint> {
        self.known.pop().flatten().expect("the whole network was found last")
    }

    fn find(&mut self, present: usize) {
        if self.known[present].is_some() {
            return;
        }
        for bit in (0..self.several.len()).filter(|bit| present & 1 << bit != 0) {
            self.find(present & !(1 << bit));
        }
        self.known[present] = Some(self.recursion(present));
    }

    fn recursion(&self, present: usize) -> Vec<MvaPoint> {
        let count = self.stations.len();
        let bit_of = |index: usize| self.several.iter().position(|&several| several == index);
        let is_there = |index: usize| bit_of(index).is_none_or(|bit| present & 1 << bit != 0);
        // Chances that 0, 1, .. m - 2 are at a station of m servers.
        let mut chances: Vec<Vec<f64>> = (0..count)
            .map(|index| {
                let servers = if bit_of(index).is_some() { self.stations[index].servers as usize } else { 1 };
                let mut chances = vec![0.0; servers - 1];
                if let Some(none) = chances.first_mut() {
                    *none = 1.0;
                }
                chances
            })
            .collect();
        let mut queue = vec![0.0; count];
        let mut points = Vec::with_capacity(self.users as usize);
        for users in 1..=self.users {
            let waits: Vec<f64> = (0..count)
                .map(|index| {
                    let Station { demand_s, servers } = self.stations[index];
                    if !is_there(index) {
                        0.0
                    } else if servers.is_infinite() {
                        demand_s
                    } else {
                        // An arriving request sees what one user fewer leaves: it waits for its turn among m.
                        let idle: f64 = chances[index]
                            .iter()
                            .zip(1..)
                            .map(|(chance, less)| chance * (servers - f64::from(less)))
                            .sum();
                        demand_s / servers * (1.0 + queue[index] + idle)
                    }
                })
                .collect();
            let response_s: f64 = waits.iter().sum();
            let rate_per_s = f64::from(users) / (self.think_s + response_s);
            for index in (0..count).filter(|&index| is_there(index)) {
                // A rate without bound passes nothing that takes time.
                queue[index] = if waits[index] == 0.0 { 0.0 } else { rate_per_s * waits[index] };
                let demand_s = self.stations[index].demand_s;
                let Some(bit) = bit_of(index) else { continue };
                let without = self.known[present & !(1 << bit)].as_ref().expect("found before");
                let of = &mut chances[index];
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

    /// How fast a station works with so many there, by its demand: convolution's load-dependent capacity.
    fn capacity(station: &Station, present: usize) -> f64 {
        station.servers.min(present as f64)
    }

    /// Rates by convolution (Buzen 1973): another road to the same numbers, for few users.
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

    /// Two queues, 2 and 1 s, two users, no thinking, by hand: G = 1, 3, 7, so 1/3 and 3/7 a second; the first queue
    /// holds 4/3 x ..: R1 = 2 (1 + 2/3), R2 = 1 (1 + 1/3).
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

    /// Two servers of 2 s and thinking of 2 s, three users: G = 1, 4, 2 + 4 + 2, 2/1 ..; by hand with g = 1, 2, 2, 2
    /// and z = 1, 2, 2, 4/3.
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

    /// Near saturation with many servers, where the original recursion loses every digit.
    #[test]
    fn mean_value_analysis_is_exact_for_many_servers() {
        let points = mva(&[Station { demand_s: 0.064, servers: 64.0 }], 0.5, 2_000);
        for pair in points.windows(2) {
            assert!(pair[1].rate_per_s >= pair[0].rate_per_s * (1.0 - 1e-12), "{pair:?}");
        }
        let last = points.last().unwrap();
        near(last.rate_per_s, 1000.0);
        near(last.response_s, 1.5);
        // As long as nobody waits, everybody has a server to himself.
        near(points[49].rate_per_s, 50.0 / 0.564);
    }

    fn station() -> impl Strategy<Value = Station> {
        (0.001_f64..2.0, prop_oneof![Just(1.0), Just(2.0), Just(3.0), Just(7.0), Just(f64::INFINITY)])
            .prop_map(|(demand_s, servers)| Station { demand_s, servers })
    }

    proptest! {
        #[test]
        fn mean_value_analysis_agrees_with_convolution(stations in prop::collection::vec(station(), 1..5), think_s in 0.0_f64..5.0) {
            let points = mva(&stations, think_s, 20);
            for (point, rate_per_s) in points.iter().zip(convolution(&stations, think_s, 20)) {
                prop_assert!((point.rate_per_s / rate_per_s - 1.0).abs() < 1e-9, "{} {rate_per_s}", point.rate_per_s);
            }
        }

        /// Bounds that hold whatever the times' distribution (Denning and Buzen 1978), and Little's law over all users.
        #[test]
        fn mean_value_analysis_respects_its_asymptotic_bounds(stations in prop::collection::vec(station(), 1..5), think_s in 0.0_f64..5.0, users in 1_u32..300) {
            let points = mva(&stations, think_s, users);
            let demand_s: f64 = stations.iter().map(|station| station.demand_s).sum();
            let most = stations.iter().map(|station| station.servers / station.demand_s).fold(f64::INFINITY, f64::min);
            for point in &points {
                let n = f64::from(point.users);
                prop_assert!(point.rate_per_s <= most.min(n / (demand_s + think_s)) * (1.0 + 1e-9), "{point:?}");
                prop_assert!(point.rate_per_s >= 1.0 / (demand_s + think_s) * (1.0 - 1e-9));
                let everywhere = point.queue.iter().sum::<f64>() + point.rate_per_s * think_s;
                prop_assert!((everywhere / n - 1.0).abs() < 1e-9, "{everywhere} {n}");
                prop_assert!(point.busy.iter().all(|busy| (0.0..=1.0 + 1e-9).contains(busy)), "{point:?}");
            }
        }
    }
}
