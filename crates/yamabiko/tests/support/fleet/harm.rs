//! What is done to a fleet while it works.

use std::time::Duration;

/// One harm. Each is put right again after a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// SIGKILL for the manager.
    Manager,
    /// SIGKILL for those agents whose number leaves this rest by 3.
    Agents(usize),
    /// The link between them loses everything.
    Cut,
    /// SIGKILL for the manager and for those agents, concurrently.
    Both(usize),
    /// The manager is killed while the link is cut, so that no agent notices it.
    CutAndManager,
}

/// How often each was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harms {
    /// The manager was killed.
    pub manager_kills: usize,
    /// Agents were killed, each counted.
    pub agent_kills: usize,
    /// The link was cut.
    pub cuts: usize,
}

/// One after the other, and again from the start. The first eight have everything more than once.
const ORDER: [Harm; 8] = [
    Harm::Agents(0),
    Harm::Manager,
    Harm::Cut,
    Harm::Agents(1),
    Harm::CutAndManager,
    Harm::Both(2),
    Harm::Manager,
    Harm::Agents(0),
];

/// So many are done at least, also when the programs have ended before.
pub const LEAST: usize = ORDER.len();

impl Harm {
    /// The harm of this number, from 0.
    pub fn of(number: usize) -> Harm {
        ORDER[number % ORDER.len()]
    }
}

/// Random times between faults, so that a kill falls anywhere within a second's work; the same in each run.
pub struct Pauses(u64);

impl Pauses {
    /// From a seed.
    pub fn new(seed: u64) -> Pauses {
        Pauses(seed)
    }

    /// Between half of the mean and one and a half of it.
    pub fn next(&mut self, mean: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = (self.0 >> 40) as f64 / f64::from(1 << 24);
        mean.mul_f64(0.5 + share)
    }
}
