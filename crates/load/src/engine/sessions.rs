//! Sessions carried out: steps one after another, think times between them, embedded objects in parallel.
//!
//! ```text
//!   begin_session --> [waits] --due--> step: its request --whole--> embedded objects, some at once --all ended--> next
//!                        ^                                                                                         |
//!                        +------------------------------ think time ---------------------------------------------- +
//! ```
//!
//! What a session does depends on the seed, its number and the answers, not on other sessions: think times, and numbers
//! drawn in its requests, come from a stream of its own.
//!
//! Nothing is intended after the end of the measured phase: a session that is not done by then is *cut*. It is neither
//! ended nor failed.

use slab::Slab;
use stats::Rng;
use units::Timestamp;

use schema::FailureCause;

use super::{Load, Loop};
use crate::choice::Chooser;
use crate::due::Wake;
use crate::in_flight::{Part, Purpose, PurposeKey};
use crate::workload::{Choice, SessionSpec, When, Workload};

/// All sessions under way.
#[derive(Debug)]
pub(super) struct Sessions {
    scripts: Vec<Script>,
    chooser: Chooser,
    /// Of the streams of all sessions.
    seed: u64,
    variables: usize,
    going: Slab<Session>,
    stages: Slab<Stage>,
}

/// A session as the plan has it.
#[derive(Debug)]
struct Script {
    spec: SessionSpec,
    /// Its steps at fixed moments, in order of time.
    fixed: Vec<u32>,
}

/// A session that has begun and is not over.
#[derive(Debug)]
struct Session {
    number: u64,
    begun_at: Timestamp,
    client: u32,
    script: u32,
    /// Who goes on with the next one, in a closed loop.
    user: Option<u32>,
    /// Steps at fixed moments that wait or have begun.
    fixed: u32,
    /// Steps that wait for their moment.
    waiting: u32,
    /// Steps that have begun and not ended.
    under_way: u32,
    fate: Fate,
    /// A byte of a response has come.
    answered: bool,
    timed_out: bool,
    /// Values taken from its responses.
    variables: Box<[Box<[u8]>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Going,
    /// A request failed: nothing more is intended.
    Failed,
    /// The phase ended: nothing more is intended.
    Cut,
}

/// A step under way.
#[derive(Clone, Copy, Debug)]
struct Stage {
    session: u32,
    step: u32,
    /// Embedded objects that have been asked for.
    asked: u32,
    /// Of these, the ones that have not ended.
    in_hand: u32,
}

/// How a part of a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartEnd {
    Whole,
    Failed {
        cause: FailureCause,
        answered: bool,
    },
    /// It was not intended any more.
    Never,
}

impl Sessions {
    /// None of them begun.
    pub(super) fn new(workload: &Workload, seed: u64) -> Self {
        let specs: &[SessionSpec] = if let Choice::Sessions(specs) = &workload.choice { specs } else { &[] };
        assert!(specs.iter().all(|spec| !spec.steps.is_empty()), "a session has a step");
        let chooser = match specs {
            [] | [_] => Chooser::in_turn(1),
            _ => Chooser::drawn(specs.iter().map(|spec| spec.weight), seed, "session choice"),
        };
        Sessions {
            scripts: specs.iter().map(Script::new).collect(),
            chooser,
            seed: Rng::named(seed, "sessions").next(),
            variables: workload.variables,
            going: Slab::new(),
            stages: Slab::new(),
        }
    }

    /// Whether none is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.going.is_empty() && self.stages.is_empty()
    }

    /// Number of the session of a step under way.
    pub(super) fn number(&self, part: Part) -> Option<u64> {
        self.session(part).map(|session| session.number)
    }

    /// The values that the responses of a session have brought so far.
    pub(super) fn variables(&self, part: Part) -> &[Box<[u8]>] {
        self.session(part).map_or(&[], |session| &session.variables)
    }

    /// Keeps a value; none with a number that the workload does not have.
    pub(super) fn set_variable(&mut self, part: Part, variable: usize, value: Box<[u8]>) {
        let Some(stage) = self.stages.get(part.stage as usize) else { return };
        let session = &mut self.going[stage.session as usize];
        if let Some(kept) = session.variables.get_mut(variable) {
            *kept = value;
        }
    }

    /// Seed of what is drawn in a request of a session.
    pub(super) fn request_seed(&self, part: Part) -> u64 {
        let Some(stage) = self.stages.get(part.stage as usize) else { return self.seed };
        let number = self.going[stage.session as usize].number;
        self.stream(number, stage.step, u64::from(part.nth) + 1).next()
    }

    /// The stream of one purpose of one step: 0 for its think time, from 1 on for its requests.
    fn stream(&self, number: u64, step: u32, purpose: u64) -> Rng {
        let session = Rng::new(self.seed, number).next();
        Rng::new(session, u64::from(step) << 32 | purpose)
    }

    fn session(&self, part: Part) -> Option<&Session> {
        let stage = self.stages.get(part.stage as usize)?;
        self.going.get(stage.session as usize)
    }
}

impl Script {
    fn new(spec: &SessionSpec) -> Self {
        let mut fixed: Vec<_> =
            spec.steps.iter().enumerate().filter_map(|(step, it)| Some((it.when.at()?, step as u32))).collect();
        fixed.sort();
        Script { spec: spec.clone(), fixed: fixed.into_iter().map(|(_, step)| step).collect() }
    }
}

impl Load {
    /// A session begins at `at`: its first step waits for its moment, which may be now.
    pub(super) fn begin_session(&mut self, at: Timestamp, number: u64, client: u32, user: Option<u32>) {
        let script = self.sessions.chooser.choose(number);
        let session = Session {
            number,
            begun_at: at,
            client,
            script,
            user,
            fixed: 0,
            waiting: 0,
            under_way: 0,
            fate: Fate::Going,
            answered: false,
            timed_out: false,
            variables: vec![Box::default(); self.sessions.variables].into_boxed_slice(),
        };
        let slot = u32::try_from(self.sessions.going.insert(session)).expect("fewer sessions than numbers for them");
        self.live.sessions += 1;
        self.live.sessions_begun += 1;
        self.live.sessions_begun_measured += u64::from(at >= self.phase.start());
        self.arm_fixed(slot);
        self.arm_after(slot, 0, at);
    }

    /// The next step at a fixed moment waits for it.
    fn arm_fixed(&mut self, slot: u32) {
        let session = &mut self.sessions.going[slot as usize];
        let script = &self.sessions.scripts[session.script as usize];
        let Some(&step) = script.fixed.get(session.fixed as usize) else { return };
        session.fixed += 1;
        let after = script.spec.steps[step as usize].when.at().unwrap_or_default();
        let at = session.begun_at + after;
        self.arm(slot, step, at);
    }

    /// `step`, if there is one that follows what ended at `at`, waits for its think time.
    fn arm_after(&mut self, slot: u32, step: u32, at: Timestamp) {
        let session = &self.sessions.going[slot as usize];
        let script = &self.sessions.scripts[session.script as usize];
        let Some(When::After(think)) = script.spec.steps.get(step as usize).map(|step| &step.when) else { return };
        let time = think.draw(&mut self.sessions.stream(session.number, step, 0));
        self.arm(slot, step, at + time);
    }

    fn arm(&mut self, slot: u32, step: u32, at: Timestamp) {
        let session = &mut self.sessions.going[slot as usize];
        if self.phase.is_over() {
            session.fate = Fate::Cut;
            return;
        }
        session.waiting += 1;
        self.due.push(at, Wake::Step { session: slot, number: session.number, step });
    }

    /// A step is due at `at`.
    pub(super) fn begin_step(&mut self, at: Timestamp, slot: u32, number: u64, step: u32) {
        let Some(session) = self.sessions.going.get_mut(slot as usize).filter(|session| session.number == number)
        else {
            return;
        };
        session.waiting -= 1;
        if session.fate != Fate::Going {
            return;
        }
        session.under_way += 1;
        let client = session.client;
        let spec = &self.sessions.scripts[session.script as usize].spec.steps[step as usize];
        let (url, is_fixed) = (spec.request, spec.when.at().is_some());
        let stage = self.sessions.stages.insert(Stage { session: slot, step, asked: 0, in_hand: 0 });
        let part = Part { stage: u32::try_from(stage).expect("fewer steps than numbers for them"), nth: 0 };
        if is_fixed {
            self.arm_fixed(slot);
        }
        let purpose_key = self.purposes.begin(Purpose { part: Some(part), ..Purpose::default() });
        self.ask(at, client, url, purpose_key);
    }

    /// A part of a step has ended at `at`.
    pub(super) fn part_ended(&mut self, at: Timestamp, part: Part, end: PartEnd) {
        let admits = self.phase.admits(at) && !self.phase.is_over();
        let Sessions { scripts, going, stages, .. } = &mut self.sessions;
        let Some(stage) = stages.get_mut(part.stage as usize) else { return };
        let slot = stage.session;
        let session = &mut going[slot as usize];
        let script = &scripts[session.script as usize].spec;
        let step = &script.steps[stage.step as usize];
        match end {
            PartEnd::Whole => session.answered = true,
            PartEnd::Failed { cause, answered } => {
                session.answered |= answered;
                session.timed_out |= cause == FailureCause::ResponseTimeout;
                if cause == FailureCause::Aborted && session.fate == Fate::Going {
                    session.fate = Fate::Cut;
                } else if !script.goes_on && session.fate == Fate::Going {
                    session.fate = Fate::Failed;
                }
            }
            PartEnd::Never if session.fate == Fate::Going => session.fate = Fate::Cut,
            PartEnd::Never => {}
        }
        if part.nth > 0 {
            stage.in_hand -= 1;
        } else if end != PartEnd::Whole {
            // Without its page nobody knows what it embeds.
            stage.asked = step.embedded.len() as u32;
        }
        while session.fate == Fate::Going
            && stage.in_hand < u32::from(step.parallel.max(1))
            && let Some(&url) = step.embedded.get(stage.asked as usize)
        {
            if !admits {
                session.fate = Fate::Cut;
                break;
            }
            stage.asked += 1;
            stage.in_hand += 1;
            let part = Part { stage: part.stage, nth: stage.asked };
            let purpose_key = self.purposes.begin(Purpose { part: Some(part), ..Purpose::default() });
            self.due.push(at, Wake::Ask { client: session.client, url, purpose_key });
        }
        if stage.in_hand > 0 {
            return;
        }
        let next = stage.step + 1;
        stages.remove(part.stage as usize);
        session.under_way -= 1;
        if session.fate == Fate::Going {
            self.arm_after(slot, next, at);
        }
        self.settle_session(at, slot);
    }

    /// Ends a session of which nothing more is to come.
    fn settle_session(&mut self, at: Timestamp, slot: u32) {
        let session = &self.sessions.going[slot as usize];
        if session.under_way > 0 || session.waiting > 0 && session.fate == Fate::Going {
            return;
        }
        // Steps that still wait are void: the number is gone.
        let session = self.sessions.going.remove(slot as usize);
        self.live.sessions -= 1;
        match session.fate {
            Fate::Going => self.live.sessions_ended += 1,
            Fate::Failed => self.live.sessions_failed += 1,
            Fate::Cut => self.live.sessions_cut += 1,
        }
        if let (Some(user), Loop::Users(users)) = (session.user, &mut self.arrivals)
            && !self.phase.is_over()
        {
            let next = users.next_session(user, at, session.answered, session.timed_out);
            self.due.push(next, Wake::User(user));
        }
    }

    /// The phase is over: what waits will not be.
    pub(super) fn cut_sessions(&mut self, at: Timestamp) {
        for wake in self.due.take_all() {
            match wake {
                Wake::Step { session: slot, number, .. } => {
                    let Some(session) =
                        self.sessions.going.get_mut(slot as usize).filter(|session| session.number == number)
                    else {
                        continue;
                    };
                    session.waiting -= 1;
                    if session.fate == Fate::Going {
                        session.fate = Fate::Cut;
                    }
                    self.settle_session(at, slot);
                }
                Wake::Ask { purpose_key, .. } => self.drop_purpose(at, purpose_key),
                Wake::User(_) => {}
            }
        }
    }

    /// A request that was to follow will not be intended.
    pub(super) fn drop_purpose(&mut self, at: Timestamp, purpose_key: PurposeKey) {
        self.drop_ask(purpose_key);
        if let Some(part) = self.purposes.end(purpose_key) {
            self.part_ended(at, part, PartEnd::Never);
        }
    }
}
