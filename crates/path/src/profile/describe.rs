//! A profile in words, for people.

use units::{BitRate, format_duration};

use super::rtt::Rtt;
use super::{Class, Profile};
use crate::spec::{Between, Bottleneck, Discipline, EffectSpec, GilbertElliott, QueueLimit, RateSpec};

impl Profile {
    /// What each class is, what they share, and what changes, a line each.
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
        // Said once where it is the same both ways, as `variation` of the class makes it.
        let variation = |effects: &[EffectSpec]| match effects.last() {
            Some(EffectSpec::Variation(variation)) => Some(*variation),
            _ => None,
        };
        let same = variation(&self.up).filter(|up| variation(&self.down) == Some(*up));
        if let Some(variation) = same {
            line.push_str(&format!(", each way +-{}", format_duration(variation)));
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
    /// In a few words.
    pub(super) fn describe(&self) -> String {
        match self {
            Rtt::Constant(rtt) => format_duration(*rtt),
            Rtt::LogNormal { median, sigma, min, max } => {
                let mut words = format!("log-normal, median {}, sigma {sigma}", format_duration(*median));
                if !min.is_zero() {
                    words.push_str(&format!(", at least {}", format_duration(*min)));
                }
                if *max < super::document::LONGEST {
                    words.push_str(&format!(", at most {}", format_duration(*max)));
                }
                words
            }
            Rtt::Quantiles(curve) => {
                format!("along a curve of {} points, median {}", curve.len(), format_duration(self.quantile(0.5)))
            }
            Rtt::Sample(sorted) => {
                format!("as {} measured, median {}", sorted.len(), format_duration(self.quantile(0.5)))
            }
            Rtt::OverTime(series) => {
                let delays = series.points().iter().map(|&(_, delay)| delay);
                let (least, most) = (delays.clone().min().unwrap_or_default(), delays.max().unwrap_or_default());
                let length = series.points().last().map(|&(moment, _)| moment).unwrap_or_default();
                format!(
                    "over time, {} to {}, mean {}, {} of {} points in {}{}",
                    format_duration(least),
                    format_duration(most),
                    format_duration(series.mean()),
                    if series.between() == Between::Lines { "lines" } else { "steps" },
                    series.points().len(),
                    format_duration(length),
                    if series.repeats() { ", again and again" } else { "" },
                )
            }
        }
    }
}

/// The effects in order of travel.
fn describe(effects: &[EffectSpec]) -> String {
    effects.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn one(effect: &EffectSpec) -> String {
    match effect {
        EffectSpec::Loss(loss) => format!("loss {}", percent(loss.value())),
        EffectSpec::GilbertElliott(model) => bursts(model),
        EffectSpec::Corrupt(probability) => format!("{} corrupted", percent(probability.value())),
        EffectSpec::Duplicate(probability) => format!("{} twice", percent(probability.value())),
        EffectSpec::Bottleneck(bottleneck) => describe_bottleneck(bottleneck),
        EffectSpec::Reorder(reorder) => {
            format!("{} held back by {}", percent(reorder.probability.value()), format_duration(reorder.by))
        }
        EffectSpec::Variation(variation) => format!("+-{}", format_duration(*variation)),
        EffectSpec::Delay(delay) => format!("delay {}", format_duration(*delay)),
    }
}

fn bursts(model: &GilbertElliott) -> String {
    let GilbertElliott { to_bad, to_good, loss_good, loss_bad } = model;
    let mut words = format!(
        "loss in bursts, mean {} (bad after {} of packets, good after {}",
        percent(model.mean_loss()),
        percent(to_bad.value()),
        percent(to_good.value())
    );
    if loss_bad.value() < 1.0 {
        words.push_str(&format!(", lost in bad {}", percent(loss_bad.value())));
    }
    if loss_good.value() > 0.0 {
        words.push_str(&format!(", in good {}", percent(loss_good.value())));
    }
    words + ")"
}

fn describe_bottleneck(bottleneck: &Bottleneck) -> String {
    let rate = match &bottleneck.rate {
        RateSpec::Constant(rate) => rate.to_string(),
        RateSpec::Trace(trace) => {
            // To the kilobit: the rest of a mean says nothing.
            let round = |rate: BitRate| BitRate::from_bits_per_second((rate.bits_per_second() + 500) / 1000 * 1000);
            let mean = trace.mean_rate().and_then(round).map_or("under 1kbit".to_owned(), |rate| rate.to_string());
            format!("trace of {}, mean {mean}", format_duration(trace.length()))
        }
    };
    let limit = match bottleneck.queue.limit {
        QueueLimit::Time(time) => format_duration(time),
        limit => limit.to_string(),
    };
    match bottleneck.queue.discipline {
        Discipline::DropTail => format!("{rate}, queue {limit}"),
        discipline => format!("{rate}, queue {limit} {discipline}"),
    }
}

/// A share in per cent, to four significant places after the point.
fn percent(share: f64) -> String {
    format!("{}%", (share * 1e6).round() / 1e4)
}
