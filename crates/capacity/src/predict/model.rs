//! The cost of a request, with its error; pure functions.
//!
//! ```text
//!   loads of a class --> ClassCost {light: line, saturated: mean} --> demands of a request of the workload
//!                                                                       --> demand by rate
//! ```
//!
//! A server with one request at a time wakes up for each; a saturated one finds the next request when it has finished
//! the last. For a fast server the wake-up costs as much as the request itself, so both are measured and neither
//! replaces the other: `light` is U = U0 + X D over rates far below capacity, `saturated` is U / X of a saturated
//! server whose CPU is limited to a part of its share.

use stats::mean_interval;
use stats::regression::{Line, line};

/// Confidence of all intervals here.
pub const CONFIDENCE: f64 = 0.95;

/// A figure with its interval at 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Half width of its interval; infinite if unknown.
    pub half: f64,
}

impl Estimate {
    /// A figure without error.
    pub const fn exact(value: f64) -> Self {
        Estimate { value, half: 0.0 }
    }

    /// Mean of repeated, independent figures, by Student's t; `None` of fewer than two.
    pub fn of(values: &[f64]) -> Option<Self> {
        mean_interval(values, CONFIDENCE).map(|interval| Estimate { value: interval.mean, half: interval.half_width })
    }

    /// The figure times `by`.
    pub fn times(self, factor: f64) -> Self {
        Estimate { value: self.value * factor, half: self.half * factor.abs() }
    }

    /// Sum of figures with independent errors.
    pub fn plus(self, other: Self) -> Self {
        Estimate { value: self.value + other.value, half: self.half.hypot(other.half) }
    }

    /// Sum of figures from one measurement, whose errors add up.
    pub fn plus_of_the_same(self, other: Self) -> Self {
        Estimate { value: self.value + other.value, half: self.half + other.half }
    }

    /// Difference of figures with independent errors.
    pub fn less(self, other: Self) -> Self {
        self.plus(other.times(-1.0))
    }

    /// The figure, or `part` if it is less than that, for a whole that contains the part. The error is the larger of
    /// the two.
    pub fn at_least(self, part: Self) -> Self {
        if self.value >= part.value { self } else { Estimate { value: part.value, half: self.half.max(part.half) } }
    }

    /// Both ends of the interval. A demand is never below 0, whatever the noise.
    pub fn interval(self) -> [f64; 2] {
        [self.value - self.half, self.value + self.half]
    }

    /// Half width over the figure.
    pub fn relative(self) -> f64 {
        self.half / self.value.abs()
    }
}

/// A saturated load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaturatedLoad {
    /// Requests per second.
    pub rate_per_s: f64,
    /// Busy cores.
    pub busy: f64,
    /// Excess of the pause between two quota periods over that at the full limit, in seconds.
    pub longer_pause_s: f64,
}

/// Cost of a class for one resource, from its loads.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassCost {
    /// From light loads, if three or more.
    pub light: Option<Line>,
    /// From saturated loads, if two or more: the cost at capacity.
    pub saturated: Option<Estimate>,
    /// Half width of the measurement's interval of CPU time per request, in light and in saturated loads. It is common
    /// to all loads, so more loads do not reduce it.
    pub coarse: [f64; 2],
}

impl ClassCost {
    /// From `light` loads, as requests per second and busy cores, and from `saturated` loads. Loads without requests
    /// are ignored.
    pub fn of(light: &[(f64, f64)], saturated: &[SaturatedLoad]) -> Self {
        let light: Vec<(f64, f64)> = light.iter().copied().filter(|(rate, _)| *rate > 0.0).collect();
        let saturated = saturated.iter().filter(|load| load.rate_per_s > 0.0);
        let each: Vec<(f64, f64)> = saturated.map(|load| (load.longer_pause_s, load.busy / load.rate_per_s)).collect();
        ClassCost { light: line(&light), saturated: at_capacity(&each), coarse: [0.0; 2] }
    }

    /// Sets the common error of the loads.
    pub fn known_to(mut self, coarse: [f64; 2]) -> Self {
        self.coarse = coarse;
        self.saturated = self.saturated.map(|saturated| Estimate { half: saturated.half + coarse[1], ..saturated });
        self
    }

    /// Slope over light loads.
    pub fn slope(&self) -> Option<Estimate> {
        let line = self.light.as_ref()?;
        Some(Estimate { value: line.slope, half: line.slope_interval(CONFIDENCE).half_width + self.coarse[0] })
    }

    /// Busy cores without requests: the intercept of the line, at least 0, and 0 unless significant.
    pub fn idle(&self) -> f64 {
        let Some(line) = &self.light else { return 0.0 };
        if line.intercept_interval(CONFIDENCE).low() > 0.0 { line.intercept } else { 0.0 }
    }
}

/// Cost of a request at capacity, from pairs of excess pause and cost. A server that pauses longer finds colder caches.
/// If the loads show this (slope above 0 at 95 %), the cost is that of their line without excess pause, otherwise their
/// mean.
fn at_capacity(each: &[(f64, f64)]) -> Option<Estimate> {
    let rises = line(each).filter(|line| line.slope_interval(CONFIDENCE).low() > 0.0 && line.intercept > 0.0);
    match rises {
        Some(line) => Some(Estimate { value: line.intercept, half: line.intercept_interval(CONFIDENCE).half_width }),
        None => Estimate::of(&each.iter().map(|&(_, cost)| cost).collect::<Vec<_>>()),
    }
}

/// Cost of one item for one resource: a class, or a difference of classes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ItemCost {
    /// From light loads.
    pub light: Option<Estimate>,
    /// From saturated loads.
    pub saturated: Option<Estimate>,
    /// Busy cores without requests.
    pub idle: f64,
}

impl ItemCost {
    /// Cost of a request of a class.
    pub fn of(cost: &ClassCost) -> Self {
        ItemCost { light: cost.slope(), saturated: cost.saturated, idle: cost.idle() }
    }

    /// Difference: of a request with a connection of its own and one on an open connection, the cost of the connection.
    pub fn less(&self, other: &ItemCost) -> ItemCost {
        let less = |a: Option<Estimate>, b: Option<Estimate>| Some(a?.less(b?));
        ItemCost { light: less(self.light, other.light), saturated: less(self.saturated, other.saturated), idle: 0.0 }
    }

    /// See [`WorkloadDemand::covering`].
    pub fn covering(&self, part: &ItemCost) -> ItemCost {
        let cover = |whole: Option<Estimate>, part: Option<Estimate>| {
            whole.map(|whole| part.map_or(whole, |part| whole.at_least(part)))
        };
        ItemCost {
            light: cover(self.light, part.light),
            saturated: cover(self.saturated, part.saturated),
            idle: self.idle,
        }
    }

    /// Cost in a saturated server, or that of light loads if unknown.
    pub fn at_saturation(&self) -> Option<Estimate> {
        self.saturated.or(self.light)
    }
}

/// Cost of a request of the workload for one resource, light and saturated.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WorkloadDemand {
    /// When requests come one at a time.
    pub light: Option<Estimate>,
    /// When the server is saturated.
    pub at_saturation: Estimate,
    /// Whether `at_saturation` was measured in saturated loads, otherwise it is that of light loads.
    pub saturated: bool,
    /// Busy cores without requests.
    pub idle: f64,
}

impl WorkloadDemand {
    /// The sum over `(number per request, cost)`: classes by their share, connections and handshakes by their number;
    /// negative numbers subtract. `None` if one of them has no cost.
    pub fn of(parts: &[(f64, ItemCost)]) -> Option<Self> {
        let parts: Vec<&(f64, ItemCost)> = parts.iter().filter(|(each, _)| each.abs() > 1e-9).collect();
        let sum = |of: fn(&ItemCost) -> Option<Estimate>| -> Option<Estimate> {
            let terms: Option<Vec<Estimate>> = parts.iter().map(|(each, cost)| Some(of(cost)?.times(*each))).collect();
            terms?.into_iter().reduce(Estimate::plus)
        };
        let saturated = sum(|cost| cost.saturated);
        // If one class has no saturated loads, light loads count for all: the two kinds are not added.
        let light = sum(|cost| cost.light);
        Some(WorkloadDemand {
            light,
            at_saturation: saturated.or(light)?,
            saturated: saturated.is_some(),
            idle: parts.iter().map(|(_, cost)| cost.idle).fold(0.0, f64::max),
        })
    }

    /// The rate at which all `cores` are used, with its interval. Idle work counts with demands of light loads;
    /// saturated demands include it.
    pub fn rate_within(&self, cores: f64) -> Option<(f64, [f64; 2])> {
        let left = if self.saturated { cores } else { cores - self.idle };
        let [low, high] = self.at_saturation.interval();
        let is_known = self.at_saturation.value > 0.0 && left > 0.0;
        // A demand whose interval reaches 0 gives no upper end.
        let at = |demand: f64| if demand > 0.0 { left / demand } else { f64::INFINITY };
        is_known.then(|| (at(self.at_saturation.value), [at(high), at(low)]))
    }

    /// Cost of a request at a rate on `cores`: an arrival wakes the server up if it is idle, more rarely the busier it
    /// is. With w for the wake-up and b for the busy share: D = Db + w (1 - b) and b = X D / cores, so D = (Db + w) /
    /// (1 + X w / cores), which is the demand of light loads at rate 0 and Db at saturation.
    pub fn at(&self, rate: f64, cores: f64) -> f64 {
        let at_saturation = self.at_saturation.value.max(0.0);
        let waking = self.light.map_or(0.0, |light| (light.value - at_saturation).max(0.0));
        (at_saturation + waking) / (1.0 + rate * waking / cores)
    }

    /// Cost of a request at this busy share, from 0 to 1.
    pub fn at_busy(&self, busy: f64) -> f64 {
        let at_saturation = self.at_saturation.value.max(0.0);
        let waking = self.light.map_or(0.0, |light| (light.value - at_saturation).max(0.0));
        at_saturation + waking * (1.0 - busy).clamp(0.0, 1.0)
    }

    /// Cost including receive processing, where `part` is the cost without. The two come from different counters and
    /// separate fits, so noise may put the whole below its part; then the part is used.
    pub fn covering(&self, part: &WorkloadDemand) -> WorkloadDemand {
        WorkloadDemand {
            light: self.light.map(|light| part.light.map_or(light, |part| light.at_least(part))),
            at_saturation: self.at_saturation.at_least(part.at_saturation),
            ..*self
        }
    }
}

/// Costs of two alternatives from runs with different shares of them: `runs` are (share without, demand). The line
/// gives both costs at shares 0 and 1: TLS handshakes in full and resumed, misses and hits. With two runs there is no
/// interval.
pub fn ends(runs: &[(f64, Estimate)]) -> Option<(Estimate, Estimate)> {
    match runs {
        [(a, of_a), (b, of_b)] if (a - b).abs() > 1e-6 => {
            // The line through both points, extended to 0 and 1.
            let at = |share: f64| of_a.times((b - share) / (b - a)).plus(of_b.times((share - a) / (b - a)));
            Some((at(0.0), at(1.0)))
        }
        _ => None,
    }
}

/// The share of hits at which hits and misses give the demand of the workload, between 0 and 1. `None` if hits and
/// misses hardly differ.
pub fn hit_share(hit: f64, miss: f64, workload_cost: f64) -> Option<f64> {
    let apart = miss - hit;
    (apart > miss * 0.05).then(|| ((miss - workload_cost) / apart).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-9), "{a} {b}");
    }

    /// Ten, twenty .. fifty requests a second of 2 ms, and 5 % of a core of idle work.
    fn light() -> Vec<(f64, f64)> {
        (1..=5).map(|tens| f64::from(tens) * 10.0).map(|rate| (rate, 0.05 + 0.002 * rate)).collect()
    }

    #[test]
    fn cost_is_the_slope_of_light_loads_and_the_mean_of_saturated_ones() {
        let saturated = |loads: &[(f64, f64)]| -> Vec<SaturatedLoad> {
            loads.iter().map(|&(rate_per_s, busy)| SaturatedLoad { rate_per_s, busy, longer_pause_s: 0.0 }).collect()
        };
        let cost = ClassCost::of(&light(), &saturated(&[(30.0, 0.03), (40.0, 0.044), (0.0, 0.5)]));
        near(cost.slope().unwrap().value, 0.002);
        near(cost.idle(), 0.05);
        near(cost.saturated.unwrap().value, 0.001_05);
        // Student's t with one degree of freedom, 12.706, over two figures 0.0001 apart.
        assert!((cost.saturated.unwrap().half - 12.7062 * 0.000_05).abs() < 1e-7, "{cost:?}");
        assert_eq!(ItemCost::of(&cost).at_saturation(), cost.saturated);
        let only = ClassCost::of(&light(), &[]);
        near(ItemCost::of(&only).at_saturation().unwrap().value, 0.002);
        assert_eq!(ClassCost::of(&[(1.0, 1.0)], &saturated(&[(1.0, 1.0)])), ClassCost::default());
    }

    #[test]
    fn cost_of_longer_quota_pauses_is_subtracted() {
        // 300 us, and 20 us more per ms of excess pause; a little noise.
        let loads = |each_ms: f64, noise: f64| -> Vec<SaturatedLoad> {
            let load = |(at, sign): (f64, f64)| {
                let cost = 300e-6 + each_ms * at + sign * noise;
                SaturatedLoad { rate_per_s: 100.0, busy: 100.0 * cost, longer_pause_s: at / 1e3 }
            };
            [(0.5, 1.0), (1.2, -1.0), (2.1, 0.0), (3.3, 1.0), (5.0, -1.0)].map(load).to_vec()
        };
        let dearer = ClassCost::of(&[], &loads(20e-6, 2e-6)).saturated.unwrap();
        assert!((dearer.value - 300e-6).abs() < dearer.half && dearer.half < 12e-6, "{dearer:?}");
        // Noise alone: the mean is more precise than the line.
        let flat = ClassCost::of(&[], &loads(0.0, 10e-6)).saturated.unwrap();
        near(flat.value, 300e-6);
        assert!(flat.half < 15e-6, "{flat:?}");
    }

    #[test]
    fn workload_demand_is_the_sum_of_its_classes() {
        let of = |each: f64| {
            let estimate = Some(Estimate { value: each, half: each / 10.0 });
            ItemCost { light: estimate, saturated: estimate, idle: 0.0 }
        };
        let (page, search, connection) = (of(0.001), of(0.010), of(0.002));
        let workload_cost = WorkloadDemand::of(&[(0.8, page), (0.2, search), (1.0, connection)]).unwrap();
        // By hand: 0.8 + 2 + 2 ms, and half widths 0.08, 0.2 and 0.2 ms by squares.
        near(workload_cost.at_saturation.value, 0.0048);
        near(workload_cost.at_saturation.half, (0.08f64.powi(2) + 0.2f64.powi(2) * 2.0).sqrt() / 1e3);
        near(workload_cost.light.unwrap().value, 0.0048);
        assert!(workload_cost.saturated);
        let (rate, [low, high]) = workload_cost.rate_within(0.2).unwrap();
        near(rate, 0.2 / 0.0048);
        assert!(low < rate && rate < high);
        // A class without any cost gives no sum; a class with number 0 does not matter.
        assert_eq!(WorkloadDemand::of(&[(0.8, page), (0.2, ItemCost::default())]), None);
        assert!(WorkloadDemand::of(&[(1.0, page), (0.0, ItemCost::default())]).is_some());
        assert_eq!(WorkloadDemand::of(&[]), None);
        // One class without saturated loads: light loads for all.
        let workload_cost = WorkloadDemand::of(&[(0.5, page), (0.5, ItemCost { saturated: None, ..search })]).unwrap();
        assert!(!workload_cost.saturated);
        near(workload_cost.at_saturation.value, 0.0055);
    }

    #[test]
    fn connection_cost_is_the_difference_of_two_classes() {
        let of = |value: f64| ItemCost {
            light: Some(Estimate { value, half: 3e-6 }),
            saturated: Some(Estimate { value, half: 4e-6 }),
            idle: 0.01,
        };
        let connection = of(50e-6).less(&of(20e-6));
        near(connection.light.unwrap().value, 30e-6);
        near(connection.saturated.unwrap().half, 4e-6 * 2f64.sqrt());
        assert_eq!(connection.idle, 0.0);
        assert_eq!(of(1.0).less(&ItemCost { saturated: None, ..of(1.0) }).saturated, None);
    }

    #[test]
    fn limit_from_light_loads_subtracts_idle_work() {
        let workload_cost = WorkloadDemand::of(&[(1.0, ItemCost::of(&ClassCost::of(&light(), &[])))]).unwrap();
        assert!(!workload_cost.saturated);
        let (rate, _) = workload_cost.rate_within(0.25).unwrap();
        assert!((rate - 100.0).abs() < 1e-6, "{rate}");
        assert_eq!(workload_cost.rate_within(0.05), None);
    }

    #[test]
    fn demand_falls_with_the_busy_share_of_the_server() {
        let workload_cost = WorkloadDemand {
            light: Some(Estimate::exact(8e-6)),
            at_saturation: Estimate::exact(4e-6),
            saturated: true,
            idle: 0.0,
        };
        near(workload_cost.at(0.0, 0.2), 8e-6);
        // All of 0.2 cores used: 50,000 a second of 4 us.
        near(workload_cost.at(50_000.0, 0.2), 4e-6);
        let halfway = workload_cost.at(25_000.0, 0.2);
        assert!(halfway > 4e-6 && halfway < 8e-6);
        // b = X D / cores, from which D was made.
        near(halfway, 4e-6 + 4e-6 * (1.0 - 25_000.0 * halfway / 0.2));
        let flat = WorkloadDemand { light: None, ..workload_cost };
        near(flat.at(1000.0, 0.2), 4e-6);
    }

    #[test]
    fn demand_with_receive_processing_is_no_less_than_without() {
        let of = |light: f64, at_saturation: f64, half: f64| WorkloadDemand {
            light: Some(Estimate { value: light, half: 0.0 }),
            at_saturation: Estimate { value: at_saturation, half },
            saturated: true,
            idle: 0.0,
        };
        let processes = of(9e-6, 6e-6, 1e-6);
        // The whole exceeds its part: as measured.
        assert_eq!(of(12e-6, 8e-6, 1e-7).covering(&processes), of(12e-6, 8e-6, 1e-7));
        // The whole is below its part: the part, with the wider interval.
        assert_eq!(of(8e-6, 5e-6, 1e-7).covering(&processes), of(9e-6, 6e-6, 1e-6));
        // The cost is the same by rate and by busy share.
        let workload_cost = of(8e-6, 4e-6, 0.0);
        for rate in [0.0, 10_000.0, 25_000.0, 50_000.0] {
            let demand = workload_cost.at(rate, 0.2);
            assert!((workload_cost.at_busy(rate * demand / 0.2) / demand - 1.0).abs() < 1e-9, "{rate}");
        }
    }

    #[test]
    fn two_costs_follow_from_runs_with_different_shares() {
        // Full handshakes 300 us, resumed 80: runs with 5 % and with 100 % full handshakes.
        let run = |full: f64| (1.0 - full, Estimate { value: 300e-6 * full + 80e-6 * (1.0 - full), half: 1e-6 });
        let (full, resumed) = ends(&[run(1.0), run(0.05)]).unwrap();
        near(full.value, 300e-6);
        near(resumed.value, 80e-6);
        near(full.half, 1e-6);
        assert!(resumed.half > 1e-6);
        assert_eq!(ends(&[run(0.5), run(0.5)]), None);
        near(hit_share(10e-6, 110e-6, 60e-6).unwrap(), 0.5);
        near(hit_share(10e-6, 110e-6, 5e-6).unwrap(), 1.0);
        assert_eq!(hit_share(10e-6, 10e-6, 10e-6), None);
    }
}
