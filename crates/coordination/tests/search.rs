//! Leader and members of a search in virtual time: trials one after another, over a network that loses, doubles and
//! reorders messages, with machines and a server that die within and between the trials.

use std::time::Duration;

use coordination::message::{Ended, FromMember, Prepared, Progress, ToMembers};
use coordination::{
    Effect, Identity, LOST_AFTER, Local, Now, Over, READY_TIMEOUT, RECONNECT_TIMEOUT, SearchLeader, SearchMember,
    TRIAL_START_LEAD, Trial,
};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const STEP_MS: u64 = 10;
const WALL_ZERO_NS: u64 = 1_800_000_000_000_000_000;
const LOAD_MS: u64 = 5_000;
/// Time that a leader needs to choose the next trial.
const GAP_MS: u64 = 700;
/// Time that a shard needs to prepare a trial.
const PREPARATION_MS: u64 = 300;
const TRIALS: u32 = 5;
/// No simulation lasts longer.
const END_MS: u64 = 600_000;

enum Machine {
    Leader(SearchLeader),
    Member(SearchMember),
}

/// One trial as a shard saw it.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen {
    number: u32,
    start_ns: Option<u64>,
    ran: bool,
    is_aborted: bool,
    over: Option<Over>,
}

/// A shard's machine: the state machine, and a process that makes loads as long as it is told.
struct Shard {
    machine: Machine,
    is_alive: bool,
    trials: Vec<Seen>,
    ends_at_ms: Option<u64>,
    prepared_at_ms: Option<u64>,
    /// The leader: when the next trial begins.
    next_at_ms: Option<u64>,
    over: Option<(u64, Over)>,
    notes: Vec<String>,
    fetched: Vec<(u32, u32)>,
}

#[derive(Clone)]
enum Packet {
    ToLeader(FromMember),
    ToMembers(ToMembers),
}

/// A time within a trial: its number, and milliseconds after its start (or before it, after the last one).
type At = (u32, i64);

/// Faults of one simulation.
#[derive(Clone, Default)]
struct Faults {
    loss: f64,
    doubled: f64,
    delay_ms_max: u64,
    kill: Option<(usize, At)>,
    /// From this time, and how long.
    outage: Option<(At, u64)>,
    interrupt: Option<(usize, At)>,
    other_plan: Option<usize>,
    /// A shard whose preparation of a trial fails.
    cannot: Option<(usize, u32)>,
    /// A shard whose file has another content from this trial on.
    other_file: Option<(usize, u32)>,
    /// A shard whose load fails in a trial.
    fails: Option<(usize, u32)>,
}

struct Simulation {
    shards: Vec<Shard>,
    packets: Vec<(u64, usize, Packet)>,
    random: Xoshiro256PlusPlus,
    faults: Faults,
    now_ms: u64,
    down_until_ms: Option<u64>,
    /// Longest time between the end of a trial's load and the start of the next one.
    between_ms: u64,
    load_ended_ms: Option<u64>,
}

impl Simulation {
    fn new(count: usize, seed: u64, faults: Faults) -> Self {
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

    fn chance(&mut self, share: f64) -> bool {
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }

    /// Runs until all that live are over.
    fn run(mut self) -> Simulation {
        while self.shards.iter().any(|shard| shard.is_alive && shard.over.is_none()) {
            assert!(self.now_ms < END_MS, "it hangs");
            self.step();
        }
        self
    }

    /// Whether a fault's time has come: by the leader's trial.
    fn is_at(&self, (number, after_ms): At) -> bool {
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

    fn step(&mut self) {
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

    fn connect(&mut self, is_up: bool) {
        // Messages in the server are lost with it.
        self.packets.clear();
        for shard in &mut self.shards {
            shard.machine.local(now(self.now_ms), Local::Connected(is_up));
        }
    }

    fn is_down(&self) -> bool {
        self.faults.outage.is_some() && self.down_until_ms.is_some()
    }

    fn deliver(&mut self) {
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
    fn tick(&mut self, index: usize) {
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
                shard.machine.local(now, Local::Progress(Progress { offered: self.now_ms, ..Progress::default() }));
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

    fn act(&mut self, index: usize, now: Now, effect: Effect) {
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
            Effect::Clock(_) | Effect::Summary(_) => {}
        }
    }

    fn send(&mut self, to: usize, packet: &Packet) {
        if self.is_down() || self.chance(self.faults.loss) {
            return;
        }
        let copies = if self.chance(self.faults.doubled) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.random.next_u64() % (self.faults.delay_ms_max + 1);
            self.packets.push((self.now_ms + delay, to, packet.clone()));
        }
    }

    fn over(&self, index: usize) -> &Over {
        &self.shards[index].over.as_ref().expect("it is over").1
    }

    /// Numbers of the trials that the leader has of all shards.
    fn complete(&self) -> u32 {
        self.shards[0].trials.iter().filter(|trial| trial.over == Some(Over::Complete)).count() as u32
    }

    /// Nothing is merged that was not made together: each start is that of all, and each run is fetched once.
    fn assert_consistent(&self, what: &str) {
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
    fn effect(&mut self) -> Option<Effect> {
        match &mut self.machine {
            Machine::Leader(leader) => leader.effect(),
            Machine::Member(member) => member.effect(),
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
}

fn prepared(number: u32, is_other: bool) -> Prepared {
    let of = if is_other { "other" } else { "file" };
    Prepared { digest: format!("{of} {number}"), took_ms: PREPARATION_MS }
}

fn now(at_ms: u64) -> Now {
    Now { monotonic: Duration::from_millis(at_ms), wall_ns: WALL_ZERO_NS + at_ms * 1_000_000 }
}

fn text_of(over: &Over) -> String {
    match over {
        Over::Complete => String::new(),
        Over::NotStarted(why) => why.clone(),
        Over::Incomplete(missing) => missing.join("; "),
    }
}

#[test]
fn every_trial_starts_together_and_is_complete_whatever_the_network_does() {
    for seed in 0..60 {
        let bad = seed % 4;
        let faults =
            Faults { loss: 0.1 * bad as f64, doubled: 0.1 * bad as f64, delay_ms_max: 150 * bad, ..Faults::default() };
        let done = Simulation::new(4, seed, faults).run();
        done.assert_consistent(&format!("seed {seed}"));
        let why = done.shards[0].trials.last().and_then(|trial| trial.over.as_ref()).map(text_of);
        assert_eq!((done.complete(), done.over(0)), (TRIALS, &Over::Complete), "seed {seed}: {why:?}");
        for index in 1..4 {
            // With lost messages a member may miss the end, and notices the silence.
            assert!(bad > 0 || *done.over(index) == Over::Complete, "seed {seed}: {:?}", done.over(index));
        }
        if bad == 0 {
            // The clocks twice, a preparation, the lead with that of the longest preparation, and the leader's own time.
            let least = TRIAL_START_LEAD.as_millis() as u64 + 2 * PREPARATION_MS + GAP_MS;
            assert!((least..least + 2_500).contains(&done.between_ms), "{}", done.between_ms);
            assert!(done.shards.iter().all(|shard| shard.notes.is_empty()));
        }
    }
}

#[test]
fn a_member_that_is_killed_in_a_trial_or_between_two_ends_the_search_by_its_name() {
    for (at, seed) in [((2, 1_000), 1), ((2, LOAD_MS as i64 + 100), 2), ((3, -1), 3), ((1, 10), 4)] {
        let done = Simulation::new(4, seed, Faults { kill: Some((2, at)), ..Faults::default() }).run();
        done.assert_consistent(&format!("{at:?}"));
        let last = done.shards[0].trials.last().unwrap();
        let why = text_of(last.over.as_ref().unwrap());
        assert!(why.contains("2/4") && !why.contains("1/4"), "{at:?}: {why}");
        assert!(done.complete() <= at.0, "{at:?}");
        for index in [1, 3] {
            assert!(text_of(done.over(index)).contains("2/4"), "{at:?}: {:?}", done.over(index));
        }
        assert!(done.now_ms < 60_000, "{at:?}: {} ms", done.now_ms);
    }
}

#[test]
fn members_of_a_killed_leader_end_within_a_bounded_time() {
    for (at, seed) in [((2, 1_000), 1), ((2, LOAD_MS as i64 + 60), 2), ((3, -1), 3)] {
        let mut simulation = Simulation::new(3, seed, Faults { kill: Some((0, at)), ..Faults::default() });
        while simulation.shards[0].is_alive {
            simulation.step();
        }
        let killed_ms = simulation.now_ms;
        let done = simulation.run();
        for index in [1, 2] {
            assert!(text_of(done.over(index)).contains("leader"), "{at:?}: {:?}", done.over(index));
        }
        // A load that runs is ended; its silent end is noticed again.
        let bound_ms = 2 * LOST_AFTER.as_millis() as u64 + 2_000;
        assert!(done.now_ms - killed_ms < bound_ms, "{at:?}: {} ms", done.now_ms - killed_ms);
    }
}

#[test]
fn a_server_that_restarts_in_a_trial_or_between_two_loses_no_trial() {
    for seed in 0..20 {
        for at in [(1, 500), (2, LOAD_MS as i64 - 100), (2, LOAD_MS as i64 + 100), (3, -1)] {
            for lasts_ms in [300, 4_000, 30_000] {
                let faults = Faults { outage: Some((at, lasts_ms)), delay_ms_max: 20, ..Faults::default() };
                let done = Simulation::new(3, seed, faults).run();
                let what = format!("seed {seed}: {at:?} for {lasts_ms} ms");
                done.assert_consistent(&what);
                assert_eq!((done.complete(), done.over(0)), (TRIALS, &Over::Complete), "{what}");
            }
        }
    }
}

#[test]
fn a_server_that_stays_away_ends_the_search_of_all() {
    for at in [(2, 500), (3, -1)] {
        let done = Simulation::new(3, 1, Faults { outage: Some((at, END_MS)), ..Faults::default() }).run();
        done.assert_consistent(&format!("{at:?}"));
        assert!(done.shards[0].trials.last().unwrap().over != Some(Over::Complete), "{at:?}");
        for index in [1, 2] {
            assert!(!text_of(done.over(index)).is_empty());
        }
        let bound = 2 * RECONNECT_TIMEOUT + READY_TIMEOUT + Duration::from_secs(60);
        assert!(Duration::from_millis(done.now_ms) < bound, "{at:?}: {} ms", done.now_ms);
    }
}

#[test]
fn a_shard_with_another_plan_or_another_file_is_named_and_makes_no_load() {
    let done = Simulation::new(3, 1, Faults { other_plan: Some(2), ..Faults::default() }).run();
    assert!(text_of(done.over(2)).contains("refused this shard"), "{:?}", done.over(2));
    assert!(done.shards[0].notes.iter().any(|note| note.contains("refused shard 2 on host2")));
    assert!(text_of(done.over(1)).contains("2/3"), "{:?}", done.over(1));
    assert!(done.shards.iter().flat_map(|shard| &shard.trials).all(|trial| trial.start_ns.is_none()));

    let done = Simulation::new(3, 1, Faults { other_file: Some((1, 3)), ..Faults::default() }).run();
    done.assert_consistent("another file");
    assert_eq!(done.complete(), 2);
    for index in [1, 2] {
        assert!(text_of(done.over(index)).contains("the trial of shard 1/3 is another"), "{:?}", done.over(index));
    }
}

#[test]
fn a_shard_that_cannot_make_a_trial_is_named_with_its_reason() {
    let done = Simulation::new(3, 1, Faults { cannot: Some((2, 2)), ..Faults::default() }).run();
    assert_eq!(done.complete(), 1);
    let why = text_of(done.shards[0].trials[1].over.as_ref().unwrap());
    assert!(why.contains("2/3") && why.contains("too few descriptors"), "{why}");
    assert!(text_of(done.over(1)).contains("too few descriptors"), "{:?}", done.over(1));
    assert!(done.now_ms < 30_000, "the others do not wait: {} ms", done.now_ms);

    let done = Simulation::new(3, 1, Faults { fails: Some((1, 2)), ..Faults::default() }).run();
    let why = text_of(done.shards[0].trials[1].over.as_ref().unwrap());
    assert!(why.contains("1/3") && why.contains("no ports left"), "{why}");
}

#[test]
fn an_interrupt_ends_the_search_of_all_and_names_who_left() {
    for at in [(2, 1_000), (3, -1)] {
        let done = Simulation::new(3, 1, Faults { interrupt: Some((0, at)), loss: 0.1, ..Faults::default() }).run();
        assert!(done.complete() <= at.0);
        for index in [1, 2] {
            assert!(done.shards[index].over.is_some());
        }
        assert!(done.now_ms < 60_000, "{at:?}: {} ms", done.now_ms);
    }
    // A member that leaves between two trials.
    let done = Simulation::new(3, 1, Faults { interrupt: Some((1, (3, -1))), ..Faults::default() }).run();
    assert!(text_of(done.over(0)).is_empty() && done.complete() == 2);
    let why = text_of(done.shards[0].trials[2].over.as_ref().unwrap());
    assert!(why.contains("1/3"), "{why}");
}

#[test]
fn of_two_leaders_in_one_session_the_later_one_yields() {
    let identity = |instance| Identity {
        index: 0,
        count: 2,
        instance,
        version: "1".into(),
        plan_digest: "plan".into(),
        host: "host".into(),
    };
    let leader = |instance, number| {
        let mut leader = SearchLeader::new(identity(instance));
        leader.local(now(0), Local::Connected(true));
        leader.local(now(0), Local::Trial(Trial { number, request: "x".into(), prepared: prepared(number, false) }));
        leader.tick(now(10));
        leader
    };
    // The newcomer has the smaller number, and is in its first trial.
    let (mut old, mut new) = (leader(2, 7), leader(1, 1));
    let said = |leader: &mut SearchLeader| {
        std::iter::from_fn(|| leader.effect()).find_map(|effect| match effect {
            Effect::ToMembers(message) => Some(message),
            _ => None,
        })
    };
    let (by_old, by_new) = (said(&mut old).unwrap(), said(&mut new).unwrap());
    old.receive_foreign(&by_new);
    new.receive_foreign(&by_old);
    assert!(!std::iter::from_fn(|| old.effect()).any(|effect| matches!(effect, Effect::TrialOver(_))));
    assert!(
        std::iter::from_fn(|| new.effect())
            .any(|effect| matches!(effect, Effect::TrialOver(Over::NotStarted(why)) if why.contains("another leader")))
    );
}

#[test]
fn a_trial_out_of_order_or_too_long_is_not_begun() {
    for (number, request) in [(0, "x".to_owned()), (1, "x".repeat(4097)), (1, "a\nb".to_owned())] {
        let identity = Identity {
            index: 0,
            count: 2,
            instance: 1,
            version: "1".into(),
            plan_digest: "plan".into(),
            host: "host".into(),
        };
        let mut leader = SearchLeader::new(identity);
        leader.local(now(0), Local::Trial(Trial { number, request, prepared: prepared(1, false) }));
        assert!(matches!(leader.effect(), Some(Effect::TrialOver(Over::NotStarted(_)))));
    }
}
