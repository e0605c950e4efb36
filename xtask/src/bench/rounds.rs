//! Interleaved rounds: A B A B .., medians and ratios, since the machine's speed drifts.

/// The median; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => (sorted[n / 2 - 1] + sorted[n / 2]) / 2.0,
    }
}

/// One line of a table of rounds: label, median, smallest and largest.
pub fn line(label: &str, unit: &str, values: &[f64]) -> String {
    let (low, high) = values.iter().fold((f64::MAX, f64::MIN), |(low, high), &v| (low.min(v), high.max(v)));
    format!("  {label:<34} {:>12.1} {unit:<8} ({low:.1} to {high:.1}, {} rounds)", median(values), values.len())
}

/// Median of the ratios of each round, which drift affects less than the ratio of the medians.
pub fn ratio(of: &[f64], to: &[f64]) -> f64 {
    median(&of.iter().zip(to).map(|(of, to)| of / to).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ratios_of_rounds_are_computed() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0]), 2.5);
        assert_eq!(ratio(&[2.0, 30.0, 4.0], &[1.0, 10.0, 2.0]), 2.0);
    }
}
