//! `[load]` arrivals: the arrival process and the rate over time.

mod phase;
mod rate_file;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use load::arrivals::{Bursts, RateOverTime, SelfSimilar, Spacing, Stretch};
use serde::{Deserialize, Serialize};
use units::{RequestRate, parse_duration};

pub use self::phase::{OfferedRate, PhaseKind, PhasePlan};
pub use self::rate_file::RateFile;
use super::{LoadPlan, Offered};

/// How the arrivals of an open loop are spaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ArrivalKind {
    /// Equal gaps.
    #[default]
    Constant,
    /// Exponential gaps: independent users.
    Poisson,
    /// Poisson arrivals whose rate alternates between bursts and pauses.
    Bursts(BurstsPlan),
    /// Poisson arrivals with the combined rate of many sources with heavy-tailed on and off times.
    SelfSimilar(SelfSimilarPlan),
}

/// Bursts and pauses of exponentially distributed length; the rate of the pauses is such that the mean is the offered
/// rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BurstsPlan {
    /// Rate in a burst over the offered rate: 1 to (on + off) / on.
    pub factor: f64,
    /// Mean length of a burst.
    #[serde(with = "units::time::text")]
    pub on: Duration,
    /// Mean length of a pause.
    #[serde(with = "units::time::text")]
    pub off: Duration,
}

/// Many sources, active and silent in turn for Pareto-distributed times: self-similar arrivals with the Hurst parameter
/// (3 - alpha) / 2.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SelfSimilarPlan {
    /// Number of sources, 1 to 10,000.
    pub sources: u32,
    /// Tail exponent of both times, 1.05 to 1.95: a lower one gives longer correlation.
    pub alpha: f64,
    /// Mean time of activity.
    #[serde(with = "units::time::text")]
    pub on: Duration,
    /// Mean time of silence.
    #[serde(with = "units::time::text")]
    pub off: Duration,
}

impl Default for BurstsPlan {
    /// A tenth of the time at five times the rate, the rest at 0.56 of it.
    fn default() -> Self {
        BurstsPlan { factor: 5.0, on: Duration::from_secs(1), off: Duration::from_secs(9) }
    }
}

impl Default for SelfSimilarPlan {
    /// A Hurst parameter of 0.8, as measured of network traffic in the paper that [`SelfSimilar`] cites.
    fn default() -> Self {
        SelfSimilarPlan { sources: 100, alpha: 1.4, on: Duration::from_secs(1), off: Duration::from_secs(2) }
    }
}

impl FromStr for BurstsPlan {
    type Err = String;

    /// Parses `factor=5,on=1s,off=9s`, any of them.
    fn from_str(typed: &str) -> Result<Self, String> {
        let mut plan = BurstsPlan::default();
        for (name, value) in parts(typed)? {
            match name {
                "factor" => plan.factor = number(name, value)?,
                "on" => plan.on = parse_duration(value).map_err(|error| error.to_string())?,
                "off" => plan.off = parse_duration(value).map_err(|error| error.to_string())?,
                _ => return Err(format!("`{name}` is not a valid parameter: expected factor=5,on=1s,off=9s")),
            }
        }
        Ok(plan)
    }
}

impl FromStr for SelfSimilarPlan {
    type Err = String;

    /// Parses `sources=100,alpha=1.4,on=1s,off=2s`, any of them.
    fn from_str(typed: &str) -> Result<Self, String> {
        let mut plan = SelfSimilarPlan::default();
        for (name, value) in parts(typed)? {
            match name {
                "sources" => plan.sources = number(name, value)?,
                "alpha" => plan.alpha = number(name, value)?,
                "on" => plan.on = parse_duration(value).map_err(|error| error.to_string())?,
                "off" => plan.off = parse_duration(value).map_err(|error| error.to_string())?,
                _ => {
                    return Err(format!(
                        "`{name}` is not a valid parameter: expected sources=100,alpha=1.4,on=1s,off=2s"
                    ));
                }
            }
        }
        Ok(plan)
    }
}

fn parts(typed: &str) -> Result<Vec<(&str, &str)>, String> {
    let parts = typed.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=').ok_or_else(|| format!("`{part}` is not NAME=VALUE"))?;
            Ok((name.trim(), value.trim()))
        })
        .collect()
}

fn number<T: FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{name}={value}: expected a number"))
}

impl fmt::Display for ArrivalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArrivalKind::Constant => "constant",
            ArrivalKind::Poisson => "poisson",
            ArrivalKind::Bursts(_) => "bursts",
            ArrivalKind::SelfSimilar(_) => "self_similar",
        })
    }
}

impl ArrivalKind {
    /// The arrival process as the load engine takes it.
    ///
    /// # Errors
    /// Parameters out of range, in one sentence.
    pub fn spacing(&self) -> Result<Spacing, String> {
        match *self {
            ArrivalKind::Constant => Ok(Spacing::Constant),
            ArrivalKind::Poisson => Ok(Spacing::Poisson),
            ArrivalKind::Bursts(plan) => {
                Bursts::new(plan.factor, plan.on, plan.off).map(Spacing::Bursts).map_err(|why| format!("bursts: {why}"))
            }
            ArrivalKind::SelfSimilar(plan) => SelfSimilar::new(plan.sources, plan.alpha, plan.on, plan.off)
                .map(Spacing::SelfSimilar)
                .map_err(|why| format!("self_similar: {why}")),
        }
    }
}

impl LoadPlan {
    /// Refuses contradicting arrivals.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check_arrivals(&self) -> Result<(), String> {
        let keys = [
            ("rate", self.rate.is_some()),
            ("phases", !self.phases.is_empty()),
            ("rate_file", self.rate_file.is_some()),
            ("replay", self.replay.is_some()),
        ];
        let present: Vec<&str> = keys.into_iter().filter_map(|(key, is_present)| is_present.then_some(key)).collect();
        if let [one, other, ..] = present[..] {
            return Err(format!(
                "{one} and {other} both define when requests start (--rate, --phase or --sweep, --rate-file, --replay): \
                 leave one of the two out"
            ));
        }
        self.arrivals.spacing()?;
        if self.arrivals != ArrivalKind::Constant {
            if !self.is_open() {
                return Err(format!("arrivals = \"{}\" needs a rate: without one the loop is closed", self.arrivals));
            }
            if let Offered::Replay(_) = self.offered() {
                return Err("a replay uses the log's own arrivals: leave arrivals (--arrivals) out".into());
            }
        }
        self.check_replay()?;
        self.check_phases()
    }

    /// The rate of the measured phase over time; `None` for a closed loop and for a replay.
    ///
    /// # Errors
    /// A rate file that cannot be read.
    pub fn rate_over_time(&self) -> Result<Option<RateOverTime>, String> {
        match self.offered() {
            Offered::Closed | Offered::Replay(_) => Ok(None),
            Offered::Open { rate } => Ok(Some(RateOverTime::constant(rate))),
            Offered::RateFile(file) => Ok(Some(RateFile::read(file)?.rate)),
            Offered::Phases(phases) => {
                let stretches: Vec<Stretch> = phases.iter().map(PhasePlan::stretch).collect();
                let rate = RateOverTime::new(&stretches);
                rate.map(Some).map_err(|(index, why)| format!("phase {}: {why}", index + 1))
            }
        }
    }
}

/// Parses a step-by-step sweep of rates, `100..1000/s:100/s`.
///
/// # Errors
/// One sentence: the expected form, or that there are too many steps.
pub fn sweep(typed: &str, hold: Duration) -> Result<Vec<PhasePlan>, String> {
    let refusal = || format!("`{typed}` is not a valid sweep: expected FROM..TO:STEP, such as 100..1000/s:100/s");
    let (range, step) = typed.split_once(':').ok_or_else(refusal)?;
    let (from, to) = range.split_once("..").ok_or_else(refusal)?;
    let (from, to, step) = (from.trim(), to.trim(), step.trim());
    // A unit may be left out if another part has it.
    let unit = [to, from, step].into_iter().find_map(|text| text.find('/').map(|at| &text[at..]));
    let unit = unit.ok_or_else(refusal)?;
    let rate = |text: &str| -> Result<f64, String> {
        let text = if text.contains('/') { text.to_owned() } else { format!("{text}{unit}") };
        text.parse::<RequestRate>().map(RequestRate::per_second).map_err(|error| error.to_string())
    };
    let (from, to, step) = (rate(from)?, rate(to)?, rate(step)?);
    let steps = ((to - from).abs() / step + 1e-9).floor();
    if steps >= PhasePlan::NUMBER_MAX as f64 {
        return Err(format!("a sweep has at most {} steps: use a larger STEP", PhasePlan::NUMBER_MAX));
    }
    let sign = if to < from { -1.0 } else { 1.0 };
    let rates = (0..=steps as u32).map(|index| from + sign * f64::from(index) * step);
    Ok(rates.map(|rate| PhasePlan::step(OfferedRate::new(rate).expect("between two rates"), hold)).collect())
}

#[cfg(test)]
mod tests;
