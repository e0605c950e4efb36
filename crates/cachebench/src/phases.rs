//! The schedule of a point: phases of the load and of the workload.
//!
//! PolyMix-2 to 4 are schedules of many hours with plateaus of four hours. Phases with a fixed length scale by one
//! factor, so that a test of the same shape takes minutes. Life cycles of objects (days) and the cache fill (bytes) do
//! not scale, which the result states.
//!
//! | | warm | framp | fill | fexit | inc | top | dec | idle |
//! |---|---|---|---|---|---|---|---|---|
//! | PolyMix-2 | 3 min at 0.1 | | | | 1 h | 4 h | 1 h to 0.1 | 2 h |
//! | PolyMix-3 | 3 min at 0.1 | 30 min | 2 caches | 30 min to 0.1 | 30 min | 4 h | 30 min to 0.1 | 30 min |
//! | PolyMix-4 | | 20 min | 2 caches | 20 min to 0 | 20 min | 4 h | 20 min to 0.1 | 20 min |
//!
//! inc, top and dec come twice, with idle between. Source: `workloads/polymix-2.pg`, `include/polymix-3-guts.pg`,
//! `include/polymix-4-guts.pg` and `include/phases.pg` of Web Polygraph 4.11 (github albertok/web-polygraph).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::Bytes;

/// A schedule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PolygraphSchedule {
    /// One constant rate, as in PolyMix-1 and the school gateway paper.
    #[default]
    Constant,
    /// Warm-up, two plateaus with an idle phase between them.
    Polymix2,
    /// The same after filling the cache.
    Polymix3,
    /// The same with shorter ramps.
    Polymix4,
}

/// A phase of a point. Loads are shares of the point's rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PointPhase {
    /// Name in the results.
    pub name: String,
    /// Length; absent with `fill`.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub duration: Option<Duration>,
    /// New cacheable bytes after which the phase ends, as expected of the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<Bytes>,
    /// Share of the point's rate at its start, from 0.
    #[serde(default = "whole")]
    pub load: f64,
    /// Share of the point's rate at its end; absent: constant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_to: Option<f64>,
    /// Recurrence at start and end, overriding the workload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<[f64; 2]>,
    /// Factor of the workload's special requests (IMS, reload) at start and end.
    #[serde(default = "both_whole", skip_serializing_if = "is_both_whole")]
    pub special: [f64; 2],
    /// False: the working set does not grow.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub grows: bool,
    /// Whether the phase has figures of its own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub measured: bool,
}

fn whole() -> f64 {
    1.0
}

fn both_whole() -> [f64; 2] {
    [1.0; 2]
}

fn is_both_whole(special: &[f64; 2]) -> bool {
    *special == both_whole()
}

fn yes() -> bool {
    true
}

fn is_yes(is: &bool) -> bool {
    *is
}

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
/// Factor of the recurrence in fill phases: 5 % hits of 55 %.
const FILL_RECURRENCE: f64 = 5.0 / 55.0;
/// Factor of the special requests in fill phases.
const FILL_SPECIAL: f64 = 0.1;
/// Minimal load: a share of 0 would have no arrivals.
const MINIMAL_LOAD: f64 = 0.01;
/// PolyMix-3 and 4 allow 0.1 to 1; the full rate is the shortest (our choice).
const FILL_LOAD: f64 = 1.0;
/// The cache is filled twice.
const FILLS: u64 = 2;

/// Properties in which the schedules differ.
struct ScheduleShape {
    warm: Option<Duration>,
    ramp: Duration,
    idle: Duration,
    fills: bool,
    /// Load at the end of fexit and the start of inc1.
    low: f64,
    /// Load at the end of dec2.
    last: f64,
}

impl PolygraphSchedule {
    /// All names.
    pub const NAMES: [&str; 4] = ["constant", "polymix-2", "polymix-3", "polymix-4"];

    /// Name in plans.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The phases, their fixed lengths multiplied by `scale`, for this `recurrence` and cache size. Without a size the
    /// cache is not filled. Empty for [`PolygraphSchedule::Constant`].
    pub fn phases(self, scale: f64, recurrence: f64, cache: Option<Bytes>) -> Vec<PointPhase> {
        let shape = match self {
            PolygraphSchedule::Constant => return Vec::new(),
            PolygraphSchedule::Polymix2 => {
                ScheduleShape { warm: Some(3 * MINUTE), ramp: HOUR, idle: 2 * HOUR, fills: false, low: 0.1, last: 0.1 }
            }
            PolygraphSchedule::Polymix3 => ScheduleShape {
                warm: Some(3 * MINUTE),
                ramp: HOUR / 2,
                idle: HOUR / 2,
                fills: true,
                low: 0.1,
                last: 0.1,
            },
            PolygraphSchedule::Polymix4 => ScheduleShape {
                warm: None,
                ramp: HOUR / 3,
                idle: HOUR / 3,
                fills: true,
                low: MINIMAL_LOAD,
                last: MINIMAL_LOAD,
            },
        };
        let mut phases = Vec::new();
        let mut add = |name: &str, lasts: Duration, load: f64, to: f64| {
            phases.push(PointPhase {
                load_to: (to != load).then_some(to),
                load,
                ..PointPhase::new(name, lasts.mul_f64(scale))
            });
            phases.len() - 1
        };
        let mut filling = Vec::new();
        if let Some(lasts) = shape.warm {
            filling.push(add("warm", lasts, 0.1, 0.1));
        }
        if let Some(size) = cache.filter(|_| shape.fills) {
            let begin = shape.warm.map_or(MINIMAL_LOAD, |_| 0.1);
            filling.push(add("framp", shape.ramp, begin, FILL_LOAD));
            let fill = add("fill", Duration::ZERO, FILL_LOAD, FILL_LOAD);
            let exit = add("fexit", shape.ramp, FILL_LOAD, shape.low);
            phases[fill].duration = None;
            phases[fill].fill = Some(Bytes(size.0.saturating_mul(FILLS)));
            phases[exit].recurrence = Some([recurrence * FILL_RECURRENCE, recurrence]);
            phases[exit].special = [FILL_SPECIAL, 1.0];
            filling.push(fill);
        } else {
            // Without a fill the workload applies from the start.
            filling.clear();
        }
        for at in filling {
            phases[at].recurrence = Some([recurrence * FILL_RECURRENCE; 2]);
            phases[at].special = [FILL_SPECIAL; 2];
        }
        let mut add = |name: &str, lasts: Duration, load: f64, to: f64| {
            phases.push(PointPhase {
                load_to: (to != load).then_some(to),
                load,
                measured: name.starts_with("top"),
                ..PointPhase::new(name, lasts.mul_f64(scale))
            });
        };
        let plateau = 4 * HOUR;
        add("inc1", shape.ramp, shape.low, 1.0);
        add("top1", plateau, 1.0, 1.0);
        add("dec1", shape.ramp, 1.0, 0.1);
        add("idle", shape.idle, 0.1, 0.1);
        add("inc2", shape.ramp, 0.1, 1.0);
        add("top2", plateau, 1.0, 1.0);
        add("dec2", shape.ramp, 1.0, shape.last);
        phases
    }
}

impl FromStr for PolygraphSchedule {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let all = [
            PolygraphSchedule::Constant,
            PolygraphSchedule::Polymix2,
            PolygraphSchedule::Polymix3,
            PolygraphSchedule::Polymix4,
        ];
        all.into_iter().find(|schedule| schedule.name() == typed).ok_or_else(|| {
            format!("`{typed}` is not a valid schedule; expected one of {}", PolygraphSchedule::NAMES.join(", "))
        })
    }
}

impl TryFrom<String> for PolygraphSchedule {
    type Error = String;

    fn try_from(typed: String) -> Result<Self, String> {
        typed.parse()
    }
}

impl From<PolygraphSchedule> for String {
    fn from(schedule: PolygraphSchedule) -> String {
        schedule.name().to_owned()
    }
}

impl fmt::Display for PolygraphSchedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl PointPhase {
    /// A phase at the full rate with the workload's recurrence.
    pub fn new(name: &str, duration: Duration) -> Self {
        PointPhase {
            name: name.to_owned(),
            duration: Some(duration),
            fill: None,
            load: 1.0,
            load_to: None,
            recurrence: None,
            special: both_whole(),
            grows: true,
            measured: false,
        }
    }

    /// Mean share of the point's rate.
    pub fn mean_load(&self) -> f64 {
        f64::midpoint(self.load, self.load_to.unwrap_or(self.load))
    }

    /// Rejects contradictions.
    ///
    /// # Errors
    /// One sentence.
    pub fn check(&self) -> Result<(), String> {
        let refuse = |why: &str| Err(format!("phase {}: {why}", self.name));
        let shares = |pair: &[f64; 2]| pair.iter().all(|share| (0.0..=1.0).contains(share));
        if self.name.trim().is_empty() || self.name.chars().any(char::is_control) || self.name.chars().count() > 60 {
            return Err("a phase needs a name of up to 60 characters".into());
        }
        match (self.duration, self.fill) {
            (Some(_), Some(_)) => {
                return refuse("duration and fill exclude each other: leave one out");
            }
            (None, None) => return refuse("has no length: give a duration, or the bytes to fill"),
            (Some(Duration::ZERO), _) | (_, Some(Bytes(0))) => {
                return refuse("duration or fill is zero: expected more");
            }
            _ => {}
        }
        let loads = [self.load, self.load_to.unwrap_or(self.load)];
        if !loads.iter().all(|load| (0.0..=1e6).contains(load)) {
            return refuse("load and load_to: expected shares of the point's rate, from 0");
        }
        if self.fill.is_some() && self.mean_load() == 0.0 {
            return refuse("fill without a load never ends: give a load above 0");
        }
        if self.measured && self.mean_load() == 0.0 {
            return refuse("measured without a load: give a load above 0");
        }
        if !self.recurrence.as_ref().is_none_or(shares) || !shares(&self.special) {
            return refuse("recurrence and special: expected pairs of shares from 0 to 1");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schedule: PolygraphSchedule, scale: f64, cache: Option<Bytes>) -> Vec<(String, f64, f64, f64)> {
        let phases = schedule.phases(scale, 0.6875, cache);
        phases.iter().for_each(|phase| phase.check().unwrap());
        let of = |phase: &PointPhase| {
            let seconds = phase.duration.map_or(-1.0, |lasts| lasts.as_secs_f64());
            (phase.name.clone(), seconds, phase.load, phase.load_to.unwrap_or(phase.load))
        };
        phases.iter().map(of).collect()
    }

    #[test]
    fn polymix_4_scaled_to_a_sixtieth_matches_the_table() {
        let table = table(PolygraphSchedule::Polymix4, 1.0 / 60.0, Some(Bytes(1_000_000)));
        let expected = [
            ("framp", 20.0, MINIMAL_LOAD, 1.0),
            ("fill", -1.0, 1.0, 1.0),
            ("fexit", 20.0, 1.0, MINIMAL_LOAD),
            ("inc1", 20.0, MINIMAL_LOAD, 1.0),
            ("top1", 240.0, 1.0, 1.0),
            ("dec1", 20.0, 1.0, 0.1),
            ("idle", 20.0, 0.1, 0.1),
            ("inc2", 20.0, 0.1, 1.0),
            ("top2", 240.0, 1.0, 1.0),
            ("dec2", 20.0, 1.0, MINIMAL_LOAD),
        ];
        assert_eq!(table.len(), expected.len());
        for ((name, seconds, from, to), expected) in table.iter().zip(expected) {
            assert!((seconds - expected.1).abs() < 1e-6, "{name}: {seconds}");
            assert_eq!((name.as_str(), *from, *to), (expected.0, expected.2, expected.3));
        }
    }

    #[test]
    fn fill_phase_does_not_scale_and_has_lower_recurrence() {
        for scale in [1.0, 0.01] {
            let phases = PolygraphSchedule::Polymix3.phases(scale, 0.6875, Some(Bytes(500)));
            let fill = phases.iter().find(|phase| phase.name == "fill").unwrap();
            assert_eq!((fill.duration, fill.fill), (None, Some(Bytes(1000))));
            assert!((fill.recurrence.unwrap()[0] - 0.0625).abs() < 1e-12);
            assert_eq!(fill.special, [0.1, 0.1]);
            let exit = phases.iter().find(|phase| phase.name == "fexit").unwrap();
            assert_eq!((exit.recurrence.unwrap()[1], exit.special[1]), (0.6875, 1.0));
            let measured: Vec<&str> =
                phases.iter().filter(|phase| phase.measured).map(|phase| phase.name.as_str()).collect();
            assert_eq!(measured, ["top1", "top2"]);
        }
    }

    #[test]
    fn schedule_without_cache_size_has_no_fill_phases() {
        for schedule in [PolygraphSchedule::Polymix2, PolygraphSchedule::Polymix3, PolygraphSchedule::Polymix4] {
            let phases = schedule.phases(0.01, 0.6875, None);
            assert!(phases.iter().all(|phase| phase.fill.is_none() && phase.recurrence.is_none()), "{schedule}");
        }
        let hours: f64 =
            table(PolygraphSchedule::Polymix2, 1.0, None).iter().map(|(_, seconds, ..)| seconds / 3600.0).sum();
        assert!((hours - 14.05).abs() < 1e-9, "{hours}");
        assert!(PolygraphSchedule::Constant.phases(1.0, 0.5, Some(Bytes(1))).is_empty());
    }

    #[test]
    fn contradictory_phases_are_rejected() {
        let good = PointPhase::new("class", MINUTE);
        good.check().unwrap();
        let refused = |phase: PointPhase| phase.check().unwrap_err();
        assert!(refused(PointPhase { fill: Some(Bytes(1)), ..good.clone() }).contains("exclude each other"));
        assert!(refused(PointPhase { duration: None, ..good.clone() }).contains("has no length"));
        assert!(refused(PointPhase { load: -0.1, ..good.clone() }).contains("shares of the point"));
        assert!(refused(PointPhase { recurrence: Some([0.0, 1.1]), ..good.clone() }).contains("from 0 to 1"));
        assert!(refused(PointPhase { load: 0.0, measured: true, ..good.clone() }).contains("measured without a load"));
        assert!(refused(PointPhase { name: " ".into(), ..good }).contains("name"));
    }

    #[test]
    fn schedule_names_round_trip() {
        for name in PolygraphSchedule::NAMES {
            assert_eq!(name.parse::<PolygraphSchedule>().unwrap().to_string(), name);
        }
        assert!("polymix-1".parse::<PolygraphSchedule>().unwrap_err().contains("constant"));
    }
}
