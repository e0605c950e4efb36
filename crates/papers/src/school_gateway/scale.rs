//! The three machines, their cards, and how much faster time runs here than it did for them.

use units::{Bytes, CpuShare};

/// A machine of the paper, as it is here: a share of a core, and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Type1.
    Small,
    /// Type2.
    Middle,
    /// Type3.
    Large,
}

/// The small machine's share of a core, in per cent: enough for a share to be dealt out every 25 ms, little enough for the large
/// one to be within the core, beside what the kernel does for its packets.
const SMALL_SHARE_PERCENT: f64 = 4.0;
/// What the paper's smallest machine answered, whatever was offered.
const SMALLEST_PER_S: f64 = 10.0;
/// In half of it, the paper's least, squid 5.7 comes up, but is killed by the kernel once some 1,000 connections are open.
const LEAST_MEMORY: u64 = 64 << 20;

impl Machine {
    /// All, in the order of the paper.
    pub const ALL: [Machine; 3] = [Machine::Small, Machine::Middle, Machine::Large];

    /// As in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Machine::Small => "small",
            Machine::Middle => "middle",
            Machine::Large => "large",
        }
    }

    /// In the paper.
    pub const fn of_paper(self) -> &'static str {
        match self {
            Machine::Small => "Type1, Pentium 100 MHz, 32 MB",
            Machine::Middle => "Type2, K6 350 MHz, 64 MB",
            Machine::Large => "Type3, Celeron 766 MHz, 64 MB",
        }
    }

    const fn clock_mhz(self) -> f64 {
        match self {
            Machine::Small => 100.0,
            Machine::Middle => 350.0,
            Machine::Large => 766.0,
        }
    }

    /// Its share of one core: as its clock is to the small one's.
    pub fn share(self) -> CpuShare {
        let percent = SMALL_SHARE_PERCENT * self.clock_mhz() / Machine::Small.clock_mhz();
        format!("{percent:.2}%").parse().expect("between 1 % and 100000 %")
    }

    /// Its memory: twice the paper's, since squid of today needs more for itself; the three stand to one another as there.
    pub const fn memory(self) -> Bytes {
        match self {
            Machine::Small => Bytes(LEAST_MEMORY),
            Machine::Middle | Machine::Large => Bytes(2 * LEAST_MEMORY),
        }
    }

    /// What squid caches in of that.
    pub const fn cache(self) -> Bytes {
        match self {
            Machine::Small => Bytes(16 << 20),
            Machine::Middle | Machine::Large => Bytes(32 << 20),
        }
    }
}

/// The one network card, for clients and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Card {
    /// 10 Mbit/s.
    Mbit10,
    /// 100 Mbit/s.
    Mbit100,
}

impl Card {
    /// Both.
    pub const ALL: [Card; 2] = [Card::Mbit10, Card::Mbit100];

    /// In the paper's time.
    pub const fn megabits(self) -> u32 {
        match self {
            Card::Mbit10 => 10,
            Card::Mbit100 => 100,
        }
    }

    /// As in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Card::Mbit10 => "10 Mbit/s",
            Card::Mbit100 => "100 Mbit/s",
        }
    }

    /// A profile of a path with this card and no distance, in time that runs `factor` times as fast.
    pub fn profile(self, factor: f64) -> String {
        let rate = format!("{}kbit", (f64::from(self.megabits()) * factor * 1e3).round());
        format!(
            "name = \"card-{0}mbit\"\nabout = \"one card of {0} Mbit/s, in time {factor} times as fast, for all that goes in and out\"\n\
             [[clients]]\nshare = 1.0\nrtt = \"0ms\"\n[shared]\nup = {{ rate = \"{rate}\", queue = \"100 packets\" }}\n\
             down = {{ rate = \"{rate}\", queue = \"100 packets\" }}\n",
            self.megabits()
        )
    }
}

/// How much faster time runs here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// F: rates and cards are so many times the paper's, think times and time-outs one of so many.
    pub factor: f64,
    /// The CPU that squid took for a request, in us; absent where F was given.
    pub cpu_us: Option<f64>,
}

impl Scale {
    /// As somebody says.
    pub const fn given(factor: f64) -> Scale {
        Scale { factor, cpu_us: None }
    }

    /// The one by which the small machine can do what the paper's did, if a request takes so much CPU; of two digits.
    pub fn of_cost(cpu_us: f64) -> Scale {
        let small_per_s = Machine::Small.share().cores() * 1e6 / cpu_us;
        Scale { factor: two_digits(small_per_s / SMALLEST_PER_S), cpu_us: Some(cpu_us) }
    }
}

/// A factor as it is used: two digits, since it is not known better, and from 1 to 1000, since time never runs slower than in the paper.
pub fn two_digits(exact: f64) -> f64 {
    // By way of text, so that what is printed is what is used: 23 times 0.1 is not 2.3 to a float.
    format!("{:.1e}", exact.clamp(1.0, 1000.0)).parse().expect("a number that was just written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_as_the_clocks() {
        assert_eq!(Machine::ALL.map(|machine| machine.share().to_string()), ["4%", "14%", "30.64%"]);
        assert!(Machine::ALL.windows(2).all(|two| two[0].memory() <= two[1].memory()));
    }

    #[test]
    fn the_factor_gives_the_small_machine_its_ten() {
        // 4 % of a core is 40,000 us a second.
        assert_eq!(Scale::of_cost(400.0).factor, 10.0);
        assert_eq!(Scale::of_cost(364.0).factor, 11.0);
        assert!((Scale::of_cost(1000.0).factor - 4.0).abs() < 1e-9);
        assert_eq!(Scale::of_cost(1e9).factor, 1.0, "time never runs slower than in the paper");
        assert_eq!([2.3234, 17.49, 994.0, 996.0, 2e9].map(two_digits), [2.3, 17.0, 990.0, 1000.0, 1000.0]);
    }

    #[test]
    fn a_card_is_a_profile_that_can_be_read() {
        let text = Card::Mbit10.profile(11.0);
        assert!(text.contains("\"110000kbit\""), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("card.toml");
        std::fs::write(&file, text).unwrap();
        let path = plan::PathPlan { profile: Some(file.display().to_string()), ..Default::default() };
        path.check().unwrap();
    }
}
