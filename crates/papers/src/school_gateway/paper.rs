//! The paper's figures for caches: a few points of curves that were not tabulated, and sentences.

use super::rows::{ERRORS, HITS, MEAN, RESPONSES};
use super::scale::{Interface, Machine};

/// A published figure of the sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The machine.
    pub machine: Machine,
    /// Interface of the machine.
    pub interface: Interface,
    /// Offered rate, from.
    pub from_per_s: f64,
    /// Offered rate, to.
    pub to_per_s: f64,
    /// The quantity.
    pub quantity: &'static str,
    /// The published text, in the unit of the row.
    pub words: &'static str,
    /// As a number, for charts.
    pub value: Option<f64>,
}

const fn of(
    (machine, interface): (Machine, Interface),
    (from_per_s, to_per_s): (f64, f64),
    quantity: &'static str,
    words: &'static str,
    value: Option<f64>,
) -> Published {
    Published { machine, interface, from_per_s, to_per_s, quantity, words, value }
}

/// Type1's interface is not published; 10 Mbit/s is our reading.
const TYPE1: (Machine, Interface) = (Machine::Small, Interface::Mbit10);
const TYPE3_10: (Machine, Interface) = (Machine::Large, Interface::Mbit10);
const TYPE3_100: (Machine, Interface) = (Machine::Large, Interface::Mbit100);

/// All figures of the sweep.
pub const PUBLISHED: [Published; 11] = [
    of(TYPE1, (10.0, 80.0), RESPONSES, "about 10", Some(10.0)),
    of(TYPE1, (15.0, 19.0), MEAN, "over 30", None),
    of(TYPE1, (20.0, 20.0), MEAN, "79.19", Some(79.19)),
    of(TYPE1, (21.0, 80.0), MEAN, "over 30", None),
    of(TYPE1, (20.0, 20.0), HITS, "32.6", Some(32.6)),
    of(TYPE1, (20.0, 20.0), ERRORS, "48.8", Some(48.8)),
    of(TYPE1, (40.0, 80.0), ERRORS, "50, and ended", Some(50.0)),
    of(TYPE3_100, (5.0, 50.0), ERRORS, "0", Some(0.0)),
    of(TYPE3_100, (80.0, 80.0), ERRORS, "23.30", Some(23.3)),
    of(TYPE3_100, (80.0, 80.0), HITS, "below 55", None),
    of(TYPE3_10, (80.0, 80.0), ERRORS, "about twice 23.30", Some(46.6)),
];

/// The published figure of a point.
pub fn published(machine: Machine, interface: Interface, rate_per_s: f64, quantity: &str) -> Option<&'static str> {
    let is = |one: &&Published| {
        one.machine == machine
            && one.interface == interface
            && one.quantity == quantity
            && (one.from_per_s..=one.to_per_s).contains(&rate_per_s)
    };
    PUBLISHED.iter().find(is).map(|one| one.words)
}

/// The paper's text on the rate up to which a machine is usable.
pub const fn usable(machine: Machine, interface: Interface) -> Option<&'static str> {
    match (machine, interface) {
        (Machine::Small, Interface::Mbit10) => Some("below 15"),
        (Machine::Middle | Machine::Large, Interface::Mbit10) => Some("about 40"),
        (Machine::Large, Interface::Mbit100) => Some("50"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn point_has_at_most_one_published_figure_per_quantity() {
        for rate in cachebench::sweep_plan::RATES_PER_S {
            for quantity in [RESPONSES, MEAN, HITS, ERRORS] {
                for (machine, interface) in [TYPE1, TYPE3_10, TYPE3_100] {
                    let covers = |one: &&Published| {
                        (one.machine, one.interface) == (machine, interface)
                            && one.quantity == quantity
                            && (one.from_per_s..=one.to_per_s).contains(&rate)
                    };
                    let words = PUBLISHED.iter().filter(covers).count();
                    assert!(words <= 1, "{} {rate}/s {quantity}: {words}", machine.name());
                    assert_eq!(words == 1, published(machine, interface, rate, quantity).is_some());
                }
            }
        }
        assert_eq!(published(Machine::Small, Interface::Mbit10, 20.0, HITS), Some("32.6"));
        assert_eq!(published(Machine::Middle, Interface::Mbit10, 20.0, HITS), None);
    }
}
