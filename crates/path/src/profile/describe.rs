//! A profile in words.

use units::format_duration;

use super::rtt::Rtt;
use super::{Class, Profile};
use crate::spec::{Between, EffectSpec};

impl Profile {
    /// The classes, shared links, and changes, one line each.
    pub fn describe(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.classes.iter().map(Class::describe).collect();
        for (direction, effects) in [("up", &self.shared.up), ("down", &self.shared.down)] {
            if !effects.is_empty() {
                lines.push(format!("shared by all, {direction}: {}", describe(effects)));
            }
        }
        lines.extend(self.changes.iter().map(|change| format!("at {change}")));
        lines
    }
}

impl Class {
    fn describe(&self) -> String {
        let share = (self.share * 1e4).round() / 1e2;
        let mut line = format!("{share}% of clients");
        if let Some(name) = &self.name {
            line.push_str(&format!(" ({name})"));
        }
        line.push_str(&format!(": RTT {}", self.rtt.describe()));
        // Printed once if it is the same both ways, as `jitter` of the class makes it.
        let jitter = |effects: &[EffectSpec]| match effects.last() {
            Some(EffectSpec::Jitter(jitter)) => Some(*jitter),
            _ => None,
        };
        let same = jitter(&self.up).filter(|up| jitter(&self.down) == Some(*up));
        if let Some(jitter) = same {
            line.push_str(&format!(", each way +-{}", format_duration(jitter)));
        }
        if self.up_share != 0.5 {
            line.push_str(&format!(", {}% of it on the way up", (self.up_share * 1e4).round() / 1e2));
        }
        for (direction, effects) in [("up", &self.up), ("down", &self.down)] {
            let effects = if same.is_some() { &effects[..effects.len() - 1] } else { effects };
            if !effects.is_empty() {
                line.push_str(&format!("; {direction} {}", describe(effects)));
            }
        }
        for (direction, effects) in [("up", &self.shared.up), ("down", &self.shared.down)] {
            if !effects.is_empty() {
                line.push_str(&format!("; shared {direction} {}", describe(effects)));
            }
        }
        line
    }
}

impl Rtt {
    /// The distribution in a few words.
    pub(super) fn describe(&self) -> String {
        match self {
            Rtt::Constant(rtt) => format_duration(*rtt),
            Rtt::LogNormal { median, sigma, min, max } => {
                let mut words = format!("log-normal, median {}, sigma {sigma}", format_duration(*median));
                if !min.is_zero() {
                    words.push_str(&format!(", at least {}", format_duration(*min)));
                }
                if *max < super::document::RTT_MAX {
                    words.push_str(&format!(", at most {}", format_duration(*max)));
                }
                words
            }
            Rtt::Quantiles(curve) => {
                format!("quantile curve of {} points, median {}", curve.len(), format_duration(self.quantile(0.5)))
            }
            Rtt::Sample(sorted) => {
                format!("sample of {}, median {}", sorted.len(), format_duration(self.quantile(0.5)))
            }
            Rtt::OverTime(series) => {
                let delays = series.points().iter().map(|&(_, delay)| delay);
                let (least, most) = (delays.clone().min().unwrap_or_default(), delays.max().unwrap_or_default());
                let length = series.points().last().map(|&(time, _)| time).unwrap_or_default();
                format!(
                    "over time, {} to {}, mean {}, {} of {} points in {}{}",
                    format_duration(least),
                    format_duration(most),
                    format_duration(series.mean()),
                    if series.between() == Between::Lines { "lines" } else { "steps" },
                    series.points().len(),
                    format_duration(length),
                    if series.repeats() { ", repeated" } else { "" },
                )
            }
        }
    }
}

/// The effects in order of travel.
fn describe(effects: &[EffectSpec]) -> String {
    effects.iter().map(EffectSpec::describe).collect::<Vec<_>>().join(", ")
}
