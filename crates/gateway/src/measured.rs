//! Statistics of a figure over trials.

use schema::Measured;

/// Confidence of intervals.
const CONFIDENCE: f64 = 0.95;

/// Mean, standard deviation and interval; `None` without trials.
pub(super) fn measured(trials: &[f64]) -> Option<Measured> {
    if trials.is_empty() {
        return None;
    }
    let interval = stats::mean_interval(trials, CONFIDENCE);
    let count = trials.len() as f64;
    Some(Measured {
        mean: trials.iter().sum::<f64>() / count,
        stddev: interval.map(|interval| interval.standard_error * count.sqrt()),
        interval: interval.map(|interval| [interval.low(), interval.high()]),
        trials: trials.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviation_and_interval_match_known_values() {
        let figure = measured(&[9.0, 10.0, 11.0]).unwrap();
        assert_eq!(figure.mean, 10.0);
        assert!((figure.stddev.unwrap() - 1.0).abs() < 1e-12, "{figure:?}");
        // Student's t of 2 degrees at 97.5 % is 4.303.
        let [low, high] = figure.interval.unwrap();
        assert!((high - low - 2.0 * 4.303 / 3f64.sqrt()).abs() < 0.01, "{low} {high}");
        let one = measured(&[9.0]).unwrap();
        assert_eq!((one.stddev, one.interval), (None, None));
        assert_eq!(measured(&[]), None);
    }
}
