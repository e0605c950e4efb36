//! Options: parts, lengths, and factors.

use std::path::PathBuf;
use std::time::Duration;

use units::Bytes;

use super::forwarding;
use super::scale::{Interface, Machine};
use super::{COST_POINT, rows, storage};
use cachebench::sweep_plan::RATES_PER_S;
use experiment::Order;

/// Time to start squid and end a run, and for requests in flight at the end of a point.
const RUN_OVERHEAD: Duration = Duration::from_millis(2200);

/// Part of the reproduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchoolGatewayPart {
    /// The sweep on the small machine.
    Small,
    /// The sweep on the middle machine.
    Middle,
    /// The sweep on the large machine, with both interfaces.
    Large,
    /// 95 % cacheable with 90 % hits.
    Repeats,
    /// Every URL new.
    New,
    /// A class whose teacher fetched the pages.
    Class,
    /// A TCP stream through each machine, in five conditions.
    Forwarding,
    /// Bonnie's table.
    Disk,
}

impl SchoolGatewayPart {
    /// All parts, in order.
    pub const ALL: [SchoolGatewayPart; 8] = [
        SchoolGatewayPart::Small,
        SchoolGatewayPart::Middle,
        SchoolGatewayPart::Large,
        SchoolGatewayPart::Repeats,
        SchoolGatewayPart::New,
        SchoolGatewayPart::Class,
        SchoolGatewayPart::Forwarding,
        SchoolGatewayPart::Disk,
    ];

    /// A cache experiment: a workload on a machine with an interface, at the paper's rates.
    pub(super) fn experiments(self) -> Vec<CacheExperiment> {
        let ten = |machine, workload, rates: &'static [f64]| CacheExperiment {
            part: self,
            machine,
            interface: Interface::Mbit10,
            workload,
            rates,
        };
        match self {
            SchoolGatewayPart::Small => vec![ten(Machine::Small, "polymix-1", &RATES_PER_S)],
            SchoolGatewayPart::Middle => vec![ten(Machine::Middle, "polymix-1", &RATES_PER_S)],
            SchoolGatewayPart::Large => {
                let large = ten(Machine::Large, "polymix-1", &RATES_PER_S);
                vec![large, CacheExperiment { interface: Interface::Mbit100, ..large }]
            }
            SchoolGatewayPart::Repeats => vec![ten(Machine::Small, "gateway-prepared", &[20.0])],
            SchoolGatewayPart::New => vec![ten(Machine::Middle, "gateway-new", &[20.0, 40.0])],
            SchoolGatewayPart::Class => vec![ten(Machine::Small, "gateway-class", &[40.0])],
            SchoolGatewayPart::Forwarding | SchoolGatewayPart::Disk => Vec::new(),
        }
    }
}

/// One workload on one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheExperiment {
    pub(super) part: SchoolGatewayPart,
    pub(super) machine: Machine,
    pub(super) interface: Interface,
    pub(super) workload: &'static str,
    /// Requests per second in the paper.
    pub(super) rates: &'static [f64],
}

impl CacheExperiment {
    /// Name in the rows: `small, 10 Mbit/s`, with the situation.
    pub fn name(&self) -> String {
        let place = rows::experiment(self.machine, self.interface);
        match self.part {
            SchoolGatewayPart::Repeats => format!("{}, {place}", rows::REPEATS),
            SchoolGatewayPart::New => format!("{}, {place}", rows::NEW),
            SchoolGatewayPart::Class => format!("{}, {place}", rows::CLASS),
            _ => place,
        }
    }

    pub(super) fn is_sweep(&self) -> bool {
        matches!(self.part, SchoolGatewayPart::Small | SchoolGatewayPart::Middle | SchoolGatewayPart::Large)
    }
}

/// Options of the reproduction.
#[derive(Clone, Debug)]
pub struct SchoolGatewayOptions {
    /// Options that every reproduction has.
    pub order: Order,
    /// Parts to run.
    pub parts: Vec<SchoolGatewayPart>,
    /// Length of a point of a cache, its warm-up included.
    pub point: Duration,
    /// The paper's rates; those of a situation are its own.
    pub rates: Vec<f64>,
    /// Time scale F of the caches; absent: calibrated.
    pub factor: Option<f64>,
    /// With the timeouts that points of the paper's length permit.
    pub full: bool,
    /// Options of forwarding.
    pub streams: Streams,
    /// Options of storage.
    pub storage: Storage,
    /// Clients of the school's largest class, for the hardware question.
    pub clients: u32,
}

/// Options of forwarding.
#[derive(Clone, Debug, PartialEq)]
pub struct Streams {
    /// Trials of each condition; the conditions are interleaved.
    pub trials: u32,
    /// Length of a trial.
    pub lasts: Duration,
    /// Time scale F of forwarding; absent: calibrated.
    pub factor: Option<f64>,
    /// Request rate that loads a proxy, on the paper's scale; absent: wget, one file after the other, as in the paper.
    pub load_per_s: Option<f64>,
}

/// Options of storage.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    /// Folder on the storage to measure.
    pub directory: PathBuf,
    /// Size of a file in addition to the paper's 100 MB, which is small today.
    pub size: Bytes,
    /// Length of each test that does not take the whole file.
    pub each: Duration,
}

impl SchoolGatewayOptions {
    /// Approximate duration.
    pub fn time(&self) -> Duration {
        let experiments = self.experiments();
        let points: usize = experiments.iter().map(|experiment| self.rates_of(experiment).len()).sum();
        let cost = if self.measures_cost() { COST_POINT + RUN_OVERHEAD } else { Duration::ZERO };
        let forwarding = if self.forwards() { forwarding::time(&self.streams) } else { Duration::ZERO };
        let storage = if self.parts.contains(&SchoolGatewayPart::Disk) {
            storage::time(&self.storage, &self.order)
        } else {
            Duration::ZERO
        };
        cost + (self.point + RUN_OVERHEAD) * points as u32 + forwarding + storage
    }

    /// Whether any cache experiment is made.
    pub(super) fn has_caches(&self) -> bool {
        !self.experiments().is_empty()
    }

    pub(super) fn forwards(&self) -> bool {
        self.parts.contains(&SchoolGatewayPart::Forwarding)
    }

    /// Whether to calibrate the caches' F first; it also scales a proxy's load at a rate.
    pub(super) fn measures_cost(&self) -> bool {
        self.factor.is_none() && (self.has_caches() || (self.forwards() && self.streams.load_per_s.is_some()))
    }

    pub(super) fn experiments(&self) -> Vec<CacheExperiment> {
        let input = SchoolGatewayPart::ALL.into_iter().filter(|part| self.parts.contains(part));
        input.flat_map(SchoolGatewayPart::experiments).collect()
    }

    pub(super) fn rates_of(&self, experiment: &CacheExperiment) -> Vec<f64> {
        let is_requested = |rate: &f64| !experiment.is_sweep() || self.rates.iter().any(|input| input == rate);
        experiment.rates.iter().copied().filter(is_requested).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::SystemTime;

    use super::super::POINT;
    use super::*;

    pub fn input(parts: &[SchoolGatewayPart]) -> SchoolGatewayOptions {
        let order = Order { program: "y".into(), seed: 1, command: String::new(), started: SystemTime::UNIX_EPOCH };
        SchoolGatewayOptions {
            order,
            parts: parts.to_vec(),
            point: POINT,
            rates: RATES_PER_S.to_vec(),
            factor: None,
            full: false,
            streams: Streams { trials: 3, lasts: Duration::from_secs(3), factor: None, load_per_s: None },
            storage: Storage { directory: "/".into(), size: Bytes(1 << 30), each: Duration::from_secs(5) },
            clients: 40,
        }
    }

    #[test]
    fn default_options_take_some_minutes() {
        let caches = input(&SchoolGatewayPart::ALL[..6]);
        assert_eq!(caches.experiments().len(), 7);
        assert!((300..560).contains(&caches.time().as_secs()), "{:?}", caches.time());
        let mut some = input(&[SchoolGatewayPart::Class, SchoolGatewayPart::Small]);
        some.rates = vec![20.0];
        let names: Vec<String> = some.experiments().iter().map(CacheExperiment::name).collect();
        assert_eq!(
            names,
            ["small, 10 Mbit/s", "a class, small, 10 Mbit/s"],
            "in their order, independent of the \
                                                                              typed order"
        );
        some.factor = Some(10.0);
        assert_eq!(some.time(), (POINT + RUN_OVERHEAD) * 2, "a class has its own rate");
        let forwarding = input(&[SchoolGatewayPart::Forwarding]);
        assert!((300..720).contains(&forwarding.time().as_secs()), "{:?}", forwarding.time());
        let disk = input(&[SchoolGatewayPart::Disk]);
        assert!((20..120).contains(&disk.time().as_secs()), "{:?}", disk.time());
        assert_eq!(input(&SchoolGatewayPart::ALL).time(), caches.time() + forwarding.time() + disk.time());
    }

    #[test]
    fn factor_is_calibrated_where_it_is_needed() {
        assert!(input(&[SchoolGatewayPart::Class]).measures_cost());
        assert!(!input(&[SchoolGatewayPart::Forwarding, SchoolGatewayPart::Disk]).measures_cost());
        let mut at_a_rate = input(&[SchoolGatewayPart::Forwarding]);
        at_a_rate.streams.load_per_s = Some(40.0);
        assert!(at_a_rate.measures_cost());
        at_a_rate.factor = Some(10.0);
        assert!(!at_a_rate.measures_cost());
    }
}
