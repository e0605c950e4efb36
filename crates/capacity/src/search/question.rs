//! What is sought, as a course needs to know it: how many requests one of the load makes, how long a trial of it must last, and how much of
//! it can be made here at all.
//!
//! A rate is its own measure. A user asks once in a while, so that a number of users is a rate for as long as nothing is slow; connections that
//! are held are asked for little, and their number is not in the requests at all. `docs/concepts/capacity.md` defines each.

use std::time::Duration;

use plan::slo::Slo;
use plan::{CapacityPlan, Find, LoadPlan, Plan, TrialLoad, Turn};

use super::course::rounded;

/// One question.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadQuestion {
    /// What is sought.
    pub find: Find,
    /// Requests a second that one of the load makes where every answer comes at once: 1 of a rate. Above 0.
    pub requests_each_per_s: f64,
    /// A trial offers no fewer requests a second than this, however small its load; 0 of what is measured in requests.
    pub requests_least_per_s: f64,
    /// A trial lasts so long at least.
    pub least: Duration,
    /// And its warm-up.
    pub warmup: Duration,
    /// How much of it can be made here, whatever the requests; absent: as much as may be.
    pub most: Option<Most>,
}

/// The most of a load that this machine can make.
#[derive(Clone, Debug, PartialEq)]
pub struct Most {
    /// So much.
    pub load: f64,
    /// What allows no more, a sentence without its end.
    pub words: String,
}

impl LoadQuestion {
    /// A rate, of requests or of new connections.
    pub fn of_rate(find: Find) -> Self {
        LoadQuestion {
            find,
            requests_each_per_s: 1.0,
            requests_least_per_s: 0.0,
            least: Duration::ZERO,
            warmup: Duration::ZERO,
            most: None,
        }
    }

    /// That of a plan. Looks at this machine: open files, ports, memory.
    pub fn of(plan: &Plan, capacity: &CapacityPlan, slo: &Slo) -> Self {
        match capacity.find {
            find @ (Find::Rate | Find::NewConnections) => LoadQuestion::of_rate(find),
            Find::Users => {
                let one = plan.of_trial(TrialLoad::Users(1), Duration::ZERO).load;
                let turn = one.turn().expect("a plan of users was checked");
                let question = LoadQuestion::users(&turn, one.users_over.unwrap_or_default());
                LoadQuestion { most: Some(most_users(plan, &one)), ..question }
            }
            Find::Connections => {
                let possible = testbed::connections_possible(plan, false);
                let most = Most { load: possible.connections as f64, words: possible.words };
                LoadQuestion { most: Some(most), ..LoadQuestion::connections(capacity, slo) }
            }
        }
    }

    /// Of connections that are held, wherever they are made.
    pub fn connections(capacity: &CapacityPlan, slo: &Slo) -> Self {
        LoadQuestion {
            requests_each_per_s: 1.0 / capacity.each_every().as_secs_f64(),
            requests_least_per_s: slo.requests_min().max(REQUESTS_MIN) as f64 / capacity.trial.as_secs_f64(),
            ..LoadQuestion::of_rate(Find::Connections)
        }
    }

    /// Of users who do this, wherever they are; `over`: how long it takes until all of them have begun.
    pub fn users(turn: &Turn, over: Duration) -> Self {
        let each = turn.lasts.div_f64(turn.steps);
        LoadQuestion {
            requests_each_per_s: turn.requests / turn.lasts.as_secs_f64(),
            least: each * CapacityPlan::TURNS_MIN,
            // They think first, and only then it shows how many wait for each other.
            warmup: over + each,
            ..LoadQuestion::of_rate(Find::Users)
        }
    }

    /// A load as it is made: with as many digits as are kept, and whole where it is a number.
    pub fn load(&self, load: f64) -> f64 {
        if self.find.is_rate() { rounded(load) } else { rounded(load.max(1.0)).round() }
    }

    /// Requests a second of a load, where every answer comes at once.
    pub fn rate_per_s(&self, load: f64) -> f64 {
        (load * self.requests_each_per_s).max(self.requests_least_per_s)
    }

    /// The load that makes so many requests a second; none where requests do not say how large it is.
    pub fn of_requests(&self, rate_per_s: f64) -> Option<f64> {
        (self.find != Find::Connections).then_some(rate_per_s / self.requests_each_per_s)
    }

    /// A load for people.
    pub fn words(&self, load: f64) -> String {
        if self.find.is_rate() { per_second(load) } else { format!("{load:.0} {}", self.find.unit()) }
    }
}

/// Fewer requests in a trial say nothing.
pub const REQUESTS_MIN: u64 = 10;

/// The most users that can be made here, `one` of whom is the load of a plan.
fn most_users(plan: &Plan, one: &LoadPlan) -> Most {
    let widest = one.workload().map_or(1, |workload| workload.widest_step().max(1));
    let possible = testbed::connections_possible(plan, true);
    let each = if widest == 1 { String::new() } else { format!(" (a user has up to {widest} connections at once)") };
    let addresses = f64::from(path::AddressPlan::CLIENTS_MAX);
    let by_connections = Most {
        load: (possible.connections as f64 / f64::from(widest)).floor(),
        words: format!("{}{each}", possible.words),
    };
    let by_clients =
        Most { load: addresses, words: format!("each user is a client of its own, and {addresses} are the most") };
    if by_connections.load < by_clients.load { by_connections } else { by_clients }
}

/// A rate for people.
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

    fn question(capacity: &str) -> LoadQuestion {
        let text = format!(
            "slo = \"p99 < 200ms\"\n[load]\nurl = \"http://server:8080/\"\n[path]\nrtt = \"0ms\"\n[server]\ncommand = \"nginx\"\n[capacity]\n{capacity}"
        );
        let plan = Plan::from_toml(&text, "plan").unwrap();
        LoadQuestion::of(&plan, plan.capacity.as_ref().unwrap(), plan.slo.as_ref().unwrap())
    }

    #[test]
    fn a_rate_is_its_own_measure() {
        for find in ["rate", "new-connections"] {
            let of = question(&format!("find = \"{find}\"\n"));
            assert_eq!((of.rate_per_s(12.5), of.of_requests(12.5), of.most.is_none()), (12.5, Some(12.5), true));
            assert_eq!((of.load(12.3456789), of.words(1234.5)), (12.34568, "1234/s".to_owned()));
        }
    }

    #[test]
    fn users_ask_once_in_their_think_time_and_are_spread_over_it() {
        let of = question("find = \"users\"\nthink = \"7s\"\n");
        assert!((of.rate_per_s(1400.0) - 200.0).abs() < 1e-9);
        assert_eq!(of.of_requests(200.0).map(f64::round), Some(1400.0));
        assert_eq!((of.least, of.warmup), (Duration::from_secs(21), Duration::from_secs(14)));
        assert_eq!((of.load(12.5), of.load(0.2)), (13.0, 1.0));
        assert!(of.most.is_some_and(|most| most.load <= 65_534.0));
    }

    #[test]
    fn connections_are_asked_now_and_then_and_often_enough_for_the_objective() {
        let of = question("find = \"connections\"\neach_every = \"10s\"\n");
        // 2,000 requests of a p99 in a trial of a minute.
        assert!((of.rate_per_s(1.0) - 2000.0 / 60.0).abs() < 1e-9);
        assert!((of.rate_per_s(1000.0) - 100.0).abs() < 1e-9);
        assert_eq!((of.of_requests(10.0), of.words(4990.0)), (None, "4990 connections".to_owned()));
    }
}
