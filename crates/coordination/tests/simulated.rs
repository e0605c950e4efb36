//! Leader and members in virtual time, over a network that loses, doubles and reorders messages, with machines and a
//! server that die.

use std::time::Duration;

use coordination::message::{Ended, FromMember, Progress, ToMembers};
use coordination::record::largest_difference;
use coordination::{Effect, Identity, Leader, Local, Member, Now, Over};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use schema::document::ClockOffsets;

const STEP_MS: u64 = 10;
/// True wall time at the beginning of the simulation.
const WALL_ZERO_NS: u64 = 1_800_000_000_000_000_000;
const LOAD_MS: u64 = 20_000;
/// No simulation lasts longer.
const END_MS: u64 = 400_000;

enum Machine {
    Leader(Leader),
    Member(Member),
}

/// A shard's machine: its state machine, and a load that runs as long as it is told.
struct Shard {
    machine: Machine,
    is_alive: bool,
    offset_ns: i64,
    start_ns: Option<u64>,
    ends_at_ms: Option<u64>,
    is_aborted: bool,
    ran: bool,
    clocks: ClockOffsets,
    over: Option<(u64, Over)>,
    notes: Vec<String>,
    fetched: Vec<u32>,
}

#[derive(Clone)]
enum Packet {
    ToLeader(FromMember),
    ToMembers(ToMembers),
}

/// Faults of one simulation.
#[derive(Clone, Default)]
struct Faults {
    loss: f64,
    doubled: f64,
    delay_ms_max: u64,
    /// A shard is killed at this time after the start.
    kills: Vec<(usize, u64)>,
    /// The server is gone between these times after the start.
    outage: Option<(u64, u64)>,
    /// A member with another plan.
    other_plan: Option<usize>,
    /// A member that never comes.
    absent: Option<usize>,
    abort_on_lost: bool,
    interrupt_leader_after_ms: Option<u64>,
    offsets_ns: Vec<i64>,
}

struct Simulation {
    shards: Vec<Shard>,
    packets: Vec<(u64, usize, Packet)>,
    random: Xoshiro256PlusPlus,
    faults: Faults,
    now_ms: u64,
    is_up: bool,
}

impl Simulation {
    fn new(count: usize, seed: u64, faults: Faults) -> Self {
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
            });
        }
        simulation
    }

    fn chance(&mut self, share: f64) -> bool {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }

    /// Runs until all that live are over.
    fn run(mut self) -> Vec<Shard> {
        while self.shards.iter().any(|shard| shard.is_alive && shard.over.is_none()) {
            assert!(self.now_ms < END_MS, "it hangs");
            self.step();
        }
        self.shards
    }

    fn step(&mut self) {
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

    fn deliver(&mut self) {
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

    fn tick(&mut self, index: usize) {
        let shard = &mut self.shards[index];
        let now = now(self.now_ms, shard.offset_ns);
        if shard.start_ns.is_some_and(|at| at <= now.wall_ns) && shard.ends_at_ms.is_none() {
            shard.ends_at_ms = Some(self.now_ms + LOAD_MS);
        }
        if shard.ends_at_ms.is_some_and(|at| self.now_ms >= at) && !shard.ran {
            shard.ran = true;
            shard.machine.local(now, Local::Ended(ended(index, shard.is_aborted)));
        }
        if shard.ends_at_ms.is_some() {
            shard.machine.local(now, Local::Progress(Progress { offered: self.now_ms, ..Progress::default() }));
        }
        shard.machine.tick(now);
        while let Some(effect) = self.shards[index].machine.effect() {
            self.act(index, now, effect);
        }
    }

    fn act(&mut self, index: usize, now: Now, effect: Effect) {
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
        }
    }

    fn send(&mut self, to: usize, packet: &Packet) {
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
    fn local(&mut self, now: Now, local: Local) {
        match self {
            Machine::Leader(leader) => leader.local(now, local),
            Machine::Member(member) => member.local(now, local),
        }
    }

    fn tick(&mut self, now: Now) {
        match self {
            Machine::Leader(leader) => leader.tick(now),
            Machine::Member(member) => member.tick(now),
        }
    }

    fn effect(&mut self) -> Option<Effect> {
        match self {
            Machine::Leader(leader) => leader.effect(),
            Machine::Member(member) => member.effect(),
        }
    }
}

fn now(at_ms: u64, offset_ns: i64) -> Now {
    let wall_ns = (WALL_ZERO_NS + at_ms * 1_000_000).checked_add_signed(offset_ns).unwrap();
    Now { monotonic: Duration::from_millis(at_ms), wall_ns }
}

fn ended(index: usize, interrupted: bool) -> Ended {
    Ended { run: format!("run{index}"), dir: format!("/runs/run{index}"), interrupted, ..Ended::default() }
}

fn over(shard: &Shard) -> &Over {
    &shard.over.as_ref().expect("it is over").1
}

#[test]
fn all_start_together_and_every_run_is_fetched_once_whatever_the_network_does() {
    for seed in 0..100 {
        let bad = seed % 4;
        let faults =
            Faults { loss: 0.1 * bad as f64, doubled: 0.1 * bad as f64, delay_ms_max: 150 * bad, ..Faults::default() };
        let shards = Simulation::new(4, seed, faults).run();
        let start = shards[0].start_ns;
        for (index, shard) in shards.iter().enumerate() {
            assert_eq!((shard.start_ns, shard.ran, shard.is_aborted), (start, true, false), "seed {seed}: {index}");
        }
        assert_eq!(over(&shards[0]), &Over::Complete, "seed {seed}");
        let mut fetched = shards[0].fetched.clone();
        fetched.sort_unstable();
        assert_eq!(fetched, [1, 2, 3], "seed {seed}");
        if bad == 0 {
            assert!(shards.iter().all(|shard| over(shard) == &Over::Complete && shard.notes.is_empty()));
        }
    }
}

#[test]
fn a_member_with_another_plan_is_refused_by_name_and_no_load_is_made() {
    let shards = Simulation::new(3, 1, Faults { other_plan: Some(2), ..Faults::default() }).run();
    assert!(matches!(over(&shards[2]), Over::NotStarted(why) if why.contains("plan")), "{:?}", shards[2].over);
    assert!(shards[0].notes.iter().any(|note| note.contains("refused shard 2 on host2")), "{:?}", shards[0].notes);
    assert!(matches!(over(&shards[0]), Over::NotStarted(why) if why.contains("2/3") && !why.contains("1/3")));
    assert!(matches!(over(&shards[1]), Over::NotStarted(why) if why.contains("2/3")));
    assert!(shards.iter().all(|shard| shard.start_ns.is_none()));
}

#[test]
fn an_absent_member_is_named_when_the_time_is_over() {
    let shards = Simulation::new(3, 1, Faults { absent: Some(1), ..Faults::default() }).run();
    assert!(matches!(over(&shards[0]), Over::NotStarted(why) if why.contains("1/3") && !why.contains("2/3")));
    assert!(shards.iter().all(|shard| shard.start_ns.is_none()));
    // Without a leader members end too.
    let shards = Simulation::new(3, 1, Faults { absent: Some(0), ..Faults::default() }).run();
    assert!(matches!(over(&shards[1]), Over::NotStarted(why) if why.contains("no leader")));
}

#[test]
fn a_killed_member_is_missing_and_the_others_go_on_unless_its_loss_aborts() {
    for abort_on_lost in [false, true] {
        let faults = Faults { kills: vec![(2, 3_000)], abort_on_lost, ..Faults::default() };
        let shards = Simulation::new(4, 5, faults).run();
        assert_eq!(over(&shards[0]), &Over::Incomplete(vec!["shard 2/4 was lost".into()]));
        for index in [0, 1, 3] {
            assert_eq!((shards[index].ran, shards[index].is_aborted), (true, abort_on_lost), "{index}");
        }
        assert_eq!(over(&shards[1]), &Over::Complete);
        assert!(shards[0].notes.iter().any(|note| note.contains("lost shard 2/4")));
    }
}

#[test]
fn members_of_a_killed_leader_make_their_load_and_end() {
    for abort_on_lost in [false, true] {
        let faults = Faults { kills: vec![(0, 3_000)], abort_on_lost, ..Faults::default() };
        let shards = Simulation::new(3, 5, faults).run();
        for shard in &shards[1..] {
            assert!(matches!(over(shard), Over::Incomplete(why) if why[0].contains("leader")), "{:?}", shard.over);
            assert_eq!((shard.ran, shard.is_aborted), (true, abort_on_lost));
            assert!(shard.clocks.before.is_some() && shard.clocks.after.is_none());
        }
    }
}

#[test]
fn a_server_that_restarts_loses_nothing_and_one_that_stays_away_ends_the_wait() {
    // During the load, and over its end.
    for outage in [(3_000, 12_000), (3_000, 30_000), (18_000, 60_000)] {
        let shards = Simulation::new(3, 9, Faults { outage: Some(outage), ..Faults::default() }).run();
        for shard in &shards {
            assert_eq!((over(shard), shard.ran, shard.is_aborted), (&Over::Complete, true, false), "{outage:?}");
        }
    }
    let shards = Simulation::new(3, 9, Faults { outage: Some((3_000, END_MS)), ..Faults::default() }).run();
    assert!(matches!(over(&shards[0]), Over::Incomplete(missing) if missing.len() == 2), "{:?}", shards[0].over);
    assert!(matches!(over(&shards[1]), Over::Incomplete(why) if why[0].contains("NATS")));
    assert!(shards.iter().all(|shard| shard.ran));
}

#[test]
fn a_server_lost_right_after_the_start_was_set_starts_all_or_none() {
    for from in 0..60 {
        // The outage is counted from the start, which is seconds after its decision: here it begins with the decision.
        let mut simulation = Simulation::new(3, from, Faults { delay_ms_max: 80, ..Faults::default() });
        while simulation.shards[0].start_ns.is_none() {
            simulation.step();
        }
        for _ in 0..from {
            simulation.step();
        }
        simulation.is_up = false;
        for shard in &mut simulation.shards {
            shard.machine.local(now(simulation.now_ms, shard.offset_ns), Local::Connected(false));
        }
        let shards = simulation.run();
        let leader_ran = shards[0].ran && !shards[0].is_aborted;
        if leader_ran {
            assert!(shards.iter().all(|shard| shard.start_ns == shards[0].start_ns), "{from}: all have the start");
        } else {
            assert!(matches!(over(&shards[0]), Over::NotStarted(why) if why.contains("confirmation")), "{from}");
        }
    }
}

#[test]
fn an_interrupt_at_the_leader_ends_the_load_of_all() {
    let faults = Faults { interrupt_leader_after_ms: Some(5_000), loss: 0.2, ..Faults::default() };
    let shards = Simulation::new(4, 3, faults).run();
    assert!(shards[1..].iter().all(|shard| shard.is_aborted && shard.ran));
    assert_eq!(shards[0].fetched.len(), 3);
}

#[test]
fn a_clock_that_is_off_is_found_and_bounded() {
    let offsets_ns = vec![0, 50_000_000, -1_234_567, 0];
    for (seed, delay_ms_max) in (0..40).map(|seed| (seed, 10 * (seed % 4))) {
        let faults = Faults { offsets_ns: offsets_ns.clone(), delay_ms_max, loss: 0.05, ..Faults::default() };
        let shards = Simulation::new(4, seed, faults).run();
        for (shard, &offset) in shards.iter().zip(&offsets_ns).skip(1) {
            // A member whose final message was lost has measured both.
            for estimate in [shard.clocks.before, shard.clocks.after].into_iter().flatten() {
                // The simulation reads clocks in steps.
                let error = estimate.offset_ns.abs_diff(offset);
                assert!(error <= estimate.bound_ns + STEP_MS * 1_000_000, "seed {seed}: {estimate:?} {offset}");
            }
        }
        let difference = largest_difference(shards[1..].iter().map(|shard| shard.clocks));
        assert!(difference.is_none_or(|difference| difference >= 51_000_000), "{difference:?}");
    }
}
