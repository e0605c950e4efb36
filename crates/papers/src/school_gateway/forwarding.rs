//! Forwarding: one TCP stream through the machine in the school gateway's five conditions, as netperf 2.1 measured it there.
//!
//! ```text
//!   factor: small, NAT, 10 to 320 Mbit/s ──> F of forwarding: behind 10 F it forwards 8 F, as the paper's did with 10 and 8
//!   round 1: small, middle, large x 10 F, 100 F Mbit/s x five conditions, a trial each ─┐
//!   round 2: the same ..                                                               ├─> Cell: its trials ─> rows, conclusions
//! ```
//!
//! Conditions take turns, so that what drifts on this machine is in all of them; what a condition costs is then the mean over the rounds of
//! what it cost in each.

pub mod rows;

use std::collections::BTreeSet;
use std::time::Duration;

use schema::{GatewayCondition, GatewayDocument, ProxyLoad};
use store::RunStore;
use sys::signal::Interrupts;
use units::{BitRate, RequestRate};

use super::options::Streams;
use super::scale::{Card, Machine, Scale, two_digits};
use experiment::ExperimentError;
use experiment::{Order, Stage};
use gateway::{Condition, Directions, GatewayPlan, Link, ProxyLoading, TestName};

/// netperf's sizes: send and receive buffers, and what is written at once.
const SOCKET_BYTES: u32 = 16_384;
/// With NAT the paper's smallest machine forwards a fifth less than 10 Mbit/s, and its processor is what limits it.
const SMALLEST_MBIT_PER_S: f64 = 8.0;
/// The processor was the limit if so much of its share was used.
const USED_UP: f64 = 0.95;
/// What bounds a stream where the tester does, and where its own socket buffers do.
const TESTER: &str = "tester";
const WINDOW: &str = "window";
/// The factors that are tried.
const STEPS: [f64; 11] = [1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 22.0, 32.0];
/// Making a lab and taking it down; of one with squid, which starts slowly where it has little of a core.
const AROUND: Duration = Duration::from_millis(1200);
const AROUND_SQUID: Duration = Duration::from_millis(2800);

/// How much faster time runs than in the paper, for forwarding.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    /// Cards are so many times the paper's, and figures are divided by it.
    pub value: f64,
    /// What it was found by; empty where it was given.
    pub steps: Vec<Step>,
}

/// The small machine with NAT behind a card of so many times 10 Mbit/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// How many.
    pub factor: f64,
    /// What it forwarded here.
    pub mbit_per_s: f64,
    /// Of its share of a core so much was used.
    pub used: f64,
}

impl Step {
    /// What it would be on the paper's scale, were this the factor.
    pub fn on_scale(&self) -> f64 {
        self.mbit_per_s / self.factor
    }
}

impl Factor {
    /// As somebody says.
    pub const fn given(value: f64) -> Factor {
        Factor { value, steps: Vec::new() }
    }

    /// The one by which the small machine forwards what the paper's did; of two digits. `steps` rise; between two of them it is taken to fall by
    /// the logarithm of the factor.
    ///
    /// # Errors
    /// No step is too much for the machine; the share was not used up where it was, so that something else was the limit; in words.
    pub fn of(steps: Vec<Step>) -> Result<Factor, String> {
        let said = |why: String| Err(format!("{why}, so there is no factor: say one (--factor-forwarding)"));
        let Some(last) = steps.last() else {
            return said("nothing is known of what the small machine forwards".into());
        };
        let Some(at) = steps.iter().position(|step| step.on_scale() < SMALLEST_MBIT_PER_S) else {
            return said(format!(
                "the small machine forwards {:.0} Mbit/s with NAT even behind {:.0} Mbit/s, more than the paper's did if time runs {} times as fast",
                last.mbit_per_s,
                10.0 * last.factor,
                last.factor
            ));
        };
        let above = steps[at];
        if above.used < USED_UP {
            return said(format!(
                "the small machine forwarded {:.1} Mbit/s with NAT behind {:.0} Mbit/s, but used {:.1} % of its share only: its processor was not the \
                 limit, as it was in the paper",
                above.mbit_per_s,
                10.0 * above.factor,
                100.0 * above.used
            ));
        }
        let exact = match at.checked_sub(1).map(|below| steps[below]) {
            // Already at the paper's own rate it is too much: time never runs slower than there.
            None => above.factor,
            Some(below) => {
                let part = (below.on_scale() - SMALLEST_MBIT_PER_S) / (below.on_scale() - above.on_scale());
                below.factor * (above.factor / below.factor).powf(part)
            }
        };
        Ok(Factor { value: two_digits(exact), steps })
    }
}

/// One condition on one machine behind one card: its trials, on the paper's scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// Which machine.
    pub machine: Machine,
    /// Behind which card.
    pub card: Card,
    /// What it does besides.
    pub condition: Condition,
    /// Payload in Mbit/s over F, round by round; absent where there was no figure.
    pub mbit_per_s: Vec<Option<f64>>,
    /// What of its share of a core was used meanwhile, in the rounds that have it.
    pub used: Vec<f64>,
    /// How a loaded proxy fared, in the rounds that have it.
    pub proxies: Vec<ProxyLoad>,
    /// What bounded the stream, each once: `link`, `gateway`, `tester`, `window`, `unknown`.
    pub bound_by: BTreeSet<String>,
    /// What was come upon, in words, each once.
    pub findings: BTreeSet<String>,
}

impl Cell {
    fn of(machine: Machine, card: Card, condition: Condition) -> Cell {
        Cell {
            machine,
            card,
            condition,
            mbit_per_s: Vec::new(),
            used: Vec::new(),
            proxies: Vec::new(),
            bound_by: BTreeSet::new(),
            findings: BTreeSet::new(),
        }
    }

    /// Takes a round in.
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

    /// The figures that there are.
    pub fn figures(&self) -> Vec<f64> {
        self.mbit_per_s.iter().flatten().copied().collect()
    }

    /// Their mean; absent without any.
    pub fn mean(&self) -> Option<f64> {
        let figures = self.figures();
        (!figures.is_empty()).then(|| figures.iter().sum::<f64>() / figures.len() as f64)
    }

    /// Whether the tester could not do more in a round, so that the figure is its own.
    pub fn is_the_testers(&self) -> bool {
        self.bound_by.contains(TESTER)
    }

    /// Whether its socket buffers bounded the stream in a round, while machine and card had time.
    pub fn is_its_windows(&self) -> bool {
        self.bound_by.contains(WINDOW)
    }

    /// How much of its share it used, on the mean.
    pub fn used(&self) -> Option<f64> {
        (!self.used.is_empty()).then(|| self.used.iter().sum::<f64>() / self.used.len() as f64)
    }
}

/// What one condition forwards less than another: shares of the other's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ForwardingCost {
    /// Mean over the rounds.
    pub mean: f64,
    /// Its 95 % interval; absent of a single round.
    pub interval: Option<[f64; 2]>,
    /// Rounds in which both have a figure.
    pub rounds: usize,
    /// Whether one of the two is the tester's own figure: then this says nothing of the gateway.
    pub is_the_testers: bool,
    /// Whether one of the two was bounded by the stream's own buffers: then this is what the way's delay costs such a stream.
    pub is_its_windows: bool,
}

impl ForwardingCost {
    /// What `of` costs, where `than` is what it is compared with: round by round, since both had the same machine then. Absent where no round
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

/// Everything that was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Forwarded {
    /// By which figures are on the paper's scale.
    pub factor: Factor,
    /// Machine by machine, card by card, in the order of the paper's conditions.
    pub cells: Vec<Cell>,
}

impl Forwarded {
    /// One of them, if it has a figure.
    pub fn cell(&self, machine: Machine, card: Card, condition: Condition) -> Option<&Cell> {
        self.cells
            .iter()
            .find(|cell| (cell.machine, cell.card, cell.condition) == (machine, card, condition))
            .filter(|cell| cell.mean().is_some())
    }

    /// What `of` costs against `than` on a machine behind a card.
    pub fn cost(&self, (machine, card): (Machine, Card), of: Condition, than: Condition) -> Option<ForwardingCost> {
        ForwardingCost::between(self.cell(machine, card, of)?, self.cell(machine, card, than)?)
    }
}

/// Nearly.
pub fn time(asked: &Streams) -> Duration {
    let rounds: Duration = Condition::ALL
        .map(|condition| asked.lasts + if condition.proxy() { AROUND_SQUID } else { AROUND })
        .into_iter()
        .sum::<Duration>()
        * (Machine::ALL.len() * Card::ALL.len()) as u32
        * asked.trials;
    let steps = (asked.lasts + AROUND) * STEPS.len() as u32;
    let factor = if asked.factor.is_none() { steps } else { Duration::ZERO };
    factor + rounds
}

/// What every measurement is made with.
pub struct Forwarding<'a> {
    /// How.
    pub asked: &'a Streams,
    /// As for every reproduction.
    pub order: &'a Order,
    /// Where its runs are kept.
    pub book: &'a RunStore,
    /// An interrupt ends it with the trial at hand.
    pub interrupts: &'a Interrupts,
    /// Tells where it stands.
    pub stage: &'a mut dyn Stage,
    /// Takes in the document of each run, by name.
    pub take: &'a mut dyn FnMut(&str, &GatewayDocument),
}

impl Forwarding<'_> {
    /// Finds F.
    ///
    /// # Errors
    /// The lab's; the processor was not the limit.
    pub fn factor(&mut self) -> Result<Factor, ExperimentError> {
        if let Some(value) = self.asked.factor {
            return Ok(Factor::given(value));
        }
        let plan = GatewayPlan {
            name: "gateway-forwarding-factor".into(),
            conditions: vec![Condition::Nat],
            // Links with a rate cut big segments into packets, as cards do; what passes one without is no measure of packets.
            links: STEPS.map(|factor| link(Card::Mbit10, factor)).to_vec(),
            trials: 1,
            ..self.plan(Machine::Small, None)
        };
        let document = self.run("F of forwarding", &plan)?;
        let seen = |factor: f64| {
            let on = link(Card::Mbit10, factor).to_string();
            let mut cell = Cell::of(Machine::Small, Card::Mbit10, Condition::Nat);
            cell.add(document.gateway.conditions.iter().find(|seen| seen.link == on), 1.0);
            Some(Step { factor, mbit_per_s: cell.mean()?, used: cell.used()? })
        };
        // What comes after a gap was not measured in order.
        let steps = STEPS.into_iter().map_while(seen).collect();
        Factor::of(steps).map_err(|why| ExperimentError::Program {
            program: "the lab's gateway",
            why: if self.interrupts.count() > 0 {
                "interrupted before F of forwarding was found".to_owned()
            } else {
                why
            },
        })
    }

    /// Makes all rounds. `scale` is the caches', by which a proxy is loaded at a rate.
    ///
    /// # Errors
    /// The lab's.
    pub fn rounds(&mut self, factor: &Factor, scale: Option<&Scale>) -> Result<Forwarded, ExperimentError> {
        let mut cells: Vec<Cell> = Vec::new();
        for machine in Machine::ALL {
            for card in Card::ALL {
                cells.extend(Condition::ALL.map(|condition| Cell::of(machine, card, condition)));
            }
        }
        for round in 1..=self.asked.trials {
            for machine in Machine::ALL {
                if self.interrupts.count() > 0 {
                    break;
                }
                let plan = GatewayPlan {
                    name: format!("gateway-forwarding-{}", machine.name()),
                    links: Card::ALL.map(|card| link(card, factor.value)).to_vec(),
                    trials: 1,
                    ..self.plan(machine, scale)
                };
                let document = self.run(&format!("forwarding, {}, round {round}", machine.name()), &plan)?;
                for cell in cells.iter_mut().filter(|cell| cell.machine == machine) {
                    let on = link(cell.card, factor.value).to_string();
                    let is = |seen: &&GatewayCondition| seen.name == cell.condition.name() && seen.link == on;
                    cell.add(document.gateway.conditions.iter().find(is), factor.value);
                }
            }
        }
        Ok(Forwarded { factor: factor.clone(), cells })
    }

    /// What all have in common; links, and how often, are still to be said.
    fn plan(&self, machine: Machine, scale: Option<&Scale>) -> GatewayPlan {
        let at_rate = self.asked.load_per_s.zip(scale);
        let rate = at_rate.and_then(|(per_s, scale)| RequestRate::from_per_second(per_s * scale.factor));
        GatewayPlan {
            seed: self.order.seed,
            share: Some(machine.share()),
            memory: Some(machine.memory()),
            tests: vec![TestName::Stream],
            lasts: self.asked.lasts,
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
        let document = gateway::run(plan, self.order, self.book, self.interrupts, &mut stage)?.document;
        (self.take)(name, &document);
        Ok(document)
    }
}

/// A card as a link, in time that runs `factor` times as fast.
fn link(card: Card, factor: f64) -> Link {
    let bits = (f64::from(card.megabits()) * 1e6 * factor).round() as u64;
    Link::of(BitRate::from_bits_per_second(bits).expect("a card is faster than 1 bit/s, and F at most 1000"))
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use schema::forwarding_part::Measured;

    use super::*;

    /// A cell with these trials.
    pub fn cell(machine: Machine, card: Card, condition: Condition, trials: &[f64]) -> Cell {
        Cell { mbit_per_s: trials.iter().copied().map(Some).collect(), ..Cell::of(machine, card, condition) }
    }

    fn step(factor: f64, on_scale: f64, used: f64) -> Step {
        Step { factor, mbit_per_s: on_scale * factor, used }
    }

    #[test]
    fn the_factor_gives_the_small_machine_its_eight() {
        let of = |steps: &[Step]| Factor::of(steps.to_vec());
        // It falls from 9 to 7 between 2 and 8: at 8 halfway, which is 4.
        let steps = [step(1.0, 9.6, 0.4), step(2.0, 9.0, 0.9), step(8.0, 7.0, 0.95), step(16.0, 3.0, 1.0)];
        assert_eq!(of(&steps).unwrap().value, 4.0);
        assert_eq!(of(&[step(1.0, 8.0, 0.9), step(2.0, 7.99, 1.0)]).unwrap().value, 1.0, "8 itself is what is wanted");
        assert_eq!(of(&[step(1.0, 7.9, 1.0)]).unwrap().value, 1.0, "time never runs slower than in the paper");
        let why = of(&[step(1.0, 9.0, 0.9), step(2.0, 7.0, 0.949)]).unwrap_err();
        assert!(why.contains("used 94.9 % of its share only") && why.contains("--factor-forwarding"), "{why}");
        let why = of(&[step(32.0, 8.0, 1.0)]).unwrap_err();
        assert!(
            why.contains("256 Mbit/s with NAT even behind 320 Mbit/s") && why.contains("--factor-forwarding"),
            "{why}"
        );
        assert!(of(&[]).is_err());
        assert!(STEPS.is_sorted());
    }

    #[test]
    fn a_cost_is_that_of_each_round() {
        let none = cell(Machine::Small, Card::Mbit10, Condition::None, &[10.0, 20.0, 10.0]);
        let nat = cell(Machine::Small, Card::Mbit10, Condition::Nat, &[9.0, 18.0, 9.0]);
        let cost = ForwardingCost::between(&nat, &none).unwrap();
        assert!((cost.mean - 0.1).abs() < 1e-12 && cost.rounds == 3, "{cost:?}");
        // A machine that was twice as fast in one round is no doubt about the cost.
        let [low, high] = cost.interval.unwrap();
        assert!(low > 0.0999 && high < 0.1001, "{cost:?}");
        let one = cell(Machine::Small, Card::Mbit10, Condition::Nat, &[5.0]);
        let cost = ForwardingCost::between(&one, &none).unwrap();
        assert_eq!((cost.mean, cost.interval, cost.rounds), (0.5, None, 1));
        let testers = Cell { bound_by: [TESTER.to_owned()].into(), ..nat.clone() };
        assert!(ForwardingCost::between(&testers, &none).unwrap().is_the_testers && !cost.is_the_testers);
        let mut gap = nat.clone();
        gap.mbit_per_s[1] = None;
        assert_eq!(ForwardingCost::between(&gap, &none).unwrap().rounds, 2);
        assert_eq!(ForwardingCost::between(&cell(Machine::Small, Card::Mbit10, Condition::Nat, &[]), &none), None);
    }

    #[test]
    fn a_round_is_taken_on_the_papers_scale() {
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
        let mut cell = cell(Machine::Small, Card::Mbit10, Condition::NatProxyLoaded, &[]);
        cell.add(Some(&seen), 15.0);
        cell.add(None, 15.0);
        // A stream that carried nothing has no rate to compare with.
        cell.add(Some(&GatewayCondition { mbit_per_s: Some(of(0.0)), ..GatewayCondition::default() }), 15.0);
        assert_eq!(cell.mbit_per_s, [Some(10.0), None, None]);
        assert_eq!((cell.mean(), cell.proxies.len(), cell.is_the_testers()), (Some(10.0), 1, false));
        assert!((cell.used().unwrap() - 0.95).abs() < 1e-9);
    }

    #[test]
    fn a_card_is_so_many_times_as_fast() {
        assert_eq!(link(Card::Mbit100, 1.5).bits_per_s(), Some(150e6));
        assert_eq!(link(Card::Mbit10, 15.0).to_string().parse(), Ok(link(Card::Mbit10, 15.0)));
        assert_eq!(link(Card::Mbit100, 1000.0).bits_per_s(), Some(100e9));
    }
}
