//! What one part costs, by how many bytes it has; pure.

use schema::{PartCost, PartLaw, PartPoint};
use stats::regression::{Law, law};

use crate::predict::model::{CONFIDENCE, Estimate};
use stats::median;

/// A cost by bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Price {
    /// The same whatever the bytes.
    Each(Estimate),
    /// A fixed part and one for each byte, less what is counted elsewhere.
    Law(Law, Estimate),
}

impl Price {
    /// Of `(bytes, seconds)` points: a law where there are three or more of different bytes, else their median. `None` of fewer than two.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        if let Some(law) = law(points) {
            return Some(Price::Law(law, Estimate::default()));
        }
        let costs: Vec<f64> = points.iter().map(|(_, cost)| *cost).collect();
        let half = Estimate::of(&costs)?.half;
        Some(Price::Each(Estimate { value: median(costs), half }))
    }

    /// The same less a cost that is counted elsewhere.
    pub fn less(self, other: Estimate) -> Self {
        match self {
            Price::Each(each) => Price::Each(each.less(other)),
            Price::Law(law, less) => Price::Law(law, less.plus(other)),
        }
    }

    /// What one of so many bytes costs.
    pub fn at(&self, bytes: f64) -> Estimate {
        match self {
            Price::Each(each) => *each,
            Price::Law(law, less) => {
                let at = law.at(bytes, CONFIDENCE);
                Estimate { value: at.mean, half: at.half_width }.less(*less)
            }
        }
    }

    /// As in the document.
    pub fn row(&self) -> PartLaw {
        let fixed = self.at(0.0);
        let per_byte = match self {
            Price::Each(_) => None,
            Price::Law(law, _) => Some(law.per_unit_interval(CONFIDENCE)),
        };
        PartLaw {
            fixed_s: fixed.value,
            fixed_interval: fixed.interval(),
            per_byte_s: per_byte.map(|interval| interval.mean),
            per_byte_interval: per_byte.map(|interval| [interval.low(), interval.high()]),
        }
    }
}

/// A part that was measured.
#[derive(Clone, Debug)]
pub struct Priced {
    /// Its name, as in [`PartCost::part`].
    pub part: String,
    /// What was done.
    pub words: String,
    /// Of its process.
    pub processes: Price,
    /// And with the receiving of packets.
    pub cores: Price,
    /// What it comes from.
    pub points: Vec<PartPoint>,
}

impl Priced {
    /// Of points; `None` where they are too few.
    pub fn of(part: &str, words: impl Into<String>, points: Vec<PartPoint>) -> Option<Self> {
        let priced = |cost: fn(&PartPoint) -> f64| {
            Price::of(&points.iter().map(|point| (point.bytes as f64, cost(point))).collect::<Vec<_>>())
        };
        let (processes, cores) = (priced(|point| point.processes_s)?, priced(|point| point.cores_s)?);
        Some(Priced { part: part.into(), words: words.into(), processes, cores, points })
    }

    /// As in the document.
    pub fn row(&self) -> PartCost {
        PartCost {
            part: self.part.clone(),
            words: self.words.clone(),
            processes: self.processes.row(),
            cores: self.cores.row(),
            points: self.points.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_make_a_law_and_without_them_there_is_a_median() {
        let each = Price::of(&[(0.0, 1.0), (0.0, 2.0), (0.0, 9.0)]).unwrap();
        assert_eq!(each.at(5.0).value, 2.0);
        assert!(each.at(0.0).half > 0.0 && each.row().per_byte_s.is_none());
        let law = Price::of(&[(0.0, 2.0), (1000.0, 3.0), (2000.0, 4.0)]).unwrap();
        assert!((law.at(500.0).value - 2.5).abs() < 1e-9);
        let less = law.less(Estimate { value: 1.0, half: 0.5 });
        assert!((less.at(500.0).value - 1.5).abs() < 1e-9 && (less.at(500.0).half - 0.5).abs() < 1e-6);
        assert!((less.row().fixed_s - 1.0).abs() < 1e-9 && (less.row().per_byte_s.unwrap() - 0.001).abs() < 1e-9);
        assert_eq!(Price::of(&[(0.0, 1.0)]), None);
    }
}
