//! The searched quantity: requests per unit of load, shortest trial, and the most that this machine can generate.
//!
//! A rate is its own measure. Users make a rate proportional to their number as long as responses are fast. Idle open
//! connections make few requests, independent of their number. `docs/concepts/capacity.md` defines each.

use std::time::Duration;

use plan::slo::Slo;
use plan::{CapacityPlan, Find, LoadPlan, Plan, TrialLoad, Turn};

use super::sequence::rounded;

/// The searched quantity of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchQuantity {
    /// Which quantity.
    pub find: Find,
    /// Requests per second per unit of load with immediate responses: 1 for a rate. Above 0.
    pub requests_each_per_s: f64,
    /// Least request rate of a trial, however small its load; 0 where the load is measured in requests.
    pub requests_least_per_s: f64,
    /// Shortest trial.
    pub least: Duration,
    /// Shortest warm-up.
    pub warmup: Duration,
    /// Highest load that this machine can generate, apart from request rates; absent: unlimited.
    pub most: Option<MachineLimit>,
}

/// Highest load that this machine can generate.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineLimit {
    /// The load.
    pub load: f64,
    /// The reason, as a sentence without a full stop.
    pub words: String,
}

impl SearchQuantity {
    /// A rate of requests or of new connections.
    pub fn of_rate(find: Find) -> Self {
        SearchQuantity {
            find,
            requests_each_per_s: 1.0,
            requests_least_per_s: 0.0,
            least: Duration::ZERO,
            warmup: Duration::ZERO,
            most: None,
        }
    }

    /// The quantity of a plan. Reads this machine's limits of open files, ports and memory.
    pub fn of(plan: &Plan, capacity: &CapacityPlan, slo: &Slo) -> Self {
        match capacity.find {
            find @ (Find::Rate | Find::NewConnections) => SearchQuantity::of_rate(find),
            Find::Users => {
                let one = plan.of_trial(TrialLoad::Users(1), Duration::ZERO).load;
                let turn = one.turn().expect("a plan of users was checked");
                let quantity = SearchQuantity::users(&turn, one.users_over.unwrap_or_default());
                SearchQuantity { most: Some(of_all_shards(most_users(plan, &one), plan)), ..quantity }
            }
            Find::Connections => {
                let possible = testbed::connections_possible(plan, false);
                let most = MachineLimit { load: possible.connections as f64, words: possible.words };
                SearchQuantity { most: Some(of_all_shards(most, plan)), ..SearchQuantity::connections(capacity, slo) }
            }
        }
    }

    /// Idle open connections, without limits of a machine.
    pub fn connections(capacity: &CapacityPlan, slo: &Slo) -> Self {
        SearchQuantity {
            requests_each_per_s: 1.0 / capacity.each_every().as_secs_f64(),
            requests_least_per_s: slo.requests_min().max(REQUESTS_MIN) as f64 / capacity.trial.as_secs_f64(),
            ..SearchQuantity::of_rate(Find::Connections)
        }
    }

    /// Users with this cycle, without limits of a machine; `over`: time until all of them have started.
    pub fn users(turn: &Turn, over: Duration) -> Self {
        let each = turn.lasts.div_f64(turn.steps);
        SearchQuantity {
            requests_each_per_s: turn.requests / turn.lasts.as_secs_f64(),
            least: each * CapacityPlan::TURNS_MIN,
            // Users think first; only afterwards waiting shows.
            warmup: over + each,
            ..SearchQuantity::of_rate(Find::Users)
        }
    }

    /// A load rounded to the stored digits, and to a whole number for users and connections.
    pub fn load(&self, load: f64) -> f64 {
        if self.find.is_rate() { rounded(load) } else { rounded(load.max(1.0)).round() }
    }

    /// Requests per second of a load with immediate responses.
    pub fn rate_per_s(&self, load: f64) -> f64 {
        (load * self.requests_each_per_s).max(self.requests_least_per_s)
    }

    /// The load that makes this many requests per second; `None` where requests do not determine the load.
    pub fn of_requests(&self, rate_per_s: f64) -> Option<f64> {
        (self.find != Find::Connections).then_some(rate_per_s / self.requests_each_per_s)
    }

    /// A load as text.
    pub fn words(&self, load: f64) -> String {
        if self.find.is_rate() { per_second(load) } else { format!("{load:.0} {}", self.find.unit()) }
    }
}

/// Fewest requests of a trial.
pub const REQUESTS_MIN: u64 = 10;

/// The limit of all machines of the load, if each has that of this one. A machine with less refuses its part.
fn of_all_shards(limit: MachineLimit, plan: &Plan) -> MachineLimit {
    let shards = plan.shard.count();
    if shards == 1 {
        return limit;
    }
    let clients = f64::from(path::AddressPlan::CLIENTS_MAX);
    let load = if plan.capacity.as_ref().is_some_and(|capacity| capacity.find == Find::Users) {
        // Users are clients, which are numbered across all machines.
        (limit.load * f64::from(shards)).min(clients)
    } else {
        limit.load * f64::from(shards)
    };
    MachineLimit { load, words: format!("{} on each of {shards} machines, if all are as this one", limit.words) }
}

/// The most users that this machine can generate; `one` is the load of one user.
fn most_users(plan: &Plan, one: &LoadPlan) -> MachineLimit {
    let widest = one.workload().map_or(1, |workload| workload.widest_step().max(1));
    let possible = testbed::connections_possible(plan, true);
    let each = if widest == 1 {
        String::new()
    } else {
        format!(
            " (a user has up to {widest} connections at the same \
                                                                time)"
        )
    };
    let addresses = f64::from(path::AddressPlan::CLIENTS_MAX);
    let by_connections = MachineLimit {
        load: (possible.connections as f64 / f64::from(widest)).floor(),
        words: format!("{}{each}", possible.words),
    };
    let by_clients = MachineLimit {
        load: addresses,
        words: format!("each user has its own client address, and there are {addresses}"),
    };
    if by_connections.load < by_clients.load { by_connections } else { by_clients }
}

/// A rate as text.
pub fn per_second(rate: f64) -> String {
    match rate {
        r if r < 9.995 => format!("{r:.2}/s"),
        r if r < 999.95 => format!("{r:.1}/s"),
        r => format!("{r:.0}/s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quantity(capacity: &str) -> SearchQuantity {
        let text = format!(
            "slo = \"p99 < 200ms\"\n[load]\nurl = \"http://server:8080/\"\n[path]\nrtt = \"0ms\"\n[server]\ncommand = \"nginx\"\n[capacity]\n{capacity}"
        );
        let plan = Plan::from_toml(&text, "plan").unwrap();
        SearchQuantity::of(&plan, plan.capacity.as_ref().unwrap(), plan.slo.as_ref().unwrap())
    }

    #[test]
    fn load_of_a_rate_search_equals_its_request_rate() {
        for find in ["rate", "new-connections"] {
            let of = quantity(&format!("find = \"{find}\"\n"));
            assert_eq!((of.rate_per_s(12.5), of.of_requests(12.5), of.most.is_none()), (12.5, Some(12.5), true));
            assert_eq!((of.load(12.3456789), of.words(1234.5)), (12.34568, "1234/s".to_owned()));
        }
    }

    #[test]
    fn users_make_one_request_per_think_time() {
        let of = quantity("find = \"users\"\nthink = \"7s\"\n");
        assert!((of.rate_per_s(1400.0) - 200.0).abs() < 1e-9);
        assert_eq!(of.of_requests(200.0).map(f64::round), Some(1400.0));
        assert_eq!((of.least, of.warmup), (Duration::from_secs(21), Duration::from_secs(14)));
        assert_eq!((of.load(12.5), of.load(0.2)), (13.0, 1.0));
        assert!(of.most.is_some_and(|most| most.load <= 65_534.0));
    }

    #[test]
    fn connections_carry_enough_requests_for_the_objective() {
        let of = quantity("find = \"connections\"\neach_every = \"10s\"\n");
        // 2,000 requests for a p99 in a trial of a minute.
        assert!((of.rate_per_s(1.0) - 2000.0 / 60.0).abs() < 1e-9);
        assert!((of.rate_per_s(1000.0) - 100.0).abs() < 1e-9);
        assert_eq!((of.of_requests(10.0), of.words(4990.0)), (None, "4990 connections".to_owned()));
    }
}
