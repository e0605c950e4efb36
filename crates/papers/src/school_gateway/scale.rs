//! The three machines, their interfaces, and the time scale.

use units::{Bytes, CpuShare};

/// A machine of the paper, here a share of a core and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Type1.
    Small,
    /// Type2.
    Middle,
    /// Type3.
    Large,
}

/// CPU limit of the small machine, in per cent of a core: large enough for a quota period of 25 ms, small enough that
/// the large machine fits into the core with the kernel's work for its packets.
const SMALL_SHARE_PERCENT: f64 = 4.0;
/// Throughput of the paper's smallest machine at any offered rate.
const SMALLEST_PER_S: f64 = 10.0;
/// With half of it, the paper's least, squid 5.7 starts but is killed by the kernel at some 1,000 open connections.
const SMALL_MEMORY: u64 = 64 << 20;

impl Machine {
    /// All machines, in the order of the paper.
    pub const ALL: [Machine; 3] = [Machine::Small, Machine::Middle, Machine::Large];

    /// Name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Machine::Small => "small",
            Machine::Middle => "middle",
            Machine::Large => "large",
        }
    }

    /// The paper's machine.
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

    /// CPU limit: in proportion to its clock rate.
    pub fn share(self) -> CpuShare {
        let percent = SMALL_SHARE_PERCENT * self.clock_mhz() / Machine::Small.clock_mhz();
        format!("{percent:.2}%").parse().expect("between 1 % and 100000 %")
    }

    /// Memory: twice the paper's, since squid of today needs more for itself; the ratios are the paper's.
    pub const fn memory(self) -> Bytes {
        match self {
            Machine::Small => Bytes(SMALL_MEMORY),
            Machine::Middle | Machine::Large => Bytes(2 * SMALL_MEMORY),
        }
    }

    /// Cache memory of squid, as part of it.
    pub const fn cache(self) -> Bytes {
        match self {
            Machine::Small => Bytes(16 << 20),
            Machine::Middle | Machine::Large => Bytes(32 << 20),
        }
    }
}

/// The network interface, shared by clients and origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// 10 Mbit/s.
    Mbit10,
    /// 100 Mbit/s.
    Mbit100,
}

impl Interface {
    /// Both interfaces.
    pub const ALL: [Interface; 2] = [Interface::Mbit10, Interface::Mbit100];

    /// In the paper's time.
    pub const fn megabits(self) -> u32 {
        match self {
            Interface::Mbit10 => 10,
            Interface::Mbit100 => 100,
        }
    }

    /// Name in the rows.
    pub const fn name(self) -> &'static str {
        match self {
            Interface::Mbit10 => "10 Mbit/s",
            Interface::Mbit100 => "100 Mbit/s",
        }
    }

    /// A profile of a path with this interface and no distance, with time running `factor` times as fast.
    pub fn profile(self, factor: f64) -> String {
        let rate = format!("{}kbit", (f64::from(self.megabits()) * factor * 1e3).round());
        format!(
            "name = \"interface-{0}mbit\"\nabout = \"one interface of {0} Mbit/s, with time running {factor} times \
             as fast, for all traffic in and out\"\n[[clients]]\nshare = 1.0\nrtt = \"0ms\"\n[shared]\nup = {{ rate \
             = \"{rate}\", queue = \"100 packets\" }}\ndown = {{ rate = \"{rate}\", queue = \"100 packets\" }}\n",
            self.megabits()
        )
    }
}

/// Time scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// F: multiplier of the paper's rates and interface speeds, divisor of its think times and timeouts.
    pub factor: f64,
    /// squid's CPU time per request, in us; absent if F was given.
    pub cpu_us: Option<f64>,
}

impl Scale {
    /// A given factor.
    pub const fn given(factor: f64) -> Scale {
        Scale { factor, cpu_us: None }
    }

    /// The factor at which the small machine reaches the paper's throughput, with this CPU time per request; two
    /// digits.
    pub fn of_cost(cpu_us: f64) -> Scale {
        let small_per_s = Machine::Small.share().cores() * 1e6 / cpu_us;
        Scale { factor: two_digits(small_per_s / SMALLEST_PER_S), cpu_us: Some(cpu_us) }
    }
}

/// A factor as used: two digits, since it is known no better, and from 1 to 1000, since time never runs slower than in
/// the paper.
pub fn two_digits(exact: f64) -> f64 {
    // Converted through text, so that the printed value is the used one: 23 times 0.1 is not 2.3 as a float.
    format!("{:.1e}", exact.clamp(1.0, 1000.0)).parse().expect("a number that was just written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_limits_are_proportional_to_clock_rates() {
        assert_eq!(Machine::ALL.map(|machine| machine.share().to_string()), ["4%", "14%", "30.64%"]);
        assert!(Machine::ALL.windows(2).all(|two| two[0].memory() <= two[1].memory()));
    }

    #[test]
    fn cache_factor_gives_the_small_machine_10_requests_a_second() {
        // 4 % of a core is 40,000 us a second.
        assert_eq!(Scale::of_cost(400.0).factor, 10.0);
        assert_eq!(Scale::of_cost(364.0).factor, 11.0);
        assert!((Scale::of_cost(1000.0).factor - 4.0).abs() < 1e-9);
        assert_eq!(Scale::of_cost(1e9).factor, 1.0, "time never runs slower than in the paper");
        assert_eq!([2.3234, 17.49, 994.0, 996.0, 2e9].map(two_digits), [2.3, 17.0, 990.0, 1000.0, 1000.0]);
    }

    #[test]
    fn interface_profile_is_valid() {
        let text = Interface::Mbit10.profile(11.0);
        assert!(text.contains("\"110000kbit\""), "{text}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("card.toml");
        std::fs::write(&file, text).unwrap();
        let path = plan::PathPlan { profile: Some(file.display().to_string()), ..Default::default() };
        path.check().unwrap();
    }
}
