//! Runs sessions: steps one after another, think times between them, embedded objects in parallel.
//!
//! ```text
//!   begin_session --> [waits] --due--> step: request --complete--> embedded objects in parallel --all ended--> next
//!                        ^                                                                                     |
//!                        +------------------------------ think time -------------------------------------------+
//! ```
//!
//! A session depends on the seed, its number and the responses, but not on other sessions: its think times and the
//! random placeholders of its requests come from its own random stream.
//!
//! No request is scheduled after the end of the measured phase. A session that is unfinished then is *cut*: neither
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

/// All active sessions.
#[derive(Debug)]
pub(super) struct Sessions {
    scripts: Vec<Script>,
    chooser: Chooser,
    /// Seed of the random streams of all sessions.
    seed: u64,
    variables: usize,
    active: Slab<Session>,
    active_steps: Slab<ActiveStep>,
}

/// A session of the plan.
#[derive(Debug)]
struct Script {
    spec: SessionSpec,
    /// Its steps at fixed times, in order of time.
    fixed: Vec<u32>,
}

/// An active session: begun and not over.
#[derive(Debug)]
struct Session {
    number: u64,
    begun_at: Timestamp,
    client: u32,
    script: u32,
    /// The user that begins the next session, in a closed loop.
    user: Option<u32>,
    /// Steps at fixed times that wait or have begun.
    fixed: u32,
    /// Steps that wait for their time.
    waiting: u32,
    /// Steps that have begun and not ended.
    under_way: u32,
    state: SessionState,
    /// Whether a byte of a response was received.
    answered: bool,
    timed_out: bool,
    /// Values extracted from its responses.
    variables: Box<[Box<[u8]>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    Active,
    /// A request failed: no further request is scheduled.
    Failed,
    /// The phase ended: no further request is scheduled.
    Cut,
}

/// An active step: begun and not ended.
#[derive(Clone, Copy, Debug)]
struct ActiveStep {
    session: u32,
    step: u32,
    /// Embedded objects requested so far.
    requested: u32,
    /// Requests for embedded objects that have not ended.
    in_flight: u32,
}

/// How a part of a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartEnd {
    Complete,
    Failed {
        cause: FailureCause,
        answered: bool,
    },
    /// It was not scheduled, as the phase had ended.
    NotScheduled,
}

impl Sessions {
    /// The sessions of a workload, none active.
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
            active: Slab::new(),
            active_steps: Slab::new(),
        }
    }

    /// Whether no session is active.
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty() && self.active_steps.is_empty()
    }

    /// Number of the session of an active step.
    pub(super) fn number(&self, part: Part) -> Option<u64> {
        self.session(part).map(|session| session.number)
    }

    /// The values extracted from the responses of a session so far.
    pub(super) fn variables(&self, part: Part) -> &[Box<[u8]>] {
        self.session(part).map_or(&[], |session| &session.variables)
    }

    /// Stores an extracted value. Ignores a variable that the workload does not have.
    pub(super) fn set_variable(&mut self, part: Part, variable: usize, value: Box<[u8]>) {
        let Some(active_step) = self.active_steps.get(part.active_step as usize) else { return };
        let session = &mut self.active[active_step.session as usize];
        if let Some(stored) = session.variables.get_mut(variable) {
            *stored = value;
        }
    }

    /// Seed of the random placeholders in a request of a session.
    pub(super) fn request_seed(&self, part: Part) -> u64 {
        let Some(active_step) = self.active_steps.get(part.active_step as usize) else { return self.seed };
        let number = self.active[active_step.session as usize].number;
        self.stream(number, active_step.step, u64::from(part.nth) + 1).next()
    }

    /// The random stream of one purpose of a step: purpose 0 is its think time, purposes from 1 on are its requests.
    fn stream(&self, number: u64, step: u32, purpose: u64) -> Rng {
        let session = Rng::new(self.seed, number).next();
        Rng::new(session, u64::from(step) << 32 | purpose)
    }

    fn session(&self, part: Part) -> Option<&Session> {
        let active_step = self.active_steps.get(part.active_step as usize)?;
        self.active.get(active_step.session as usize)
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
    /// Begins a session at `at` and sets the timer of its first step, which may be due now.
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
            state: SessionState::Active,
            answered: false,
            timed_out: false,
            variables: vec![Box::default(); self.sessions.variables].into_boxed_slice(),
        };
        let slot = u32::try_from(self.sessions.active.insert(session)).expect("fewer than 2^32 sessions");
        self.live.sessions += 1;
        self.live.sessions_begun += 1;
        self.live.sessions_begun_measured += u64::from(at >= self.phase.start());
        self.arm_fixed(slot);
        self.arm_after(slot, 0, at);
    }

    /// Sets the timer of the session's next step at a fixed time.
    fn arm_fixed(&mut self, slot: u32) {
        let session = &mut self.sessions.active[slot as usize];
        let script = &self.sessions.scripts[session.script as usize];
        let Some(&step) = script.fixed.get(session.fixed as usize) else { return };
        session.fixed += 1;
        let after = script.spec.steps[step as usize].when.at().unwrap_or_default();
        let at = session.begun_at + after;
        self.arm(slot, step, at);
    }

    /// Sets the timer of `step` to its think time after `at`, the end of the step before, if the session has such a
    /// step.
    fn arm_after(&mut self, slot: u32, step: u32, at: Timestamp) {
        let session = &self.sessions.active[slot as usize];
        let script = &self.sessions.scripts[session.script as usize];
        let Some(When::After(think)) = script.spec.steps.get(step as usize).map(|step| &step.when) else { return };
        let time = think.draw(&mut self.sessions.stream(session.number, step, 0));
        self.arm(slot, step, at + time);
    }

    fn arm(&mut self, slot: u32, step: u32, at: Timestamp) {
        let session = &mut self.sessions.active[slot as usize];
        if self.phase.is_over() {
            session.state = SessionState::Cut;
            return;
        }
        session.waiting += 1;
        self.due.push(at, Wake::Step { session: slot, number: session.number, step });
    }

    /// Begins a step that is due at `at`.
    pub(super) fn begin_step(&mut self, at: Timestamp, slot: u32, number: u64, step: u32) {
        let Some(session) = self.sessions.active.get_mut(slot as usize).filter(|session| session.number == number)
        else {
            return;
        };
        session.waiting -= 1;
        if session.state != SessionState::Active {
            return;
        }
        session.under_way += 1;
        let client = session.client;
        let spec = &self.sessions.scripts[session.script as usize].spec.steps[step as usize];
        let (url, is_fixed) = (spec.request, spec.when.at().is_some());
        let active_step =
            self.sessions.active_steps.insert(ActiveStep { session: slot, step, requested: 0, in_flight: 0 });
        let part = Part { active_step: u32::try_from(active_step).expect("fewer than 2^32 steps"), nth: 0 };
        if is_fixed {
            self.arm_fixed(slot);
        }
        let purpose_key = self.purposes.begin(Purpose { part: Some(part), ..Purpose::default() });
        self.schedule_request(at, client, url, purpose_key);
    }

    /// Handles the end of a part of a step at `at`.
    pub(super) fn part_ended(&mut self, at: Timestamp, part: Part, end: PartEnd) {
        let admits = self.phase.admits(at) && !self.phase.is_over();
        let Sessions { scripts, active, active_steps, .. } = &mut self.sessions;
        let Some(active_step) = active_steps.get_mut(part.active_step as usize) else { return };
        let slot = active_step.session;
        let session = &mut active[slot as usize];
        let script = &scripts[session.script as usize].spec;
        let step = &script.steps[active_step.step as usize];
        match end {
            PartEnd::Complete => session.answered = true,
            PartEnd::Failed { cause, answered } => {
                session.answered |= answered;
                session.timed_out |= cause == FailureCause::ResponseTimeout;
                if cause == FailureCause::Aborted && session.state == SessionState::Active {
                    session.state = SessionState::Cut;
                } else if !script.goes_on && session.state == SessionState::Active {
                    session.state = SessionState::Failed;
                }
            }
            PartEnd::NotScheduled if session.state == SessionState::Active => session.state = SessionState::Cut,
            PartEnd::NotScheduled => {}
        }
        if part.nth > 0 {
            active_step.in_flight -= 1;
        } else if end != PartEnd::Complete {
            // Without the page its embedded objects are unknown, and not requested.
            active_step.requested = step.embedded.len() as u32;
        }
        while session.state == SessionState::Active
            && active_step.in_flight < u32::from(step.parallel.max(1))
            && let Some(&url) = step.embedded.get(active_step.requested as usize)
        {
            if !admits {
                session.state = SessionState::Cut;
                break;
            }
            active_step.requested += 1;
            active_step.in_flight += 1;
            let part = Part { active_step: part.active_step, nth: active_step.requested };
            let purpose_key = self.purposes.begin(Purpose { part: Some(part), ..Purpose::default() });
            self.due.push(at, Wake::Request { client: session.client, url, purpose_key });
        }
        if active_step.in_flight > 0 {
            return;
        }
        let next = active_step.step + 1;
        active_steps.remove(part.active_step as usize);
        session.under_way -= 1;
        if session.state == SessionState::Active {
            self.arm_after(slot, next, at);
        }
        self.settle_session(at, slot);
    }

    /// Ends a session that has no further steps.
    fn settle_session(&mut self, at: Timestamp, slot: u32) {
        let session = &self.sessions.active[slot as usize];
        if session.under_way > 0 || session.waiting > 0 && session.state == SessionState::Active {
            return;
        }
        // Timers of its remaining steps are void, as no session has their number any more.
        let session = self.sessions.active.remove(slot as usize);
        self.live.sessions -= 1;
        match session.state {
            SessionState::Active => self.live.sessions_ended += 1,
            SessionState::Failed => self.live.sessions_failed += 1,
            SessionState::Cut => self.live.sessions_cut += 1,
        }
        if let (Some(user), Loop::Users(users)) = (session.user, &mut self.arrivals)
            && !self.phase.is_over()
        {
            let next = users.next_session(user, at, session.answered, session.timed_out);
            self.due.push(next, Wake::User(user));
        }
    }

    /// Cuts all sessions at the end of the phase: waiting steps and follow-ups are dropped.
    pub(super) fn cut_sessions(&mut self, at: Timestamp) {
        for wake in self.due.take_all() {
            match wake {
                Wake::Step { session: slot, number, .. } => {
                    let Some(session) =
                        self.sessions.active.get_mut(slot as usize).filter(|session| session.number == number)
                    else {
                        continue;
                    };
                    session.waiting -= 1;
                    if session.state == SessionState::Active {
                        session.state = SessionState::Cut;
                    }
                    self.settle_session(at, slot);
                }
                Wake::Request { purpose_key, .. } => self.drop_purpose(at, purpose_key),
                Wake::User(_) => {}
            }
        }
    }

    /// Drops a follow-up that will not be scheduled.
    pub(super) fn drop_purpose(&mut self, at: Timestamp, purpose_key: PurposeKey) {
        self.drop_workload_request(purpose_key);
        if let Some(part) = self.purposes.end(purpose_key) {
            self.part_ended(at, part, PartEnd::NotScheduled);
        }
    }
}
