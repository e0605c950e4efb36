//! The paper's conclusions, asked of this machine: what NAT costs, what a loaded proxy costs, whether the cache belongs on a machine of its
//! own, and what a school of so many seats needs. Each is a rule on the figures of this run.

use schema::ReproductionRow;

use super::forwarding::rows::{A_LITTLE, LESS_THAN_NAT, LESS_THAN_NONE, of_rounds, places, published};
use super::forwarding::{Forwarded, ForwardingCost};
use super::rows::{USABLE, experiment};
use super::scale::{Card, Machine};
use crate::figures::{beside, find, row};
use crate::level;
use gateway::Condition;

/// What the rows of conclusions are of.
pub const CONCLUSIONS: &str = "conclusions";
/// What NAT costs.
pub const NAT: &str = "what NAT costs";
/// What a proxy costs that is loaded.
pub const LOADED: &str = "what a loaded proxy costs";
/// Whether the cache belongs on a machine of its own.
pub const OWN_MACHINE: &str = "a machine of its own for the cache";
/// What hardware a school needs.
pub const HARDWARE: &str = "hardware for a class";

/// A cache that takes more than this of what its gateway forwards belongs elsewhere (ours; the paper names no figure).
const OWN_MACHINE_FROM: f64 = 0.1;
/// A gateway that forwards so much of its card is none that its users would notice (ours). TCP's payload is 96.5 % of a full card.
const CARD_CARRIED: f64 = 0.9;

/// Whether the cache belongs on a machine of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnMachine {
    /// The whole interval of its cost is above a tenth.
    Yes,
    /// None of it is.
    No,
    /// The interval has both, or there is none, or the figure is the tester's.
    NotTold,
}

/// By what a loaded proxy costs a gateway that translates anyway.
pub fn own_machine(cost: &ForwardingCost) -> OwnMachine {
    match cost.interval.filter(|_| !cost.is_the_testers) {
        Some([low, _]) if low > OWN_MACHINE_FROM => OwnMachine::Yes,
        Some([_, high]) if high <= OWN_MACHINE_FROM => OwnMachine::No,
        _ => OwnMachine::NotTold,
    }
}

/// A machine behind a card, and what it was seen to do; absent: that was not measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MachineFigures {
    /// Which.
    pub machine: Machine,
    /// Behind which card.
    pub card: Card,
    /// Requests a second that its cache held, one for each seat.
    pub held: Option<f64>,
    /// Mbit/s with NAT and the cache loaded, over F.
    pub with_cache: Option<f64>,
    /// Mbit/s with NAT alone, over F.
    pub alone: Option<f64>,
}

impl MachineFigures {
    fn name(&self) -> String {
        experiment(self.machine, self.card)
    }

    fn holds(&self, seats: u32) -> bool {
        self.held.is_some_and(|held| held >= f64::from(seats))
    }

    fn fills(&self, mbit_per_s: Option<f64>) -> bool {
        mbit_per_s.is_some_and(|mbit_per_s| mbit_per_s >= CARD_CARRIED * f64::from(self.card.megabits()))
    }
}

/// What so many seats need.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    /// The least machine, with its card, that does all of it.
    pub both: Option<(Machine, Card)>,
    /// The least that holds the seats as a cache of its own.
    pub cache: Option<(Machine, Card)>,
    /// The least that forwards as a gateway beside it.
    pub gateway: Option<(Machine, Card)>,
    /// Whether any machine has both figures.
    pub known: bool,
}

/// The least machines of those seen, which are in rising order.
pub fn hardware(seats: u32, seen: &[MachineFigures]) -> Hardware {
    let least =
        |does: &dyn Fn(&MachineFigures) -> bool| seen.iter().find(|one| does(one)).map(|one| (one.machine, one.card));
    Hardware {
        both: least(&|one| one.holds(seats) && one.fills(one.with_cache)),
        cache: least(&|one| one.holds(seats)),
        gateway: least(&|one| one.fills(one.alone)),
        known: seen.iter().any(|one| one.held.is_some() && one.with_cache.is_some()),
    }
}

/// The conclusions as rows: `rows` are those of the caches, which may be none, `forwarded` the forwarding, which may not have been made.
pub fn rows(rows: &[ReproductionRow], forwarded: Option<&Forwarded>, seats: u32) -> Vec<ReproductionRow> {
    let mut made = Vec::new();
    if let Some(forwarded) = forwarded {
        made.extend(nat(forwarded));
        made.extend(loaded(forwarded));
        made.extend(own_machines(forwarded));
    }
    made.extend(needed(rows, forwarded, seats));
    made
}

/// The sentences among the rows.
pub fn sentences(rows: &[ReproductionRow]) -> Vec<String> {
    let is = |row: &&ReproductionRow| row.experiment == CONCLUSIONS && row.quantity == SENTENCE;
    rows.iter().filter(is).map(|row| row.note.clone()).collect()
}

/// What hardware is needed, if that could be said.
pub fn hardware_sentence(rows: &[ReproductionRow]) -> Option<String> {
    let is = |row: &&ReproductionRow| row.experiment == CONCLUSIONS && row.setting == HARDWARE;
    rows.iter().find(is).map(|row| row.note.clone())
}

/// A row that has words and no figure.
const SENTENCE: &str = "in words";

fn sentence(question: &str, words: String, paper: Option<&str>) -> ReproductionRow {
    beside(row(CONCLUSIONS, question, SENTENCE, "", f64::NAN), paper, &words)
}

/// A cost in words: `5.10 % (4.00 to 6.20)`.
fn told(cost: &ForwardingCost) -> String {
    let interval = cost.interval.map_or("one round, so how well this is known is not".to_owned(), |[low, high]| {
        format!("{} to {}", level(100.0 * low), level(100.0 * high))
    });
    let by = match (cost.is_the_testers, cost.is_its_windows) {
        (true, _) => "; the tester was the limit, so this is none of the machine's",
        (false, true) => "; bound by its window",
        (false, false) => "",
    };
    format!("{} % ({interval}{by})", level(100.0 * cost.mean))
}

/// What a condition costs against another wherever both were measured: rows, and each told in words.
fn costs(
    forwarded: &Forwarded,
    question: &str,
    (of, than): (Condition, Condition),
    quantity: &str,
) -> (Vec<ReproductionRow>, Vec<String>) {
    let mut rows = Vec::new();
    let mut words = Vec::new();
    for (machine, card) in places() {
        let Some(cost) = forwarded.cost((machine, card), of, than) else { continue };
        let place = experiment(machine, card);
        let paper = published(machine, card, of, quantity);
        let quantity = format!("{place}, {} against {}", of.name(), than.name());
        rows.push(beside(row(CONCLUSIONS, question, &quantity, "%", 100.0 * cost.mean), paper, &of_rounds(&cost)));
        words.push(match paper {
            // What it says of all of them alike is said once.
            Some(paper) if paper != A_LITTLE => format!("{place}: {}, the paper: {paper}", told(&cost)),
            _ => format!("{place}: {}", told(&cost)),
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
    let without = format!("without NAT (the paper: {A_LITTLE})");
    let parts = [("beside NAT", with_nat), (without.as_str(), alone)];
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

fn own_machines(forwarded: &Forwarded) -> Vec<ReproductionRow> {
    let (mut yes, mut no, mut not_told) = (Vec::new(), Vec::new(), Vec::new());
    for (machine, card) in places() {
        let place = (machine, card);
        let Some(cost) = forwarded.cost(place, Condition::NatProxyLoaded, Condition::Nat) else { continue };
        let words = format!("{} ({})", experiment(machine, card), told(&cost));
        match own_machine(&cost) {
            OwnMachine::Yes => yes.push(words),
            OwnMachine::No => no.push(words),
            OwnMachine::NotTold => not_told.push(words),
        }
    }
    let part = |what: &str, places: &[String]| (!places.is_empty()).then(|| format!("{what}: {}", places.join("; ")));
    let parts = [
        part("Yes, since loaded it costs more than a tenth", &yes),
        part("No, it costs less", &no),
        part("Not told by these figures", &not_told),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() {
        return Vec::new();
    }
    let words = format!("Does the cache belong on a machine of its own? {}.", parts.join(". "));
    vec![sentence(OWN_MACHINE, words, Some("put the cache on a separate machine"))]
}

fn needed(rows: &[ReproductionRow], forwarded: Option<&Forwarded>, seats: u32) -> Vec<ReproductionRow> {
    let mean = |place: (Machine, Card), condition| forwarded?.cell(place.0, place.1, condition)?.mean();
    let seen: Vec<MachineFigures> = places()
        .map(|(machine, card)| MachineFigures {
            machine,
            card,
            held: find(rows, &experiment(machine, card), "", USABLE),
            with_cache: mean((machine, card), Condition::NatProxyLoaded),
            alone: mean((machine, card), Condition::Nat),
        })
        .collect();
    // Of one half alone nothing can be said, and nobody asked.
    if !hardware(seats, &seen).known {
        return Vec::new();
    }
    let words = hardware_in_words(seats, &seen);
    vec![sentence(HARDWARE, words, Some("about 40 req/s for a class of 40 seats; a card of at least 100 Mb/s"))]
}

fn hardware_in_words(seats: u32, seen: &[MachineFigures]) -> String {
    let least = hardware(seats, seen);
    let name = |(machine, card): (Machine, Card)| experiment(machine, card);
    let figures = |one: &MachineFigures| {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), level);
        format!(
            "{} held {} seats and forwarded {} of {} Mbit/s beside the cache",
            one.name(),
            number(one.held),
            number(one.with_cache),
            one.card.megabits()
        )
    };
    let measured = |one: &&MachineFigures| one.held.is_some() && one.with_cache.is_some();
    let apart = match (least.cache, least.gateway) {
        (Some(cache), Some(gateway)) => {
            format!(
                " With the cache on a machine of its own: {} for it, and {} as gateway.",
                name(cache),
                name(gateway)
            )
        }
        (None, _) => " Nor did any hold the seats as a cache alone.".to_owned(),
        (_, None) => " Nor did any fill its card as a gateway alone.".to_owned(),
    };
    match least.both {
        Some(place) => {
            let one = seen.iter().find(|one| (one.machine, one.card) == place);
            format!(
                "{seats} seats need at least the machine {} for gateway and cache: {}.",
                name(place),
                one.map(figures).unwrap_or_default()
            )
        }
        None => format!(
            "No machine here is enough for {seats} seats as gateway and cache: {}.{apart}",
            seen.iter().filter(measured).map(figures).collect::<Vec<_>>().join("; ")
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
    fn a_cache_moves_out_where_all_of_the_interval_says_so() {
        assert_eq!(own_machine(&cost(0.1001, 0.3)), OwnMachine::Yes);
        assert_eq!(own_machine(&cost(0.1, 0.3)), OwnMachine::NotTold);
        assert_eq!(own_machine(&cost(-0.2, 0.1)), OwnMachine::No);
        assert_eq!(own_machine(&cost(-0.2, 0.1001)), OwnMachine::NotTold);
        assert_eq!(own_machine(&ForwardingCost { interval: None, ..cost(0.9, 0.9) }), OwnMachine::NotTold);
        assert_eq!(own_machine(&ForwardingCost { is_the_testers: true, ..cost(0.2, 0.3) }), OwnMachine::NotTold);
    }

    fn seen(machine: Machine, card: Card, held: f64, with_cache: f64) -> MachineFigures {
        MachineFigures { machine, card, held: Some(held), with_cache: Some(with_cache), alone: Some(with_cache + 1.0) }
    }

    #[test]
    fn the_least_machine_is_the_one_that_does_both() {
        let all = [
            seen(Machine::Small, Card::Mbit10, 40.0, 8.99),
            seen(Machine::Middle, Card::Mbit10, 39.0, 9.5),
            seen(Machine::Large, Card::Mbit10, 40.0, 9.0),
            seen(Machine::Large, Card::Mbit100, 80.0, 95.0),
        ];
        let least = hardware(40, &all);
        assert_eq!(
            least.both,
            Some((Machine::Large, Card::Mbit10)),
            "40 seats held, and 9.0 of 10 carried, are enough"
        );
        assert_eq!(least.cache, Some((Machine::Small, Card::Mbit10)));
        assert_eq!(least.gateway, Some((Machine::Small, Card::Mbit10)));
        assert_eq!(hardware(41, &all).both, Some((Machine::Large, Card::Mbit100)));
        assert_eq!(hardware(81, &all).both, None);
        assert!(!hardware(1, &[]).known);
        let words = hardware_in_words(81, &all);
        assert!(words.starts_with("No machine here is enough for 81 seats"), "{words}");
        assert!(words.ends_with("Nor did any hold the seats as a cache alone."), "{words}");
        let words = hardware_in_words(40, &all);
        assert!(words.contains("at least the machine large, 10 Mbit/s") && words.contains("9.00 of 10"), "{words}");
    }

    #[test]
    fn what_was_not_measured_is_not_concluded() {
        assert!(rows(&[], None, 40).is_empty());
        let held = row(&experiment(Machine::Large, Card::Mbit10), "", USABLE, "/s", 40.0);
        assert!(rows(std::slice::from_ref(&held), None, 40).is_empty(), "a cache alone");
        let cells = vec![cell(Machine::Large, Card::Mbit10, Condition::NatProxyLoaded, &[9.5, 9.5])];
        let forwarded = Forwarded { factor: Factor::given(10.0), cells };
        assert!(rows(&[], Some(&forwarded), 40).is_empty(), "forwarding alone");
        let both = sentences(&rows(&[held], Some(&forwarded), 40));
        assert!(both[0].starts_with("40 seats need at least the machine large, 10 Mbit/s"), "{both:?}");
    }

    #[test]
    fn each_question_has_a_sentence_with_its_figures() {
        let of = |condition, trials: &[f64]| cell(Machine::Middle, Card::Mbit100, condition, trials);
        let cells = vec![
            of(Condition::None, &[100.0, 100.0, 100.0]),
            of(Condition::Nat, &[95.0, 96.0, 94.0]),
            of(Condition::NatProxyLoaded, &[47.0, 48.0, 49.0]),
            of(Condition::ProxyLoaded, &[60.0, 60.0, 60.0]),
        ];
        let forwarded = Forwarded { factor: Factor::given(10.0), cells };
        let made = rows(&[], Some(&forwarded), 40);
        let said = sentences(&made);
        assert_eq!(said.len(), 3, "{said:?}");
        assert!(said[0].contains("middle, 100 Mbit/s: 5.00 % (2.52 to 7.48), the paper: about 35"), "{}", said[0]);
        assert!(said[1].contains("beside NAT: middle, 100 Mbit/s: 49.5 %") && said[1].contains("the paper: half"));
        let alike = "without NAT (the paper: a little; the types alike): middle, 100 Mbit/s: 40.0 % (40.0 to 40.0).";
        assert!(said[1].ends_with(alike), "{}", said[1]);
        assert!(said[2].contains("Yes, since loaded it costs more than a tenth: middle, 100 Mbit/s"), "{}", said[2]);
        let figure = made.iter().find(|row| row.setting == NAT && row.measured.is_some()).unwrap();
        assert!((figure.measured.unwrap() - 5.0).abs() < 1e-9 && figure.note.contains("3 rounds"));
    }
}
