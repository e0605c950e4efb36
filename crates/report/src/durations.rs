//! Durations that are read side by side: one unit and one precision in a row or column.

use units::figures::count;

/// Names and lengths in nanoseconds of the units, short to long.
const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];

/// Largest number before the next longer unit is used for the whole row.
const NUMBER_MAX: f64 = 99_999.5;

/// Durations in nanoseconds as texts with the same unit: three significant digits of the smallest value above zero, as
/// far as the largest value keeps below 100,000 units.
pub fn in_one_unit(nanos: &[f64]) -> Vec<String> {
    let positive = || nanos.iter().map(|value| value.abs()).filter(|value| value.is_finite() && *value >= 0.5);
    let (least, most) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
    let natural = UNITS.iter().rposition(|(_, length)| least >= 0.9995 * length).unwrap_or(0);
    let natural = if least.is_finite() { natural } else { 0 };
    let at = (natural..UNITS.len()).find(|&at| most / UNITS[at].1 < NUMBER_MAX).unwrap_or(UNITS.len() - 1);
    let (unit, length) = UNITS[at];
    let decimals = if unit == "ns" || !least.is_finite() {
        0
    } else {
        match least / length {
            v if v < 9.995 => 2,
            v if v < 99.95 => 1,
            _ => 0,
        }
    };
    // A longer unit than that of the smallest value shows it with more decimals.
    let decimals = (decimals + 3 * (at - natural)).min(3.max(decimals));
    nanos.iter().map(|value| format!("{} {unit}", fixed(value / length, decimals))).collect()
}

/// A duration in milliseconds without its unit, for a column headed `ms`: `0.28`, `1,580.00`.
pub fn milliseconds(nanos: f64) -> String {
    fixed(nanos / 1e6, 2)
}

/// A number with a fixed number of decimals and separated thousands; zero for NaN.
fn fixed(value: f64, decimals: usize) -> String {
    let value = if value.is_finite() { value } else { 0.0 };
    let text = format!("{:.decimals$}", value.abs());
    let sign = if value < 0.0 && text.contains(|c: char| ('1'..='9').contains(&c)) { "-" } else { "" };
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), ""), |(whole, rest)| (whole, rest));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_one_row_share_unit_and_precision() {
        let row = |values: &[f64]| in_one_unit(values);
        assert_eq!(row(&[281e6, 1.23e9, 1.58e9]), ["281 ms", "1,230 ms", "1,580 ms"]);
        assert_eq!(row(&[65.788e3, 9e3, 12.3e6]), ["65.79 us", "9.00 us", "12,300.00 us"]);
        assert_eq!(row(&[0.0, 0.0, 1.9e6]), ["0.00 ms", "0.00 ms", "1.90 ms"]);
        assert_eq!(row(&[5e3, 12e9]), ["0.005 ms", "12,000.000 ms"]);
        assert_eq!(row(&[870.0, 0.0]), ["870 ns", "0 ns"]);
        assert_eq!(row(&[65.788e3, -297e3]), ["65.8 us", "-297.0 us"]);
        assert_eq!(row(&[0.0]), ["0 ns"]);
        assert!(row(&[]).is_empty());
    }

    #[test]
    fn milliseconds_have_two_decimals_and_thousands_separators() {
        assert_eq!([281_400.0, 1.58e9, f64::NAN].map(milliseconds), ["0.28", "1,580.00", "0.00"]);
    }
}
