//! A shard other than 0 in a search: a [`Member`] for each trial, one after another, as the leader's state requests
//! them.
//!
//! A trial without its leader is of no use: its loss ends the load of the trial and the search.

use std::collections::VecDeque;
use std::time::Duration;

use crate::member::Member;
use crate::message::{AFTER_LAST_TRIAL, FromMember, LeaderBody, MemberBody, REQUEST_MAX, Stage, ToMembers, text};
use crate::{Effect, Identity, LOST_AFTER, Local, Now, Over, READY_TIMEOUT, RECONNECT_TIMEOUT};

/// A shard other than 0 in a search.
#[derive(Debug)]
pub struct SearchMember {
    identity: Identity,
    leader: Option<u64>,
    /// The last trial, or the present one.
    current: Option<Current>,
    began: Duration,
    heard: Duration,
    is_connected: bool,
    connection_changed: Duration,
    is_over: bool,
    effects: VecDeque<Effect>,
}

#[derive(Debug)]
struct Current {
    number: u32,
    member: Member,
    /// Whether its end was reported to the process of the load.
    is_over: bool,
}

impl SearchMember {
    /// A member that waits for a leader from now on.
    pub fn new(identity: Identity, now: Now) -> Self {
        SearchMember {
            identity,
            leader: None,
            current: None,
            began: now.monotonic,
            heard: now.monotonic,
            is_connected: false,
            connection_changed: now.monotonic,
            is_over: false,
            effects: VecDeque::new(),
        }
    }

    /// What is to be done next.
    pub fn effect(&mut self) -> Option<Effect> {
        loop {
            if let Some(effect) = self.effects.pop_front() {
                return Some(effect);
            }
            let current = self.current.as_mut()?;
            match current.member.effect()? {
                Effect::ToLeader(message) => {
                    return Some(Effect::ToLeader(FromMember { trial: current.number, ..message }));
                }
                // Refused, aborted before the start, or without a leader: this shard makes no further trial.
                Effect::Over(over @ Over::NotStarted(_)) => self.end(over),
                Effect::Over(over) => {
                    if !std::mem::replace(&mut current.is_over, true) {
                        return Some(Effect::TrialOver(over));
                    }
                }
                other => return Some(other),
            }
        }
    }

    /// The leader's process, once it is known.
    pub fn leader(&self) -> Option<u64> {
        self.leader
    }

    /// Takes a message of the leader, or of another one.
    pub fn receive(&mut self, now: Now, message: &ToMembers) {
        if self.is_over || self.leader.is_some_and(|leader| leader != message.leader) {
            return;
        }
        let number = self.current.as_ref().map_or(0, |current| current.number);
        match &message.body {
            LeaderBody::State(Stage::Finished { why })
                if message.trial == AFTER_LAST_TRIAL && self.leader.is_some() =>
            {
                self.finish(why);
            }
            // A trial that was aborted before this shard knew of it is not prepared.
            LeaderBody::State(stage) if message.trial > number && *stage == Stage::Gathering => {
                self.leader = Some(message.leader);
                self.heard = now.monotonic;
                self.begin(now, message);
            }
            _ if message.trial == number && number > 0 => {
                self.heard = now.monotonic;
                if let Some(current) = &mut self.current {
                    current.member.receive(now, message);
                }
            }
            _ => {}
        }
    }

    /// Takes what happens on this machine.
    pub fn local(&mut self, now: Now, local: Local) {
        if let Local::Connected(is_connected) = local {
            self.is_connected = is_connected;
            self.connection_changed = now.monotonic;
            // Silence counts from the time from which the leader could be heard.
            self.heard = now.monotonic;
        }
        match &mut self.current {
            Some(current) if !current.is_over => current.member.local(now, local),
            _ if local == Local::Interrupted => self.leave("interrupted"),
            _ => {}
        }
    }

    /// Does what is due; call it some ten times a second.
    pub fn tick(&mut self, now: Now) {
        if self.is_over {
            return;
        }
        if let Some(current) = &mut self.current
            && !current.is_over
        {
            current.member.tick(now);
            // From the answer on it notices a lost leader itself.
            if !current.member.is_announcing() {
                return;
            }
        }
        let silent = self.is_connected && now.monotonic.saturating_sub(self.heard) > LOST_AFTER;
        let cut_off = !self.is_connected && now.monotonic.saturating_sub(self.connection_changed) > RECONNECT_TIMEOUT;
        match self.leader {
            None if now.monotonic.saturating_sub(self.began) > READY_TIMEOUT => {
                let place =
                    if self.is_connected { "no leader (shard 0) began a trial" } else { "NATS could not be reached" };
                self.end(Over::NotStarted(format!("{place} within {} s", READY_TIMEOUT.as_secs())));
            }
            Some(_) if silent => self.end(Over::Incomplete(vec!["the leader (shard 0) was lost".into()])),
            Some(_) if cut_off => self.end(Over::Incomplete(vec!["NATS was lost".into()])),
            _ => {}
        }
    }

    /// Begins a trial that the leader requests.
    fn begin(&mut self, now: Now, message: &ToMembers) {
        if let Some(last) = &self.current
            && !last.is_over
        {
            if !last.member.has_reported() {
                self.abort("the leader (shard 0) went on to the next trial without this shard");
                return;
            }
            // The leader has this shard's run, or goes on without it by decision: only its confirmation was lost.
            self.effects.push_back(Effect::TrialOver(Over::Complete));
        }
        if message.request.is_empty() || message.request.len() > REQUEST_MAX {
            self.end(Over::NotStarted("the leader's trial cannot be read".into()));
            return;
        }
        let mut member = Member::of_trial(self.identity.clone(), now);
        member.local(now, Local::Connected(self.is_connected));
        self.current = Some(Current { number: message.trial, member, is_over: false });
        let request = message.request.clone();
        self.effects.push_back(Effect::Trial { number: message.trial, request });
    }

    /// The leader has ended the search.
    fn finish(&mut self, why: &str) {
        let why = text(why);
        if self.current.as_ref().is_some_and(|current| current.member.has_load()) {
            self.abort(&why);
        } else {
            self.end(if why.is_empty() { Over::Complete } else { Over::Incomplete(vec![why]) });
        }
    }

    fn abort(&mut self, why: &str) {
        if self.current.as_ref().is_some_and(|current| current.member.has_load()) {
            self.effects.push_back(Effect::Abort(why.to_owned()));
        }
        self.end(Over::Incomplete(vec![why.to_owned()]));
    }

    /// Leaves between two trials.
    fn leave(&mut self, why: &str) {
        if self.is_over {
            return;
        }
        let (index, instance) = (self.identity.index, self.identity.instance);
        let trial = self.current.as_ref().map_or(0, |current| current.number);
        let body = MemberBody::Left { why: text(why) };
        self.effects.push_back(Effect::ToLeader(FromMember { index, instance, trial, body }));
        self.end(Over::NotStarted(text(why)));
    }

    fn end(&mut self, over: Over) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.effects.push_back(Effect::Over(over));
        }
    }
}
