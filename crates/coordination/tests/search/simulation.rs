//! A network, machines and processes in virtual time for leader and members of a search.

use std::time::Duration;

use coordination::message::{Ended, FromMember, Prepared, Progress, ToMembers};
use coordination::{Effect, Identity, Local, Now, Over, SearchLeader, SearchMember, Trial};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

pub const STEP_MS: u64 = 10;
pub const WALL_ZERO_NS: u64 = 1_800_000_000_000_000_000;
pub const LOAD_MS: u64 = 5_000;
/// Time that a leader needs to choose the next trial.
pub const GAP_MS: u64 = 700;
/// Time that a shard needs to prepare a trial.
pub const PREPARATION_MS: u64 = 300;
pub const TRIALS: u32 = 5;
/// No simulation lasts longer.
pub const END_MS: u64 = 600_000;

pub enum Machine {
    Leader(SearchLeader),
    Member(SearchMember),
}

/// One trial as a shard saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seen {
    pub number: u32,
    pub start_ns: Option<u64>,
    pub ran: bool,
    pub is_aborted: bool,
    pub over: Option<Over>,
}

/// A shard's machine: the state machine, and a process that makes loads as long as it is told.
pub struct Shard {
    pub machine: Machine,
    pub is_alive: bool,
    pub trials: Vec<Seen>,
    pub ends_at_ms: Option<u64>,
    pub prepared_at_ms: Option<u64>,
    /// The leader: when the next trial begins.
    pub next_at_ms: Option<u64>,
    pub over: Option<(u64, Over)>,
    pub notes: Vec<String>,
    pub fetched: Vec<(u32, u32)>,
}

#[derive(Clone)]
pub enum Packet {
    ToLeader(FromMember),
    ToMembers(ToMembers),
}

/// A time within a trial: its number, and milliseconds after its start (or before it, after the last one).
pub type At = (u32, i64);

/// Faults of one simulation.
#[derive(Clone, Default)]
pub struct Faults {
    pub loss: f64,
    pub doubled: f64,
    pub delay_ms_max: u64,
    pub kill: Option<(usize, At)>,
    /// From this time, and how long.
    pub outage: Option<(At, u64)>,
    pub interrupt: Option<(usize, At)>,
    pub other_plan: Option<usize>,
    /// A shard whose preparation of a trial fails.
    pub cannot: Option<(usize, u32)>,
    /// A shard whose file has another content from this trial on.
    pub other_file: Option<(usize, u32)>,
    /// A shard whose load fails in a trial.
    pub fails: Option<(usize, u32)>,
}

pub struct Simulation {
    pub shards: Vec<Shard>,
    pub packets: Vec<(u64, usize, Packet)>,
    pub random: Xoshiro256PlusPlus,
    pub faults: Faults,
    pub now_ms: u64,
    pub down_until_ms: Option<u64>,
    /// Longest time between the end of a trial's load and the start of the next one.
    pub between_ms: u64,
    pub load_ended_ms: Option<u64>,
}

impl Simulation {
    pub fn new(count: usize, seed: u64, faults: Faults) -> Self {
        let shard = |index: usize| {
            let has_other_plan = faults.other_plan == Some(index);
            let identity = Identity {
                index: index as u32,
                count: count as u32,
                instance: 1000 + index as u64,
                version: "1".into(),
                plan_digest: if has_other_plan { "other" } else { "plan" }.into(),
                host: format!("host{index}"),
            };
            let mut machine = match index {
                0 => Machine::Leader(SearchLeader::new(identity)),
                _ => Machine::Member(SearchMember::new(identity, now(0))),
            };
            machine.local(now(0), Local::Connected(true));
            Shard {
                machine,
                is_alive: true,
                trials: Vec::new(),
                ends_at_ms: None,
                prepared_at_ms: None,
                next_at_ms: (index == 0).then_some(0),
                over: None,
                notes: Vec::new(),
                fetched: Vec::new(),
            }
        };
        Simulation {
            shards: (0..count).map(shard).collect(),
            packets: Vec::new(),
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            faults,
            now_ms: 0,
            down_until_ms: None,
            between_ms: 0,
            load_ended_ms: None,
        }
    }

    pub fn chance(&mut self, share: f64) -> bool {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }

    /// Runs until all that live are over.
    pub fn run(mut self) -> Simulation {
        while self.shards.iter().any(|shard| shard.is_alive && shard.over.is_none()) {
            assert!(self.now_ms < END_MS, "it hangs");
            self.step();
        }
        self
    }

    /// Whether a fault's time has come: by the leader's trial.
    pub fn is_at(&self, (number, after_ms): At) -> bool {
        let Some(trial) = self.shards[0].trials.last() else { return false };
        // Before its start, a trial is counted from the end of the one before.
        let base = match trial.start_ns {
            _ if trial.number > number => return true,
            Some(start_ns) if trial.number == number => (start_ns - WALL_ZERO_NS) / 1_000_000,
            None if trial.number == number && after_ms < 0 => return true,
            _ => return false,
        };
        self.now_ms as i64 >= base as i64 + after_ms
    }

    pub fn step(&mut self) {
        self.now_ms += STEP_MS;
        if let Some((index, _)) = self.faults.kill.filter(|(_, at)| self.is_at(*at)) {
            self.shards[index].is_alive = false;
        }
        if let Some((at, lasts_ms)) = self.faults.outage
            && self.is_at(at)
        {
            match self.down_until_ms {
                None => {
                    self.down_until_ms = Some(self.now_ms + lasts_ms);
                    self.connect(false);
                }
                Some(until_ms) if self.now_ms >= until_ms => {
                    self.faults.outage = None;
                    self.connect(true);
                }
                Some(_) => {}
            }
        }
        if let Some((index, at)) = self.faults.interrupt
            && self.is_at(at)
        {
            self.faults.interrupt = None;
            self.shards[index].machine.local(now(self.now_ms), Local::Interrupted);
        }
        self.deliver();
        for index in 0..self.shards.len() {
            if self.shards[index].is_alive && self.shards[index].over.is_none() {
                self.tick(index);
            }
        }
    }

    pub fn connect(&mut self, is_up: bool) {
        // Messages in the server are lost with it.
        self.packets.clear();
        for shard in &mut self.shards {
            shard.machine.local(now(self.now_ms), Local::Connected(is_up));
        }
    }

    pub fn is_down(&self) -> bool {
        self.faults.outage.is_some() && self.down_until_ms.is_some()
    }

    pub fn deliver(&mut self) {
        let due: Vec<(usize, Packet)> =
            self.packets.extract_if(.., |(at, ..)| *at <= self.now_ms).map(|(_, to, packet)| (to, packet)).collect();
        for (to, packet) in due {
            let shard = &mut self.shards[to];
            if !shard.is_alive || shard.over.is_some() {
                continue;
            }
            match (&mut shard.machine, packet) {
                (Machine::Leader(leader), Packet::ToLeader(message)) => leader.receive(now(self.now_ms), &message),
                (Machine::Member(member), Packet::ToMembers(message)) => member.receive(now(self.now_ms), &message),
                _ => {}
            }
        }
    }

    /// What the process of the load does.
    pub fn tick(&mut self, index: usize) {
        let now = now(self.now_ms);
        let faults = self.faults.clone();
        let shard = &mut self.shards[index];
        if shard.next_at_ms.is_some_and(|at| self.now_ms >= at) {
            shard.next_at_ms = None;
            let number = shard.trials.len() as u32 + 1;
            shard.trials.push(Seen { number, ..Seen::default() });
            let request = format!("trial {number}");
            shard.machine.local(now, Local::Trial(Trial { number, request, prepared: prepared(number, false) }));
        }
        if let Some(trial) = shard.trials.last_mut() {
            if shard.prepared_at_ms.is_some_and(|at| self.now_ms >= at) {
                shard.prepared_at_ms = None;
                let is_other = faults.other_file.is_some_and(|(at, from)| at == index && trial.number >= from);
                shard.machine.local(
                    now,
                    match faults.cannot == Some((index, trial.number)) {
                        true => Local::Failed("too few descriptors".into()),
                        false => Local::Prepared(prepared(trial.number, is_other)),
                    },
                );
            }
            if trial.start_ns.is_some_and(|at| at <= now.wall_ns) && shard.ends_at_ms.is_none() && !trial.ran {
                shard.ends_at_ms = Some(self.now_ms + LOAD_MS);
                if let Some(ended) = self.load_ended_ms.take() {
                    self.between_ms = self.between_ms.max(self.now_ms - ended);
                }
            }
            if shard.ends_at_ms.is_some_and(|at| self.now_ms >= at) {
                shard.ends_at_ms = None;
                trial.ran = true;
                self.load_ended_ms = Some(self.now_ms);
                let ended = Ended {
                    run: format!("run{index}-{}", trial.number),
                    interrupted: trial.is_aborted,
                    ..Ended::default()
                };
                shard.machine.local(
                    now,
                    match faults.fails == Some((index, trial.number)) {
                        true => Local::Failed("connect: no ports left".into()),
                        false => Local::Ended(ended),
                    },
                );
            }
            if shard.ends_at_ms.is_some() {
                let offered = self.now_ms;
                shard.machine.local(now, Local::Progress(Progress { at_ms: offered, offered, ..Progress::default() }));
            }
        }
        match &mut shard.machine {
            Machine::Leader(leader) => leader.tick(now),
            Machine::Member(member) => member.tick(now),
        }
        while let Some(effect) = self.shards[index].effect() {
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
            Effect::Start { at_ns } => shard.trials.last_mut().unwrap().start_ns = Some(at_ns),
            Effect::Abort(_) => {
                let trial = shard.trials.last_mut().unwrap();
                trial.is_aborted = true;
                match shard.ends_at_ms {
                    Some(_) => shard.ends_at_ms = Some(self.now_ms),
                    None => {
                        trial.start_ns = None;
                        shard.machine.local(now, Local::Failed("interrupted".into()));
                    }
                }
            }
            Effect::Note(text) => shard.notes.push(text),
            Effect::Send(ended) => shard.machine.local(now, Local::Sent(Ok(ended.run))),
            Effect::Fetch { index: from, ended } => {
                let number = shard.trials.last().unwrap().number;
                assert_eq!(ended.run, format!("run{from}-{number}"), "a run of this trial");
                shard.fetched.push((number, from));
                shard.machine.local(now, Local::Fetched { index: from, result: Ok(()) });
            }
            Effect::Trial { number, request } => {
                assert_eq!(request, format!("trial {number}"));
                shard.trials.push(Seen { number, ..Seen::default() });
                shard.prepared_at_ms = Some(self.now_ms + PREPARATION_MS);
            }
            Effect::TrialOver(over) => {
                let trial = shard.trials.last_mut().unwrap();
                trial.over = Some(over.clone());
                if index == 0 {
                    match over {
                        Over::Complete if trial.is_aborted => {
                            shard.machine.local(now, Local::Finish("interrupted".into()));
                        }
                        Over::Complete if trial.number < TRIALS => shard.next_at_ms = Some(self.now_ms + GAP_MS),
                        Over::Complete => shard.machine.local(now, Local::Finish(String::new())),
                        Over::NotStarted(why) => shard.machine.local(now, Local::Finish(why)),
                        Over::Incomplete(missing) => shard.machine.local(now, Local::Finish(missing.join("; "))),
                    }
                }
            }
            Effect::Over(over) => shard.over = Some((self.now_ms, over)),
            Effect::Clock(_) | Effect::Summary(_) | Effect::Shards(_) => {}
        }
    }

    pub fn send(&mut self, to: usize, packet: &Packet) {
        if self.is_down() || self.chance(self.faults.loss) {
            return;
        }
        let copies = if self.chance(self.faults.doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.random.next_u64() % (self.faults.delay_ms_max + 1);
            self.packets.push((self.now_ms + delay, to, packet.clone()));
        }
    }

    pub fn over(&self, index: usize) -> &Over {
        &self.shards[index].over.as_ref().expect("it is over").1
    }

    /// Numbers of the trials that the leader has of all shards.
    pub fn complete(&self) -> u32 {
        self.shards[0].trials.iter().filter(|trial| trial.over == Some(Over::Complete)).count() as u32
    }

    /// Nothing is merged that was not made together: each start is that of all, and each run is fetched once.
    pub fn assert_consistent(&self, what: &str) {
        let leader = &self.shards[0];
        for trial in leader.trials.iter().filter(|trial| trial.over == Some(Over::Complete)) {
            for (index, shard) in self.shards.iter().enumerate() {
                let own = shard.trials.iter().find(|seen| seen.number == trial.number).expect("its trial");
                assert_eq!((own.start_ns, own.ran), (trial.start_ns, true), "{what}: {index}, {}", trial.number);
                let fetched = leader.fetched.iter().filter(|fetched| **fetched == (trial.number, index as u32));
                assert_eq!(fetched.count(), usize::from(index > 0), "{what}: {index}, {}", trial.number);
            }
        }
    }
}

impl Shard {
    pub fn effect(&mut self) -> Option<Effect> {
        match &mut self.machine {
            Machine::Leader(leader) => leader.effect(),
            Machine::Member(member) => member.effect(),
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
}

pub fn prepared(number: u32, is_other: bool) -> Prepared {
    let of = if is_other { "other" } else { "file" };
    Prepared { digest: format!("{of} {number}"), took_ms: PREPARATION_MS }
}

pub fn now(at_ms: u64) -> Now {
    Now { monotonic: Duration::from_millis(at_ms), wall_ns: WALL_ZERO_NS + at_ms * 1_000_000 }
}

pub fn text_of(over: &Over) -> String {
    match over {
        Over::Complete => String::new(),
        Over::NotStarted(why) => why.clone(),
        Over::Incomplete(missing) => missing.join("; "),
    }
}
