//! Formats numbers for people: three significant digits and a unit.

/// A duration in nanoseconds: `870 ns`, `12.3 us`, `148 ms`, `1.22 s`, `61.3 s`, `125 s`.
pub fn duration(nanos: u64) -> String {
    duration_f64(nanos as f64)
}

/// A duration in nanoseconds that may have a fraction, such as a mean. NaN and negative values print `0 ns`.
pub fn duration_f64(nanos: f64) -> String {
    // Each threshold is the value at which three digits would round up into the next unit.
    match nanos {
        n if n.is_nan() || n < 0.5 => "0 ns".to_owned(),
        n if n < 999.5 => format!("{n:.0} ns"),
        n if n < 999.5e3 => format!("{} us", digits(n / 1e3)),
        n if n < 999.5e6 => format!("{} ms", digits(n / 1e6)),
        n => format!("{} s", digits(n / 1e9)),
    }
}

/// A duration that was chosen, not measured (a bucket edge, a limit), without trailing zeros: `50 ms`, `1.5 s`.
pub fn round_duration(nanos: u64) -> String {
    let text = duration(nanos);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

/// A count with thousands separators: `6,600`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A gauge or rate without its unit: `0.42`, `23.3`, `110.0`, `52,310`.
pub fn level(value: f64) -> String {
    match value {
        v if !v.is_finite() || v < 0.0 => "0".to_owned(),
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 999.95 => format!("{v:.1}"),
        v => count(v.round() as u64),
    }
}

/// A rate per second: `110.0/s`.
pub fn rate(per_second: f64) -> String {
    format!("{}/s", level(per_second))
}

/// Bytes in powers of 1000: `512 B`, `10.2 KB`, `72.1 MB`.
pub fn bytes(value: u64) -> String {
    scaled(value as f64, &["B", "KB", "MB", "GB", "TB", "PB", "EB"])
}

/// Bits per second: `8.87 Mbit/s`.
pub fn bit_rate(bits_per_second: f64) -> String {
    scaled(bits_per_second, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// A share as a percentage: `0.18 %`, `51.7 %`, `100 %`.
pub fn share(part: f64) -> String {
    match part * 100.0 {
        p if p.is_nan() || p <= 0.0 => "0 %".to_owned(),
        p if p < 0.01 => "under 0.01 %".to_owned(),
        p if p < 0.995 => format!("{p:.2} %"),
        // A share below 100 % is never rounded up to 100 %.
        p if p < 100.0 => format!("{:.1} %", p.min(99.9)),
        p => format!("{p:.0} %"),
    }
}

/// Escapes text from outside for a terminal: control characters, and characters that change the direction of writing,
/// become their code.
pub fn plain(text: &str) -> String {
    crate::printable(text).into_owned()
}

/// Three significant digits of a number from 1 to 999. Larger numbers print all digits before the point, none after it.
fn digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

fn scaled(value: f64, units: &[&str]) -> String {
    let mut value = if value.is_finite() { value.max(0.0) } else { 0.0 };
    if value < 999.5 {
        return format!("{value:.0} {}", units[0]);
    }
    let mut at = 0;
    while value >= 999.5 && at + 1 < units.len() {
        value /= 1000.0;
        at += 1;
    }
    format!("{} {}", digits(value), units[at])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Nanoseconds of a printed duration.
    fn read(text: &str) -> f64 {
        let (number, unit) = text.split_once(' ').unwrap();
        let scale = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)].into_iter().find(|(name, _)| *name == unit);
        number.replace(',', "").parse::<f64>().unwrap() * scale.unwrap().1
    }

    proptest! {
        /// Rounding keeps the order of values, so that no table shows a median above a higher percentile.
        #[test]
        fn printed_values_keep_their_order(
            values in prop::collection::vec(prop_oneof![0.0..2000.0f64, 990e3..1010e3f64, 0.0..1e13f64], 2..20),
        ) {
            let mut values = values;
            values.sort_by(f64::total_cmp);
            let printed: Vec<f64> = values.iter().map(|&value| read(&duration_f64(value))).collect();
            prop_assert!(printed.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-12)), "{:?} {:?}", values, printed);
        }
    }

    #[test]
    fn durations_have_three_digits_and_never_print_1000() {
        let read: Vec<_> =
            [0, 870, 999, 1_000, 12_345, 999_499, 999_500, 148_000_000, 999_500_000, 61_300_000_000, 125_000_000_000]
                .into_iter()
                .map(duration)
                .collect();
        let expected = [
            "0 ns", "870 ns", "999 ns", "1.00 us", "12.3 us", "999 us", "1.00 ms", "148 ms", "1.00 s", "61.3 s",
            "125 s",
        ];
        assert_eq!(read, expected);
        assert_eq!(duration_f64(f64::NAN), "0 ns");
        assert_eq!(duration_f64(999.6), "1.00 us");
        assert_eq!([50_000_000, 1_500_000_000, 100_000, 7].map(round_duration), ["50 ms", "1.5 s", "100 us", "7 ns"]);
    }

    #[test]
    fn counts_gauges_and_shares_are_formatted() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            [0.424, 9.999, 110.0, 999.96, 52_310.4, f64::NAN].map(level),
            ["0.42", "10.0", "110.0", "1,000", "52,310", "0"]
        );
        assert_eq!(
            [0.0, 0.000_01, 0.001_8, 0.517, 0.999_7, 1.0].map(share),
            ["0 %", "under 0.01 %", "0.18 %", "51.7 %", "99.9 %", "100 %"]
        );
        assert_eq!([0, 999, 10_240, 999_600].map(bytes), ["0 B", "999 B", "10.2 KB", "1.00 MB"]);
        assert_eq!(bit_rate(8_870_000.0), "8.87 Mbit/s");
    }

    #[test]
    fn control_characters_never_reach_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\r\n\u{9b}x\u{202e}"), "a\\u{1b}[31mb\\r\\n\\u{9b}x\\u{202e}");
        assert_eq!(plain("山彦 é"), "山彦 é");
    }
}
