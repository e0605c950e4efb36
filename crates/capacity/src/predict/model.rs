//! What a request costs, as figures that know how well they are known; pure.
//!
//! ```text
//!   loads of a class --> Cost {light: line, held: mean} --> Demands of a request of the mix --> how much at which rate
//! ```
//!
//! A server that is asked for one thing at a time wakes up for each; one that is behind finds the next when it is done with the last. What
//! the waking costs is of the order of the request itself for a fast server, so both are measured and neither stands for the other: `light`
//! is U = U0 + X D over rates far below capacity, `held` is U / X while the server is held to a part of its share and always behind.

use stats::mean_interval;
use stats::regression::{Line, line};

/// Of every interval here.
pub const CONFIDENCE: f64 = 0.95;

/// A figure and where it lies, at 95 %.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The figure.
    pub value: f64,
    /// Half the width of its interval; infinite where nothing is known of it.
    pub half: f64,
}

impl Estimate {
    /// Known without error.
    pub const fn exact(value: f64) -> Self {
        Estimate { value, half: 0.0 }
    }

    /// The mean of repeated, independent figures, by Student's t; `None` of fewer than two.
    pub fn of(values: &[f64]) -> Option<Self> {
        mean_interval(values, CONFIDENCE).map(|interval| Estimate { value: interval.mean, half: interval.half_width })
    }

    /// So many of it.
    pub fn times(self, factor: f64) -> Self {
        Estimate { value: self.value * factor, half: self.half * factor.abs() }
    }

    /// Both together, as if their errors were independent.
    pub fn plus(self, other: Self) -> Self {
        Estimate { value: self.value + other.value, half: self.half.hypot(other.half) }
    }

    /// Both together where they come from one measurement, so that their errors add up.
    pub fn plus_of_the_same(self, other: Self) -> Self {
        Estimate { value: self.value + other.value, half: self.half + other.half }
    }

    /// What is left without `other`.
    pub fn less(self, other: Self) -> Self {
        self.plus(other.times(-1.0))
    }

    /// The same, or `part` where it is less than that: of a whole that has it as a part. The error is that of the worse known of the two.
    pub fn at_least(self, part: Self) -> Self {
        if self.value >= part.value { self } else { Estimate { value: part.value, half: self.half.max(part.half) } }
    }

    /// Both ends. A demand is never below 0, whatever the noise.
    pub fn interval(self) -> [f64; 2] {
        [self.value - self.half, self.value + self.half]
    }

    /// Half the width over the figure.
    pub fn relative(self) -> f64 {
        self.half / self.value.abs()
    }
}

/// A held load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SaturatedLoad {
    /// Requests a second.
    pub rate_per_s: f64,
    /// Cores busy.
    pub busy: f64,
    /// By how much longer the server stood still between two deals of its share than it does at its capacity, in seconds.
    pub longer_pause_s: f64,
}

/// What requests of a class cost of one resource, as its loads show.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassCost {
    /// Over light loads, where there were three or more.
    pub light: Option<Line>,
    /// Under held loads, where there were two or more: as it is at the capacity.
    pub held: Option<Estimate>,
    /// What the loads' processor time is known to, a request: half the width of its interval over light loads, and over held ones. The error of every
    /// load may be the same, so that more of them do not make it smaller.
    pub coarse: [f64; 2],
}

impl ClassCost {
    /// Of `light` loads, as requests a second and cores busy, and `held` ones. Loads of no request are left out.
    pub fn of(light: &[(f64, f64)], held: &[SaturatedLoad]) -> Self {
        let light: Vec<(f64, f64)> = light.iter().copied().filter(|(rate, _)| *rate > 0.0).collect();
        let held = held.iter().filter(|load| load.rate_per_s > 0.0);
        let each: Vec<(f64, f64)> = held.map(|load| (load.longer_pause_s, load.busy / load.rate_per_s)).collect();
        ClassCost { light: line(&light), held: at_capacity(&each), coarse: [0.0; 2] }
    }

    /// The same where the processor time of a request is known to so much only.
    pub fn known_to(mut self, coarse: [f64; 2]) -> Self {
        self.coarse = coarse;
        self.held = self.held.map(|held| Estimate { half: held.half + coarse[1], ..held });
        self
    }

    /// The slope over light loads.
    pub fn slope(&self) -> Option<Estimate> {
        let line = self.light.as_ref()?;
        Some(Estimate { value: line.slope, half: line.slope_interval(CONFIDENCE).half_width + self.coarse[0] })
    }

    /// Cores busy without any request: where the line begins, at least 0, and 0 where it may as well begin there.
    pub fn idle(&self) -> f64 {
        let Some(line) = &self.light else { return 0.0 };
        if line.intercept_interval(CONFIDENCE).low() > 0.0 { line.intercept } else { 0.0 }
    }
}

/// What a request costs at the capacity, from pairs of a longer pause and what one cost. A server that stands still for longer finds colder
/// caches when it goes on; where that is seen in its loads (a slope above 0, at 95 %), it is where their line has no longer pause, and
/// otherwise their mean.
fn at_capacity(each: &[(f64, f64)]) -> Option<Estimate> {
    let rises = line(each).filter(|line| line.slope_interval(CONFIDENCE).low() > 0.0 && line.intercept > 0.0);
    match rises {
        Some(line) => Some(Estimate { value: line.intercept, half: line.intercept_interval(CONFIDENCE).half_width }),
        None => Estimate::of(&each.iter().map(|&(_, cost)| cost).collect::<Vec<_>>()),
    }
}

/// What one of something costs of one resource: a class's summary, or a difference of such.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Each {
    /// Over light loads.
    pub light: Option<Estimate>,
    /// Under held loads.
    pub held: Option<Estimate>,
    /// Cores busy without any.
    pub idle: f64,
}

impl Each {
    /// What a request of a class costs.
    pub fn of(cost: &ClassCost) -> Self {
        Each { light: cost.slope(), held: cost.held, idle: cost.idle() }
    }

    /// What is left without `other`: of a request with a connection of its own less one on an open connection, the connection.
    pub fn less(&self, other: &Each) -> Each {
        let less = |a: Option<Estimate>, b: Option<Estimate>| Some(a?.less(b?));
        Each { light: less(self.light, other.light), held: less(self.held, other.held), idle: 0.0 }
    }

    /// See [`Mixed::covering`].
    pub fn covering(&self, part: &Each) -> Each {
        let cover = |whole: Option<Estimate>, part: Option<Estimate>| {
            whole.map(|whole| part.map_or(whole, |part| whole.at_least(part)))
        };
        Each { light: cover(self.light, part.light), held: cover(self.held, part.held), idle: self.idle }
    }

    /// What counts where the server is behind: under held loads, else over light ones.
    pub fn behind(&self) -> Option<Estimate> {
        self.held.or(self.light)
    }
}

/// A request of the mix: what it costs of one resource, light and behind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Mixed {
    /// When requests come one at a time.
    pub light: Option<Estimate>,
    /// While the server is behind.
    pub behind: Estimate,
    /// Whether the latter was measured so; otherwise it is that of light loads.
    pub held: bool,
    /// Cores busy without any request.
    pub idle: f64,
}

impl Mixed {
    /// The sum over `(how many each request brings, cost)`: classes by their share, and connections and handshakes by their number; negative where one is taken off. `None`
    /// where one of them has no cost at all.
    pub fn of(parts: &[(f64, Each)]) -> Option<Self> {
        let parts: Vec<&(f64, Each)> = parts.iter().filter(|(each, _)| each.abs() > 1e-9).collect();
        let sum = |of: fn(&Each) -> Option<Estimate>| -> Option<Estimate> {
            let terms: Option<Vec<Estimate>> = parts.iter().map(|(each, cost)| Some(of(cost)?.times(*each))).collect();
            terms?.into_iter().reduce(Estimate::plus)
        };
        let held = sum(|cost| cost.held);
        // Of light loads alone, where one of them could not be held: the two are not to be added up.
        let light = sum(|cost| cost.light);
        Some(Mixed {
            light,
            behind: held.or(light)?,
            held: held.is_some(),
            idle: parts.iter().map(|(_, cost)| cost.idle).fold(0.0, f64::max),
        })
    }

    /// The rate at which `cores` are all used, and where it lies. Idle work counts where the demand is that of light loads: under held
    /// loads it is in each request.
    pub fn rate_within(&self, cores: f64) -> Option<(f64, [f64; 2])> {
        let left = if self.held { cores } else { cores - self.idle };
        let [low, high] = self.behind.interval();
        let is_known = self.behind.value > 0.0 && left > 0.0;
        // Where the demand may as well be nothing there is no upper end.
        let at = |demand: f64| if demand > 0.0 { left / demand } else { f64::INFINITY };
        is_known.then(|| (at(self.behind.value), [at(high), at(low)]))
    }

    /// What a request costs at a rate, where `cores` may be used: an arrival wakes the server up if it finds it with nothing to do, the more
    /// seldom the busier it is. With w for the waking, b for the share of its time that the server is busy: D = Db + w (1 - b), and b =
    /// X D / cores; so D = (Db + w) / (1 + X w / cores), which is the demand of light loads at 0 and Db where all is used.
    pub fn at(&self, rate: f64, cores: f64) -> f64 {
        let behind = self.behind.value.max(0.0);
        let waking = self.light.map_or(0.0, |light| (light.value - behind).max(0.0));
        (behind + waking) / (1.0 + rate * waking / cores)
    }

    /// What a request costs while the server is busy for this share of its time, from 0 to 1.
    pub fn at_busy(&self, busy: f64) -> f64 {
        let behind = self.behind.value.max(0.0);
        let waking = self.light.map_or(0.0, |light| (light.value - behind).max(0.0));
        behind + waking * (1.0 - busy).clamp(0.0, 1.0)
    }

    /// The cost of a request with the receiving of its packets, where `part` is what it costs without. The two are read from different
    /// counters and fitted apart, so that noise may leave the whole below its part; then the part is all that is known of it.
    pub fn covering(&self, part: &Mixed) -> Mixed {
        Mixed {
            light: self.light.map(|light| part.light.map_or(light, |part| light.at_least(part))),
            behind: self.behind.at_least(part.behind),
            ..*self
        }
    }
}

/// What only some requests do, from runs in which different shares of them did: `runs` are (share that did it not, demand); 0 and 1 are the
/// ends. The line through them gives what one costs that does it, and one that does not: TLS handshakes in full and resumed, misses and hits.
/// With two runs there is no interval.
pub fn ends(runs: &[(f64, Estimate)]) -> Option<(Estimate, Estimate)> {
    match runs {
        [(a, of_a), (b, of_b)] if (a - b).abs() > 1e-6 => {
            // Straight through both, to 0 and to 1.
            let at = |share: f64| of_a.times((b - share) / (b - a)).plus(of_b.times((share - a) / (b - a)));
            Some((at(0.0), at(1.0)))
        }
        _ => None,
    }
}

/// The share of hits with which requests of a hit's and of a miss's demand come to that of the mix, between 0 and 1. `None` where the two
/// hardly differ.
pub fn hit_share(hit: f64, miss: f64, mix: f64) -> Option<f64> {
    let apart = miss - hit;
    (apart > miss * 0.05).then(|| ((miss - mix) / apart).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() <= 1e-9 * b.abs().max(1e-9), "{a} {b}");
    }

    /// Ten, twenty .. fifty requests a second of 2 ms, and 5 % of a core that is busy anyway.
    fn light() -> Vec<(f64, f64)> {
        (1..=5).map(|tens| f64::from(tens) * 10.0).map(|rate| (rate, 0.05 + 0.002 * rate)).collect()
    }

    #[test]
    fn a_cost_is_a_slope_and_a_mean() {
        let held = |loads: &[(f64, f64)]| -> Vec<SaturatedLoad> {
            loads.iter().map(|&(rate_per_s, busy)| SaturatedLoad { rate_per_s, busy, longer_pause_s: 0.0 }).collect()
        };
        let cost = ClassCost::of(&light(), &held(&[(30.0, 0.03), (40.0, 0.044), (0.0, 0.5)]));
        near(cost.slope().unwrap().value, 0.002);
        near(cost.idle(), 0.05);
        near(cost.held.unwrap().value, 0.001_05);
        // Student's t of one degree of freedom, 12.706, over two figures 0.0001 apart.
        assert!((cost.held.unwrap().half - 12.7062 * 0.000_05).abs() < 1e-7, "{cost:?}");
        assert_eq!(Each::of(&cost).behind(), cost.held);
        let only = ClassCost::of(&light(), &[]);
        near(Each::of(&only).behind().unwrap().value, 0.002);
        assert_eq!(ClassCost::of(&[(1.0, 1.0)], &held(&[(1.0, 1.0)])), ClassCost::default());
    }

    #[test]
    fn what_longer_pauses_cost_is_taken_off() {
        // 300 us, and 20 us more for each ms that the server stands still for longer; a little noise.
        let loads = |each_ms: f64, noise: f64| -> Vec<SaturatedLoad> {
            let load = |(at, sign): (f64, f64)| {
                let cost = 300e-6 + each_ms * at + sign * noise;
                SaturatedLoad { rate_per_s: 100.0, busy: 100.0 * cost, longer_pause_s: at / 1e3 }
            };
            [(0.5, 1.0), (1.2, -1.0), (2.1, 0.0), (3.3, 1.0), (5.0, -1.0)].map(load).to_vec()
        };
        let dearer = ClassCost::of(&[], &loads(20e-6, 2e-6)).held.unwrap();
        assert!((dearer.value - 300e-6).abs() < dearer.half && dearer.half < 12e-6, "{dearer:?}");
        // Where noise is all there is, the mean is better known.
        let flat = ClassCost::of(&[], &loads(0.0, 10e-6)).held.unwrap();
        near(flat.value, 300e-6);
        assert!(flat.half < 15e-6, "{flat:?}");
    }

    #[test]
    fn a_mix_is_the_sum_of_its_parts() {
        let of = |each: f64| {
            let estimate = Some(Estimate { value: each, half: each / 10.0 });
            Each { light: estimate, held: estimate, idle: 0.0 }
        };
        let (page, search, connection) = (of(0.001), of(0.010), of(0.002));
        let mix = Mixed::of(&[(0.8, page), (0.2, search), (1.0, connection)]).unwrap();
        // By hand: 0.8 + 2 + 2 ms, and 0.08, 0.2 and 0.2 ms of half widths by squares.
        near(mix.behind.value, 0.0048);
        near(mix.behind.half, (0.08f64.powi(2) + 0.2f64.powi(2) * 2.0).sqrt() / 1e3);
        near(mix.light.unwrap().value, 0.0048);
        assert!(mix.held);
        let (rate, [low, high]) = mix.rate_within(0.2).unwrap();
        near(rate, 0.2 / 0.0048);
        assert!(low < rate && rate < high);
        // A class without any cost leaves no sum; one that nothing brings along does not matter.
        assert_eq!(Mixed::of(&[(0.8, page), (0.2, Each::default())]), None);
        assert!(Mixed::of(&[(1.0, page), (0.0, Each::default())]).is_some());
        assert_eq!(Mixed::of(&[]), None);
        // One that could not be held: then all of them by light loads.
        let mix = Mixed::of(&[(0.5, page), (0.5, Each { held: None, ..search })]).unwrap();
        assert!(!mix.held);
        near(mix.behind.value, 0.0055);
    }

    #[test]
    fn a_connection_is_the_difference_it_makes() {
        let of = |value: f64| Each {
            light: Some(Estimate { value, half: 3e-6 }),
            held: Some(Estimate { value, half: 4e-6 }),
            idle: 0.01,
        };
        let connection = of(50e-6).less(&of(20e-6));
        near(connection.light.unwrap().value, 30e-6);
        near(connection.held.unwrap().half, 4e-6 * 2f64.sqrt());
        assert_eq!(connection.idle, 0.0);
        assert_eq!(of(1.0).less(&Each { held: None, ..of(1.0) }).held, None);
    }

    #[test]
    fn without_held_loads_idle_work_is_taken_off_first() {
        let mix = Mixed::of(&[(1.0, Each::of(&ClassCost::of(&light(), &[])))]).unwrap();
        assert!(!mix.held);
        let (rate, _) = mix.rate_within(0.25).unwrap();
        assert!((rate - 100.0).abs() < 1e-6, "{rate}");
        assert_eq!(mix.rate_within(0.05), None);
    }

    #[test]
    fn a_request_costs_less_the_busier_the_server_is() {
        let mix = Mixed { light: Some(Estimate::exact(8e-6)), behind: Estimate::exact(4e-6), held: true, idle: 0.0 };
        near(mix.at(0.0, 0.2), 8e-6);
        // All of 0.2 cores used: 50,000 a second of 4 us.
        near(mix.at(50_000.0, 0.2), 4e-6);
        let halfway = mix.at(25_000.0, 0.2);
        assert!(halfway > 4e-6 && halfway < 8e-6);
        // b = X D / cores, by which D was made.
        near(halfway, 4e-6 + 4e-6 * (1.0 - 25_000.0 * halfway / 0.2));
        let flat = Mixed { light: None, ..mix };
        near(flat.at(1000.0, 0.2), 4e-6);
    }

    #[test]
    fn a_request_with_receiving_costs_no_less_than_without() {
        let of = |light: f64, behind: f64, half: f64| Mixed {
            light: Some(Estimate { value: light, half: 0.0 }),
            behind: Estimate { value: behind, half },
            held: true,
            idle: 0.0,
        };
        let processes = of(9e-6, 6e-6, 1e-6);
        // As measured, where it is more.
        assert_eq!(of(12e-6, 8e-6, 1e-7).covering(&processes), of(12e-6, 8e-6, 1e-7));
        // Below its part it is the part, with the wider interval.
        assert_eq!(of(8e-6, 5e-6, 1e-7).covering(&processes), of(9e-6, 6e-6, 1e-6));
        // One cost by rate and by the share that is busy.
        let mix = of(8e-6, 4e-6, 0.0);
        for rate in [0.0, 10_000.0, 25_000.0, 50_000.0] {
            let demand = mix.at(rate, 0.2);
            assert!((mix.at_busy(rate * demand / 0.2) / demand - 1.0).abs() < 1e-9, "{rate}");
        }
    }

    #[test]
    fn two_unknowns_come_out_of_two_runs() {
        // Full handshakes 300 us, resumed ones 80: runs with 5 % and with all of them in full.
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
