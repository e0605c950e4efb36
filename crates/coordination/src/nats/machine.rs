//! The state machine of this shard, whichever it is.

use crate::message::{FromMember, ToMembers, decode};
use crate::pipe::Hello;
use crate::{Effect, Identity, Leader, Local, Member, Now, SearchLeader, SearchMember};

/// One of the four state machines.
pub enum Machine {
    Leader(Leader),
    Member(Member),
    SearchLeader(SearchLeader),
    SearchMember(SearchMember),
}

impl Machine {
    /// The state machine that `hello` describes.
    pub fn new(hello: &Hello, identity: Identity, now: Now) -> Self {
        match (hello.index, hello.is_search) {
            (0, false) => Machine::Leader(Leader::new(identity, hello.abort_on_lost, now)),
            (0, true) => Machine::SearchLeader(SearchLeader::new(identity)),
            (_, false) => Machine::Member(Member::new(identity, now)),
            (_, true) => Machine::SearchMember(SearchMember::new(identity, now)),
        }
    }

    pub fn effect(&mut self) -> Option<Effect> {
        match self {
            Machine::Leader(leader) => leader.effect(),
            Machine::Member(member) => member.effect(),
            Machine::SearchLeader(leader) => leader.effect(),
            Machine::SearchMember(member) => member.effect(),
        }
    }

    pub fn local(&mut self, now: Now, local: Local) {
        match self {
            Machine::Leader(leader) => leader.local(now, local),
            Machine::Member(member) => member.local(now, local),
            Machine::SearchLeader(leader) => leader.local(now, local),
            Machine::SearchMember(member) => member.local(now, local),
        }
    }

    pub fn tick(&mut self, now: Now) {
        match self {
            Machine::Leader(leader) => leader.tick(now),
            Machine::Member(member) => member.tick(now),
            Machine::SearchLeader(leader) => leader.tick(now),
            Machine::SearchMember(member) => member.tick(now),
        }
    }

    /// Takes a message as it came. Loads and searches ignore each other's: their numbers of the trial differ.
    pub fn receive(&mut self, now: Now, payload: &[u8]) {
        match self {
            Machine::Leader(_) | Machine::SearchLeader(_) => {
                if let Some(message) = decode::<FromMember>(payload) {
                    match self {
                        Machine::Leader(leader) if message.trial == 0 => leader.receive(now, &message),
                        Machine::SearchLeader(leader) => leader.receive(now, &message),
                        _ => {}
                    }
                } else if let Some(message) = decode::<ToMembers>(payload) {
                    match self {
                        Machine::Leader(leader) => leader.receive_foreign(&message),
                        Machine::SearchLeader(leader) => leader.receive_foreign(&message),
                        _ => {}
                    }
                }
            }
            Machine::Member(member) => {
                if let Some(message) = decode::<ToMembers>(payload).filter(|message| message.trial == 0) {
                    member.receive(now, &message);
                }
            }
            Machine::SearchMember(member) => {
                if let Some(message) = decode::<ToMembers>(payload) {
                    member.receive(now, &message);
                }
            }
        }
    }

    /// Whether this shard leads.
    pub fn is_leader(&self) -> bool {
        matches!(self, Machine::Leader(_) | Machine::SearchLeader(_))
    }

    /// The leader's process, as far as a member knows it.
    pub fn leader_of_member(&self) -> Option<u64> {
        match self {
            Machine::Member(member) => member.leader(),
            Machine::SearchMember(member) => member.leader(),
            Machine::Leader(_) | Machine::SearchLeader(_) => None,
        }
    }
}
