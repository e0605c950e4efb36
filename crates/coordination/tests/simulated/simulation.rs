//! A network, machines and loads in virtual time for leader and members of one load.

use std::time::Duration;

use coordination::message::{Ended, FromMember, Progress, ToMembers};
use coordination::{Effect, Identity, Leader, Local, Member, Now, Over};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use schema::document::ClockOffsets;
use schema::{RunPhase, ShardResponseTime, ShardsProgress};

pub const STEP_MS: u64 = 10;
/// True wall time at the beginning of the simulation.
pub const WALL_ZERO_NS: u64 = 1_800_000_000_000_000_000;
pub const LOAD_MS: u64 = 20_000;
pub const WARMUP_MS: u64 = 2_000;
/// No simulation lasts longer.
pub const END_MS: u64 = 400_000;

pub enum Machine {
    Leader(Leader),
    Member(Member),
}

/// A shard's machine: its state machine, and a load that runs as long as it is told.
pub struct Shard {
    pub machine: Machine,
    pub is_alive: bool,
    pub offset_ns: i64,
    pub start_ns: Option<u64>,
    pub ends_at_ms: Option<u64>,
    pub is_aborted: bool,
    pub ran: bool,
    pub clocks: ClockOffsets,
    pub over: Option<(u64, Over)>,
    pub notes: Vec<String>,
    pub fetched: Vec<u32>,
    /// The leader's tables of all shards, with their times.
    pub tables: Vec<(u64, ShardsProgress)>,
}

#[derive(Clone)]
pub enum Packet {
    ToLeader(FromMember),
    ToMembers(ToMembers),
}

/// Faults of one simulation.
#[derive(Clone, Default)]
pub struct Faults {
    pub loss: f64,
    pub doubled: f64,
    pub delay_ms_max: u64,
    /// A shard is killed at this time after the start.
    pub kills: Vec<(usize, u64)>,
    /// The server is gone between these times after the start.
    pub outage: Option<(u64, u64)>,
    /// A member with another plan.
    pub other_plan: Option<usize>,
    /// A member that never comes.
    pub absent: Option<usize>,
    pub abort_on_lost: bool,
    pub interrupt_leader_after_ms: Option<u64>,
    pub offsets_ns: Vec<i64>,
}

pub struct Simulation {
    pub shards: Vec<Shard>,
    pub packets: Vec<(u64, usize, Packet)>,
    pub random: Xoshiro256PlusPlus,
    pub faults: Faults,
    pub now_ms: u64,
    pub is_up: bool,
}

impl Simulation {
    pub fn new(count: usize, seed: u64, faults: Faults) -> Self {
        let mut simulation = Simulation {
            shards: Vec::new(),
            packets: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            faults,
            now_ms: 0,
            is_up: true,
        };
        for index in 0..count {
            let has_other_plan = simulation.faults.other_plan == Some(index);
            let identity = Identity {
                index: index as u32,
                count: count as u32,
                instance: 1000 + index as u64,
                version: "1".into(),
                plan_digest: if has_other_plan { "other" } else { "plan" }.into(),
                host: format!("host{index}"),
            };
            let offset_ns = simulation.faults.offsets_ns.get(index).copied().unwrap_or(0);
            let now = now(0, offset_ns);
            let mut machine = match index {
                0 => Machine::Leader(Leader::new(identity, simulation.faults.abort_on_lost, now)),
                _ => Machine::Member(Member::new(identity, now)),
            };
            machine.local(now, Local::Connected(true));
            simulation.shards.push(Shard {
                machine,
                is_alive: simulation.faults.absent != Some(index),
                offset_ns,
                start_ns: None,
                ends_at_ms: None,
                is_aborted: false,
                ran: false,
                clocks: ClockOffsets::default(),
                over: None,
                notes: Vec::new(),
                fetched: Vec::new(),
                tables: Vec::new(),
            });
        }
        simulation
    }

    pub fn chance(&mut self, share: f64) -> bool {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }

    /// Runs until all that live are over.
    pub fn run(mut self) -> Vec<Shard> {
        while self.shards.iter().any(|shard| shard.is_alive && shard.over.is_none()) {
            assert!(self.now_ms < END_MS, "it hangs");
            self.step();
        }
        self.shards
    }

    pub fn step(&mut self) {
        self.now_ms += STEP_MS;
        let started = self.shards[0].start_ns.map(|at| (at - WALL_ZERO_NS) / 1_000_000);
        let after_start = started.and_then(|start| self.now_ms.checked_sub(start));
        if let Some(after) = after_start {
            for &(index, at) in &self.faults.kills {
                self.shards[index].is_alive &= after < at;
            }
            let is_up = self.faults.outage.is_none_or(|(from, until)| after < from || after >= until);
            if is_up != self.is_up {
                self.is_up = is_up;
                for shard in &mut self.shards {
                    shard.machine.local(now(self.now_ms, shard.offset_ns), Local::Connected(is_up));
                }
            }
            if self.faults.interrupt_leader_after_ms.is_some_and(|at| after >= at) {
                let shard = &mut self.shards[0];
                shard.machine.local(now(self.now_ms, shard.offset_ns), Local::Interrupted);
            }
        }
        self.deliver();
        for index in 0..self.shards.len() {
            if self.shards[index].is_alive && self.shards[index].over.is_none() {
                self.tick(index);
            }
        }
    }

    pub fn deliver(&mut self) {
        let due: Vec<(usize, Packet)> =
            self.packets.extract_if(.., |(at, _, _)| *at <= self.now_ms).map(|(_, to, packet)| (to, packet)).collect();
        for (to, packet) in due {
            let shard = &mut self.shards[to];
            let now = now(self.now_ms, shard.offset_ns);
            if !shard.is_alive || shard.over.is_some() {
                continue;
            }
            match (&mut shard.machine, packet) {
                (Machine::Leader(leader), Packet::ToLeader(message)) => leader.receive(now, &message),
                (Machine::Member(member), Packet::ToMembers(message)) => member.receive(now, &message),
                _ => {}
            }
        }
    }

    pub fn tick(&mut self, index: usize) {
        let shard = &mut self.shards[index];
        let now = now(self.now_ms, shard.offset_ns);
        if shard.start_ns.is_some_and(|at| at <= now.wall_ns) && shard.ends_at_ms.is_none() {
            shard.ends_at_ms = Some(self.now_ms + LOAD_MS);
        }
        if shard.ends_at_ms.is_some_and(|at| self.now_ms >= at) && !shard.ran {
            shard.ran = true;
            shard.machine.local(now, Local::Ended(ended(index, shard.is_aborted)));
        }
        if let Some(ends_at_ms) = shard.ends_at_ms.filter(|_| !shard.ran) {
            let at_ms = (self.now_ms + LOAD_MS).saturating_sub(ends_at_ms);
            shard.machine.local(now, Local::Progress(progress(index, at_ms)));
        }
        shard.machine.tick(now);
        while let Some(effect) = self.shards[index].machine.effect() {
            self.act(index, now, effect);
        }
    }

    pub fn act(&mut self, index: usize, now: Now, effect: Effect) {
        let count = self.shards.len();
        let shard = &mut self.shards[index];
        match effect {
            Effect::ToLeader(message) => self.send(0, &Packet::ToLeader(message)),
            Effect::ToMembers(message) => {
                let packet = Packet::ToMembers(message);
                (1..count).for_each(|to| self.send(to, &packet));
            }
            Effect::Start { at_ns } => shard.start_ns = Some(at_ns),
            Effect::Abort(_) => {
                shard.is_aborted = true;
                match shard.ends_at_ms {
                    Some(_) => shard.ends_at_ms = Some(self.now_ms),
                    // Interrupted before the start.
                    None => {
                        (shard.start_ns, shard.ran) = (None, true);
                        shard.machine.local(now, Local::Failed("interrupted".into()));
                    }
                }
            }
            Effect::Note(text) => shard.notes.push(text),
            Effect::Clock(clocks) => shard.clocks = clocks,
            Effect::Send(ended) => shard.machine.local(now, Local::Sent(Ok(ended.run))),
            Effect::Fetch { index: from, .. } => {
                shard.fetched.push(from);
                shard.machine.local(now, Local::Fetched { index: from, result: Ok(()) });
            }
            Effect::Over(over) => shard.over = Some((self.now_ms, over)),
            Effect::Trial { .. } | Effect::TrialOver(_) => unreachable!("the load is not a search"),
            Effect::Summary(summary) => assert_eq!(summary.count as usize, count),
            Effect::Shards(table) => shard.tables.push((self.now_ms, *table)),
        }
    }

    pub fn send(&mut self, to: usize, packet: &Packet) {
        if !self.is_up || self.chance(self.faults.loss) {
            return;
        }
        let copies = if self.chance(self.faults.doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.random.next_u64() % (self.faults.delay_ms_max + 1);
            self.packets.push((self.now_ms + delay, to, packet.clone()));
        }
    }
}

impl Machine {
    pub fn local(&mut self, now: Now, local: Local) {
        match self {
            Machine::Leader(leader) => leader.local(now, local),
            Machine::Member(member) => member.local(now, local),
        }
    }

    pub fn tick(&mut self, now: Now) {
        match self {
            Machine::Leader(leader) => leader.tick(now),
            Machine::Member(member) => member.tick(now),
        }
    }

    pub fn effect(&mut self) -> Option<Effect> {
        match self {
            Machine::Leader(leader) => leader.effect(),
            Machine::Member(member) => member.effect(),
        }
    }
}

pub fn now(at_ms: u64, offset_ns: i64) -> Now {
    let wall_ns = (WALL_ZERO_NS + at_ms * 1_000_000).checked_add_signed(offset_ns).unwrap();
    Now { monotonic: Duration::from_millis(at_ms), wall_ns }
}

pub fn ended(index: usize, interrupted: bool) -> Ended {
    Ended { run: format!("run{index}"), dir: format!("/runs/run{index}"), interrupted, ..Ended::default() }
}

/// Requests per second that a shard offers; it completes half of them.
pub fn rate(index: usize) -> u64 {
    1_000 * (index as u64 + 1)
}

/// A shard's report of its load at this time after the start.
pub fn progress(index: usize, at_ms: u64) -> Progress {
    let offered = rate(index) * at_ms / 1_000;
    let ms = 1_000_000 * (index as u64 + 1);
    Progress {
        at_ms,
        phase: if at_ms < WARMUP_MS { RunPhase::Warmup } else { RunPhase::Measured },
        offered,
        completed: offered / 2,
        failed: at_ms / 1_000,
        in_flight: offered - offered / 2,
        response_time: (at_ms > WARMUP_MS).then_some(ShardResponseTime { count: offered, p50_ns: ms, p99_ns: 9 * ms }),
    }
}

pub fn over(shard: &Shard) -> &Over {
    &shard.over.as_ref().expect("it is over").1
}
