//! Measuring what a class of requests costs: a rough capacity, light loads, held loads.

use std::time::Duration;

use lab::Outcome;
use load::Span;
use plan::{LoadPlan, Plan, RequestPlan, WatchAt, WatchPlan};
use schema::document::{CheckState, Document};
use schema::{MeasuredLoad, PredictPart, Verdict};
use stats::Rng;
use store::Book;
use sys::signal::Interrupts;
use units::{CpuShare, RequestRate};

use super::gauge::Gauge;
use super::model::{Cost, Held};
use super::path::Traffic;
use super::{Asked, PredictPlan, period};
use experiment::ExperimentError;
use experiment::Stage;
use experiment::standing::Showing;
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
/// Failures among those that ended, from which on a load says nothing of the cost of an answer.
const FAILED_MAX: f64 = 0.01;

/// What is measured as one: requests that are alike.
#[derive(Clone, Debug)]
pub struct Class {
    /// Its name.
    pub name: String,
    /// Its load, without rate and length.
    pub load: LoadPlan,
}

/// What a load came to.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its place among the loads of the document.
    pub number: usize,
    /// As in the document.
    pub part: MeasuredLoad,
    /// What it sent each way; none without a path.
    pub traffic: Option<Traffic>,
    /// Requests that were answered.
    pub completed: u64,
    /// Bytes of one, the mean.
    pub request_bytes: f64,
    /// Resident memory of the server at its end.
    pub rss_bytes: u64,
    /// Descriptors of the server at its end.
    pub descriptors: Option<u64>,
    /// Kernel memory of each open connection, both ends; of a load that opens them first.
    pub kernel_bytes_each: Option<f64>,
    /// Mean time from connecting to the end of a connection, in seconds.
    pub connection_s: f64,
    /// Mean time of connecting, in seconds.
    pub connect_s: f64,
    /// Share of the time in which the generator had work.
    pub loop_busy: f64,
    /// By how much longer the server stood still between two deals of its share than it does at its capacity, in seconds.
    pub longer_pause_s: f64,
}

impl Made {
    /// Whether it says anything of what its requests cost.
    pub fn is_sound(&self) -> bool {
        is_sound(&self.part)
    }
}

/// Which loads of one class and kind figures rest on, and which are left out: those that say nothing of what requests cost; those that are
/// invalid, as long as `least` others remain; and then those that are suspect, where no more than a fifth of all are left out. What is not left
/// out spoils the prediction's own verdict as far as it is spoilt itself.
pub fn counted(loads: Vec<Made>, least: usize) -> (Vec<Made>, Vec<Made>) {
    let all = loads.len();
    let (mut kept, mut out): (Vec<Made>, Vec<Made>) = loads.into_iter().partition(Made::is_sound);
    let most = (LEFT_OUT_MAX * all as f64) as usize;
    for (spoilt, is_bounded) in [(Verdict::Invalid, false), (Verdict::Suspect, true)] {
        let is_spoilt = |made: &Made| verdict::named(&made.part.verdict) == spoilt;
        let some = kept.iter().filter(|made| is_spoilt(made)).count();
        // Where worse ones count, those that are less bad count too.
        if kept.len() - some < least && some > 0 || is_bounded && out.len() + some > most {
            break;
        }
        let (left_out, rest): (Vec<Made>, Vec<Made>) = kept.into_iter().partition(is_spoilt);
        kept = rest;
        out.extend(left_out);
    }
    (kept, out)
}

/// Whether it says anything of what its requests cost.
pub fn is_sound(load: &MeasuredLoad) -> bool {
    !load.failed.iter().any(|check| SPOILT.contains(&check.as_str()))
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
    pub book: Option<&'a Book>,
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
    pub showing: Option<&'a Showing>,
}

/// A class that was measured.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Of its processes.
    pub processes: Cost,
    /// And with the receiving of packets.
    pub cores: Cost,
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
        book: Option<&'a Book>,
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

    fn ask(&self) -> &'a Asked {
        &self.asked.asked
    }

    /// All loads of a class. `None` if it was interrupted, or nothing was answered.
    ///
    /// # Errors
    /// No load of it could be made.
    pub fn class(&mut self, class: &Class) -> Result<Option<Measured>, ExperimentError> {
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
    pub fn leave_out<'m>(&mut self, loads: impl IntoIterator<Item = &'m Made>) {
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
    pub fn rough(&mut self, class: &Class) -> Result<Option<Made>, ExperimentError> {
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
    pub fn held(&mut self, class: &Class, cores: f64) -> Result<Vec<Made>, ExperimentError> {
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
        let (kept, idle): (Vec<Made>, Vec<Made>) = held.into_iter().partition(|made| {
            let used = made.part.held_cores.is_none_or(|held| made.part.busy_processes >= held * HELD_USED_MIN);
            used || made.loop_busy < GENERATOR_BUSY
        });
        self.leave_out(&idle);
        if let Some(idle) = idle.first() {
            self.notes.push(format!(
                "{}: held to {:.1} % of a core it used {:.1} % only, and the generator had no time left: such loads do not count",
                class.name,
                idle.part.held_cores.unwrap_or(0.0) * 100.0,
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
    ) -> Result<Option<Made>, ExperimentError> {
        let mut plan = Plan {
            name: format!("{}-{kind}", plan.name),
            watch: WatchPlan { at: Some(WatchAt::None), ..plan.watch },
            slo: None,
            ..plan.clone()
        };
        plan.load.duration = Some(lasts);
        let mut gauge = Gauge::new(self.stage.begin(what), self.ask().pid);
        let outcome = lab::bench(&plan, self.command, self.book, self.interrupts, &mut gauge)?;
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
pub fn measured(light: &[Made], held: &[Made]) -> Measured {
    let sound = |loads| Vec::from_iter(<[Made]>::iter(loads).filter(|made| made.is_sound()));
    let (light, held): (Vec<&Made>, Vec<&Made>) = (sound(light), sound(held));
    let cost = |busy: fn(&MeasuredLoad) -> f64| {
        let light: Vec<(f64, f64)> = light.iter().map(|made| (made.part.rate_per_s, busy(&made.part))).collect();
        let held = held.iter().map(|made| Held {
            rate_per_s: made.part.rate_per_s,
            busy: busy(&made.part),
            longer_pause_s: made.longer_pause_s,
        });
        Cost::of(&light, &Vec::from_iter(held))
    };
    let telling = if held.is_empty() { &light } else { &held };
    let resumed = |loads: &[&Made]| {
        let sum = |of: fn(&MeasuredLoad) -> Option<u64>| loads.iter().filter_map(|made| of(&made.part)).sum::<u64>();
        let (full, resumed) = (sum(|load| load.handshakes_full), sum(|load| load.handshakes_resumed));
        (full + resumed > 0).then(|| resumed as f64 / (full + resumed) as f64)
    };
    Measured {
        processes: cost(|load| load.busy_processes),
        cores: cost(|load| load.busy_cores).known_to([coarse(&light), coarse(&held)]),
        traffic: light.iter().chain(&held).find_map(|made| made.traffic),
        resumed: (resumed(&light), resumed(&held)),
        rate_max: telling.iter().map(|made| made.part.rate_per_s).fold(0.0, f64::max),
        points: (light.len() as u32, held.len() as u32),
    }
}

/// Half the width of the interval of a request's processor time, over these loads.
fn coarse(loads: &[&Made]) -> f64 {
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

/// Checks without which a load says nothing of what its requests cost.
const SPOILT: [&str; 5] = ["server_answers", "server_alive", "error_rate", "failures", "server_unread"];

fn made(class: &str, kind: &str, plan: &Plan, outcome: &Outcome, gauge: &Gauge) -> Made {
    let document = &outcome.document;
    let empty = schema::document::Load::default();
    let load = document.load.as_ref().unwrap_or(&empty);
    let lasted_s = document.run.duration_s.max(1e-3);
    let rate_per_s = load.completed as f64 / lasted_s;
    let cores = document.run.host.server_cores.as_deref().map(core_list).unwrap_or_default();
    let read = gauge.read(&cores);
    let (rate_per_s, processes, all) = match (&document.server, read) {
        (Some(server), read) => {
            // Over the time that the readings are of: on a busy machine they come late.
            let seconds = &outcome.server_seconds;
            let read_s: f64 = seconds.iter().map(|second| second.elapsed_s).sum();
            let sum = |of: fn(&schema::ServerSecond) -> f64| seconds.iter().map(of).sum::<f64>();
            let (processes_s, receive_s, of_s) = if read_s > lasted_s / 2.0 {
                (
                    sum(|second| second.cpu_user_s + second.cpu_system_s),
                    sum(|second| second.cpu_receive_s.unwrap_or(0.0)),
                    read_s,
                )
            } else {
                (server.cpu_user_s + server.cpu_system_s, server.cpu_receive_s.unwrap_or(0.0), lasted_s)
            };
            let (processes, receive) = (processes_s / of_s, receive_s / of_s);
            // Part of the receiving is charged to the processes as well; what the cores did in all is an upper bound of both together.
            let bound = read.filter(|_| !cores.is_empty()).map_or(f64::INFINITY, |read| read.cores);
            (rate_per_s, processes, (processes + receive).min(bound).max(processes))
        }
        (None, Some(read)) => (read.rate_per_s, read.processes, read.processes),
        (None, None) => (rate_per_s, 0.0, 0.0),
    };
    let failures: u64 = load.failed.values().sum();
    let mut failed: Vec<String> = document
        .validity
        .checks
        .iter()
        .filter(|check| check.state == CheckState::Failed)
        .map(|check| check.name.clone())
        .collect();
    // So busy was this machine that the account was not read while the load went on.
    if document.server.is_some() && processes <= 0.0 && load.completed > 0 {
        failed.push("server_unread".into());
    }
    if failures as f64 > FAILED_MAX * (load.completed + failures) as f64 {
        failed.push("failures".into());
    }
    let last = outcome.server_seconds.last();
    let tls = load.tls.as_ref();
    Made {
        number: 0,
        part: MeasuredLoad {
            class: class.into(),
            kind: kind.into(),
            offered_rate_per_s: plan.load.rate.map(RequestRate::per_second),
            held_cores: plan.server.as_ref().and_then(|server| server.share()).map(CpuShare::cores),
            rate_per_s,
            second_half: second_half(&outcome.spans),
            busy_processes: processes,
            busy_cores: all,
            busy_cores_interval: interval(document, all, load.completed as f64 / lasted_s),
            pace_ns: document.run.host.pace_ns,
            response_mean_ns: load.response_time_ns.mean,
            response_p50_ns: load.response_time_ns.p50,
            response_p99_ns: load.response_time_ns.p99,
            in_flight: load.in_flight.mean,
            connections_each: load.connections_opened as f64 / (load.completed.max(1)) as f64,
            handshakes_full: tls.map(|tls| tls.handshakes_full),
            handshakes_resumed: tls.map(|tls| tls.handshakes_resumed),
            verdict: document.validity.verdict.name().into(),
            failed,
            left_out: false,
        },
        traffic: traffic(document, load),
        completed: load.completed,
        request_bytes: load.bytes_sent as f64 / load.completed.max(1) as f64,
        rss_bytes: last.map_or(0, |second| second.rss_bytes),
        descriptors: last.and_then(|second| second.descriptors),
        kernel_bytes_each: load.held.as_ref().and_then(|held| held.kernel_bytes_each),
        connection_s: load.connection_duration_ns.mean / 1e9,
        connect_s: load.connect_ns.mean / 1e9,
        loop_busy: outcome.loop_busy,
        longer_pause_s: plan.server.as_ref().map_or(0.0, |server| pause_s(server.share()) - pause_s(server.cpu)),
    }
}

/// Between what the server's cores were busy with its requests, at least and at most: by the interval of its processor time of a request.
fn interval(document: &Document, busy: f64, rate_per_s: f64) -> Option<[f64; 2]> {
    let [low, high] = document.server.as_ref()?.cpu_us_per_request_interval?.map(|us| us * rate_per_s / 1e6);
    Some([low.min(busy), high.max(busy)])
}

/// How long a server that wants more than its share stands still between two deals of it; not at all without one.
fn pause_s(share: Option<CpuShare>) -> f64 {
    share.map(CpuShare::cores).map_or(0.0, |share| period(share).as_secs_f64() * (1.0 - share).max(0.0))
}

/// Requests completed in the second half of the spans over those in the first.
fn second_half(spans: &[Span]) -> Option<f64> {
    let completed = |spans: &[Span]| spans.iter().map(|span| span.completed).sum::<u64>();
    let half = spans.len() / 2;
    let (first, second) = (completed(&spans[..half]), completed(&spans[spans.len() - half..]));
    (first > 0 && second > 0).then(|| second as f64 / first as f64)
}

fn traffic(document: &Document, load: &schema::document::Load) -> Option<Traffic> {
    let path = document.path.as_ref()?;
    // The path counts the whole run: warm-up, measured phase and drain.
    let whole_s = document.run.duration_s + document.run.warmup_s;
    let requests = load.completed as f64 * whole_s / document.run.duration_s.max(1e-3);
    (requests >= 1.0).then(|| Traffic {
        up_bytes: path.up.bytes as f64 / requests,
        down_bytes: path.down.bytes as f64 / requests,
        up_packets: path.up.packets as f64 / requests,
        down_packets: path.down.packets as f64 / requests,
        answer_bytes: load.bytes_received as f64 / load.completed.max(1) as f64,
    })
}

/// The cores that a list such as `0,2-3` names.
pub fn core_list(list: &str) -> Vec<usize> {
    let part = |part: &str| -> Vec<usize> {
        match part.split_once('-') {
            Some((from, to)) => match (from.parse(), to.parse::<usize>()) {
                (Ok(from), Ok(to)) => (from..=to).collect(),
                _ => Vec::new(),
            },
            None => part.parse().into_iter().collect(),
        }
    };
    list.split(',').flat_map(|word| part(word.trim())).collect()
}

/// The classes of a plan: each of its requests with its share, or all of it as one.
pub fn classes(plan: &Plan) -> Vec<(Class, f64)> {
    let requests = &plan.load.request;
    let is_plain = plan.load.session.is_empty() && plan.load.content.is_none() && plan.load.urls.is_none();
    if !is_plain || requests.len() < 2 || requests.len() > CLASSES_MAX {
        let name = match (&plan.load.url, requests.first()) {
            (url, None) if !url.is_empty() => url.clone(),
            (_, Some(request)) if requests.len() == 1 => request.label().to_owned(),
            _ => "all requests".to_owned(),
        };
        return vec![(Class { name, load: plan.load.clone() }, 1.0)];
    }
    let weight = |request: &RequestPlan| request.weight.unwrap_or(1.0);
    let whole: f64 = requests.iter().map(weight).sum();
    let class = |request: &RequestPlan| {
        let mut load = plan.load.clone();
        load.choice = None;
        load.request = vec![RequestPlan { weight: None, ..request.clone() }];
        (Class { name: request.label().to_owned(), load }, weight(request) / whole)
    };
    requests.iter().map(class).collect()
}

/// More requests than this are measured together.
const CLASSES_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_lie_between_their_ends() {
        assert_eq!(spread(HELD, 4).iter().map(|part| (part * 10.0).round() as u32).collect::<Vec<_>>(), [5, 6, 8, 9]);
        assert_eq!(spread((0.0, 1.0), 1), [0.0, 1.0]);
        assert_eq!(share_of(0.2).unwrap().cores(), 0.2);
        // 1 ms of 5, 1 of 10; three halves of a core never wait.
        let pauses_ms = [0.2, 0.1, 1.5].map(|cores| (pause_s(share_of(cores)) * 1e3).round());
        assert_eq!((pauses_ms, pause_s(None)), ([4.0, 9.0, 0.0], 0.0));
        assert_eq!(core_list("0,2-4,7"), [0, 2, 3, 4, 7]);
        assert!(core_list("").is_empty());
    }

    #[test]
    fn each_request_of_a_plan_is_a_class_with_its_share() {
        let text = "[load]\nurl = \"http://server/\"\nduration = \"1s\"\n\
                    [[load.request]]\nurl = \"/a\"\nweight = 3\n[[load.request]]\nname = \"b\"\nurl = \"/b\"\n[server]\ncommand = \"true\"\n\
                    [path]\nrtt = \"0ms\"\n";
        let plan = Plan::from_toml(text, "plan").unwrap();
        let classes = classes(&plan);
        let names: Vec<(&str, f64)> = classes.iter().map(|(class, share)| (class.name.as_str(), *share)).collect();
        assert_eq!(names, [("/a", 0.75), ("b", 0.25)]);
        assert!(
            classes.iter().all(|(class, _)| class.load.request.len() == 1 && class.load.request[0].weight.is_none())
        );
        let one = Plan::from_toml("[load]\nurl = \"http://127.0.0.1/x\"\nduration = \"1s\"\n", "plan").unwrap();
        assert_eq!(super::classes(&one)[0].0.name, "http://127.0.0.1/x");
    }

    fn load(rate_per_s: f64, busy: f64, failed: &[&str]) -> Made {
        Made {
            number: 0,
            part: MeasuredLoad {
                verdict: "valid".into(),
                rate_per_s,
                busy_processes: busy,
                busy_cores: busy * 1.5,
                handshakes_full: Some(25),
                handshakes_resumed: Some(75),
                connections_each: 1.0,
                failed: failed.iter().map(ToString::to_string).collect(),
                ..MeasuredLoad::default()
            },
            traffic: None,
            completed: 0,
            request_bytes: 0.0,
            rss_bytes: 0,
            descriptors: None,
            kernel_bytes_each: None,
            connection_s: 0.0,
            connect_s: 0.0,
            loop_busy: 0.0,
            longer_pause_s: 0.0,
        }
    }

    #[test]
    fn figures_rest_on_the_best_loads_that_suffice() {
        let of = |verdicts: &[&str]| -> Vec<Made> {
            let load = |verdict: &&str| {
                let mut made = load(1.0, 0.1, &[]);
                made.part.verdict = (*verdict).into();
                made
            };
            verdicts.iter().map(load).collect()
        };
        let kept = |verdicts: &[&str], least: usize| -> Vec<String> {
            let (kept, out) = counted(of(verdicts), least);
            assert_eq!(kept.len() + out.len(), verdicts.len());
            kept.into_iter().map(|made| made.part.verdict).collect()
        };
        let (v, s, i) = ("valid", "suspect", "invalid");
        assert_eq!(kept(&[v; 5], 3), [v; 5]);
        // A fifth of them may go, and no more.
        assert_eq!(kept(&[v, s, v, v, v], 3), [v; 4]);
        assert_eq!(kept(&[v, s, s, v, v], 3), [v, s, s, v, v]);
        assert_eq!(kept(&[v, s, v, v], 3), [v, s, v, v]);
        // Invalid ones go as long as enough remain.
        assert_eq!(kept(&[v, i, i, v, s], 3), [v, v, s]);
        assert_eq!(kept(&[v, i, i, i, s], 3), [v, i, i, i, s]);
        assert_eq!(kept(&[i, v, v], 2), [v; 2]);
        // What says nothing never counts.
        let mut unsound = of(&[v, v]);
        unsound[0].part.failed = vec!["failures".into()];
        assert_eq!(counted(unsound, 3).0.len(), 1);
        assert!(counted(Vec::new(), 2).0.is_empty());
    }

    #[test]
    fn loads_that_failed_do_not_count() {
        let light = [1.0, 2.0, 3.0, 4.0].map(|rate| load(rate, rate * 0.01, &[]));
        let held = [
            load(5.0, 0.04, &[]),
            load(10.0, 0.08, &[]),
            load(10.0, 0.9, &["error_rate"]),
            load(20.0, 0.16, &["steady_state"]),
        ];
        let measured = measured(&light, &held);
        assert!((measured.processes.slope().unwrap().value - 0.01).abs() < 1e-9);
        assert!((measured.processes.held.unwrap().value - 0.008).abs() < 1e-9);
        assert!((measured.cores.held.unwrap().value - 0.012).abs() < 1e-9);
        assert_eq!((measured.points, measured.rate_max), ((4, 3), 20.0));
        // Half of the receiving may be others' work.
        let doubtful = |mut made: Made| {
            made.part.busy_cores_interval = Some([made.part.busy_processes, made.part.busy_cores]);
            made
        };
        let (light, held) = (light.map(doubtful), held.map(doubtful));
        let doubted = super::measured(&light, &held);
        let half = |cost: &Cost| (cost.slope().unwrap().half, cost.held.unwrap().half);
        assert_eq!(half(&doubted.processes), half(&measured.processes));
        assert!((half(&doubted.cores).0 - half(&measured.cores).0 - 0.0025).abs() < 1e-9);
        assert!((half(&doubted.cores).1 - half(&measured.cores).1 - 0.002).abs() < 1e-9);
        assert_eq!(measured.resumed, (Some(0.75), Some(0.75)));
    }
}
