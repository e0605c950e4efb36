//! The closed loop of sessions: a fixed number of users, each beginning a session when the one before has ended.
//!
//! A user's requests find their connections as those of an open loop do: an idle one of the user's client, otherwise a
//! new one. So a user has as many connections as its steps fetch embedded objects concurrently, and keeps them open
//! during think times.

use std::time::Duration;

use units::Timestamp;

use super::Load;
use super::closed_loop::Pause;
use crate::due::{DueHeap, Wake};
use crate::spec::Shard;

/// The users of a shard.
#[derive(Debug)]
pub(super) struct Users {
    users: Vec<User>,
    shard: Shard,
    /// Sessions begun.
    begun: u64,
}

#[derive(Debug)]
struct User {
    client: u32,
    pause: Pause,
}

impl Users {
    /// `users` is the number in this shard. User k of the run, over all shards, is client k modulo `clients`.
    pub(super) fn new(users: u32, clients: u32, shard: Shard) -> Self {
        let client = |local: u32| (shard.number(u64::from(local)) % u64::from(clients)) as u32;
        let users = (0..users).map(|local| User { client: client(local), pause: Pause::FIRST }).collect();
        Users { users, shard, begun: 0 }
    }

    /// Number of users in this shard.
    pub(super) fn len(&self) -> u32 {
        self.users.len() as u32
    }

    /// When a user's next session begins after one that ended at `at`: immediately, or after a growing pause if no byte
    /// of a response was received, as from a server that refuses connections.
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
    /// Begins a user's next session.
    pub(super) fn begin_user(&mut self, at: Timestamp, user: u32) {
        let super::Loop::Users(users) = &mut self.arrivals else { return };
        let number = users.shard.number(users.begun);
        users.begun += 1;
        let client = users.users[user as usize].client;
        self.begin_session(at, number, client, Some(user));
    }

    /// Schedules the first sessions of all users for the start of the load.
    pub(super) fn schedule_users(&mut self) {
        self.spread_users(Duration::ZERO);
    }

    /// Spreads the first sessions of the users evenly over the time `over` from the start of the load on. Otherwise
    /// users with equal think times would send their requests at the same time throughout the run. Call once, before
    /// any other call; without effect on other loads.
    pub fn spread_users(&mut self, over: Duration) {
        let super::Loop::Users(users) = &self.arrivals else { return };
        self.due = DueHeap::default();
        // If the numbers of users per shard differ by one, the start times shift by less than the gap between two
        // users.
        let all = u64::from(users.len()) * u64::from(users.shard.of);
        for user in 0..users.len() {
            let share = users.shard.number(u64::from(user)) as f64 / all as f64;
            self.due.push(self.start + over.mul_f64(share), Wake::User(user));
        }
    }
}
