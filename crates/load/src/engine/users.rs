//! The closed loop of sessions: a fixed number of users, each beginning a session when the one before has ended.
//!
//! A user's requests find their connections as those of an open loop do: an idle one of the user's client, else a new
//! one. So a user holds as many connections as the steps fetch embedded objects at once, and keeps them while thinking.

use std::time::Duration;

use units::Timestamp;

use super::Load;
use super::closed_loop::Pause;
use crate::due::{DueHeap, Wake};
use crate::spec::Lane;

/// The users.
#[derive(Debug)]
pub(super) struct Users {
    users: Vec<User>,
    lane: Lane,
    /// Sessions begun.
    begun: u64,
}

#[derive(Debug)]
struct User {
    client: u32,
    pause: Pause,
}

impl Users {
    /// `users` of this shard; user k of the run, over all shards, is client k modulo `clients`.
    pub(super) fn new(users: u32, clients: u32, lane: Lane) -> Self {
        let client = |local: u32| (lane.number(u64::from(local)) % u64::from(clients)) as u32;
        let users = (0..users).map(|local| User { client: client(local), pause: Pause::FIRST }).collect();
        Users { users, lane, begun: 0 }
    }

    /// How many there are.
    pub(super) fn len(&self) -> u32 {
        self.users.len() as u32
    }

    /// When a user's next session begins, the last one having ended at `at`: at once, or after a growing pause if not
    /// one byte came back, as from a server that refuses connections.
    pub(super) fn next_session(&mut self, user: u32, at: Timestamp, answered: bool, timed_out: bool) -> Timestamp {
        let pause = &mut self.users[user as usize].pause;
        match (answered, timed_out) {
            (true, _) => {
                *pause = Pause::FIRST;
                at
            }
            (false, true) => at,
            (false, false) => at + pause.take(),
        }
    }
}

impl Load {
    /// A user begins a session.
    pub(super) fn begin_user(&mut self, at: Timestamp, user: u32) {
        let super::Loop::Users(users) = &mut self.arrivals else { return };
        let number = users.lane.number(users.begun);
        users.begun += 1;
        let client = users.users[user as usize].client;
        self.begin_session(at, number, client, Some(user));
    }

    /// All users begin when the load does.
    pub(super) fn invite_users(&mut self) {
        self.spread_users(Duration::ZERO);
    }

    /// The users begin evenly over so long from the start of the load on, instead of all at once: those who think for the same time would
    /// otherwise ask together for ever. To be called once, before anything else; without users it does nothing.
    pub fn spread_users(&mut self, over: Duration) {
        let super::Loop::Users(users) = &self.arrivals else { return };
        self.due = DueHeap::default();
        // Of shards whose numbers of users differ by one, the places differ by less than the time between two.
        let all = u64::from(users.len()) * u64::from(users.lane.of);
        for user in 0..users.len() {
            let share = users.lane.number(u64::from(user)) as f64 / all as f64;
            self.due.push(self.start + over.mul_f64(share), Wake::User(user));
        }
    }
}
