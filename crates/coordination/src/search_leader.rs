//! Shard 0 of a search: a [`Leader`] for each trial, one after another.
//!
//! Every trial is a load of its own, with the protocol of one: members announce themselves, are compared, measure their
//! clocks, start together and report. Messages carry the trial's number, and the state of a trial carries what varies.
//! Between two trials the last one's state is repeated, so that members know that the leader is there.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use crate::leader::Leader;
use crate::message::{AFTER_LAST_TRIAL, FromMember, LeaderBody, REQUEST_MAX, Stage, ToMembers, text};
use crate::{Effect, Identity, Local, Now, Over, REPEAT_INTERVAL, Trial};

/// Shard 0 of a search.
#[derive(Debug)]
pub struct SearchLeader {
    identity: Identity,
    /// The last trial, or the present one.
    current: Option<Current>,
    /// Whether a trial was started: its members are there, or lost.
    has_started: bool,
    is_connected: bool,
    end: Option<End>,
    effects: VecDeque<Effect>,
}

#[derive(Debug)]
struct Current {
    number: u32,
    request: String,
    leader: Leader,
}

/// The end of the search, which is repeated for members that missed it.
#[derive(Debug)]
struct End {
    why: String,
    until: Duration,
    sequence: u64,
    next_repeat: Duration,
    is_over: bool,
}

/// How long the end is repeated.
const LINGER: Duration = Duration::from_secs(3);

impl SearchLeader {
    /// A leader that waits for its first trial.
    pub fn new(identity: Identity) -> Self {
        SearchLeader {
            identity,
            current: None,
            has_started: false,
            is_connected: false,
            end: None,
            effects: VecDeque::new(),
        }
    }

    /// What is to be done next.
    pub fn effect(&mut self) -> Option<Effect> {
        if let Some(effect) = self.effects.pop_front() {
            return Some(effect);
        }
        let current = self.current.as_mut()?;
        Some(match current.leader.effect()? {
            Effect::ToMembers(message) => {
                let is_state = matches!(message.body, LeaderBody::State(_));
                let request = if is_state { current.request.clone() } else { String::new() };
                Effect::ToMembers(ToMembers { trial: current.number, request, ..message })
            }
            Effect::Over(over) => {
                self.has_started |= !matches!(over, Over::NotStarted(_));
                Effect::TrialOver(over)
            }
            other => other,
        })
    }

    /// Takes a message of a member. Those of earlier trials are late.
    pub fn receive(&mut self, now: Now, message: &FromMember) {
        if let Some(current) = self.current.as_mut().filter(|current| current.number == message.trial) {
            current.leader.receive(now, message);
        }
    }

    /// Takes a message of another leader. Of two in one session, the one that has come less far yields.
    pub fn receive_foreign(&mut self, message: &ToMembers) {
        let is_search = message.trial > 0 && message.trial != AFTER_LAST_TRIAL;
        if let Some(current) = self.current.as_mut().filter(|_| is_search && message.leader != self.identity.instance) {
            match message.trial.cmp(&current.number) {
                Ordering::Less => {}
                Ordering::Equal => current.leader.receive_foreign(message),
                Ordering::Greater => current.leader.yield_session(),
            }
        }
    }

    /// Takes what happens on this machine.
    pub fn local(&mut self, now: Now, local: Local) {
        match local {
            Local::Trial(trial) => self.begin(now, trial),
            Local::Finish(why) => self.finish(now, &why),
            other => {
                if let Local::Connected(is_connected) = other {
                    self.is_connected = is_connected;
                }
                if let Some(current) = &mut self.current {
                    current.leader.local(now, other);
                }
            }
        }
    }

    /// Does what is due; call it some ten times a second.
    pub fn tick(&mut self, now: Now) {
        let Some(end) = &mut self.end else {
            if let Some(current) = &mut self.current {
                current.leader.tick(now);
            }
            return;
        };
        if end.is_over {
            return;
        }
        // Without a connection nobody hears the end, and members notice the silence.
        if now.monotonic >= end.until || self.identity.count == 1 {
            end.is_over = true;
            self.effects.push_back(Effect::Over(Over::Complete));
        } else if now.monotonic >= end.next_repeat {
            end.next_repeat = now.monotonic + REPEAT_INTERVAL / 4;
            end.sequence += 1;
            self.effects.push_back(Effect::ToMembers(ToMembers {
                leader: self.identity.instance,
                sequence: end.sequence,
                trial: AFTER_LAST_TRIAL,
                request: String::new(),
                body: LeaderBody::State(Stage::Finished { why: end.why.clone() }),
            }));
        }
    }

    /// Begins a trial. One that cannot be sent, or whose predecessor still runs, is over at once.
    fn begin(&mut self, now: Now, trial: Trial) {
        let last = self.current.as_ref().map_or(0, |current| current.number);
        let is_at_rest = self.current.as_ref().is_none_or(|current| current.leader.is_resting());
        let is_short = trial.request.len() <= REQUEST_MAX && !trial.request.contains(char::is_control);
        if self.end.is_some() || !is_at_rest || trial.number <= last || trial.number == AFTER_LAST_TRIAL || !is_short {
            let why = format!("trial {} cannot be begun after trial {last}", trial.number);
            self.effects.push_back(Effect::TrialOver(Over::NotStarted(why)));
            return;
        }
        let mut leader = Leader::of_trial(self.identity.clone(), trial.prepared, self.has_started, now);
        leader.local(now, Local::Connected(self.is_connected));
        self.current = Some(Current { number: trial.number, request: trial.request, leader });
    }

    fn finish(&mut self, now: Now, why: &str) {
        if self.end.is_none() {
            let until = now.monotonic + LINGER;
            self.end = Some(End { why: text(why), until, sequence: 0, next_repeat: now.monotonic, is_over: false });
        }
    }
}
