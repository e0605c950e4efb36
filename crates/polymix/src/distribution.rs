//! Distributions of sizes in bytes, times in seconds and counts.
//!
//! Every distribution is used by its quantile function [`Distribution::at`]: of a hash of an object for its properties,
//! of a random number for draws. Both ends compute the same value from the same number between 0 and 1.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use stats::{Rng, normal};

/// A distribution of a non-negative number: `13KiB`, `unif(0,8KiB)`, `exp(13KiB)`, `norm(3s,1.5s)`,
/// `logn(300KiB,300KiB)`, `zipf(16)`, `quantiles(0:0,0.5:1h,1:24h)` or `none`, which is 0. Units are optional; a plain
/// number is bytes or seconds, depending on the field.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "String")]
pub enum Distribution {
    /// A constant.
    Constant(f64),
    /// Uniform between both bounds.
    Uniform(f64, f64),
    /// Exponential with this mean.
    Exponential(f64),
    /// Normal, cut at 0.
    Normal {
        /// Mean before cutting.
        mean: f64,
        /// Standard deviation before cutting.
        sd: f64,
    },
    /// Log-normal.
    LogNormal {
        /// Mean of the number itself, not of its logarithm.
        mean: f64,
        /// Standard deviation of the number itself.
        sd: f64,
    },
    /// 1 to n (at most 1000), each with a probability proportional to its reciprocal.
    Zipf(u32),
    /// Linear interpolation between quantiles: (share, number), both rising, shares from 0 to 1.
    Quantiles(Arc<[(f64, f64)]>),
}

/// Largest n of a Zipf distribution, which is drawn by summation.
const ZIPF_MAX: u32 = 1000;

impl Distribution {
    /// Draws a value.
    pub fn draw(&self, rng: &mut Rng) -> f64 {
        self.at(rng.uniform())
    }

    /// The quantile function; `u` from 0 up to but not including 1.
    pub fn at(&self, u: f64) -> f64 {
        match self {
            Distribution::Constant(value) => *value,
            Distribution::Uniform(from, to) => from + (to - from) * u,
            Distribution::Exponential(mean) => -mean * (-u).ln_1p(),
            Distribution::Normal { mean, sd } => (mean + sd * normal::quantile(middle(u))).max(0.0),
            Distribution::LogNormal { mean, sd } => {
                let (location, scale) = log_parameters(*mean, *sd);
                (location + scale * normal::quantile(middle(u))).exp()
            }
            Distribution::Zipf(n) => {
                let mut left = u * harmonic(*n);
                for rank in 1..*n {
                    left -= 1.0 / f64::from(rank);
                    if left < 0.0 {
                        return f64::from(rank);
                    }
                }
                f64::from(*n)
            }
            Distribution::Quantiles(points) => {
                let after = points.partition_point(|&(share, _)| share <= u).clamp(1, points.len() - 1);
                let ((from_share, from), (to_share, to)) = (points[after - 1], points[after]);
                from + (to - from) * ((u - from_share) / (to_share - from_share)).clamp(0.0, 1.0)
            }
        }
    }

    /// The mean.
    pub fn mean(&self) -> f64 {
        match self {
            Distribution::Constant(value) | Distribution::Exponential(value) => *value,
            Distribution::Uniform(from, to) => (from + to) / 2.0,
            Distribution::Normal { mean, sd } if *sd == 0.0 => *mean,
            Distribution::Normal { mean, sd } => truncated_mean(*mean, *sd),
            Distribution::LogNormal { mean, .. } => *mean,
            Distribution::Zipf(n) => f64::from(*n) / harmonic(*n),
            Distribution::Quantiles(points) => {
                points.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum()
            }
        }
    }

    /// Whether the distribution is constant 0.
    pub fn is_none(&self) -> bool {
        *self == Distribution::Constant(0.0)
    }

    /// Rejects invalid parameters.
    fn check(self) -> Result<Self, String> {
        let valid = |numbers: &[f64]| numbers.iter().all(|number| number.is_finite() && *number >= 0.0);
        match &self {
            Distribution::Constant(value) | Distribution::Exponential(value) if valid(&[*value]) => Ok(self),
            Distribution::Uniform(from, to) if valid(&[*from, *to]) && from <= to => Ok(self),
            Distribution::Normal { mean, sd } if valid(&[*mean, *sd]) => Ok(self),
            Distribution::LogNormal { mean, sd } if valid(&[*mean, *sd]) && *mean > 0.0 => Ok(self),
            Distribution::Zipf(1..=ZIPF_MAX) => Ok(self),
            Distribution::Zipf(_) => Err(format!("zipf(N): expected N from 1 to {ZIPF_MAX}")),
            Distribution::Uniform(..) => Err("unif(FROM,TO): expected FROM below TO, neither below 0".into()),
            Distribution::LogNormal { .. } => {
                Err("logn(MEAN,SD): expected a mean above 0 and a deviation of at least 0".into())
            }
            Distribution::Quantiles(points) => {
                let numbers: Vec<f64> = points.iter().flat_map(|&(share, number)| [share, number]).collect();
                let rises = points.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
                let whole = points.len() > 1 && points[0].0 == 0.0 && points[points.len() - 1].0 == 1.0;
                if valid(&numbers) && rises && whole {
                    Ok(self)
                } else {
                    Err("quantiles(SHARE:NUMBER,..): expected both rising, the first share 0 and the last 1".into())
                }
            }
            _ => Err("expected numbers of at least 0".into()),
        }
    }
}

/// Keeps a share above 0, where the quantile is infinite.
fn middle(u: f64) -> f64 {
    u.max(f64::EPSILON / 4.0)
}

/// Mean and standard deviation of the logarithm of a log-normal value.
fn log_parameters(mean: f64, sd: f64) -> (f64, f64) {
    let variance = (sd / mean).powi(2).ln_1p();
    (mean.ln() - variance / 2.0, variance.sqrt())
}

/// Mean of a normal distribution cut at 0, by integration of its quantile function, accurate to a millionth.
fn truncated_mean(mean: f64, sd: f64) -> f64 {
    const STEPS: u32 = 20_000;
    let at = |step: u32| (mean + sd * normal::quantile((f64::from(step) + 0.5) / f64::from(STEPS))).max(0.0);
    (0..STEPS).map(at).sum::<f64>() / f64::from(STEPS)
}

fn harmonic(n: u32) -> f64 {
    (1..=n).map(|rank| 1.0 / f64::from(rank)).sum()
}

impl FromStr for Distribution {
    type Err = String;

    /// Parses the forms described at [`Distribution`].
    ///
    /// # Errors
    /// One sentence: an unknown distribution or unit, a missing number, invalid parameters.
    fn from_str(typed: &str) -> Result<Self, String> {
        let typed = typed.trim();
        if typed == "none" {
            return Ok(Distribution::Constant(0.0));
        }
        let Some((name, arguments)) = typed.split_once('(') else {
            return number(typed).and_then(|value| Distribution::Constant(value).check());
        };
        let arguments = arguments.strip_suffix(')').ok_or_else(|| format!("`{typed}` has no closing bracket"))?;
        if name == "quantiles" {
            let point = |text: &str| {
                let (share, value) = text.split_once(':').ok_or_else(|| format!("`{text}` is not SHARE:NUMBER"))?;
                Ok::<_, String>((number(share)?, number(value)?))
            };
            let points: Result<Vec<_>, _> = arguments.split(',').map(point).collect();
            return Distribution::Quantiles(points?.into()).check();
        }
        let numbers: Vec<f64> = arguments.split(',').map(number).collect::<Result<_, _>>()?;
        let distribution = match (name, &numbers[..]) {
            ("const", &[value]) => Distribution::Constant(value),
            ("unif", &[from, to]) => Distribution::Uniform(from, to),
            ("exp", &[mean]) => Distribution::Exponential(mean),
            ("norm", &[mean, sd]) => Distribution::Normal { mean, sd },
            ("logn", &[mean, sd]) => Distribution::LogNormal { mean, sd },
            ("zipf", &[n]) if n.fract() == 0.0 && n >= 0.0 => Distribution::Zipf(n.min(f64::from(u32::MAX)) as u32),
            _ => {
                return Err(format!(
                    "`{typed}` is not a valid distribution; expected NUMBER, unif(FROM,TO), exp(MEAN), norm(MEAN,SD), \
                     logn(MEAN,SD), zipf(N), quantiles(SHARE:NUMBER,..) or none"
                ));
            }
        };
        distribution.check().map_err(|why| format!("`{typed}`: {why}"))
    }
}

/// Parses a number with an optional unit of time (to seconds) or data (to bytes).
fn number(typed: &str) -> Result<f64, String> {
    let typed = typed.trim();
    let unit_at = typed.find(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E')).unwrap_or(typed.len());
    let (value, unit) = typed.split_at(unit_at);
    let factor = match unit {
        "" => 1.0,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "y" => YEAR_S,
        "B" => 1.0,
        "KB" => 1e3,
        "MB" => 1e6,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        _ => {
            return Err(format!(
                "`{unit}` is not a valid unit; expected us, ms, s, min, h, d, y or B, KB, MB, KiB, MiB"
            ));
        }
    };
    let value: f64 = value.trim().parse().map_err(|_| format!("`{typed}` is not a valid number"))?;
    Ok(value * factor)
}

/// A year of life cycles.
const YEAR_S: f64 = 365.0 * 86_400.0;

impl fmt::Display for Distribution {
    /// Without units; round-trips through [`FromStr`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Distribution::Constant(value) => write!(f, "{value}"),
            Distribution::Uniform(from, to) => write!(f, "unif({from},{to})"),
            Distribution::Exponential(mean) => write!(f, "exp({mean})"),
            Distribution::Normal { mean, sd } => write!(f, "norm({mean},{sd})"),
            Distribution::LogNormal { mean, sd } => write!(f, "logn({mean},{sd})"),
            Distribution::Zipf(n) => write!(f, "zipf({n})"),
            Distribution::Quantiles(points) => {
                f.write_str("quantiles(")?;
                for (index, (share, number)) in points.iter().enumerate() {
                    let comma = if index == 0 { "" } else { "," };
                    write!(f, "{comma}{share}:{number}")?;
                }
                f.write_str(")")
            }
        }
    }
}

impl<'de> Deserialize<'de> for Distribution {
    /// A text as described at [`Distribution`], or a plain number.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = Distribution;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a distribution such as \"exp(13KiB)\", or a number")
            }

            fn visit_str<E: de::Error>(self, typed: &str) -> Result<Distribution, E> {
                typed.parse().map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Distribution, E> {
                Distribution::Constant(value).check().map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Distribution, E> {
                self.visit_f64(value as f64)
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Distribution, E> {
                self.visit_f64(value as f64)
            }
        }

        deserializer.deserialize_any(Text)
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> String {
        distribution.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXTS: [(&str, &str); 9] = [
        ("none", "0"),
        ("const(2y)", "63072000"),
        ("13KiB", "13312"),
        ("unif(0KiB, 8KiB)", "unif(0,8192)"),
        ("exp(13KB)", "exp(13000)"),
        ("norm(3s,1.5s)", "norm(3,1.5)"),
        ("logn(300KiB,300KiB)", "logn(307200,307200)"),
        ("zipf(64)", "zipf(64)"),
        ("quantiles(0:0,0.25:1h,1:1d)", "quantiles(0:0,0.25:3600,1:86400)"),
    ];

    #[test]
    fn distributions_are_parsed_and_round_trip() {
        for (typed, printed) in TEXTS {
            let distribution: Distribution = typed.parse().unwrap();
            assert_eq!(distribution.to_string(), printed);
            assert_eq!(printed.parse(), Ok(distribution));
        }
    }

    #[test]
    fn invalid_distributions_are_rejected() {
        for typed in [
            "",
            "norm(3s)",
            "norm(3s,1.5s",
            "norm(3m,1s)",
            "exp(-1)",
            "zipf(0)",
            "zipf(1001)",
            "zipf(1.5)",
            "logn(0,1)",
            "unif(2,1)",
            "poisson(3)",
            "exp(nan)",
            "exp(inf)",
            "exp(NaN)",
            "quantiles(0:1)",
            "quantiles(0:1,1:0)",
            "quantiles(0.1:1,1:2)",
            "quantiles(0:1,0:2,1:3)",
            "none(1)",
        ] {
            assert!(typed.parse::<Distribution>().is_err(), "{typed}");
        }
    }

    #[test]
    fn plain_number_is_a_constant_distribution() {
        let read = |text: &str| {
            toml::from_str::<std::collections::BTreeMap<String, Distribution>>(text).map(|read| read["value"].clone())
        };
        assert_eq!(read("value = 3"), Ok(Distribution::Constant(3.0)));
        assert_eq!(read("value = 0.5"), Ok(Distribution::Constant(0.5)));
        assert_eq!(read("value = \"zipf(3)\""), Ok(Distribution::Zipf(3)));
        assert!(read("value = -1").is_err() && read("value = true").is_err());
    }

    /// Mean and standard deviation of many draws lie within five standard errors.
    #[test]
    fn drawn_values_have_the_mean_and_deviation_of_their_distribution() {
        let draws = 200_000;
        for (typed, mean, sd) in [
            ("7", 7.0, 0.0),
            ("unif(2,6)", 4.0, 4.0 / 12f64.sqrt()),
            ("exp(13KiB)", 13_312.0, 13_312.0),
            ("norm(10,1)", 10.0, 1.0),
            ("logn(25,10)", 25.0, 10.0),
            (
                "zipf(13)",
                13.0 / harmonic(13),
                (13.0 * 14.0 / 2.0 / harmonic(13) - (13.0 / harmonic(13)).powi(2)).sqrt(),
            ),
            ("quantiles(0:0,1:6)", 3.0, 6.0 / 12f64.sqrt()),
        ] {
            let distribution: Distribution = typed.parse().unwrap();
            assert!((distribution.mean() - mean).abs() <= 1e-6 * mean, "{typed}: {}", distribution.mean());
            let mut rng = Rng::named(1, typed);
            let values: Vec<f64> = (0..draws).map(|_| distribution.draw(&mut rng)).collect();
            let found = values.iter().sum::<f64>() / f64::from(draws);
            let error = sd / f64::from(draws).sqrt();
            assert!((found - mean).abs() <= 5.0 * error + 1e-9, "{typed}: mean {found}");
            let spread = (values.iter().map(|value| (value - found).powi(2)).sum::<f64>() / f64::from(draws)).sqrt();
            // The deviation's own error is larger where the tail is heavy: 2 % is five of them for logn(25,10).
            assert!((spread - sd).abs() <= 0.02 * sd + 1e-9, "{typed}: deviation {spread}");
        }
    }

    #[test]
    fn normal_distribution_is_cut_at_zero() {
        let distribution: Distribution = "norm(3s,1.5s)".parse().unwrap();
        assert_eq!(distribution.at(0.0), 0.0);
        assert_eq!(distribution.at(0.01), 0.0);
        // The cut moves the mean up by sd * (density(2) - 2 * share below -2), 1.5 * 0.00849.
        assert!((distribution.mean() - 3.012_737).abs() < 1e-4, "{}", distribution.mean());
        assert!(distribution.at(1.0 - f64::EPSILON).is_finite());
    }

    #[test]
    fn quantile_distribution_interpolates_between_its_points() {
        let distribution: Distribution = "quantiles(0:0,0.25:10,0.5:10,1:30)".parse().unwrap();
        for (u, value) in [(0.0, 0.0), (0.125, 5.0), (0.25, 10.0), (0.4, 10.0), (0.75, 20.0)] {
            assert!((distribution.at(u) - value).abs() < 1e-9, "{u}: {}", distribution.at(u));
        }
        assert!((distribution.mean() - (1.25 + 2.5 + 10.0)).abs() < 1e-9);
    }
}
