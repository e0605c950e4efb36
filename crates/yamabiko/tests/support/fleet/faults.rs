//! Faults that a trial injects into a working fleet.

use std::time::Duration;

/// One fault. The trial repairs each after some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The manager gets SIGKILL.
    Manager,
    /// The agents whose number modulo 3 is this value get SIGKILL.
    Agents(usize),
    /// The link between agents and manager loses every packet.
    Cut,
    /// The manager and the agents whose number modulo 3 is this value get SIGKILL at the same time.
    Both(usize),
    /// The manager gets SIGKILL while the link is cut, so that no agent notices it.
    CutAndManager,
    /// nats-server gets SIGKILL.
    Nats,
    /// nats-server and the second manager get SIGKILL.
    NatsAndSecond,
}

/// Number of injected faults by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Kills of the manager.
    pub manager_kills: usize,
    /// Kills of agents, summed over all agents.
    pub agent_kills: usize,
    /// Cuts of the link.
    pub cuts: usize,
    /// Kills of nats-server.
    pub nats_kills: usize,
}

/// The sequence of faults, repeated from its start. It contains a manager kill, an agent kill and a cut more than once.
const SEQUENCE: [Fault; 8] = [
    Fault::Agents(0),
    Fault::Manager,
    Fault::Cut,
    Fault::Agents(1),
    Fault::CutAndManager,
    Fault::Both(2),
    Fault::Manager,
    Fault::Agents(0),
];

/// Minimum number of faults, even if the programs end earlier.
pub const MIN_FAULTS: usize = SEQUENCE.len();

impl Fault {
    /// The fault with this number, from 0; over NATS each third is one of nats-server.
    pub fn of(number: usize, over_nats: bool) -> Fault {
        match number % 6 {
            2 if over_nats => Fault::Nats,
            5 if over_nats => Fault::NatsAndSecond,
            _ => SEQUENCE[number % SEQUENCE.len()],
        }
    }
}

/// Random times between faults, so that a kill can happen at any point of a periodic task. The seed makes them the same
/// in each run.
pub struct Pauses(u64);

impl Pauses {
    /// Creates the generator from a seed.
    pub fn new(seed: u64) -> Pauses {
        Pauses(seed)
    }

    /// A random time from 0.5 to 1.5 times the mean.
    pub fn next(&mut self, mean: Duration) -> Duration {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = (self.0 >> 40) as f64 / f64::from(1 << 24);
        mean.mul_f64(0.5 + share)
    }
}
