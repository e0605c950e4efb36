//! Measuring what a class of requests costs: a rough capacity, light loads, held loads.

mod classes;
mod load_result;

use std::time::Duration;

use plan::{LoadPlan, Plan, WatchAt, WatchPlan};
use schema::document::CheckState;
use schema::{MeasuredLoad, PredictPart, Verdict};
use stats::Rng;
use store::RunStore;
use sys::signal::Interrupts;
use units::{CpuShare, RequestRate};

pub use self::classes::{Class, classes};
use self::load_result::made;
pub use self::load_result::{LoadResult, core_list, is_sound};

use super::gauge::Gauge;
use super::model::{ClassCost, SaturatedLoad};
use super::path::Traffic;
use super::{PredictOptions, PredictPlan};
use experiment::ExperimentError;
use experiment::Stage;
use experiment::progress::ExperimentProgress;
use experiment::verdict;

/// Connections of a closed loop.
const CONNECTIONS: u32 = 64;
/// Length of the closed loop that finds a rough capacity.
const ROUGH: Duration = Duration::from_secs(1);
/// Light loads are between these shares of it.
const LIGHT: (f64, f64) = (0.1, 0.5);
/// Held loads are made with the server held to between these parts of its share: not far below, since what a request costs depends on how
/// long the server stands still between two deals.
const HELD: (f64, f64) = (0.5, 0.9);
/// A server that uses less than so much of what it is held to may not have been behind.
const HELD_USED_MIN: f64 = 0.9;
/// From this share of its time on the generator may be what was too slow.
const GENERATOR_BUSY: f64 = 0.8;
/// The kernel deals no less than this out.
const SHARE_MIN: f64 = 0.01;
/// A line has an error from three loads on, and a mean from two.
const LIGHT_MIN: usize = 3;
pub const HELD_MIN: usize = 2;
/// Of a fifth of the loads of a class being left out the rest hardly hears.
const LEFT_OUT_MAX: f64 = 0.2;

/// Which loads of one class and kind figures rest on, and which are left out: those that say nothing of what requests cost; those that are
/// invalid, as long as `least` others remain; and then those that are suspect, where no more than a fifth of all are left out. What is not left
/// out spoils the prediction's own verdict as far as it is spoilt itself.
pub fn counted(loads: Vec<LoadResult>, least: usize) -> (Vec<LoadResult>, Vec<LoadResult>) {
    let all = loads.len();
    let (mut kept, mut out): (Vec<LoadResult>, Vec<LoadResult>) = loads.into_iter().partition(LoadResult::is_sound);
    let most = (LEFT_OUT_MAX * all as f64) as usize;
    for (spoilt, is_bounded) in [(Verdict::Invalid, false), (Verdict::Suspect, true)] {
        let is_spoilt = |made: &LoadResult| verdict::named(&made.part.verdict) == spoilt;
        let some = kept.iter().filter(|made| is_spoilt(made)).count();
        // Where worse ones count, those that are less bad count too.
        if kept.len() - some < least && some > 0 || is_bounded && out.len() + some > most {
            break;
        }
        let (left_out, rest): (Vec<LoadResult>, Vec<LoadResult>) = kept.into_iter().partition(is_spoilt);
        kept = rest;
        out.extend(left_out);
    }
    (kept, out)
}

/// Makes loads one after the other.
pub struct Measuring<'a> {
    /// What is asked.
    pub asked: &'a PredictPlan,
    /// The command that repeats all of it.
    pub command: &'a str,
    /// Ctrl-C.
    pub interrupts: &'a Interrupts,
    /// Who is told.
    pub stage: &'a mut dyn Stage,
    /// Where runs are kept that are to be read again.
    pub book: Option<&'a RunStore>,
    /// Every load made, in order.
    pub loads: Vec<MeasuredLoad>,
    /// What to know.
    pub notes: Vec<String>,
    /// The machine, once a run was made.
    pub host: Option<schema::document::Host>,
    /// Time measured, in seconds.
    pub duration_s: f64,
    /// Whether the server can be held here; unknown before it was tried.
    can_hold: Option<bool>,
    /// Who is told of each load, if somebody is.
    pub showing: Option<&'a ExperimentProgress>,
}

/// A class that was measured.
#[derive(Clone, Debug, Default)]
pub struct ClassMeasurement {
    /// Of its processes.
    pub processes: ClassCost,
    /// And with the receiving of packets.
    pub cores: ClassCost,
    /// What a request sends.
    pub traffic: Option<Traffic>,
    /// Resumed handshakes over all, under light and under held loads; absent without TLS.
    pub resumed: (Option<f64>, Option<f64>),
    /// Highest rate among them.
    pub rate_max: f64,
    /// How many loads of each kind.
    pub points: (u32, u32),
}

impl<'a> Measuring<'a> {
    /// Nothing made yet.
    pub fn new(
        asked: &'a PredictPlan,
        command: &'a str,
        interrupts: &'a Interrupts,
        stage: &'a mut dyn Stage,
        book: Option<&'a RunStore>,
    ) -> Self {
        Measuring {
            asked,
            command,
            interrupts,
            stage,
            book,
            loads: Vec::new(),
            notes: Vec::new(),
            host: None,
            duration_s: 0.0,
            can_hold: None,
            showing: None,
        }
    }

    /// Whether somebody wants an end.
    pub fn is_interrupted(&self) -> bool {
        self.interrupts.count() > 0
    }

    fn ask(&self) -> &'a PredictOptions {
        &self.asked.asked
    }

    /// All loads of a class. `None` if it was interrupted, or nothing was answered.
    ///
    /// # Errors
    /// No load of it could be made.
    pub fn class(&mut self, class: &Class) -> Result<Option<ClassMeasurement>, ExperimentError> {
        let Some(rough) = self.rough(class)? else { return Ok(None) };
        // It says where to begin, and no more.
        self.leave_out([&rough]);
        let mut light = Vec::new();
        for rate in self.shuffled(&class.name, spread(LIGHT, self.ask().loads)) {
            let Some(rate) = RequestRate::from_per_second(rate * rough.part.rate_per_s) else { continue };
            let mut load = class.load.clone();
            load.rate = Some(rate);
            load.warmup_rises = true;
            self.keep_few(&mut load);
            let what = format!("{}, {rate:.0} a second", class.name, rate = rate.per_second());
            light.extend(self.measure(&class.name, "light", &self.plan_of(load), self.ask().each, &what)?);
            if self.is_interrupted() {
                return Ok(None);
            }
        }
        let held = self.held(class, rough.part.busy_processes)?;
        if self.is_interrupted() {
            return Ok(None);
        }
        let [(light, no_light), (held, no_held)] = [counted(light, LIGHT_MIN), counted(held, HELD_MIN)];
        self.leave_out(no_light.iter().chain(&no_held));
        Ok(Some(measured(&light, &held)))
    }

    /// Notes that no figure rests on these.
    pub fn leave_out<'m>(&mut self, loads: impl IntoIterator<Item = &'m LoadResult>) {
        for made in loads {
            if let Some(load) = self.loads.get_mut(made.number) {
                load.left_out = true;
            }
        }
    }

    /// What a closed loop gets in a second, for a start.
    ///
    /// # Errors
    /// The server does not answer, or not with what is wanted.
    pub fn rough(&mut self, class: &Class) -> Result<Option<LoadResult>, ExperimentError> {
        let load = closed(&class.load);
        let what = format!("{}, a closed loop", class.name);
        let made = self.measure(&class.name, "rough", &self.plan_of(load), ROUGH, &what)?;
        match made {
            Some(made) if made.part.rate_per_s > 0.0 => Ok(Some(made)),
            _ if self.is_interrupted() => Ok(None),
            _ => Err(ExperimentError::Plan(format!(
                "{}: no request was answered well in a closed loop of {} s; try it with `yamabiko bench` first",
                class.name,
                ROUGH.as_secs()
            ))),
        }
    }

    /// The server held to parts of its share, and always behind.
    ///
    /// # Errors
    /// One of its loads could not be made, though it can be held here.
    pub fn held(&mut self, class: &Class, cores: f64) -> Result<Vec<LoadResult>, ExperimentError> {
        let Some(server) = &self.asked.plan.server else { return Ok(Vec::new()) };
        let share = server.cpu.map_or(cores, CpuShare::cores);
        let mut held = Vec::new();
        for part in self.shuffled(&class.name, spread(HELD, self.ask().loads)) {
            if self.can_hold == Some(false) || self.is_interrupted() {
                break;
            }
            let Some(part) = share_of((part * share).max(SHARE_MIN)) else { continue };
            let mut plan = self.plan_of(closed(&class.load));
            let cpu = plan.server.as_mut().map(|server| server.cpu_measured.insert(part));
            debug_assert!(cpu.is_some());
            let what = format!("{}, held to {part}", class.name);
            // Half as long: there are many more requests in them.
            let lasts = (self.ask().each / 2).max(Duration::from_millis(500));
            match self.measure(&class.name, "held", &plan, lasts, &what) {
                Ok(made) => {
                    self.can_hold = Some(true);
                    held.extend(made);
                }
                // Without a control group the rest can be told all the same.
                Err(error) if server.cpu.is_none() && self.can_hold.is_none() => {
                    self.can_hold = Some(false);
                    self.notes.push(format!("the server could not be held to a share of a core ({error})"));
                }
                Err(error) => return Err(error),
            }
        }
        // Where other programs keep it from its share it is behind all the same; where the generator has no time left it need not be.
        let (kept, idle): (Vec<LoadResult>, Vec<LoadResult>) = held.into_iter().partition(|made| {
            let used = made.part.limited_cores.is_none_or(|held| made.part.busy_processes >= held * HELD_USED_MIN);
            used || made.loop_busy < GENERATOR_BUSY
        });
        self.leave_out(&idle);
        if let Some(idle) = idle.first() {
            self.notes.push(format!(
                "{}: held to {:.1} % of a core it used {:.1} % only, and the generator had no time left: such loads do not count",
                class.name,
                idle.part.limited_cores.unwrap_or(0.0) * 100.0,
                idle.part.busy_processes * 100.0
            ));
        }
        Ok(kept)
    }

    /// Where connections are kept only to see what a request costs without one, they are few: a server with a worker for each has few workers when
    /// it starts, and a kept connection takes one away from all others.
    fn keep_few(&self, load: &mut LoadPlan) {
        if self.asked.plan.load.close && !load.close {
            load.clients = load.clients.min(CLIENTS_ASIDE);
            load.connections = Some(CONNECTIONS_ASIDE);
        }
    }

    fn shuffled(&self, class: &str, mut values: Vec<f64>) -> Vec<f64> {
        let mut rng = Rng::named(self.asked.plan.seed, class);
        for last in (1..values.len()).rev() {
            values.swap(last, rng.below(last as u64 + 1) as usize);
        }
        values
    }

    /// The plan of a load without distance.
    pub fn plan_of(&self, load: LoadPlan) -> Plan {
        let mut plan = self.asked.plan.clone();
        plan.load = load;
        plan.path = plan.path.map(|path| plan::PathPlan {
            rtt: Some(Duration::ZERO),
            offload: path.offload,
            ..plan::PathPlan::default()
        });
        plan
    }

    /// Makes one load; `None` if it was interrupted.
    ///
    /// # Errors
    /// It could not be made.
    pub fn measure(
        &mut self,
        class: &str,
        kind: &str,
        plan: &Plan,
        lasts: Duration,
        what: &str,
    ) -> Result<Option<LoadResult>, ExperimentError> {
        let mut plan = Plan {
            name: format!("{}-{kind}", plan.name),
            watch: WatchPlan { at: Some(WatchAt::None), ..plan.watch },
            slo: None,
            ..plan.clone()
        };
        plan.load.duration = Some(lasts);
        let mut gauge = Gauge::new(self.stage.begin(what), self.ask().pid);
        let outcome = testbed::bench(&plan, self.command, self.book, self.interrupts, &mut gauge)?;
        if self.is_interrupted() {
            return Ok(None);
        }
        let document = &outcome.document;
        self.duration_s += document.run.duration_s;
        self.host.get_or_insert_with(|| document.run.host.clone());
        let mut made = made(class, kind, &plan, &outcome, &gauge);
        made.number = self.loads.len();
        self.loads.push(made.part.clone());
        if let Some(showing) = self.showing {
            let so_far = PredictPart { loads: self.loads.clone(), notes: self.notes.clone(), ..PredictPart::default() };
            showing.put(|standing| standing.predict = Some(so_far));
        }
        let gone = document
            .validity
            .checks
            .iter()
            .find(|check| check.state == CheckState::Failed && check.name == "server_alive");
        if let Some(gone) = gone {
            return Err(ExperimentError::Plan(format!("{what}: {}", gone.why)));
        }
        Ok(Some(made))
    }
}

/// A load as a closed loop.
fn closed(load: &LoadPlan) -> LoadPlan {
    let mut load = load.clone();
    load.rate = None;
    load.connections = Some(CONNECTIONS);
    load.clients = load.clients.min(CONNECTIONS);
    load
}

/// So many values, evenly from one to the other.
fn spread((from, to): (f64, f64), count: u32) -> Vec<f64> {
    let steps = f64::from(count.max(2) - 1);
    (0..count.max(2)).map(|at| from + (to - from) * f64::from(at) / steps).collect()
}

/// A share of so many cores, to a thousandth of a percent.
pub fn share_of(cores: f64) -> Option<CpuShare> {
    format!("{:.3}%", cores * 100.0).parse().ok()
}

/// Loads of a class as its costs.
pub fn measured(light: &[LoadResult], held: &[LoadResult]) -> ClassMeasurement {
    let sound = |loads| Vec::from_iter(<[LoadResult]>::iter(loads).filter(|made| made.is_sound()));
    let (light, held): (Vec<&LoadResult>, Vec<&LoadResult>) = (sound(light), sound(held));
    let cost = |busy: fn(&MeasuredLoad) -> f64| {
        let light: Vec<(f64, f64)> = light.iter().map(|made| (made.part.rate_per_s, busy(&made.part))).collect();
        let held = held.iter().map(|made| SaturatedLoad {
            rate_per_s: made.part.rate_per_s,
            busy: busy(&made.part),
            longer_pause_s: made.longer_pause_s,
        });
        ClassCost::of(&light, &Vec::from_iter(held))
    };
    let telling = if held.is_empty() { &light } else { &held };
    let resumed = |loads: &[&LoadResult]| {
        let sum = |of: fn(&MeasuredLoad) -> Option<u64>| loads.iter().filter_map(|made| of(&made.part)).sum::<u64>();
        let (full, resumed) = (sum(|load| load.handshakes_full), sum(|load| load.handshakes_resumed));
        (full + resumed > 0).then(|| resumed as f64 / (full + resumed) as f64)
    };
    ClassMeasurement {
        processes: cost(|load| load.busy_processes),
        cores: cost(|load| load.busy_cores).known_to([coarse(&light), coarse(&held)]),
        traffic: light.iter().chain(&held).find_map(|made| made.traffic),
        resumed: (resumed(&light), resumed(&held)),
        rate_max: telling.iter().map(|made| made.part.rate_per_s).fold(0.0, f64::max),
        points: (light.len() as u32, held.len() as u32),
    }
}

/// Half the width of the interval of a request's processor time, over these loads.
fn coarse(loads: &[&LoadResult]) -> f64 {
    let (half, rate) = loads.iter().fold((0.0, 0.0), |(half, rate), made| {
        let [low, high] = made.part.busy_cores_interval.unwrap_or([made.part.busy_cores; 2]);
        (half + (high - low) / 2.0, rate + made.part.rate_per_s)
    });
    if rate > 0.0 { half / rate } else { 0.0 }
}

/// Of light loads whose connections are kept while the plan's own are not: a request takes much less than a millisecond there, so that few are enough for
/// thousands a second.
const CLIENTS_ASIDE: u32 = 4;
const CONNECTIONS_ASIDE: u32 = 16;

#[cfg(test)]
mod tests;
