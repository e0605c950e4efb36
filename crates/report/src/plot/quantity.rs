//! Quantity of an axis, and the format of its values.

use crate::figures;

/// The quantity of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// A number or gauge: connections, requests.
    Count,
    /// A number per second.
    PerSecond,
    /// Seconds since the run's zero, or since the start of its measured phase: a time axis.
    Seconds,
    /// A duration in nanoseconds, written with the unit that fits.
    Nanoseconds,
    /// Bytes.
    Bytes,
    /// Bits a second, written with the unit that fits.
    BitsPerSecond,
    /// A share from 0 to 1, written as a percentage.
    Share,
}

impl Quantity {
    /// A value as text for people: `23.3`, `110.0/s`, `12.0 s`, `48.2 ms`, `10.2 KB`, `99.0 %`.
    pub fn text(self, value: f64) -> String {
        if !value.is_finite() {
            return "-".to_owned();
        }
        if value.abs() >= DIGITS_SHOWN_MAX {
            return format!("{value:.2e}");
        }
        match self {
            Quantity::Count if value.fract() == 0.0 && (0.0..1e15).contains(&value) => figures::count(value as u64),
            Quantity::Count => figures::level(value),
            Quantity::PerSecond => figures::rate(value),
            Quantity::Seconds => format!("{} s", trimmed(value, 1)),
            Quantity::Nanoseconds => figures::duration_f64(value),
            Quantity::Bytes => figures::bytes(value.max(0.0) as u64),
            Quantity::BitsPerSecond => figures::bit_rate(value.max(0.0)),
            Quantity::Share if value < 0.0 => format!("-{}", figures::share(-value)),
            Quantity::Share => figures::share(value),
        }
    }

    /// Name in the page's data, for the script that formats under the cursor.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Quantity::Count => "count",
            Quantity::PerSecond => "rate",
            Quantity::Seconds => "s",
            Quantity::Nanoseconds => "ns",
            Quantity::Bytes => "bytes",
            // Charts of these quantities are not interactive.
            Quantity::BitsPerSecond => "count",
            Quantity::Share => "share",
        }
    }

    /// Labels of ticks that are `step` apart; one unit and one number of decimals for all of them.
    pub(super) fn labels(self, ticks: &[f64], step: f64) -> Vec<String> {
        let largest = ticks.iter().fold(0.0_f64, |most, tick| most.max(tick.abs()));
        let (factor, unit) = match self {
            Quantity::Count | Quantity::PerSecond => match largest {
                l if l >= 1e9 => (1e9, " G"),
                l if l >= 1e6 => (1e6, " M"),
                _ => (1.0, ""),
            },
            Quantity::Seconds => (1.0, ""),
            Quantity::Nanoseconds => match largest {
                l if l >= 1e9 => (1e9, " s"),
                l if l >= 1e6 => (1e6, " ms"),
                l if l >= 1e3 => (1e3, " us"),
                _ => (1.0, " ns"),
            },
            Quantity::Bytes => match largest {
                l if l >= 1e9 => (1e9, " GB"),
                l if l >= 1e6 => (1e6, " MB"),
                l if l >= 1e3 => (1e3, " KB"),
                _ => (1.0, " B"),
            },
            Quantity::BitsPerSecond => match largest {
                l if l >= 1e9 => (1e9, " Gbit/s"),
                l if l >= 1e6 => (1e6, " Mbit/s"),
                l if l >= 1e3 => (1e3, " kbit/s"),
                _ => (1.0, " bit/s"),
            },
            Quantity::Share => (0.01, " %"),
        };
        let decimals = (-(step / factor).log10().floor()).clamp(0.0, 6.0);
        let decimals = if decimals.is_nan() { 0 } else { decimals as usize };
        ticks
            .iter()
            .map(|tick| match tick / factor {
                0.0 if self == Quantity::Share => "0 %".to_owned(),
                0.0 => "0".to_owned(),
                scaled => format!("{}{unit}", trimmed(scaled, decimals)),
            })
            .collect()
    }

    /// Label of one tick of a logarithmic axis, where each has its own unit.
    pub(super) fn label(self, tick: f64) -> String {
        match self {
            Quantity::Nanoseconds => figures::round_duration(tick as u64),
            _ => self.labels(&[tick], tick).pop().unwrap_or_default(),
        }
    }
}

/// A number with at most `decimals` decimals, with thousands separators, without trailing zeros.
fn trimmed(value: f64, decimals: usize) -> String {
    if value.abs() >= DIGITS_SHOWN_MAX {
        return format!("{value:.0e}");
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), figures::count);
    let part = part.trim_end_matches('0');
    let sign = if value < 0.0 && (whole != "0" || !part.is_empty()) { "-" } else { "" };
    if part.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{part}") }
}

/// Larger numbers are shown without all digits: no measured value is that large.
const DIGITS_SHOWN_MAX: f64 = 1e18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_share_one_unit() {
        assert_eq!(Quantity::Nanoseconds.labels(&[0.0, 5e5, 1e6], 5e5), ["0", "0.5 ms", "1 ms"]);
        assert_eq!(Quantity::Count.labels(&[0.0, 500.0, 1000.0], 500.0), ["0", "500", "1,000"]);
        assert_eq!(Quantity::Share.labels(&[0.0, 0.25, 1.0], 0.25), ["0 %", "25 %", "100 %"]);
        assert_eq!(Quantity::Seconds.labels(&[-5.0, 0.5], 0.5), ["-5", "0.5"]);
        assert_eq!(Quantity::PerSecond.labels(&[2e6], 1e6), ["2 M"]);
        assert_eq!(Quantity::Nanoseconds.label(5e7), "50 ms");
        assert_eq!(Quantity::BitsPerSecond.labels(&[0.0, 5e6, 1e7], 5e6), ["0", "5 Mbit/s", "10 Mbit/s"]);
    }

    #[test]
    fn quantity_text_has_its_unit() {
        assert_eq!(Quantity::Count.text(1200.0), "1,200");
        assert_eq!(Quantity::Count.text(23.31), "23.3");
        assert_eq!(Quantity::PerSecond.text(110.0), "110.0/s");
        assert_eq!(Quantity::Seconds.text(12.0), "12 s");
        assert_eq!(Quantity::BitsPerSecond.text(9.49e6), "9.49 Mbit/s");
        assert_eq!(Quantity::Nanoseconds.text(4.82e7), "48.2 ms");
        assert_eq!([0.051, -0.051].map(|share| Quantity::Share.text(share)), ["5.1 %", "-5.1 %"]);
        assert_eq!(Quantity::Count.text(f64::NAN), "-");
    }
}
