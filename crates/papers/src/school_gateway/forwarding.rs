//! Forwarding: one TCP stream through the gateway in the paper's five conditions, there measured with netperf 2.1.
//!
//! ```text
//!   factor: small, NAT, 10 to 320 Mbit/s ──> F of forwarding: with 10 F Mbit/s it forwards 8 F, as the paper's did with 10 and 8
//!   round 1: small, middle, large x 10 F, 100 F Mbit/s x five conditions, a trial each ─┐
//!   round 2: the same ..                                                               ├─> Cell: its trials ─> rows, conclusions
//! ```
//!
//! Conditions are interleaved, so that drift of this machine affects all of them; the cost of a condition is the mean
//! of its costs per round.

pub mod rows;

use std::collections::BTreeSet;
use std::time::Duration;

use schema::{GatewayCondition, GatewayDocument, ProxyLoad};
use store::RunStore;
use sys::signal::Interrupts;
use units::{BitRate, RequestRate};

use super::options::Streams;
use super::scale::{Interface, Machine, Scale, two_digits};
use experiment::ExperimentError;
use experiment::{Order, Stage};
use gateway::{Condition, Directions, GatewayPlan, Link, ProxyLoading, TestName};

/// netperf's sizes: send and receive buffers, and message size.
const SOCKET_BYTES: u32 = 16_384;
/// With NAT the paper's smallest machine forwards a fifth less than 10 Mbit/s, limited by its CPU.
const SMALLEST_MBIT_PER_S: f64 = 8.0;
/// Used share of the CPU limit from which on the CPU was the limit.
const SATURATED_SHARE_MIN: f64 = 0.95;
/// Names of limits: the tester, and the stream's own socket buffers.
const TESTER: &str = "tester";
const WINDOW: &str = "window";
/// The factors to try.
const FACTORS: [f64; 11] = [1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 22.0, 32.0];
/// Time to build and remove a testbed; with squid, which starts slowly on a small share of a core.
const RUN_OVERHEAD: Duration = Duration::from_millis(1200);
const SQUID_RUN_OVERHEAD: Duration = Duration::from_millis(2800);

/// Time scale of forwarding.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// Multiplier of interface speeds, and divisor of figures.
    pub value: f64,
    /// Calibration steps; empty if the factor was given.
    pub steps: Vec<Step>,
}

/// The small machine with NAT and an interface of this multiple of 10 Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The multiple.
    pub factor: f64,
    /// Forwarded rate.
    pub mbit_per_s: f64,
    /// Used share of its CPU limit.
    pub used: f64,
}

impl Step {
    /// The rate on the paper's scale, with this step as the factor.
    pub fn on_scale(&self) -> f64 {
        self.mbit_per_s / self.factor
    }
}

impl Factor {
    /// A given factor.
    pub const fn given(value: f64) -> Factor {
        Factor { value, steps: Vec::new() }
    }

    /// The factor at which the small machine forwards the paper's rate, with two digits. `steps` ascend; between two of
    /// them the rate is interpolated linearly in the logarithm of the factor.
    ///
    /// # Errors
    /// No step exceeds the machine's limit, or the CPU limit was not used up there; as a sentence.
    pub fn of(steps: Vec<Step>) -> Result<Factor, String> {
        let refused = |why: String| Err(format!("{why}, so F is unknown: give it (--factor-forwarding)"));
        let Some(last) = steps.last() else {
            return refused("the small machine's forwarding rate was not measured".into());
        };
        let Some(at) = steps.iter().position(|step| step.on_scale() < SMALLEST_MBIT_PER_S) else {
            return refused(format!(
                "the small machine forwards {:.0} Mbit/s with NAT even at {:.0} Mbit/s, more than the paper's \
                 machine with time running {} times as fast",
                last.mbit_per_s,
                10.0 * last.factor,
                last.factor
            ));
        };
        let above = steps[at];
        if above.used < SATURATED_SHARE_MIN {
            return refused(format!(
                "the small machine forwarded {:.1} Mbit/s with NAT at {:.0} Mbit/s, but used only {:.1} % of its CPU \
                 limit: the CPU was not the limit, as it was in the paper",
                above.mbit_per_s,
                10.0 * above.factor,
                100.0 * above.used
            ));
        }
        let exact = match at.checked_sub(1).map(|below| steps[below]) {
            // The paper's own rate is too much already: time never runs slower than there.
            None => above.factor,
            Some(below) => {
                let part = (below.on_scale() - SMALLEST_MBIT_PER_S) / (below.on_scale() - above.on_scale());
                below.factor * (above.factor / below.factor).powf(part)
            }
        };
        Ok(Factor { value: two_digits(exact), steps })
    }
}

/// One condition on one machine with one interface: its trials, on the paper's scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The machine.
    pub machine: Machine,
    /// Interface of the machine.
    pub interface: Interface,
    /// The condition.
    pub condition: Condition,
    /// Payload in Mbit/s over F, by round; absent where there is no figure.
    pub mbit_per_s: Vec<Option<f64>>,
    /// Used share of its CPU limit, by round where known.
    pub used: Vec<f64>,
    /// Figures of a loaded proxy, by round where known.
    pub proxies: Vec<ProxyLoad>,
    /// Limits of the stream, without repetition: `link`, `gateway`, `tester`, `window`, `unknown`.
    pub bound_by: BTreeSet<String>,
    /// Findings as text, without repetition.
    pub findings: BTreeSet<String>,
}

impl Cell {
    fn of(machine: Machine, interface: Interface, condition: Condition) -> Cell {
        Cell {
            machine,
            interface,
            condition,
            mbit_per_s: Vec::new(),
            used: Vec::new(),
            proxies: Vec::new(),
            bound_by: BTreeSet::new(),
            findings: BTreeSet::new(),
        }
    }

    /// Adds a round.
    fn add(&mut self, seen: Option<&GatewayCondition>, factor: f64) {
        let stream = seen.and_then(|seen| seen.mbit_per_s.as_ref()).filter(|stream| stream.mean > 0.0);
        self.mbit_per_s.push(stream.map(|stream| stream.mean / factor));
        let Some(seen) = seen else { return };
        let of_stream = |test: &str| test.starts_with(TestName::Stream.name());
        let cpu = seen.cpu.iter().find(|(test, _)| of_stream(test));
        self.used.extend(cpu.map(|(_, cpu)| cpu.mean / self.machine.share().cores()));
        self.bound_by.extend(seen.bound_by.iter().filter(|(test, _)| of_stream(test)).map(|(_, by)| by.clone()));
        self.proxies.extend(seen.proxy.clone());
        self.findings.extend(seen.findings.iter().map(|finding| finding.words.clone()));
    }

    /// All rates.
    pub fn figures(&self) -> Vec<f64> {
        self.mbit_per_s.iter().flatten().copied().collect()
    }

    /// Mean rate; absent without any.
    pub fn mean(&self) -> Option<f64> {
        let figures = self.figures();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }

    /// Whether the tester was the limit in a round, so that the figure is its own.
    pub fn is_the_testers(&self) -> bool {
        self.bound_by.contains(TESTER)
    }

    /// Whether the stream's socket buffers were the limit in a round.
    pub fn is_its_windows(&self) -> bool {
        self.bound_by.contains(WINDOW)
    }

    /// Mean used share of the CPU limit.
    pub fn used(&self) -> Option<f64> {
        (!self.used.is_empty()).then(|| self.used.iter().sum::<f64>() / self.used.len() as f64)
    }
}

/// How much less one condition forwards than another, as a share of the other's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardingCost {
    /// Mean over the rounds.
    pub mean: f64,
    /// 95 % interval; absent of a single round.
    pub interval: Option<[f64; 2]>,
    /// Rounds in which both have a rate.
    pub rounds: usize,
    /// Whether the tester was the limit of one of them: then the cost is not the gateway's.
    pub is_the_testers: bool,
    /// Whether the stream's buffers were the limit of one of them: then the cost is an effect of delay on such a
    /// stream.
    pub is_its_windows: bool,
}

impl ForwardingCost {
    /// Cost of `of` against `than`, round by round, since within a round the machine is the same. Absent if no round
    /// has both.
    pub fn between(of: &Cell, than: &Cell) -> Option<ForwardingCost> {
        let both = of.mbit_per_s.iter().zip(&than.mbit_per_s);
        let costs: Vec<f64> = both.filter_map(|(of, than)| Some(1.0 - (*of)? / (*than)?)).collect();
        let mean = costs.iter().sum::<f64>() / costs.len() as f64;
        let interval = stats::compare::of_differences(&costs, 0.95).map(|difference| difference.interval);
        let is_the_testers = of.is_the_testers() || than.is_the_testers();
        let is_its_windows = of.is_its_windows() || than.is_its_windows();
        (!costs.is_empty()).then_some(ForwardingCost {
            mean,
            interval,
            rounds: costs.len(),
            is_the_testers,
            is_its_windows,
        })
    }
}

/// All measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Forwarded {
    /// Converts figures to the paper's scale.
    pub factor: Factor,
    /// By machine and interface, in the order of the paper's conditions.
    pub cells: Vec<Cell>,
}

impl Forwarded {
    /// One cell, if it has a rate.
    pub fn cell(&self, machine: Machine, interface: Interface, condition: Condition) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| (cell.machine, cell.interface, cell.condition) == (machine, interface, condition))
            .filter(|cell| cell.mean().is_some())
    }

    /// Cost of `of` against `than` on a machine with an interface.
    pub fn cost(
        &self,
        (machine, interface): (Machine, Interface),
        of: Condition,
        than: Condition,
    ) -> Option<ForwardingCost> {
        ForwardingCost::between(self.cell(machine, interface, of)?, self.cell(machine, interface, than)?)
    }
}

/// Approximately.
pub fn time(input: &Streams) -> Duration {
    let rounds: Duration = Condition::ALL
        .map(|condition| input.lasts + if condition.proxy() { SQUID_RUN_OVERHEAD } else { RUN_OVERHEAD })
        .into_iter()
        .sum::<Duration>()
        * (Machine::ALL.len() * Interface::ALL.len()) as u32
        * input.trials;
    let steps = (input.lasts + RUN_OVERHEAD) * FACTORS.len() as u32;
    let factor = if input.factor.is_none() { steps } else { Duration::ZERO };
    factor + rounds
}

/// What all measurements share.
pub struct Forwarding<'a> {
    /// Options.
    pub input: &'a Streams,
    /// Options that every reproduction has.
    pub order: &'a Order,
    /// Run store.
    pub run_store: &'a RunStore,
    /// Interrupts, which end it during the current trial.
    pub interrupts: &'a Interrupts,
    /// Progress display.
    pub stage: &'a mut dyn Stage,
    /// Takes the document of each run, by name.
    pub take: &'a mut dyn FnMut(&str, &GatewayDocument),
}

impl Forwarding<'_> {
    /// Calibrates F.
    ///
    /// # Errors
    /// The testbed failed, or the CPU was not the limit.
    pub fn factor(&mut self) -> Result<Factor, ExperimentError> {
        if let Some(value) = self.input.factor {
            return Ok(Factor::given(value));
        }
        let plan = GatewayPlan {
            name: "gateway-forwarding-factor".into(),
            conditions: vec![Condition::Nat],
            // Rate-limited links cut large segments into packets, as interfaces do; a stream through an unlimited link
            // is no measure of packets.
            links: FACTORS.map(|factor| link(Interface::Mbit10, factor)).to_vec(),
            trials: 1,
            ..self.plan(Machine::Small, None)
        };
        let document = self.run("F of forwarding", &plan)?;
        let seen = |factor: f64| {
            let on = link(Interface::Mbit10, factor).to_string();
            let mut cell = Cell::of(Machine::Small, Interface::Mbit10, Condition::Nat);
            cell.add(document.gateway.conditions.iter().find(|seen| seen.link == on), 1.0);
            Some(Step { factor, mbit_per_s: cell.mean()?, used: cell.used()? })
        };
        // Steps after a gap are not contiguous.
        let steps = FACTORS.into_iter().map_while(seen).collect();
        Factor::of(steps).map_err(|why| ExperimentError::Program {
            program: "the testbed's gateway",
            why: if self.interrupts.count() > 0 {
                "interrupted before F of forwarding was known".to_owned()
            } else {
                why
            },
        })
    }

    /// Runs all rounds. `scale` is that of the caches, for a proxy loaded at a rate.
    ///
    /// # Errors
    /// The testbed failed.
    pub fn rounds(&mut self, factor: &Factor, scale: Option<&Scale>) -> Result<Forwarded, ExperimentError> {
        let mut cells: Vec<Cell> = Vec::new();
        for machine in Machine::ALL {
            for interface in Interface::ALL {
                cells.extend(Condition::ALL.map(|condition| Cell::of(machine, interface, condition)));
            }
        }
        for round in 1..=self.input.trials {
            for machine in Machine::ALL {
                if self.interrupts.count() > 0 {
                    break;
                }
                let plan = GatewayPlan {
                    name: format!("gateway-forwarding-{}", machine.name()),
                    links: Interface::ALL.map(|interface| link(interface, factor.value)).to_vec(),
                    trials: 1,
                    ..self.plan(machine, scale)
                };
                let document = self.run(&format!("forwarding, {}, round {round}", machine.name()), &plan)?;
                for cell in cells.iter_mut().filter(|cell| cell.machine == machine) {
                    let on = link(cell.interface, factor.value).to_string();
                    let is = |seen: &&GatewayCondition| seen.name == cell.condition.name() && seen.link == on;
                    cell.add(document.gateway.conditions.iter().find(is), factor.value);
                }
            }
        }
        Ok(Forwarded { factor: factor.clone(), cells })
    }

    /// Common settings; links and trials are set by the caller.
    fn plan(&self, machine: Machine, scale: Option<&Scale>) -> GatewayPlan {
        let at_rate = self.input.load_per_s.zip(scale);
        let rate = at_rate.and_then(|(per_s, scale)| RequestRate::from_per_second(per_s * scale.factor));
        GatewayPlan {
            seed: self.order.seed,
            share: Some(machine.share()),
            memory: Some(machine.memory()),
            tests: vec![TestName::Stream],
            lasts: self.input.lasts,
            direction: Directions::Up,
            survey: false,
            socket_bytes: Some(SOCKET_BYTES),
            message_bytes: SOCKET_BYTES,
            load: rate.map_or(ProxyLoading::Wget, ProxyLoading::Rate),
            ..GatewayPlan::default()
        }
    }

    fn run(&mut self, name: &str, plan: &GatewayPlan) -> Result<GatewayDocument, ExperimentError> {
        let mut stage = super::Named { name, inner: &mut *self.stage };
        let document = gateway::run(plan, self.order, self.run_store, self.interrupts, &mut stage)?.document;
        (self.take)(name, &document);
        Ok(document)
    }
}

/// An interface as a link, with time running `factor` times as fast.
fn link(interface: Interface, factor: f64) -> Link {
    let bits = (f64::from(interface.megabits()) * 1e6 * factor).round() as u64;
    Link::of(BitRate::from_bits_per_second(bits).expect("an interface is faster than 1 bit/s, and F at most 1000"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use schema::forwarding_part::Measured;

    use super::*;

    /// A cell with these trials.
    pub fn cell(machine: Machine, interface: Interface, condition: Condition, trials: &[f64]) -> Cell {
        Cell { mbit_per_s: trials.iter().copied().map(Some).collect(), ..Cell::of(machine, interface, condition) }
    }

    fn step(factor: f64, on_scale: f64, used: f64) -> Step {
        Step { factor, mbit_per_s: on_scale * factor, used }
    }

    #[test]
    fn forwarding_factor_gives_the_small_machine_8_mbit() {
        let of = |steps: &[Step]| Factor::of(steps.to_vec());
        // The rate falls from 9 to 7 between 2 and 8: at 8 halfway, which is 4.
        let steps = [step(1.0, 9.6, 0.4), step(2.0, 9.0, 0.9), step(8.0, 7.0, 0.95), step(16.0, 3.0, 1.0)];
        assert_eq!(of(&steps).unwrap().value, 4.0);
        assert_eq!(of(&[step(1.0, 8.0, 0.9), step(2.0, 7.99, 1.0)]).unwrap().value, 1.0, "exactly 8");
        assert_eq!(of(&[step(1.0, 7.9, 1.0)]).unwrap().value, 1.0, "time never runs slower than in the paper");
        let why = of(&[step(1.0, 9.0, 0.9), step(2.0, 7.0, 0.949)]).unwrap_err();
        assert!(why.contains("used only 94.9 % of its CPU limit") && why.contains("--factor-forwarding"), "{why}");
        let why = of(&[step(32.0, 8.0, 1.0)]).unwrap_err();
        assert!(why.contains("256 Mbit/s with NAT even at 320 Mbit/s") && why.contains("--factor-forwarding"), "{why}");
        assert!(of(&[]).is_err());
        assert!(FACTORS.is_sorted());
    }

    #[test]
    fn forwarding_cost_is_the_mean_over_rounds() {
        let none = cell(Machine::Small, Interface::Mbit10, Condition::None, &[10.0, 20.0, 10.0]);
        let nat = cell(Machine::Small, Interface::Mbit10, Condition::Nat, &[9.0, 18.0, 9.0]);
        let cost = ForwardingCost::between(&nat, &none).unwrap();
        assert!((cost.mean - 0.1).abs() < 1e-12 && cost.rounds == 3, "{cost:?}");
        // A round with a machine twice as fast does not widen the interval of the cost.
        let [low, high] = cost.interval.unwrap();
        assert!(low > 0.0999 && high < 0.1001, "{cost:?}");
        let one = cell(Machine::Small, Interface::Mbit10, Condition::Nat, &[5.0]);
        let cost = ForwardingCost::between(&one, &none).unwrap();
        assert_eq!((cost.mean, cost.interval, cost.rounds), (0.5, None, 1));
        let testers = Cell { bound_by: [TESTER.to_owned()].into(), ..nat.clone() };
        assert!(ForwardingCost::between(&testers, &none).unwrap().is_the_testers && !cost.is_the_testers);
        let mut gap = nat.clone();
        gap.mbit_per_s[1] = None;
        assert_eq!(ForwardingCost::between(&gap, &none).unwrap().rounds, 2);
        assert_eq!(ForwardingCost::between(&cell(Machine::Small, Interface::Mbit10, Condition::Nat, &[]), &none), None);
    }

    #[test]
    fn round_is_converted_to_the_papers_scale() {
        let of = |mean| Measured { mean, stddev: None, interval: None, trials: vec![mean] };
        let seen = GatewayCondition {
            mbit_per_s: Some(of(150.0)),
            cpu: BTreeMap::from([("stream_up".to_owned(), of(0.038)), ("packets".to_owned(), of(1.0))]),
            proxy: Some(ProxyLoad { overloaded: true, ..ProxyLoad::default() }),
            bound_by: BTreeMap::from([
                ("stream_up".to_owned(), "gateway".to_owned()),
                ("packets".to_owned(), TESTER.to_owned()),
            ]),
            ..GatewayCondition::default()
        };
        let mut cell = cell(Machine::Small, Interface::Mbit10, Condition::NatProxyLoaded, &[]);
        cell.add(Some(&seen), 15.0);
        cell.add(None, 15.0);
        // A stream without any payload has no rate to compare with.
        cell.add(Some(&GatewayCondition { mbit_per_s: Some(of(0.0)), ..GatewayCondition::default() }), 15.0);
        assert_eq!(cell.mbit_per_s, [Some(10.0), None, None]);
        assert_eq!((cell.mean(), cell.proxies.len(), cell.is_the_testers()), (Some(10.0), 1, false));
        assert!((cell.used().unwrap() - 0.95).abs() < 1e-9);
    }

    #[test]
    fn interface_speed_is_multiplied_by_the_factor() {
        assert_eq!(link(Interface::Mbit100, 1.5).bits_per_s(), Some(150e6));
        assert_eq!(link(Interface::Mbit10, 15.0).to_string().parse(), Ok(link(Interface::Mbit10, 15.0)));
        assert_eq!(link(Interface::Mbit100, 1000.0).bits_per_s(), Some(100e9));
    }
}
