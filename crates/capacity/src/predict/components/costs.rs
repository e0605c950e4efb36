//! Cost of one component by its bytes; pure functions.

use schema::{ComponentCost, ComponentPoint, PartLaw};
use stats::regression::{CostModel, cost_model};

use crate::predict::model::{CONFIDENCE, Estimate};
use stats::median;

/// A cost by bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CostLine {
    /// Independent of bytes.
    ItemCost(Estimate),
    /// A line a + b n, less a cost that is counted elsewhere.
    Law(CostModel, Estimate),
}

impl CostLine {
    /// From `(bytes, seconds)` points: a line with three or more different sizes, otherwise the median. `None` of fewer
    /// than two.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        if let Some(law) = cost_model(points) {
            return Some(CostLine::Law(law, Estimate::default()));
        }
        let costs: Vec<f64> = points.iter().map(|(_, cost)| *cost).collect();
        let half = Estimate::of(&costs)?.half;
        Some(CostLine::ItemCost(Estimate { value: median(costs), half }))
    }

    /// Subtracts a cost that is counted elsewhere.
    pub fn less(self, other: Estimate) -> Self {
        match self {
            CostLine::ItemCost(each) => CostLine::ItemCost(each.less(other)),
            CostLine::Law(law, less) => CostLine::Law(law, less.plus(other)),
        }
    }

    /// Cost of one operation with this many bytes.
    pub fn at(&self, bytes: f64) -> Estimate {
        match self {
            CostLine::ItemCost(each) => *each,
            CostLine::Law(law, less) => {
                let at = law.at(bytes, CONFIDENCE);
                Estimate { value: at.mean, half: at.half_width }.less(*less)
            }
        }
    }

    /// The row of the document.
    pub fn row(&self) -> PartLaw {
        let fixed = self.at(0.0);
        let per_byte = match self {
            CostLine::ItemCost(_) => None,
            CostLine::Law(law, _) => Some(law.per_unit_interval(CONFIDENCE)),
        };
        PartLaw {
            fixed_s: fixed.value,
            fixed_interval: fixed.interval(),
            per_byte_s: per_byte.map(|interval| interval.mean),
            per_byte_interval: per_byte.map(|interval| [interval.low(), interval.high()]),
        }
    }
}

/// A measured component.
#[derive(Clone, Debug)]
pub struct MeasuredComponent {
    /// Name of the component, as in [`ComponentCost::component`].
    pub part: String,
    /// What was measured.
    pub words: String,
    /// CPU time of the process.
    pub processes: CostLine,
    /// CPU time including receive processing.
    pub cores: CostLine,
    /// The points measured.
    pub points: Vec<ComponentPoint>,
}

impl MeasuredComponent {
    /// From points; `None` if they are too few.
    pub fn of(part: &str, words: impl Into<String>, points: Vec<ComponentPoint>) -> Option<Self> {
        let measured_component = |cost: fn(&ComponentPoint) -> f64| {
            CostLine::of(&points.iter().map(|point| (point.bytes as f64, cost(point))).collect::<Vec<_>>())
        };
        let (processes, cores) =
            (measured_component(|point| point.processes_s)?, measured_component(|point| point.cores_s)?);
        Some(MeasuredComponent { part: part.into(), words: words.into(), processes, cores, points })
    }

    /// The row of the document.
    pub fn row(&self) -> ComponentCost {
        ComponentCost {
            component: self.part.clone(),
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
    fn cost_is_a_line_by_bytes_or_a_median() {
        let each = CostLine::of(&[(0.0, 1.0), (0.0, 2.0), (0.0, 9.0)]).unwrap();
        assert_eq!(each.at(5.0).value, 2.0);
        assert!(each.at(0.0).half > 0.0 && each.row().per_byte_s.is_none());
        let law = CostLine::of(&[(0.0, 2.0), (1000.0, 3.0), (2000.0, 4.0)]).unwrap();
        assert!((law.at(500.0).value - 2.5).abs() < 1e-9);
        let less = law.less(Estimate { value: 1.0, half: 0.5 });
        assert!((less.at(500.0).value - 1.5).abs() < 1e-9 && (less.at(500.0).half - 0.5).abs() < 1e-6);
        assert!((less.row().fixed_s - 1.0).abs() < 1e-9 && (less.row().per_byte_s.unwrap() - 0.001).abs() < 1e-9);
        assert_eq!(CostLine::of(&[(0.0, 1.0)]), None);
    }
}
