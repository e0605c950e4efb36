//! The state machine of shard 0.
//!
//! ```text
//!   Gathering -> Starting -> Running -> Collecting -> Lingering -> Over
//! ```
//!
//! Nobody starts unless all are ready and have confirmed the start: before it a failure is cheap. After it, the loss of
//! a shard is noted and its load is missing, unless `--abort-on-lost` is given.
//!
//! The leader of a trial of a search goes from collecting to resting: it repeats its state and confirms the ends of late
//! members until the next trial has a leader of its own ([`SearchLeader`](crate::SearchLeader)).

mod member_state;
mod own_trial;
mod table;

use std::collections::VecDeque;
use std::time::Duration;

use schema::document::ClockOffsets;

use self::member_state::{End, MemberState};
use self::own_trial::OwnTrial;
use self::table::Reports;
use crate::message::{FromMember, LeaderBody, MemberBody, Outcome, Stage, ToMembers, text};
use crate::{
    COLLECT_TIMEOUT, CONFIRM_LEAD, Effect, Identity, LOST_AFTER, Local, Now, Over, READY_TIMEOUT, RECONNECT_TIMEOUT,
    REPEAT_INTERVAL, START_REPEAT_INTERVAL, Summary, name,
};

/// Shard 0.
#[derive(Debug)]
pub struct Leader {
    identity: Identity,
    abort_on_lost: bool,
    /// The trial, if the load is one of a search.
    trial: Option<OwnTrial>,
    phase: Phase,
    stage: Stage,
    began: Duration,
    /// Of the shards from 1 on.
    members: Vec<MemberState>,
    is_connected: bool,
    connection_changed: Duration,
    /// Of the own load.
    reports: Reports,
    has_ended: bool,
    own_failure: Option<String>,
    is_aborted: bool,
    sequence: u64,
    next_repeat: Duration,
    next_summary: Duration,
    /// Notes about refused announcements so far, which any machine could cause.
    refusals_noted: u32,
    effects: VecDeque<Effect>,
}

#[derive(Debug, PartialEq, Eq)]
enum Phase {
    Gathering,
    /// The start, by the wall clock and by the monotonic one.
    Starting(u64, Duration),
    Running,
    Collecting(Duration),
    /// Until this time the final stage is repeated, for members that missed it.
    Lingering(Duration, Over),
    /// The trial of a search has ended. Its state is repeated until the next one begins.
    Resting,
    Over,
}

/// How long the final stage is repeated.
const LINGER: Duration = Duration::from_secs(3);
/// Most notes about refused announcements.
const REFUSALS_NOTED_MAX: u32 = 100;
/// Most shards in a sentence.
const NAMED_MAX: usize = 8;

impl Leader {
    /// A leader that gathers members from now on.
    pub fn new(identity: Identity, abort_on_lost: bool, now: Now) -> Self {
        let members = identity.count.saturating_sub(1) as usize;
        Leader {
            identity,
            abort_on_lost,
            trial: None,
            phase: Phase::Gathering,
            stage: Stage::Gathering,
            began: now.monotonic,
            members: std::iter::repeat_with(MemberState::default).take(members).collect(),
            is_connected: false,
            connection_changed: now.monotonic,
            reports: Reports::default(),
            has_ended: false,
            own_failure: None,
            is_aborted: false,
            sequence: 0,
            next_repeat: now.monotonic,
            next_summary: now.monotonic,
            refusals_noted: 0,
            effects: VecDeque::new(),
        }
    }

    /// What is to be done next.
    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// ClockOffsets of the shards as the members announced them before the start, by number.
    pub fn clocks(&self) -> impl Iterator<Item = (u32, ClockOffsets)> {
        (1..).zip(&self.members).map(|(index, member)| (index, ClockOffsets { before: member.ready, after: None }))
    }

    /// Takes a message of a member.
    pub fn receive(&mut self, now: Now, message: &FromMember) {
        let (index, instance) = (message.index, message.instance);
        if let MemberBody::Announce { count, version, plan_digest, host } = &message.body {
            match self.refusal(now, message, *count, version, plan_digest) {
                Some(why) => self.refuse(index, instance, host, why),
                None => {
                    let member = &mut self.members[index as usize - 1];
                    if member.instance != Some(instance) {
                        *member = MemberState { instance: Some(instance), host: text(host), ..MemberState::default() };
                    }
                    member.heard = now.monotonic;
                    self.send(LeaderBody::Welcome { index, instance });
                }
            }
            return;
        }
        let Some(member) = (index as usize).checked_sub(1).and_then(|at| self.members.get_mut(at)) else { return };
        if member.instance != Some(instance) {
            return;
        }
        member.heard = now.monotonic;
        if std::mem::take(&mut member.is_lost) {
            self.note(format!("shard {} is heard again", name(index, self.identity.count)));
        }
        self.take(now, index, instance, &message.body);
    }

    /// Takes a message of another leader: two loads must not share a session.
    pub fn receive_foreign(&mut self, message: &ToMembers) {
        let LeaderBody::State(stage) = &message.body else { return };
        let yields = match stage {
            // Of two that begin together, one yields.
            Stage::Gathering => message.leader < self.identity.instance,
            Stage::Start { .. } => true,
            Stage::Aborted { .. } | Stage::Finished { .. } => false,
        };
        if message.leader != self.identity.instance && yields {
            self.yield_session();
        }
    }

    /// Leaves the session to another leader, before the start.
    pub(crate) fn yield_session(&mut self) {
        if self.phase == Phase::Gathering {
            self.over(Over::NotStarted("the session has another leader (shard 0): choose another session".into()));
        }
    }

    /// Takes what happens on this machine.
    pub fn local(&mut self, now: Now, local: Local) {
        match local {
            Local::Connected(is_connected) => {
                self.is_connected = is_connected;
                self.connection_changed = now.monotonic;
                for member in &mut self.members {
                    member.heard = now.monotonic;
                }
            }
            Local::Progress(progress) => self.reports.take(now.monotonic, progress),
            Local::Interrupted => self.abort(now, "shard 0 was interrupted"),
            Local::Ended(_) => self.collect(now, None),
            Local::Failed(why) => {
                self.abort(now, &format!("shard 0 failed: {why}"));
                self.collect(now, Some(text(&why)));
            }
            Local::Fetched { index, result } => {
                let Some(member) = (index as usize).checked_sub(1).and_then(|at| self.members.get_mut(at)) else {
                    return;
                };
                member.end = End::Known(result.err());
                self.confirm_end(index);
            }
            Local::Sent(_) | Local::Trial(_) | Local::Prepared(_) | Local::Finish(_) => {}
        }
    }

    /// Does what is due; call it some ten times a second.
    pub fn tick(&mut self, now: Now) {
        self.advance(now);
        if self.phase != Phase::Over && now.monotonic >= self.next_repeat {
            let is_starting = matches!(self.phase, Phase::Starting(..));
            self.next_repeat = now.monotonic + if is_starting { START_REPEAT_INTERVAL } else { REPEAT_INTERVAL };
            self.send(LeaderBody::State(self.stage.clone()));
        }
        if matches!(self.phase, Phase::Resting | Phase::Over) || now.monotonic < self.next_summary {
            return;
        }
        self.next_summary = now.monotonic + REPEAT_INTERVAL;
        self.effects.push_back(Effect::Shards(Box::new(self.table(now))));
        if matches!(self.phase, Phase::Running | Phase::Collecting(_)) {
            let mut total = self.reports.progress();
            self.members.iter().for_each(|member| total.add(member.reports.progress()));
            let heard = 1 + self.members.iter().filter(|member| !member.is_lost).count() as u32;
            self.effects.push_back(Effect::Summary(Summary { heard, count: self.identity.count, total }));
        }
    }

    fn refusal(&self, now: Now, message: &FromMember, count: u32, version: &str, digest: &str) -> Option<String> {
        let own = &self.identity;
        if count != own.count {
            return Some(format!("it is one of {count} shards, the leader's load has {}", own.count));
        }
        if version != own.version {
            return Some(format!("its version is {}, the leader's {}", text(version), own.version));
        }
        if digest != own.plan_digest {
            return Some(
                "its plan is another than the leader's (by the digest of its keys, seed and files): give all shards \
                 the same options"
                    .into(),
            );
        }
        let Some(member) = (message.index as usize).checked_sub(1).and_then(|at| self.members.get(at)) else {
            return Some(format!(
                "shard {} does not exist: expected 1 to {} of {count}",
                message.index,
                count.saturating_sub(1)
            ));
        };
        if member.instance == Some(message.instance) {
            return None;
        }
        if self.phase != Phase::Gathering {
            return Some("the load has started already".into());
        }
        let is_there = now.monotonic.saturating_sub(member.heard) <= LOST_AFTER;
        (member.instance.is_some() && is_there).then(|| {
            format!("shard {} is given twice: it is made on {} already", name(message.index, count), member.host)
        })
    }

    fn refuse(&mut self, index: u32, instance: u64, host: &str, why: String) {
        if self.refusals_noted < REFUSALS_NOTED_MAX {
            self.refusals_noted += 1;
            self.note(format!("refused shard {index} on {}: {why}", text(host)));
        }
        self.send(LeaderBody::Refused { index, instance, why });
    }

    fn take(&mut self, now: Now, index: u32, instance: u64, body: &MemberBody) {
        let start = match self.phase {
            Phase::Starting(at_ns, _) => Some(at_ns),
            _ => None,
        };
        let member = &mut self.members[index as usize - 1];
        match body {
            MemberBody::Announce { .. } => {}
            MemberBody::Ping { sequence } => {
                let (sequence, leader_ns) = (*sequence, now.wall_ns);
                self.send(LeaderBody::Pong { index, instance, sequence, leader_ns });
            }
            MemberBody::Preparing => {}
            MemberBody::Ready { clock, prepared } => {
                let is_other = self.trial.as_ref().is_some_and(|trial| trial.prepared.digest != prepared.digest);
                member.ready = Some(*clock);
                // A preparation is shorter than the wait for it.
                member.preparation = Duration::from_millis(prepared.took_ms).min(READY_TIMEOUT);
                if is_other && self.phase == Phase::Gathering {
                    let shard = name(index, self.identity.count);
                    self.abort(now, &format!(
                        "the trial of shard {shard} is another than the leader's (by the digest of its keys, seed and \
                         files): give all shards the same files"
                    ));
                }
            }
            MemberBody::Running { start_ns, progress } => {
                member.is_confirmed |= start == Some(*start_ns);
                member.reports.take(now.monotonic, *progress);
            }
            MemberBody::Ended(outcome) => match (&member.end, outcome) {
                (End::Open, Outcome::Result(_)) if self.phase == Phase::Resting => {
                    member.end = End::Known(Some("the trial was over".into()));
                    self.confirm_end(index);
                }
                (End::Open, Outcome::Result(ended)) => {
                    member.end = End::Fetching;
                    self.effects.push_back(Effect::Fetch { index, ended: ended.clone() });
                }
                (End::Open, Outcome::Failed(why)) => {
                    member.end = End::Known(Some(text(why)));
                    let why = format!("shard {} failed: {}", name(index, self.identity.count), text(why));
                    self.note(why.clone());
                    if start.is_some() || self.abort_on_lost {
                        self.abort(now, &why);
                    }
                    self.confirm_end(index);
                }
                (End::Fetching, _) => {}
                (End::Known(_), _) => self.confirm_end(index),
            },
            MemberBody::Left { why } => {
                let why = format!("shard {} left: {}", name(index, self.identity.count), text(why));
                let is_search = self.trial.is_some();
                if self.phase == Phase::Gathering && !is_search {
                    *member = MemberState::default();
                } else {
                    member.end = End::Known(Some(why.clone()));
                }
                self.note(why.clone());
                if start.is_some() || is_search {
                    self.abort(now, &why);
                }
            }
        }
    }

    fn confirm_end(&mut self, index: u32) {
        let member = &self.members[index as usize - 1];
        let (Some(instance), End::Known(why)) = (member.instance, &member.end) else { return };
        let why = why.clone().unwrap_or_default();
        self.send(LeaderBody::Taken { index, instance, why });
    }

    fn advance(&mut self, now: Now) {
        match &self.phase {
            Phase::Gathering => self.gather(now),
            &Phase::Starting(_, at) if now.monotonic >= at => self.phase = Phase::Running,
            &Phase::Starting(_, at) if now.monotonic + CONFIRM_LEAD >= at && !self.is_aborted => {
                let late = self.named(|member| !member.is_confirmed);
                if !late.is_empty() {
                    self.abort(now, &format!("no confirmation of the start from {}", sentence(&late)));
                }
            }
            Phase::Starting(..) | Phase::Resting | Phase::Over => {}
            Phase::Running => self.notice_lost(now),
            &Phase::Collecting(since) => {
                self.notice_lost(now);
                let waits_for = self.named(|member| !member.is_lost && !matches!(member.end, End::Known(_)));
                let cut_off =
                    !self.is_connected && now.monotonic.saturating_sub(self.connection_changed) > RECONNECT_TIMEOUT;
                let too_long = now.monotonic.saturating_sub(since) > COLLECT_TIMEOUT;
                if waits_for.is_empty() || cut_off || too_long {
                    self.linger(now, self.result());
                }
            }
            Phase::Lingering(until, over) => {
                // Without members the final stage has no receiver.
                if now.monotonic >= *until || self.members.is_empty() {
                    self.over(over.clone());
                }
            }
        }
    }

    fn gather(&mut self, now: Now) {
        let mut lost = None;
        for (index, member) in (1..).zip(&mut self.members) {
            let is_silent = self.is_connected && now.monotonic.saturating_sub(member.heard) > LOST_AFTER;
            if member.instance.is_some() && is_silent {
                *member = MemberState::default();
                let text = format!("shard {} was lost before the start", name(index, self.identity.count));
                self.effects.push_back(Effect::Note(text.clone()));
                lost = Some(text);
            }
        }
        if let Some(why) = lost.or_else(|| self.not_rejoined(now)).filter(|_| self.trial.is_some()) {
            self.abort(now, &why);
            return;
        }
        let waits_for = self.named(|member| member.ready.is_none());
        if waits_for.is_empty() && (self.is_connected || self.members.is_empty()) {
            let lead = self.start_lead();
            let lead_ns = u64::try_from(lead.as_nanos()).unwrap_or(u64::MAX);
            let at_ns = now.wall_ns.saturating_add(lead_ns);
            self.phase = Phase::Starting(at_ns, now.monotonic + lead);
            self.stage = Stage::Start { at_ns, abort_on_lost: self.abort_on_lost };
            self.next_repeat = now.monotonic;
            self.effects.push_back(Effect::Start { at_ns });
        } else if now.monotonic.saturating_sub(self.began) > READY_TIMEOUT {
            let why = format!("not ready within {} s: {}", READY_TIMEOUT.as_secs(), sentence(&waits_for));
            self.abort(now, &why);
        }
    }

    fn notice_lost(&mut self, now: Now) {
        if !self.is_connected {
            return;
        }
        let mut lost = Vec::new();
        for (index, member) in (1..).zip(&mut self.members) {
            let is_silent = now.monotonic.saturating_sub(member.heard) > LOST_AFTER;
            if is_silent && !member.is_lost && !matches!(member.end, End::Known(_) | End::Fetching) {
                member.is_lost = true;
                lost.push(name(index, self.identity.count));
            }
        }
        if !lost.is_empty() {
            let why = format!("lost {}: silent for {} s, its load is missing", sentence(&lost), LOST_AFTER.as_secs());
            self.note(why.clone());
            if self.abort_on_lost {
                self.abort(now, &why);
            }
        }
    }

    /// Ends the load of all, or keeps it from starting.
    fn abort(&mut self, now: Now, why: &str) {
        if self.is_aborted || matches!(self.phase, Phase::Lingering(..) | Phase::Resting | Phase::Over) {
            return;
        }
        self.is_aborted = true;
        self.stage = Stage::Aborted { why: text(why) };
        self.next_repeat = now.monotonic;
        match self.phase {
            Phase::Gathering => self.linger(now, Over::NotStarted(text(why))),
            Phase::Starting(..) => {
                self.effects.push_back(Effect::Abort(text(why)));
                self.linger(now, Over::NotStarted(text(why)));
            }
            _ if !self.has_ended => self.effects.push_back(Effect::Abort(text(why))),
            _ => {}
        }
    }

    fn collect(&mut self, now: Now, failure: Option<String>) {
        self.has_ended = true;
        self.own_failure = failure;
        if matches!(self.phase, Phase::Starting(..) | Phase::Running) {
            self.phase = Phase::Collecting(now.monotonic);
        }
    }

    fn result(&self) -> Over {
        let mut missing: Vec<String> = self.own_failure.iter().map(|why| format!("shard 0: {why}")).collect();
        for (index, member) in (1..).zip(&self.members) {
            let name = name(index, self.identity.count);
            match &member.end {
                End::Known(None) => {}
                End::Known(Some(why)) => missing.push(format!("shard {name}: {why}")),
                End::Open | End::Fetching if member.is_lost => missing.push(format!("shard {name} was lost")),
                End::Open | End::Fetching => missing.push(format!("shard {name} has not sent its run")),
            }
        }
        if missing.is_empty() { Over::Complete } else { Over::Incomplete(missing) }
    }

    fn linger(&mut self, now: Now, over: Over) {
        self.effects.push_back(Effect::Shards(Box::new(self.table(now))));
        if self.trial.is_some() {
            self.phase = Phase::Resting;
            self.effects.push_back(Effect::Over(over));
            return;
        }
        self.phase = Phase::Lingering(now.monotonic + LINGER, over);
    }

    fn over(&mut self, over: Over) {
        self.phase = Phase::Over;
        self.effects.push_back(Effect::Over(over));
    }

    /// Names of the shards for which this is true.
    fn named(&self, is_so: impl Fn(&MemberState) -> bool) -> Vec<String> {
        let members = (1..).zip(&self.members).filter(|(_, member)| is_so(member));
        members.map(|(index, _)| name(index, self.identity.count)).collect()
    }

    fn note(&mut self, text: String) {
        self.effects.push_back(Effect::Note(text));
    }

    fn send(&mut self, body: LeaderBody) {
        self.sequence += 1;
        let (leader, sequence) = (self.identity.instance, self.sequence);
        let message = ToMembers { leader, sequence, trial: 0, request: String::new(), body };
        self.effects.push_back(Effect::ToMembers(message));
    }
}

/// The first names, for a sentence.
fn sentence(names: &[String]) -> String {
    let more = if names.len() > NAMED_MAX { format!(" and {} more", names.len() - NAMED_MAX) } else { String::new() };
    format!("shard {}{more}", names.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", "))
}
