//! What the paper publishes of its caches: a few points of curves that were never tabulated, and sentences.

use super::rows::{ERRORS, HITS, MEAN, RESPONSES};
use super::scale::{Card, Machine};

/// A figure of a point of the sweep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// On which machine.
    pub machine: Machine,
    /// Behind which card.
    pub card: Card,
    /// Offered, from here.
    pub from_per_s: f64,
    /// To here.
    pub to_per_s: f64,
    /// Which figure.
    pub quantity: &'static str,
    /// Its own words, in the unit of the row.
    pub words: &'static str,
    /// As a number, where it can be drawn.
    pub value: Option<f64>,
}

const fn of(
    (machine, card): (Machine, Card),
    (from_per_s, to_per_s): (f64, f64),
    quantity: &'static str,
    words: &'static str,
    value: Option<f64>,
) -> Published {
    Published { machine, card, from_per_s, to_per_s, quantity, words, value }
}

/// Type1's card is not said; 10 Mbit/s is our reading.
const TYPE1: (Machine, Card) = (Machine::Small, Card::Mbit10);
const TYPE3_10: (Machine, Card) = (Machine::Large, Card::Mbit10);
const TYPE3_100: (Machine, Card) = (Machine::Large, Card::Mbit100);

/// All of the sweep.
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

/// What is published of a point.
pub fn published(machine: Machine, card: Card, rate_per_s: f64, quantity: &str) -> Option<&'static str> {
    let is = |one: &&Published| {
        one.machine == machine
            && one.card == card
            && one.quantity == quantity
            && (one.from_per_s..=one.to_per_s).contains(&rate_per_s)
    };
    PUBLISHED.iter().find(is).map(|one| one.words)
}

/// The paper's words on how far a machine can be used.
pub const fn usable(machine: Machine, card: Card) -> Option<&'static str> {
    match (machine, card) {
        (Machine::Small, Card::Mbit10) => Some("below 15"),
        (Machine::Middle | Machine::Large, Card::Mbit10) => Some("about 40"),
        (Machine::Large, Card::Mbit100) => Some("50"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_has_at_most_one_word_of_each_kind() {
        for rate in cachebench::sweep_plan::RATES_PER_S {
            for quantity in [RESPONSES, MEAN, HITS, ERRORS] {
                for (machine, card) in [TYPE1, TYPE3_10, TYPE3_100] {
                    let covers = |one: &&Published| {
                        (one.machine, one.card) == (machine, card)
                            && one.quantity == quantity
                            && (one.from_per_s..=one.to_per_s).contains(&rate)
                    };
                    let words = PUBLISHED.iter().filter(covers).count();
                    assert!(words <= 1, "{} {rate}/s {quantity}: {words}", machine.name());
                    assert_eq!(words == 1, published(machine, card, rate, quantity).is_some());
                }
            }
        }
        assert_eq!(published(Machine::Small, Card::Mbit10, 20.0, HITS), Some("32.6"));
        assert_eq!(published(Machine::Middle, Card::Mbit10, 20.0, HITS), None);
    }
}
