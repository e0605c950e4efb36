//! The state machine of a shard other than 0.
//!
//! ```text
//!   Announcing -> Measuring -> Ready -> Started -> MeasuringAgain -> Sending -> Reporting -> Over
//! ```
//!
//! The load depends on the leader until the start alone: from then on it is made to its end whatever becomes of leader
//! and server, unless the leader ends it or `--abort-on-lost` is given.

use std::collections::VecDeque;
use std::time::Duration;

use schema::document::ClockOffsets;

use crate::clock::{Measurement, PINGS};
use crate::message::{Ended, FromMember, LeaderBody, MemberBody, Outcome, Prepared, Progress, Stage, ToMembers, text};
use crate::{
    COLLECT_TIMEOUT, Effect, Identity, LOST_AFTER, Local, Now, Over, READY_TIMEOUT, RECONNECT_TIMEOUT, REPEAT_INTERVAL,
    START_REPEAT_INTERVAL,
};

/// A shard other than 0.
#[derive(Debug)]
pub struct Member {
    identity: Identity,
    state: State,
    /// `None` while the trial of a search is not prepared.
    prepared: Option<Prepared>,
    began: Duration,
    leader: Option<u64>,
    /// The leader's last state.
    sequence: u64,
    heard: Duration,
    is_connected: bool,
    connection_changed: Duration,
    abort_on_lost: bool,
    start_ns: u64,
    progress: Progress,
    clocks: ClockOffsets,
    ping_sequence: u64,
    is_aborted: bool,
    leader_is_silent: bool,
    next_repeat: Duration,
    effects: VecDeque<Effect>,
}

#[derive(Debug)]
enum State {
    Announcing,
    Measuring(Measurement),
    Ready,
    Started,
    MeasuringAgain(Measurement, Ended),
    Sending(Ended),
    Reporting(Outcome, Duration),
    Over,
}

impl Member {
    /// A member that announces itself from now on.
    pub fn new(identity: Identity, now: Now) -> Self {
        Member {
            identity,
            state: State::Announcing,
            prepared: Some(Prepared::default()),
            began: now.monotonic,
            leader: None,
            sequence: 0,
            heard: now.monotonic,
            is_connected: false,
            connection_changed: now.monotonic,
            abort_on_lost: false,
            start_ns: 0,
            progress: Progress::default(),
            clocks: ClockOffsets::default(),
            ping_sequence: 0,
            is_aborted: false,
            leader_is_silent: false,
            next_repeat: now.monotonic,
            effects: VecDeque::new(),
        }
    }

    /// A member that announces itself for a trial of a search, which it prepares meanwhile ([`Local::Prepared`]).
    pub(crate) fn of_trial(identity: Identity, now: Now) -> Self {
        Member { prepared: None, ..Member::new(identity, now) }
    }

    /// Whether the leader has not yet answered.
    pub(crate) fn is_announcing(&self) -> bool {
        matches!(self.state, State::Announcing)
    }

    /// Whether its load has started and not yet ended.
    pub(crate) fn has_load(&self) -> bool {
        matches!(self.state, State::Started)
    }

    /// Whether it has reported the end of its load.
    pub(crate) fn has_reported(&self) -> bool {
        matches!(self.state, State::Reporting(..) | State::Over)
    }

    /// What is to be done next.
    pub fn effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// The leader's process, once it is known.
    pub fn leader(&self) -> Option<u64> {
        self.leader
    }

    /// Takes a message of the leader, or of another one.
    pub fn receive(&mut self, now: Now, message: &ToMembers) {
        let is_own = |index: u32, instance: u64| (index, instance) == (self.identity.index, self.identity.instance);
        match &message.body {
            LeaderBody::Welcome { index, instance } if is_own(*index, *instance) && self.leader.is_none() => {
                self.leader = Some(message.leader);
                self.heard = now.monotonic;
                if matches!(self.state, State::Announcing) {
                    self.state = State::Measuring(self.measurement(now));
                }
            }
            LeaderBody::Refused { index, instance, why } if is_own(*index, *instance) && !self.has_start() => {
                self.end(Over::NotStarted(format!("the leader refused this shard: {}", text(why))));
            }
            _ if self.leader != Some(message.leader) => {}
            LeaderBody::Pong { index, instance, sequence, leader_ns } if is_own(*index, *instance) => {
                self.hear(now);
                if let State::Measuring(measurement) | State::MeasuringAgain(measurement, _) = &mut self.state {
                    measurement.pong(now, *sequence, *leader_ns);
                }
            }
            LeaderBody::Taken { index, instance, why } if is_own(*index, *instance) => {
                self.hear(now);
                if matches!(self.state, State::Reporting(..)) {
                    self.end(if why.is_empty() { Over::Complete } else { Over::Incomplete(vec![text(why)]) });
                }
            }
            LeaderBody::State(stage) => {
                self.hear(now);
                if message.sequence > self.sequence {
                    self.sequence = message.sequence;
                    self.follow(stage);
                }
            }
            _ => {}
        }
    }

    /// Takes what happens on this machine.
    pub fn local(&mut self, now: Now, local: Local) {
        match local {
            Local::Connected(is_connected) => {
                self.is_connected = is_connected;
                self.connection_changed = now.monotonic;
                // Silence counts from the time from which the leader could be heard.
                self.heard = now.monotonic;
            }
            Local::Progress(progress) => self.progress = progress,
            Local::Prepared(prepared) => {
                self.prepared = Some(prepared);
                self.next_repeat = now.monotonic;
            }
            Local::Interrupted if !self.has_start() => self.leave("interrupted"),
            Local::Interrupted => {}
            Local::Ended(ended) if matches!(self.state, State::Started) => {
                self.state = State::MeasuringAgain(self.measurement(now), ended);
            }
            Local::Failed(why) if self.has_start() => {
                self.state = State::Reporting(Outcome::Failed(text(&why)), now.monotonic);
                self.next_repeat = now.monotonic;
            }
            Local::Failed(why) => self.leave(&why),
            Local::Sent(result) => {
                if let State::Sending(ended) = &self.state {
                    let mut ended = Ended { run: text(&ended.run), dir: text(&ended.dir), ..ended.clone() };
                    match result {
                        Ok(object) => ended.object = Some(object),
                        Err(why) => ended.not_sent = text(&why),
                    }
                    self.state = State::Reporting(Outcome::Result(ended), now.monotonic);
                    self.next_repeat = now.monotonic;
                }
            }
            Local::Ended(_) | Local::Fetched { .. } | Local::Trial(_) | Local::Finish(_) => {}
        }
    }

    /// Does what is due; call it some ten times a second.
    pub fn tick(&mut self, now: Now) {
        self.give_up(now);
        self.measure(now);
        if now.monotonic >= self.next_repeat {
            // A confirmation may be lost, and the leader waits for it.
            let is_before_start = matches!(self.state, State::Started) && now.wall_ns < self.start_ns;
            self.next_repeat = now.monotonic + if is_before_start { START_REPEAT_INTERVAL } else { REPEAT_INTERVAL };
            self.repeat();
        }
    }

    fn has_start(&self) -> bool {
        self.start_ns > 0
    }

    fn hear(&mut self, now: Now) {
        self.heard = now.monotonic;
        self.leader_is_silent = false;
    }

    /// Numbers of the pings of two measurements never overlap.
    fn measurement(&mut self, now: Now) -> Measurement {
        let first = self.ping_sequence;
        self.ping_sequence += u64::from(PINGS);
        Measurement::new(first, now.monotonic)
    }

    fn follow(&mut self, stage: &Stage) {
        match stage {
            Stage::Gathering => {}
            Stage::Start { at_ns, abort_on_lost } => {
                if matches!(self.state, State::Ready) {
                    (self.start_ns, self.abort_on_lost) = (*at_ns, *abort_on_lost);
                    self.state = State::Started;
                    self.effects.push_back(Effect::Start { at_ns: *at_ns });
                    self.next_repeat = Duration::ZERO;
                }
            }
            Stage::Aborted { why } if self.has_start() => self.abort(&text(why)),
            Stage::Aborted { why } => self.end(Over::NotStarted(text(why))),
            Stage::Finished { .. } => {}
        }
    }

    fn abort(&mut self, why: &str) {
        if !self.is_aborted && matches!(self.state, State::Started) {
            self.is_aborted = true;
            self.effects.push_back(Effect::Abort(why.to_owned()));
        }
    }

    fn leave(&mut self, why: &str) {
        if !matches!(self.state, State::Over) {
            self.send(MemberBody::Left { why: text(why) });
            self.end(Over::NotStarted(text(why)));
        }
    }

    fn end(&mut self, over: Over) {
        if !matches!(self.state, State::Over) {
            self.state = State::Over;
            self.effects.push_back(Effect::Over(over));
        }
    }

    fn send(&mut self, body: MemberBody) {
        let (index, instance) = (self.identity.index, self.identity.instance);
        self.effects.push_back(Effect::ToLeader(FromMember { index, instance, trial: 0, body }));
    }

    fn repeat(&mut self) {
        let own = &self.identity;
        let running = MemberBody::Running { start_ns: self.start_ns, progress: self.progress };
        let body = match &self.state {
            State::Announcing => MemberBody::Announce {
                count: own.count,
                version: text(&own.version),
                plan_digest: text(&own.plan_digest),
                host: text(&own.host),
            },
            State::Measuring(_) | State::Over => return,
            State::Ready => match (self.clocks.before, &self.prepared) {
                (Some(clock), Some(prepared)) => MemberBody::Ready { clock, prepared: prepared.clone() },
                (Some(_), None) => MemberBody::Preparing,
                (None, _) => return,
            },
            State::Started | State::MeasuringAgain(..) | State::Sending(_) => running,
            State::Reporting(outcome, _) => MemberBody::Ended(outcome.clone()),
        };
        self.send(body);
    }

    fn measure(&mut self, now: Now) {
        let is_connected = self.is_connected;
        let (State::Measuring(measurement) | State::MeasuringAgain(measurement, _)) = &mut self.state else { return };
        if !is_connected {
            return;
        }
        if let Some(sequence) = measurement.ping(now) {
            self.send(MemberBody::Ping { sequence });
            return;
        }
        if !measurement.is_done(now.monotonic) {
            return;
        }
        let estimate = measurement.estimate();
        match std::mem::replace(&mut self.state, State::Over) {
            State::Measuring(_) if estimate.is_none() => self.state = State::Measuring(self.measurement(now)),
            State::Measuring(_) => {
                self.clocks.before = estimate;
                self.state = State::Ready;
                self.effects.push_back(Effect::Clock(self.clocks));
                self.repeat();
            }
            State::MeasuringAgain(_, ended) => {
                self.clocks.after = estimate;
                self.effects.push_back(Effect::Clock(self.clocks));
                self.effects.push_back(Effect::Send(ended.clone()));
                self.state = State::Sending(ended);
            }
            other => self.state = other,
        }
    }

    fn give_up(&mut self, now: Now) {
        let silent = self.is_connected && now.monotonic.saturating_sub(self.heard) > LOST_AFTER;
        let cut_off = !self.is_connected && now.monotonic.saturating_sub(self.connection_changed) > RECONNECT_TIMEOUT;
        match &self.state {
            State::Announcing if now.monotonic.saturating_sub(self.began) > READY_TIMEOUT => {
                let place =
                    if self.is_connected { "no leader (shard 0) answered" } else { "NATS could not be reached" };
                self.end(Over::NotStarted(format!("{place} within {} s", READY_TIMEOUT.as_secs())));
            }
            State::Measuring(_) | State::Ready if silent || cut_off => {
                self.end(Over::NotStarted("the leader (shard 0) was lost before the start".into()));
            }
            State::Started if silent => {
                if !self.leader_is_silent {
                    self.leader_is_silent = true;
                    self.effects.push_back(Effect::Note("the leader (shard 0) is silent; the load goes on".into()));
                }
                if self.abort_on_lost {
                    self.abort("the leader (shard 0) was lost (--abort-on-lost)");
                }
            }
            State::MeasuringAgain(..) | State::Sending(_) | State::Reporting(..) if silent => {
                self.end(Over::Incomplete(vec!["the leader (shard 0) was lost: it has not received this run".into()]));
            }
            State::MeasuringAgain(..) | State::Sending(_) | State::Reporting(..) if cut_off => {
                self.end(Over::Incomplete(vec!["NATS was lost: the leader has not received this run".into()]));
            }
            State::Reporting(_, since) if now.monotonic.saturating_sub(*since) > COLLECT_TIMEOUT => {
                self.end(Over::Incomplete(vec!["the leader (shard 0) has not taken this run".into()]));
            }
            _ => {}
        }
    }
}
