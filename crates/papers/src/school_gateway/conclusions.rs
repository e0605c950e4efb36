//! The paper's conclusions, evaluated on this run: cost of NAT, cost of a loaded proxy, whether the cache needs a
//! separate machine, and the hardware for a class. Each is a rule on the measured figures.

use schema::ReproductionRow;

use super::forwarding::rows::{A_LITTLE, LESS_THAN_NAT, LESS_THAN_NONE, of_rounds, places, published};
use super::forwarding::{Forwarded, ForwardingCost};
use super::rows::{USABLE, experiment};
use super::scale::{Interface, Machine};
use crate::figures::{find, row, with_published};
use crate::level;
use gateway::Condition;

/// Experiment name of the conclusions' rows.
pub const CONCLUSIONS: &str = "conclusions";
/// Cost of NAT.
pub const NAT: &str = "cost of NAT";
/// Cost of a loaded proxy.
pub const LOADED: &str = "cost of a loaded proxy";
/// Whether the cache needs a separate machine.
pub const SEPARATE_MACHINE: &str = "separate machine for the cache";
/// Hardware for a school.
pub const HARDWARE: &str = "hardware for a class";

/// A loaded cache that costs more than this share of the forwarding rate belongs on a separate machine (chosen here;
/// the paper has no figure).
const SEPARATE_MACHINE_MIN: f64 = 0.1;
/// Share of its interface that a sufficient gateway forwards (chosen here). TCP payload is 96.5 % of a full interface.
const INTERFACE_SHARE_MIN: f64 = 0.9;

/// Whether the cache needs a separate machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeparateMachine {
    /// The whole interval of its cost is above a tenth.
    Yes,
    /// The whole interval is below.
    No,
    /// The interval includes a tenth, there is none, or the figure is the tester's.
    NotTold,
}

/// From the cost of a loaded proxy on a gateway with NAT.
pub fn separate_machine(cost: &ForwardingCost) -> SeparateMachine {
    match cost.interval.filter(|_| !cost.is_the_testers) {
        Some([low, _]) if low > SEPARATE_MACHINE_MIN => SeparateMachine::Yes,
        Some([_, high]) if high <= SEPARATE_MACHINE_MIN => SeparateMachine::No,
        _ => SeparateMachine::NotTold,
    }
}

/// A machine with an interface, and its figures; absent if not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineFigures {
    /// The machine.
    pub machine: Machine,
    /// Interface of the machine.
    pub interface: Interface,
    /// Requests per second that its cache sustained, one per client.
    pub sustained: Option<f64>,
    /// Mbit/s with NAT and the cache loaded, over F.
    pub with_cache: Option<f64>,
    /// Mbit/s with NAT alone, over F.
    pub alone: Option<f64>,
}

impl MachineFigures {
    fn name(&self) -> String {
        experiment(self.machine, self.interface)
    }

    fn supports(&self, clients: u32) -> bool {
        self.sustained.is_some_and(|sustained| sustained >= f64::from(clients))
    }

    fn fills(&self, mbit_per_s: Option<f64>) -> bool {
        mbit_per_s.is_some_and(|mbit_per_s| mbit_per_s >= INTERFACE_SHARE_MIN * f64::from(self.interface.megabits()))
    }
}

/// Hardware for a number of clients.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// The smallest machine and interface that does both.
    pub both: Option<(Machine, Interface)>,
    /// The smallest that supports the clients as a cache alone.
    pub cache: Option<(Machine, Interface)>,
    /// The smallest that forwards as a gateway alone.
    pub gateway: Option<(Machine, Interface)>,
    /// Whether any machine has both figures.
    pub known: bool,
}

/// The smallest sufficient machine, of machines in ascending order.
pub fn hardware(clients: u32, machines: &[MachineFigures]) -> Hardware {
    let least = |does: &dyn Fn(&MachineFigures) -> bool| {
        machines.iter().find(|one| does(one)).map(|one| (one.machine, one.interface))
    };
    Hardware {
        both: least(&|one| one.supports(clients) && one.fills(one.with_cache)),
        cache: least(&|one| one.supports(clients)),
        gateway: least(&|one| one.fills(one.alone)),
        known: machines.iter().any(|one| one.sustained.is_some() && one.with_cache.is_some()),
    }
}

/// The conclusions as rows: `rows` are those of the caches, possibly empty, `forwarded` the forwarding, if measured.
pub fn rows(rows: &[ReproductionRow], forwarded: Option<&Forwarded>, clients: u32) -> Vec<ReproductionRow> {
    let mut made = Vec::new();
    if let Some(forwarded) = forwarded {
        made.extend(nat(forwarded));
        made.extend(loaded(forwarded));
        made.extend(separate_machines(forwarded));
    }
    made.extend(needed(rows, forwarded, clients));
    made
}

/// Sentences among the rows.
pub fn sentences(rows: &[ReproductionRow]) -> Vec<String> {
    let is = |row: &&ReproductionRow| row.experiment == CONCLUSIONS && row.quantity == SENTENCE;
    rows.iter().filter(is).map(|row| row.note.clone()).collect()
}

/// The necessary hardware, if it could be determined.
pub fn hardware_sentence(rows: &[ReproductionRow]) -> Option<String> {
    let is = |row: &&ReproductionRow| row.experiment == CONCLUSIONS && row.setting == HARDWARE;
    rows.iter().find(is).map(|row| row.note.clone())
}

/// A row with text and without a figure.
const SENTENCE: &str = "text";

fn sentence(question: &str, words: String, paper: Option<&str>) -> ReproductionRow {
    with_published(row(CONCLUSIONS, question, SENTENCE, "", f64::NAN), paper, &words)
}

/// A cost as text: `5.10 % (4.00 to 6.20)`.
fn cost_text(cost: &ForwardingCost) -> String {
    let interval = cost.interval.map_or("a single round, so without interval".to_owned(), |[low, high]| {
        format!("{} to {}", level(100.0 * low), level(100.0 * high))
    });
    let by = match (cost.is_the_testers, cost.is_its_windows) {
        (true, _) => "; the tester was the limit, so this is not the machine's figure",
        (false, true) => "; limited by its window",
        (false, false) => "",
    };
    format!("{} % ({interval}{by})", level(100.0 * cost.mean))
}

/// Cost of one condition against another wherever both were measured: rows, and each as text.
fn costs(
    forwarded: &Forwarded,
    question: &str,
    (of, than): (Condition, Condition),
    quantity: &str,
) -> (Vec<ReproductionRow>, Vec<String>) {
    let mut rows = Vec::new();
    let mut words = Vec::new();
    for (machine, interface) in places() {
        let Some(cost) = forwarded.cost((machine, interface), of, than) else { continue };
        let place = experiment(machine, interface);
        let paper = published(machine, interface, of, quantity);
        let quantity = format!("{place}, {} against {}", of.name(), than.name());
        rows.push(with_published(
            row(CONCLUSIONS, question, &quantity, "%", 100.0 * cost.mean),
            paper,
            &of_rounds(&cost),
        ));
        words.push(match paper {
            // A note common to all rows is printed once.
            Some(paper) if paper != A_LITTLE => format!("{place}: {}, published: {paper}", cost_text(&cost)),
            _ => format!("{place}: {}", cost_text(&cost)),
        });
    }
    (rows, words)
}

fn nat(forwarded: &Forwarded) -> Vec<ReproductionRow> {
    let (mut rows, words) = costs(forwarded, NAT, (Condition::Nat, Condition::None), LESS_THAN_NONE);
    if !words.is_empty() {
        let words = format!("NAT costs, of what the gateway forwards without it: {}.", words.join("; "));
        rows.push(sentence(NAT, words, None));
    }
    rows
}

fn loaded(forwarded: &Forwarded) -> Vec<ReproductionRow> {
    let (mut rows, with_nat) = costs(forwarded, LOADED, (Condition::NatProxyLoaded, Condition::Nat), LESS_THAN_NAT);
    let (more, alone) = costs(forwarded, LOADED, (Condition::ProxyLoaded, Condition::None), LESS_THAN_NONE);
    rows.extend(more);
    let without = format!("without NAT (published: {A_LITTLE})");
    let parts = [("with NAT", with_nat), (without.as_str(), alone)];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(_, words)| !words.is_empty())
        .map(|(which, words)| format!("{which}: {}", words.join("; ")))
        .collect();
    if !parts.is_empty() {
        rows.push(sentence(LOADED, format!("A loaded proxy costs {}.", parts.join("; and ")), None));
    }
    rows
}

fn separate_machines(forwarded: &Forwarded) -> Vec<ReproductionRow> {
    let (mut yes, mut no, mut not_noted) = (Vec::new(), Vec::new(), Vec::new());
    for (machine, interface) in places() {
        let place = (machine, interface);
        let Some(cost) = forwarded.cost(place, Condition::NatProxyLoaded, Condition::Nat) else { continue };
        let words = format!("{} ({})", experiment(machine, interface), cost_text(&cost));
        match separate_machine(&cost) {
            SeparateMachine::Yes => yes.push(words),
            SeparateMachine::No => no.push(words),
            SeparateMachine::NotTold => not_noted.push(words),
        }
    }
    let part = |what: &str, places: &[String]| (!places.is_empty()).then(|| format!("{what}: {}", places.join("; ")));
    let parts = [
        part("Yes, since loaded it costs more than a tenth", &yes),
        part("No, it costs less", &no),
        part("Undecided by these figures", &not_noted),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let words = format!("Does the cache need a separate machine? {}.", parts.join(". "));
    vec![sentence(SEPARATE_MACHINE, words, Some("put the cache on a separate machine"))]
}

fn needed(rows: &[ReproductionRow], forwarded: Option<&Forwarded>, clients: u32) -> Vec<ReproductionRow> {
    let mean = |place: (Machine, Interface), condition| forwarded?.cell(place.0, place.1, condition)?.mean();
    let machines: Vec<MachineFigures> = places()
        .map(|(machine, interface)| MachineFigures {
            machine,
            interface,
            sustained: find(rows, &experiment(machine, interface), "", USABLE),
            with_cache: mean((machine, interface), Condition::NatProxyLoaded),
            alone: mean((machine, interface), Condition::Nat),
        })
        .collect();
    // The conclusion needs figures of the cache and of forwarding.
    if !hardware(clients, &machines).known {
        return Vec::new();
    }
    let words = hardware_in_words(clients, &machines);
    vec![sentence(HARDWARE, words, Some("about 40 req/s for a class of 40 clients; an interface of at least 100 Mb/s"))]
}

fn hardware_in_words(clients: u32, machines: &[MachineFigures]) -> String {
    let least = hardware(clients, machines);
    let name = |(machine, interface): (Machine, Interface)| experiment(machine, interface);
    let figures = |one: &MachineFigures| {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), level);
        format!(
            "{} supported {} clients and forwarded {} of {} Mbit/s with the loaded cache",
            one.name(),
            number(one.sustained),
            number(one.with_cache),
            one.interface.megabits()
        )
    };
    let measured = |one: &&MachineFigures| one.sustained.is_some() && one.with_cache.is_some();
    let distance = match (least.cache, least.gateway) {
        (Some(cache), Some(gateway)) => {
            format!(" With the cache on a separate machine: {} for it, and {} as gateway.", name(cache), name(gateway))
        }
        (None, _) => " None supported the clients as a cache alone either.".to_owned(),
        (_, None) => " None filled its interface as a gateway alone either.".to_owned(),
    };
    match least.both {
        Some(place) => {
            let one = machines.iter().find(|one| (one.machine, one.interface) == place);
            format!(
                "{clients} clients need at least the machine {} for gateway and cache: {}.",
                name(place),
                one.map(figures).unwrap_or_default()
            )
        }
        None => format!(
            "No machine here is sufficient for {clients} clients as gateway and cache: {}.{distance}",
            machines.iter().filter(measured).map(figures).collect::<Vec<_>>().join("; ")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::forwarding::Factor;
    use super::super::forwarding::tests::cell;
    use super::*;

    fn cost(low: f64, high: f64) -> ForwardingCost {
        let mean = f64::midpoint(low, high);
        ForwardingCost { mean, interval: Some([low, high]), rounds: 3, is_the_testers: false, is_its_windows: false }
    }

    #[test]
    fn separate_cache_is_concluded_only_from_the_whole_interval() {
        assert_eq!(separate_machine(&cost(0.1001, 0.3)), SeparateMachine::Yes);
        assert_eq!(separate_machine(&cost(0.1, 0.3)), SeparateMachine::NotTold);
        assert_eq!(separate_machine(&cost(-0.2, 0.1)), SeparateMachine::No);
        assert_eq!(separate_machine(&cost(-0.2, 0.1001)), SeparateMachine::NotTold);
        assert_eq!(separate_machine(&ForwardingCost { interval: None, ..cost(0.9, 0.9) }), SeparateMachine::NotTold);
        assert_eq!(
            separate_machine(&ForwardingCost { is_the_testers: true, ..cost(0.2, 0.3) }),
            SeparateMachine::NotTold
        );
    }

    fn machines(machine: Machine, interface: Interface, sustained: f64, with_cache: f64) -> MachineFigures {
        MachineFigures {
            machine,
            interface,
            sustained: Some(sustained),
            with_cache: Some(with_cache),
            alone: Some(with_cache + 1.0),
        }
    }

    #[test]
    fn sufficient_machine_supports_clients_and_forwards() {
        let all = [
            machines(Machine::Small, Interface::Mbit10, 40.0, 8.99),
            machines(Machine::Middle, Interface::Mbit10, 39.0, 9.5),
            machines(Machine::Large, Interface::Mbit10, 40.0, 9.0),
            machines(Machine::Large, Interface::Mbit100, 80.0, 95.0),
        ];
        let least = hardware(40, &all);
        assert_eq!(
            least.both,
            Some((Machine::Large, Interface::Mbit10)),
            "40 supported clients, and 9.0 of 10 forwarded, are enough"
        );
        assert_eq!(least.cache, Some((Machine::Small, Interface::Mbit10)));
        assert_eq!(least.gateway, Some((Machine::Small, Interface::Mbit10)));
        assert_eq!(hardware(41, &all).both, Some((Machine::Large, Interface::Mbit100)));
        assert_eq!(hardware(81, &all).both, None);
        assert!(!hardware(1, &[]).known);
        let words = hardware_in_words(81, &all);
        assert!(words.starts_with("No machine here is sufficient for 81 clients"), "{words}");
        assert!(words.ends_with("None supported the clients as a cache alone either."), "{words}");
        let words = hardware_in_words(40, &all);
        assert!(words.contains("at least the machine large, 10 Mbit/s") && words.contains("9.00 of 10"), "{words}");
    }

    #[test]
    fn missing_measurement_gives_no_conclusion() {
        assert!(rows(&[], None, 40).is_empty());
        let sustained = row(&experiment(Machine::Large, Interface::Mbit10), "", USABLE, "/s", 40.0);
        assert!(rows(std::slice::from_ref(&sustained), None, 40).is_empty(), "a cache alone");
        let cells = vec![cell(Machine::Large, Interface::Mbit10, Condition::NatProxyLoaded, &[9.5, 9.5])];
        let forwarded = Forwarded { factor: Factor::given(10.0), cells };
        assert!(rows(&[], Some(&forwarded), 40).is_empty(), "forwarding alone");
        let both = sentences(&rows(&[sustained], Some(&forwarded), 40));
        assert!(both[0].starts_with("40 clients need at least the machine large, 10 Mbit/s"), "{both:?}");
    }

    #[test]
    fn each_conclusion_is_a_sentence_with_figures() {
        let of = |condition, trials: &[f64]| cell(Machine::Middle, Interface::Mbit100, condition, trials);
        let cells = vec![
            of(Condition::None, &[100.0, 100.0, 100.0]),
            of(Condition::Nat, &[95.0, 96.0, 94.0]),
            of(Condition::NatProxyLoaded, &[47.0, 48.0, 49.0]),
            of(Condition::ProxyLoaded, &[60.0, 60.0, 60.0]),
        ];
        let forwarded = Forwarded { factor: Factor::given(10.0), cells };
        let made = rows(&[], Some(&forwarded), 40);
        let text = sentences(&made);
        assert_eq!(text.len(), 3, "{text:?}");
        assert!(text[0].contains("middle, 100 Mbit/s: 5.00 % (2.52 to 7.48), published: about 35"), "{}", text[0]);
        assert!(text[1].contains("with NAT: middle, 100 Mbit/s: 49.5 %") && text[1].contains("published: half"));
        let alike = "without NAT (published: a little; the types alike): middle, 100 Mbit/s: 40.0 % (40.0 to 40.0).";
        assert!(text[1].ends_with(alike), "{}", text[1]);
        assert!(text[2].contains("Yes, since loaded it costs more than a tenth: middle, 100 Mbit/s"), "{}", text[2]);
        let figure = made.iter().find(|row| row.setting == NAT && row.measured.is_some()).unwrap();
        assert!((figure.measured.unwrap() - 5.0).abs() < 1e-9 && figure.note.contains("3 rounds"));
    }
}
