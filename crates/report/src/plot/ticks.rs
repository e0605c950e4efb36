//! Ticks of an axis.

/// Ticks of a linear axis from `from` to `to`: about `count` multiples of 1, 2 or 5 times a power of ten, all inside;
/// and their distance. `from < to`, both finite.
pub(super) fn linear(from: f64, to: f64, count: usize) -> (Vec<f64>, f64) {
    let step = step(to - from, count);
    let (first, last) = ((from / step - EPSILON).ceil(), (to / step + EPSILON).floor());
    // Multiplied, not added up, so that the ticks are exact multiples.
    let count = (last - first).clamp(0.0, TICKS_MAX as f64) as usize;
    let ticks = (0..=count).map(|at| (first + at as f64) * step).filter(|tick| tick.is_finite());
    // -0 would be written with a sign.
    (ticks.map(|tick| (tick + 0.0).clamp(from, to)).collect(), step)
}

/// The distance of the ticks: 1, 2 or 5 times a power of ten.
pub(super) fn step(span: f64, count: usize) -> f64 {
    let rough = (span / count.max(1) as f64).max(f64::MIN_POSITIVE);
    let power = 10_f64.powf(rough.log10().floor()).max(f64::MIN_POSITIVE);
    let factor = match rough / power {
        f if f < 1.5 => 1.0,
        f if f < 3.5 => 2.0,
        f if f < 7.5 => 5.0,
        _ => 10.0,
    };
    power * factor
}

/// Ticks of a logarithmic axis, all inside: powers of ten, with 2 and 5 in between on a short axis, and fewer powers on
/// a very long one.
pub(super) fn log(from: f64, to: f64, count: usize) -> Vec<f64> {
    let last = to.log10().ceil() as i32;
    let decades = (to.log10() - from.log10()).max(0.0);
    let factors: &[f64] = match decades {
        d if d * 3.0 <= count as f64 + 2.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0],
    };
    // With 2 and 5 the first tick may belong to the power of ten below.
    let first = if factors.len() > 1 { from.log10().floor() } else { (from.log10() - EPSILON).ceil() } as i32;
    let stride = ((decades / count.max(1) as f64).ceil().max(1.0)) as usize;
    (first..=last)
        .step_by(stride)
        .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
        .filter(|tick| (from * (1.0 - EPSILON)..=to * (1.0 + EPSILON)).contains(tick))
        .map(|tick| tick.clamp(from, to))
        .collect()
}

/// Ticks of a tail axis up to the quantile `to`: 0, 50, 90, 99 % and so on, and 75, 95 % if they fit.
pub(super) fn tail(to: f64, count: usize) -> Vec<f64> {
    let all = [0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999, 0.999999];
    let few = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999999];
    let inside = |ticks: &[f64]| ticks.iter().copied().filter(|&tick| tick <= to + EPSILON).collect::<Vec<_>>();
    let ticks = inside(&all);
    if ticks.len() <= count { ticks } else { inside(&few) }
}

/// The edges of a logarithmic axis: 1, 2 or 5 times a power of ten, at least a decade apart, around all values.
/// `0 < from <= to`.
pub(super) fn log_edges(from: f64, to: f64) -> (f64, f64) {
    let (mut low, mut high) = (below(from), above(to));
    // Extended on both sides, so that a single value is in the middle.
    while high / low < 9.9 {
        (low, high) = (below(low * 0.99), above(high * 1.01));
    }
    (low, high)
}

fn below(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [5.0, 2.0, 1.0].map(|f| f * power).into_iter().find(|&edge| edge <= value * (1.0 + EPSILON)).unwrap_or(power)
}

fn above(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    [1.0, 2.0, 5.0].map(|f| f * power).into_iter().find(|&edge| edge >= value * (1.0 - EPSILON)).unwrap_or(10.0 * power)
}

/// Tolerance, so that a tick exactly at an edge is inside despite rounding.
const EPSILON: f64 = 1e-9;
/// Limit of ticks: more than fit on any axis.
const TICKS_MAX: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn linear_ticks_are_round_numbers() {
        assert_eq!(linear(0.0, 110.0, 5).0, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear(0.0, 1.0, 4).0, [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        assert_eq!(linear(-3.0, 12.0, 3).0, [0.0, 5.0, 10.0]);
        assert_eq!(log(1e6, 1e7, 6), [1e6, 2e6, 5e6, 1e7]);
        assert_eq!(log(1e3, 1e9, 6).len(), 7);
        assert_eq!(tail(0.999, 8), [0.0, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999]);
        assert_eq!(log_edges(48e6, 48e6), (1e7, 1e8));
        assert_eq!(log_edges(1.1e6, 2.9e9), (1e6, 5e9));
    }

    proptest! {
        #[test]
        fn linear_ticks_rise_within_the_axis(from in -1e12..1e12_f64, span in 1e-3..1e12_f64, count in 1..12_usize) {
            let to = from + span;
            prop_assume!(from < to);
            let (ticks, step) = linear(from, to, count);
            prop_assert!(step > 0.0);
            prop_assert!(ticks.iter().all(|tick| (from..=to).contains(tick)), "{ticks:?}");
            prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
            prop_assert!(ticks.len() <= 3 * count + 2);
        }

        #[test]
        fn logarithmic_ticks_rise_within_the_axis(from in 1e-6..1e12_f64, ratio in 1.0..1e9_f64, count in 1..12_usize) {
            let (low, high) = log_edges(from, from * ratio);
            prop_assert!(low <= from * 1.000_001 && high >= from * ratio * 0.999_999 && high / low >= 9.9);
            let ticks = log(low, high, count);
            prop_assert!(ticks.iter().all(|tick| (low..=high).contains(tick)), "{ticks:?}");
            prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
            prop_assert!(!ticks.is_empty());
        }

        #[test]
        fn percentile_ticks_rise_within_the_axis(to in 0.0..1.0_f64, count in 1..12_usize) {
            let ticks = tail(to, count);
            prop_assert!(ticks.iter().all(|&tick| tick <= to + 1e-9));
            prop_assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
