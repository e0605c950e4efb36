//! What is asked for: parts, lengths, and factors.

use std::path::PathBuf;
use std::time::Duration;

use units::Bytes;

use super::forwarding;
use super::scale::{Card, Machine};
use super::{COST_POINT, rows, storage};
use cachebench::sweep_plan::RATES_PER_S;
use experiment::Order;

/// Starting squid and ending a run, and what is under way when a point is over.
const AROUND: Duration = Duration::from_millis(2200);

/// A part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchoolGatewayPart {
    /// The sweep on the small machine.
    Small,
    /// On the middle one.
    Middle,
    /// On the large one, with both cards.
    Large,
    /// 95 % cacheable with 90 % hits.
    Repeats,
    /// Every URL new.
    New,
    /// A class whose teacher fetched the pages.
    Class,
    /// A TCP stream through the machine, in five conditions.
    Forwarding,
    /// Bonnie's table.
    Disk,
}

impl SchoolGatewayPart {
    /// All, in their order.
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

    /// What is measured of a cache: a mix on a machine behind a card, at the paper's rates.
    pub(super) fn experiments(self) -> Vec<CacheExperiment> {
        let ten = |machine, mix, rates: &'static [f64]| CacheExperiment {
            part: self,
            machine,
            card: Card::Mbit10,
            mix,
            rates,
        };
        match self {
            SchoolGatewayPart::Small => vec![ten(Machine::Small, "polymix-1", &RATES_PER_S)],
            SchoolGatewayPart::Middle => vec![ten(Machine::Middle, "polymix-1", &RATES_PER_S)],
            SchoolGatewayPart::Large => {
                let large = ten(Machine::Large, "polymix-1", &RATES_PER_S);
                vec![large, CacheExperiment { card: Card::Mbit100, ..large }]
            }
            SchoolGatewayPart::Repeats => vec![ten(Machine::Small, "gateway-prepared", &[20.0])],
            SchoolGatewayPart::New => vec![ten(Machine::Middle, "gateway-new", &[20.0, 40.0])],
            SchoolGatewayPart::Class => vec![ten(Machine::Small, "gateway-class", &[40.0])],
            SchoolGatewayPart::Forwarding | SchoolGatewayPart::Disk => Vec::new(),
        }
    }
}

/// One mix on one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheExperiment {
    pub(super) part: SchoolGatewayPart,
    pub(super) machine: Machine,
    pub(super) card: Card,
    pub(super) mix: &'static str,
    /// The paper's requests a second.
    pub(super) rates: &'static [f64],
}

impl CacheExperiment {
    /// As in the rows: `small, 10 Mbit/s`, and what is special about it.
    pub fn name(&self) -> String {
        let place = rows::experiment(self.machine, self.card);
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

/// What to make.
#[derive(Clone, Debug)]
pub struct SchoolGatewayOptions {
    /// As for every reproduction.
    pub order: Order,
    /// Which parts.
    pub parts: Vec<SchoolGatewayPart>,
    /// Length of a point of a cache, its warm-up included.
    pub point: Duration,
    /// The paper's rates; those of a situation are its own.
    pub rates: Vec<f64>,
    /// How much faster time runs than in the paper for caches; absent: found by a measurement.
    pub factor: Option<f64>,
    /// With the time-outs that a point of the paper's length lets one see.
    pub full: bool,
    /// How forwarding is measured.
    pub streams: Streams,
    /// How storage is measured.
    pub storage: Storage,
    /// The school that asks what it needs: seats of its largest class.
    pub seats: u32,
}

/// How forwarding is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Streams {
    /// Trials of each condition; the conditions take turns.
    pub trials: u32,
    /// Length of one.
    pub lasts: Duration,
    /// How much faster time runs than in the paper for forwarding; absent: found by a measurement.
    pub factor: Option<f64>,
    /// A loaded proxy is asked so often a second, on the paper's scale; absent: by wget, one file after the other, as in the paper.
    pub load_per_s: Option<f64>,
}

/// How storage is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Storage {
    /// The folder whose storage it is.
    pub directory: PathBuf,
    /// Size of a file beside the paper's 100 MB, which is small for today.
    pub size: Bytes,
    /// Length of each test that does not take the whole file.
    pub each: Duration,
}

impl SchoolGatewayOptions {
    /// Time it takes, nearly.
    pub fn time(&self) -> Duration {
        let experiments = self.experiments();
        let points: usize = experiments.iter().map(|experiment| self.rates_of(experiment).len()).sum();
        let cost = if self.measures_cost() { COST_POINT + AROUND } else { Duration::ZERO };
        let forwarding = if self.forwards() { forwarding::time(&self.streams) } else { Duration::ZERO };
        let storage = if self.parts.contains(&SchoolGatewayPart::Disk) {
            storage::time(&self.storage, &self.order)
        } else {
            Duration::ZERO
        };
        cost + (self.point + AROUND) * points as u32 + forwarding + storage
    }

    /// Whether anything of a cache is to be made.
    pub(super) fn has_caches(&self) -> bool {
        !self.experiments().is_empty()
    }

    pub(super) fn forwards(&self) -> bool {
        self.parts.contains(&SchoolGatewayPart::Forwarding)
    }

    /// Whether the caches' factor is to be found first; a load of a proxy at a rate goes by it, too.
    pub(super) fn measures_cost(&self) -> bool {
        self.factor.is_none() && (self.has_caches() || (self.forwards() && self.streams.load_per_s.is_some()))
    }

    pub(super) fn experiments(&self) -> Vec<CacheExperiment> {
        let asked = SchoolGatewayPart::ALL.into_iter().filter(|part| self.parts.contains(part));
        asked.flat_map(SchoolGatewayPart::experiments).collect()
    }

    pub(super) fn rates_of(&self, experiment: &CacheExperiment) -> Vec<f64> {
        let is_asked = |rate: &f64| !experiment.is_sweep() || self.rates.iter().any(|asked| asked == rate);
        experiment.rates.iter().copied().filter(is_asked).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::SystemTime;

    use super::super::POINT;
    use super::*;

    pub fn asked(parts: &[SchoolGatewayPart]) -> SchoolGatewayOptions {
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
            seats: 40,
        }
    }

    #[test]
    fn all_of_it_takes_some_minutes() {
        let caches = asked(&SchoolGatewayPart::ALL[..6]);
        assert_eq!(caches.experiments().len(), 7);
        assert!((300..560).contains(&caches.time().as_secs()), "{:?}", caches.time());
        let mut some = asked(&[SchoolGatewayPart::Class, SchoolGatewayPart::Small]);
        some.rates = vec![20.0];
        let names: Vec<String> = some.experiments().iter().map(CacheExperiment::name).collect();
        assert_eq!(names, ["small, 10 Mbit/s", "a class, small, 10 Mbit/s"], "in their order, whatever was typed");
        some.factor = Some(10.0);
        assert_eq!(some.time(), (POINT + AROUND) * 2, "a class has its own rate");
        let forwarding = asked(&[SchoolGatewayPart::Forwarding]);
        assert!((300..720).contains(&forwarding.time().as_secs()), "{:?}", forwarding.time());
        let disk = asked(&[SchoolGatewayPart::Disk]);
        assert!((20..120).contains(&disk.time().as_secs()), "{:?}", disk.time());
        assert_eq!(asked(&SchoolGatewayPart::ALL).time(), caches.time() + forwarding.time() + disk.time());
    }

    #[test]
    fn a_factor_is_measured_where_something_goes_by_it() {
        assert!(asked(&[SchoolGatewayPart::Class]).measures_cost());
        assert!(!asked(&[SchoolGatewayPart::Forwarding, SchoolGatewayPart::Disk]).measures_cost());
        let mut at_a_rate = asked(&[SchoolGatewayPart::Forwarding]);
        at_a_rate.streams.load_per_s = Some(40.0);
        assert!(at_a_rate.measures_cost());
        at_a_rate.factor = Some(10.0);
        assert!(!at_a_rate.measures_cost());
    }
}
