//! Scales: map values to positions in the figure.

use super::chart::{Axis, Scale};
use super::ticks;

/// An axis between two positions of the figure.
#[derive(Clone, Debug)]
pub(super) struct Ruler {
    scale: Scale,
    from: f64,
    to: f64,
    start: f64,
    end: f64,
    /// Positions of the ticks inside the axis, with their labels.
    pub(super) ticks: Vec<(f64, String)>,
}

impl Ruler {
    /// Lays out an axis for these values; `start` and `end` are positions, `tick_count` is the number of ticks that
    /// fit.
    pub(super) fn new(
        axis: &Axis,
        values: impl Iterator<Item = f64>,
        start: f64,
        end: f64,
        tick_count: usize,
    ) -> Ruler {
        let usable = values.filter(|&value| drawable(axis.scale, value));
        let (low, high) = usable
            .chain(axis.from.into_iter().chain(axis.to).filter(|&value| drawable(axis.scale, value)))
            .map(|value| value.clamp(-VALUE_MAX, VALUE_MAX))
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        let nothing = if axis.scale == Scale::Log { (1e6, 1e7) } else { (0.0, 1.0) };
        let (low, high) = if low <= high { (low, high) } else { nothing };
        let (from, to, ticks) = match axis.scale {
            Scale::Linear => linear(axis, low, high, tick_count),
            Scale::Log => {
                let (from, to) = ticks::log_edges(low.max(RANGE_MIN), high.max(RANGE_MIN));
                let marks = ticks::log(from, to, tick_count);
                (from, to, marks.into_iter().map(|tick| (tick, axis.quantity.label(tick))).collect())
            }
            Scale::Tail => {
                // The axis extends at least to 90 %, so that its length is not zero.
                let to = high.clamp(0.9, 1.0 - 1e-9);
                let marks = ticks::tail(to, tick_count);
                (0.0, to, marks.into_iter().map(|tick| (tick, percent(tick))).collect())
            }
        };
        Ruler { scale: axis.scale, from, to, start, end, ticks }
    }

    /// The position of a value; `None` if it has none (NaN, not positive on a logarithmic axis). Values beyond the axis
    /// are at its end.
    pub(super) fn position(&self, value: f64) -> Option<f64> {
        if !drawable(self.scale, value) {
            return None;
        }
        let part = match self.scale {
            Scale::Linear => (value - self.from) / (self.to - self.from),
            Scale::Log => (value / self.from).ln() / (self.to / self.from).ln(),
            Scale::Tail => (1.0 - value.min(self.to)).ln() / (1.0 - self.to).ln(),
        };
        Some(self.start + part.clamp(0.0, 1.0) * (self.end - self.start)).filter(|position| position.is_finite())
    }

    /// The smallest value on the axis.
    pub(super) fn from(&self) -> f64 {
        self.from
    }
}

fn linear(axis: &Axis, low: f64, high: f64, tick_count: usize) -> (f64, f64, Vec<(f64, String)>) {
    let flat = high - low <= high.abs().max(low.abs()) * 1e-9;
    let (low, high) = match (flat, axis.from) {
        (true, Some(from)) if high <= from => (from, from + 1.0),
        (true, None) => (low - low.abs().max(1.0) * 0.1, high + high.abs().max(1.0) * 0.1),
        _ => (low, high),
    };
    let step = ticks::step(high - low, tick_count);
    // A time axis ends with the data; another axis ends at a round number, unless its end is configured.
    let time = axis.quantity == super::Quantity::Seconds;
    let from = if axis.from.is_some() || time { low } else { (low / step).floor() * step };
    let to = if axis.to.is_some() || time { high } else { (high / step - 1e-9).ceil() * step };
    let (marks, step) = ticks::linear(from, to, tick_count);
    let labels = axis.quantity.labels(&marks, step);
    (from, to, marks.into_iter().zip(labels).collect())
}

fn drawable(scale: Scale, value: f64) -> bool {
    value.is_finite()
        && match scale {
            Scale::Linear => true,
            Scale::Log => value > 0.0,
            Scale::Tail => (0.0..1.0).contains(&value),
        }
}

/// `99.9 %`, with as many digits as the quantile has.
fn percent(q: f64) -> String {
    let text = format!("{:.4}", q * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Largest drawable value: differences of larger values may not be finite.
const VALUE_MAX: f64 = 1e300;
const RANGE_MIN: f64 = 1e-9;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Quantity;

    fn labels(ruler: &Ruler) -> Vec<&str> {
        ruler.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn scale_maps_values_to_positions() {
        let axis = Axis::from_zero("connections", Quantity::Count);
        let ruler = Ruler::new(&axis, [3.0, 23.0].into_iter(), 200.0, 0.0, 4);
        assert_eq!(labels(&ruler), ["0", "5", "10", "15", "20", "25"]);
        assert_eq!(
            (ruler.position(0.0), ruler.position(25.0), ruler.position(f64::NAN)),
            (Some(200.0), Some(0.0), None)
        );
        let log = Ruler::new(&Axis::log("rtt", Quantity::Nanoseconds), [48e6].into_iter(), 0.0, 100.0, 6);
        assert_eq!(labels(&log), ["10 ms", "20 ms", "50 ms", "100 ms"]);
        assert_eq!(log.position(0.0), None);
        assert!((log.position(10e6 * 10_f64.sqrt()).unwrap() - 50.0).abs() < 1e-9);
    }

    #[test]
    fn scale_of_an_empty_axis_has_a_range() {
        let ruler = Ruler::new(&Axis::from_zero("x", Quantity::Count), std::iter::empty(), 0.0, 100.0, 4);
        assert!(ruler.ticks.len() >= 2);
        let ruler = Ruler::new(&Axis::log("x", Quantity::Nanoseconds), [0.0].into_iter(), 0.0, 100.0, 4);
        assert!(!ruler.ticks.is_empty());
    }

    #[test]
    fn tail_scale_stretches_high_percentiles() {
        let axis = Axis { scale: Scale::Tail, ..Axis::new("percentile", Quantity::Share) };
        let ruler = Ruler::new(&axis, [0.0, 0.999].into_iter(), 0.0, 300.0, 6);
        let position = |q: f64| ruler.position(q).unwrap().round();
        assert_eq!((position(0.0), position(0.9), position(0.99), position(0.999)), (0.0, 100.0, 200.0, 300.0));
        assert_eq!(labels(&ruler), ["0 %", "50 %", "90 %", "99 %", "99.9 %"]);
    }
}
