//! Phases of the load: parts of the measured phase with a rate and results of their own.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use load::PhaseSpan;
use load::arrivals::Stretch;
use serde::{Deserialize, Serialize};
use units::{RequestRate, parse_duration};

use crate::LoadPlan;

/// A phase. When a plan is read, missing values are taken from the phase before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhasePlan {
    /// Name in results; absent: the rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Course of the rate; absent: `ramp` where `to` is given, otherwise `hold`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<PhaseKind>,
    /// Length of the phase.
    #[serde(with = "units::time::text")]
    pub duration: Duration,
    /// Constant rate; absent: that of the phase before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<OfferedRate>,
    /// Rate at which a ramp begins; absent: that of the phase before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<OfferedRate>,
    /// Rate at which a ramp ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<OfferedRate>,
}

/// Course of a phase's rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseKind {
    /// A constant rate.
    Hold,
    /// A constant rate, one of several steps.
    Step,
    /// A linear change from one rate to another.
    Ramp,
    /// A constant rate; the phase after it continues from the rate before it.
    Spike,
}

/// Requests per second, from 0 (a pause) to 10^9.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OfferedRate(f64);

impl OfferedRate {
    /// A number per second; `None` outside 0 to 10^9.
    pub fn new(per_second: f64) -> Option<Self> {
        (0.0..=1e9).contains(&per_second).then_some(OfferedRate(per_second))
    }

    /// The rate as a number per second.
    pub const fn per_second(self) -> f64 {
        self.0
    }
}

impl FromStr for OfferedRate {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        match typed.trim().split_once('/') {
            Some(("0", _)) => Ok(OfferedRate(0.0)),
            _ => typed
                .parse::<RequestRate>()
                .map(|rate| OfferedRate(rate.per_second()))
                .map_err(|error| error.to_string()),
        }
    }
}

impl TryFrom<String> for OfferedRate {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse()
    }
}

impl From<OfferedRate> for String {
    fn from(rate: OfferedRate) -> Self {
        rate.to_string()
    }
}

impl fmt::Display for OfferedRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match RequestRate::from_per_second(self.0) {
            Some(rate) => rate.fmt(f),
            None => f.write_str("0/s"),
        }
    }
}

const GRAMMAR: &str = "[NAME:] [hold|step|ramp|spike] DURATION [at RATE | [from RATE] to RATE], such as '30s at 100/s', \
                       '10s ramp to 1000/s' or 'spike 5s at 2000/s'";

impl FromStr for PhasePlan {
    type Err = String;

    /// Parses `[NAME:] [KIND] DURATION [at RATE | [from RATE] to RATE]`; the kind may also follow the duration.
    fn from_str(typed: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("{why}; expected {GRAMMAR}");
        let (name, rest) = match typed.split_once(':') {
            Some((name, rest)) => (Some(name.trim()), rest),
            None => (None, typed),
        };
        let (mut kind, mut duration, mut rate, mut from, mut to) = (None, None, None, None, None);
        let mut words = rest.split_whitespace();
        while let Some(word) = words.next() {
            let place = match word {
                "hold" | "step" | "ramp" | "spike" => {
                    let named_kind = match word {
                        "hold" => PhaseKind::Hold,
                        "step" => PhaseKind::Step,
                        "ramp" => PhaseKind::Ramp,
                        _ => PhaseKind::Spike,
                    };
                    if kind.replace(named_kind).is_some() {
                        return Err(wrong(format!("`{word}` is a second kind")));
                    }
                    continue;
                }
                "at" => &mut rate,
                "from" => &mut from,
                "to" => &mut to,
                _ => {
                    let time = parse_duration(word).map_err(|error| wrong(error.to_string()))?;
                    if duration.replace(time).is_some() {
                        return Err(wrong(format!("`{word}` is a second duration")));
                    }
                    continue;
                }
            };
            let value = words.next().ok_or_else(|| wrong(format!("a rate is missing after `{word}`")))?;
            if place.replace(value.parse::<OfferedRate>().map_err(wrong)?).is_some() {
                return Err(wrong(format!("`{word}` is given twice")));
            }
        }
        let duration = duration.ok_or_else(|| wrong(format!("`{typed}` has no duration")))?;
        let phase = PhasePlan { name: name.map(str::to_owned), kind, duration, rate, from, to };
        phase.check_rates().map_err(wrong)?;
        Ok(phase)
    }
}

impl PhasePlan {
    /// Most phases of a load: each has its own distributions, 0.8 MB.
    pub const NUMBER_MAX: usize = 100;

    /// A phase of one rate among several.
    pub fn step(rate: OfferedRate, duration: Duration) -> Self {
        PhasePlan { name: None, kind: Some(PhaseKind::Step), duration, rate: Some(rate), from: None, to: None }
    }

    /// Whether the rate is constant.
    pub fn is_steady(&self) -> bool {
        self.to.is_none()
    }

    /// As a part of a rate over time; a missing rate counts as 0.
    pub(super) fn stretch(&self) -> Stretch {
        let per_second = |rate: Option<OfferedRate>| rate.map_or(0.0, OfferedRate::per_second);
        let (from, to) = if self.is_steady() { (self.rate, self.rate) } else { (self.from, self.to) };
        Stretch { lasts: self.duration, from_per_s: per_second(from), to_per_s: per_second(to) }
    }

    /// Default name in results.
    pub fn span(&self) -> PhaseSpan {
        PhaseSpan { name: self.name.clone().unwrap_or_default(), lasts: self.duration, is_steady: self.is_steady() }
    }

    /// Refuses rates that exclude each other or the kind.
    fn check_rates(&self) -> Result<(), String> {
        let ramps = self.from.is_some() || self.to.is_some();
        if ramps && self.rate.is_some() {
            return Err("a phase has one rate (at), or two (from, to)".into());
        }
        if self.from.is_some() && self.to.is_none() {
            return Err("a ramp needs its end rate (to)".into());
        }
        match self.kind {
            Some(PhaseKind::Ramp) if self.to.is_none() => Err("a ramp needs its end rate (to)".into()),
            Some(PhaseKind::Hold | PhaseKind::Step | PhaseKind::Spike) if ramps => {
                Err("only a ramp has two rates (from, to)".into())
            }
            _ => Ok(()),
        }
    }

    fn own_name(&self) -> String {
        let text = |rate: Option<OfferedRate>| rate.map(|rate| rate.to_string()).unwrap_or_default();
        match self.kind {
            Some(PhaseKind::Ramp) => format!("{} to {}", text(self.from), text(self.to)),
            Some(PhaseKind::Spike) => format!("spike {}", text(self.rate)),
            _ => text(self.rate),
        }
    }
}

impl LoadPlan {
    /// Fills in missing values from the phases before, and the sum of their lengths as the duration.
    pub fn settle_phases(&mut self) {
        let mut before: Option<OfferedRate> = None;
        let own_names: HashSet<String> = self.phases.iter().filter_map(|phase| phase.name.clone()).collect();
        let mut used_names = own_names;
        for phase in &mut self.phases {
            if phase.to.is_some() {
                phase.kind.get_or_insert(PhaseKind::Ramp);
                phase.from = phase.from.or(before);
            } else {
                phase.kind.get_or_insert(PhaseKind::Hold);
                phase.rate = phase.rate.or(before);
            }
            if phase.kind != Some(PhaseKind::Spike) {
                before = phase.to.or(phase.rate);
            }
            if phase.name.is_none() {
                let name = phase.own_name();
                let others = (2..).map(|number| format!("{name} ({number})"));
                let name = std::iter::once(name.clone()).chain(others).find(|name| !used_names.contains(name));
                used_names.extend(name.clone());
                phase.name = name;
            }
        }
        if !self.phases.is_empty() && self.duration.is_none() {
            self.duration = Some(self.phases_length());
        }
    }

    fn phases_length(&self) -> Duration {
        self.phases.iter().fold(Duration::ZERO, |sum, phase| sum.saturating_add(phase.duration))
    }

    /// Refuses contradicting phases; they must be settled.
    pub(super) fn check_phases(&self) -> Result<(), String> {
        if self.phases.is_empty() {
            return Ok(());
        }
        if self.phases.len() > PhasePlan::NUMBER_MAX {
            return Err(format!("{} phases: expected at most {}", self.phases.len(), PhasePlan::NUMBER_MAX));
        }
        let mut names = HashSet::new();
        for (index, phase) in self.phases.iter().enumerate() {
            let name = phase.name.as_deref().unwrap_or_default();
            let refuse = |why: &str| Err(format!("phase {} ({name}): {why}", index + 1));
            if phase.duration.is_zero() {
                return refuse("its duration is 0: expected more");
            }
            if let Err(why) = phase.check_rates() {
                return refuse(&why);
            }
            if phase.rate.or(phase.from).is_none() {
                return refuse("it has no rate, nor has a phase before it: give one (rate, or from and to)");
            }
            if name.trim().is_empty() || name.chars().any(char::is_control) || name.chars().count() > 60 {
                return refuse("expected a name of 1 to 60 characters");
            }
            if !names.insert(name) {
                return refuse("another phase has the same name");
            }
        }
        if self.phases.iter().all(|phase| phase.stretch().from_per_s == 0.0 && phase.stretch().to_per_s == 0.0) {
            return Err("all phases offer 0/s: give at least one a rate above 0".into());
        }
        let together = self.phases_length();
        if self.duration.is_some_and(|duration| duration != together) {
            return Err(format!(
                "the phases define the duration, {} together: leave duration (-d) out",
                units::format_duration(together)
            ));
        }
        Ok(())
    }
}
