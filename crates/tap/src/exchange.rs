//! Turns events into connections and request-response exchanges. Pure: events in, [`TapExchange`]s out; no clock, no
//! descriptor.
//!
//! ```text
//!   Event ──> image (process) ── lookups not yet used
//!         └─> connection ── the exchange under way ──next request, or close──> TapExchange
//! ```
//!
//! **What an exchange is.** The contents are not read, so a request is what the client side sends until the server
//! side sends, and a response what that side sends until the next request. The client side called connect. This holds
//! for HTTP/1, POP3, SMTP, Redis, SQL and TLS over any of them (a handshake is an exchange or two). Pipelined
//! requests are one exchange, an interim response (100 Continue) splits one in two, and interleaved streams (HTTP/2,
//! WebSocket) are exchanges in form only.
//!
//! Read [`Exchanges::apply`] first, then `connection.rs` for how an exchange ends.

mod connection;
mod image;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use schema::{TapError, TapExchange, TapOutcome, TapSide};
use serde::{Deserialize, Serialize};
use units::Timestamp;

use self::connection::Connection;
use self::image::Image;
use crate::event::{Closed, Event, EventKind, Opened, Origin, Role};
use crate::filter::Only;
use crate::rings::INDEX_SHIFT;

/// All connections of a run, with the open ones in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchanges {
    only: Vec<Only>,
    connections: HashMap<u64, Connection>,
    images: HashMap<u32, Image>,
    /// Ended images with connections that an unreported child may share: since when. In that order.
    departed: VecDeque<(u32, Timestamp, Image)>,
    done: Vec<TapExchange>,
    /// Connections that were open when their last image ended, with their client side: the next image of the process
    /// may have inherited them over exec. The latest last.
    inherited: VecDeque<(u64, TapSide)>,
    /// Lingering connections: see [`Connection::lingering`]. In the order of closing.
    lingering: VecDeque<(u64, Timestamp)>,
    next: u64,
    in_flight: u64,
    concurrent_connections: u64,
    /// Maximum open connections; those beyond are counted in [`left_out`](Self::left_out) and not followed.
    connections_max: usize,
    left_out: u64,
    lost: u64,
    /// Last loss of records by threads without a ring, by the index of their user's rings.
    lost_at: BTreeMap<u32, Timestamp>,
    /// Open connections by the index of their user's rings.
    open_by: BTreeMap<u32, usize>,
}

impl Exchanges {
    /// Open connections followed at the same time: some 100 MB.
    pub const CONNECTIONS_MAX: usize = 200_000;

    /// Follows connections that match one of `only`; empty: all.
    pub fn new(only: Vec<Only>) -> Self {
        Exchanges {
            only,
            connections: HashMap::new(),
            images: HashMap::new(),
            departed: VecDeque::new(),
            inherited: VecDeque::new(),
            done: Vec::new(),
            lingering: VecDeque::new(),
            next: 0,
            in_flight: 0,
            concurrent_connections: 0,
            connections_max: Self::CONNECTIONS_MAX,
            left_out: 0,
            lost: 0,
            lost_at: BTreeMap::new(),
            open_by: BTreeMap::new(),
        }
    }

    /// Changes the filter for new connections; known connections are still followed.
    pub fn follow(&mut self, only: Vec<Only>) {
        self.only = only;
    }

    /// The filter.
    pub fn only(&self) -> &[Only] {
        &self.only
    }

    /// Applies the next event. Events of one connection must come in the order of their times; those of different
    /// connections may come in any order.
    pub fn apply(&mut self, event: Event) {
        let origin = event.origin;
        match event.what {
            EventKind::Loaded { program, .. } => self.image(origin).program = Some(program.into()),
            EventKind::Forked { parent_image, fork, program, .. } => {
                self.forked(origin, parent_image, fork, &program);
            }
            EventKind::Resolved { begin, end, error, .. } => self.resolved(origin, begin, end, error),
            EventKind::Opened(opened) => self.opened(origin, &opened),
            EventKind::Connected(attempt) => self.with(attempt.connection, |open, _| open.connected(&attempt)),
            EventKind::ConnectFailed(attempt) => {
                if let Some(open) = self.remove(attempt.connection) {
                    open.connect_failed(&attempt, &mut self.done);
                }
            }
            EventKind::Withdrawn { connection, .. } => drop(self.remove(connection)),
            EventKind::Sent(run) => {
                self.hold(origin, run.connection);
                self.with(run.connection, |open, done| {
                    open.used_by(origin.image);
                    open.sent(&run, done);
                });
            }
            EventKind::Received(run) => {
                self.hold(origin, run.connection);
                self.with(run.connection, |open, done| {
                    open.used_by(origin.image);
                    open.received(&run, done);
                });
            }
            EventKind::Closed(closed) => self.closed(origin, &closed),
            EventKind::Leaving(closed) => {
                self.hold(origin, closed.connection);
                self.with(closed.connection, |open, _| open.leave_reported(origin.image, &closed));
                if self.connections.contains_key(&closed.connection) {
                    self.image(origin).note_release(&closed);
                }
                self.recount(closed.connection);
            }
            EventKind::Lost { records } => self.lost = self.lost.saturating_add(records),
            EventKind::Shut { .. }
            | EventKind::Filtered { .. }
            | EventKind::Executing { .. }
            | EventKind::Polled { .. }
            | EventKind::Aside { .. } => {}
        }
    }

    /// An image has ended, after its last event: its open connections are closed if it reported that it was leaving,
    /// and cut otherwise. `at` is when its end was detected.
    pub fn image_ended(&mut self, image: u32, at: Timestamp) {
        self.end_image(image, at, false);
    }

    /// An image was replaced by exec: the next image may have its connections, and reports them when it begins.
    pub fn replaced(&mut self, image: u32, at: Timestamp) {
        self.end_image(image, at, true);
    }

    fn end_image(&mut self, image: u32, at: Timestamp, is_replaced: bool) {
        let Some(image_state) = self.images.remove(&image) else { return };
        let mut held: Vec<u64> = image_state.held.iter().copied().collect();
        // Connections end in the order of their numbers, so that the same events give the same rows.
        held.sort_by_key(|key| self.connections.get(key).map(|open| open.number));
        for key in held {
            let Some(open) = self.connections.get_mut(&key) else { continue };
            open.image_ended(image, at);
            let last = open.holders.is_empty() && open.lingering.is_none();
            if last && (is_replaced || image_state.released.iter().any(|left| left.key == key)) {
                open.lingering = Some(at);
                self.lingering.push_back((key, at));
            } else if last && let Some(open) = self.remove(key) {
                if self.inherited.len() == INHERITED_MAX {
                    self.inherited.pop_front();
                }
                self.inherited.push_back((key, open.side()));
                open.abandoned(image, at, &mut self.done);
            }
            self.recount(key);
        }
        if !image_state.released.is_empty() {
            self.departed.push_back((image, at, image_state));
        }
    }

    /// Advances the time to `now`: ends connections that have lingered long enough.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some(&(key, at)) = self.lingering.front()
            && now.since(at) >= LINGER_TIME
        {
            self.lingering.pop_front();
            // A later close has an entry of its own.
            if self.connections.get(&key).is_some_and(|open| open.lingering == Some(at))
                && let Some(open) = self.remove(key)
            {
                open.end_without_close(&mut self.done);
            }
        }
        while self.departed.front().is_some_and(|(_, at, _)| now.since(*at) >= LINGER_TIME) {
            self.departed.pop_front();
        }
    }

    /// Records of this image were lost before `at`; image 0 of a user stands for any of them. Ends of connections may
    /// be among them.
    pub fn note_lost_records(&mut self, image: u32, at: Timestamp) {
        match self.images.get_mut(&image) {
            _ if image.trailing_zeros() >= INDEX_SHIFT => drop(self.lost_at.insert(image >> INDEX_SHIFT, at)),
            Some(image) => image.lost_at = Some(at),
            None => {}
        }
    }

    /// Drops connections without an event for an hour and since a possible loss of their records: their end will not
    /// be reported. Otherwise a program that runs for months would accumulate them.
    pub fn drop_silent(&mut self, now: Timestamp) {
        let lost_at = |open: &Connection| {
            let holders = open.holders.iter().filter_map(|image| self.images.get(image)?.lost_at);
            holders.chain(self.lost_at.get(&open.index).copied()).max()
        };
        let is_over = |open: &Connection| {
            let last_activity = open.last_activity_at();
            now.since(last_activity) >= SILENCE_TIMEOUT && lost_at(open).is_some_and(|lost| lost >= last_activity)
        };
        let silent = self.connections.iter().filter(|(_, open)| is_over(open));
        let mut silent: Vec<(u64, u64)> = silent.map(|(key, open)| (open.number, *key)).collect();
        silent.sort_unstable();
        for (_, key) in silent {
            if let Some(open) = self.remove(key) {
                open.end_without_close(&mut self.done);
            }
        }
    }

    /// Whether the state changes as time passes, without another event.
    pub fn waits(&self) -> bool {
        !self.lingering.is_empty() || !self.departed.is_empty()
    }

    /// Ends the run: open connections are cut.
    pub fn end(&mut self) {
        let mut keys: Vec<u64> = self.connections.keys().copied().collect();
        keys.sort_by_key(|key| self.connections[key].number);
        for key in keys {
            if let Some(open) = self.remove(key) {
                open.end_without_close(&mut self.done);
            }
        }
        self.images.clear();
        self.departed.clear();
        self.lingering.clear();
        self.lost_at.clear();
    }

    /// Appends the completed rows to `into`, in the order of ending.
    pub fn drain(&mut self, into: &mut Vec<TapExchange>) {
        into.append(&mut self.done);
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.connections.len()
    }

    /// Concurrent connections: connect called or accept returned, and not closed, nor left by all holders. Counted as
    /// events happen, for Little's law; [`open`](Self::open) counts the connections in memory, which stay longer.
    pub fn concurrent_connections(&self) -> u64 {
        self.concurrent_connections
    }

    /// Exchanges in flight.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Connections opened so far.
    pub fn opened_so_far(&self) -> u64 {
        self.next
    }

    /// Connections beyond the limit.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Records that did not fit into the rings.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    fn image(&mut self, origin: Origin) -> &mut Image {
        self.images.entry(origin.image).or_insert_with(|| Image::new(origin))
    }

    fn forked(&mut self, origin: Origin, parent: u32, fork: u32, program: &str) {
        let mut held = HashSet::new();
        let departed = || self.departed.iter().find(|(image, ..)| *image == parent).map(|(.., image)| image);
        if let Some(parent) = self.images.get(&parent).or_else(departed) {
            held.extend(parent.held.iter().copied().filter(|key| self.connections.contains_key(key)));
            // Closed or left before the child reported, and after the fork.
            let inherited_by_child =
                parent.released.iter().filter(|closed| closed.forks[0] < fork && fork <= closed.forks[1]);
            held.extend(inherited_by_child.map(|closed| closed.key).filter(|key| self.connections.contains_key(key)));
        }
        for key in &held {
            if let Some(open) = self.connections.get_mut(key) {
                open.hold(origin.image);
            }
            self.recount(*key);
        }
        let image = self.image(origin);
        image.program = Some(program.into());
        image.held.extend(held);
    }

    fn resolved(&mut self, origin: Origin, begin: Timestamp, end: Timestamp, error: i32) {
        let lookup_ns = end.as_nanos().saturating_sub(begin.as_nanos());
        let image = self.image(origin);
        if error == 0 {
            image.lookup_ended(origin.tid, lookup_ns);
            return;
        }
        let (pid, program) = (image.pid, image.program.clone());
        // A failed lookup has no peer, so a filter by peer does not match it.
        if self.only.is_empty() {
            self.done.push(TapExchange {
                pid,
                program,
                opened_at: begin,
                lookup_ns: Some(lookup_ns),
                outcome: TapOutcome::Failed,
                error: Some(TapError::Lookup(error)),
                ..TapExchange::BLANK
            });
        }
    }

    fn opened(&mut self, origin: Origin, opened: &Opened) {
        let known = |address: SocketAddr| (address.port() != 0 || !address.ip().is_unspecified()).then_some(address);
        let (peer, local) = (known(opened.peer), known(opened.local));
        let side = match opened.role {
            Role::Connected => TapSide::Client,
            Role::Accepted => TapSide::Server,
            Role::Found if let Some(side) = self.inherited_side(opened.connection) => side,
            // The client side is unknown: services have the lower port.
            Role::Found if opened.local.port() < opened.peer.port() => TapSide::Server,
            Role::Found => TapSide::Client,
        };
        // A connection that is not followed also uses its lookup: the lookup was for this connect.
        let lookup_ns = if opened.role == Role::Connected { self.image(origin).lookup(origin.tid) } else { None };
        let service = match side {
            TapSide::Client => peer,
            TapSide::Server => local,
        };
        let meant = |only: &Only| only.matches(peer, service.map(|address| address.port()));
        if !self.only.is_empty() && !self.only.iter().any(meant) {
            return;
        }
        if opened.role == Role::Found && self.connections.contains_key(&opened.connection) {
            self.hold(origin, opened.connection);
            return;
        }
        if let Some(before) = self.remove(opened.connection) {
            // The end of the earlier connection was not reported, and its number is used again.
            before.end_without_close(&mut self.done);
        }
        let index = origin.image >> INDEX_SHIFT;
        if !self.has_capacity_for(index) {
            self.left_out += 1;
            return;
        }
        *self.open_by.entry(index).or_default() += 1;
        let image = self.image(origin);
        let row = TapExchange {
            pid: image.pid,
            program: image.program.clone(),
            side,
            peer,
            local,
            opened_at: opened.at,
            lookup_ns,
            ..TapExchange::BLANK
        };
        image.held.insert(opened.connection);
        let mut open = Connection::new(self.next, opened.role, origin.image, row);
        open.is_bystander = opened.inherited;
        self.connections.insert(opened.connection, open);
        self.concurrent_connections += 1;
        self.next += 1;
    }

    /// Whether one more connection may be open for the user with this ring index. Each other user has a limited share,
    /// so that the tap's user always has capacity.
    fn has_capacity_for(&self, index: u32) -> bool {
        let open_of_others = || self.open_by.range(1..).map(|(_, open)| open).sum::<usize>();
        let is_within_share =
            |open: usize| open < self.connections_max / 8 && open_of_others() < self.connections_max / 4 * 3;
        let local = self.open_by.get(&index).copied().unwrap_or(0);
        self.connections.len() < self.connections_max && (index == 0 || is_within_share(local))
    }

    fn closed(&mut self, origin: Origin, closed: &Closed) {
        let Some(open) = self.connections.get_mut(&closed.connection) else { return };
        open.holders.retain(|holder| *holder != origin.image);
        open.counted(closed);
        open.closed_by(origin.image, closed.begin);
        let last = open.holders.is_empty();
        if last && open.may_be_shared() {
            open.lingering = Some(closed.begin);
            self.lingering.push_back((closed.connection, closed.begin));
        }
        let last = last && open.lingering.is_none();
        self.recount(closed.connection);
        if let Some(image) = self.images.get_mut(&origin.image) {
            image.held.remove(&closed.connection);
            image.note_release(closed);
        }
        if last && let Some(open) = self.remove(closed.connection) {
            open.closed(closed.begin, &mut self.done);
        }
    }

    /// The client side of a connection of the previous image, if known.
    fn inherited_side(&self, key: u64) -> Option<TapSide> {
        self.inherited.iter().rev().find(|(other, _)| *other == key).map(|(_, side)| *side)
    }

    /// Adds an image that uses a connection to its holders, even if the fork was not reported.
    fn hold(&mut self, origin: Origin, key: u64) {
        let Some(open) = self.connections.get_mut(&key) else { return };
        if open.hold(origin.image) {
            self.image(origin).held.insert(key);
            self.recount(key);
        }
    }

    /// Changes a followed connection, and updates the count of exchanges in flight.
    fn with(&mut self, key: u64, act: impl FnOnce(&mut Connection, &mut Vec<TapExchange>)) {
        let Some(open) = self.connections.get_mut(&key) else { return };
        let before = open.is_in_flight();
        act(open, &mut self.done);
        match (before, open.is_in_flight()) {
            (false, true) => self.in_flight += 1,
            (true, false) => self.in_flight -= 1,
            _ => {}
        }
    }

    fn remove(&mut self, key: u64) -> Option<Connection> {
        let open = self.connections.remove(&key)?;
        if let Some(of_user) = self.open_by.get_mut(&open.index) {
            *of_user = of_user.saturating_sub(1);
        }
        for image in &open.holders {
            if let Some(image) = self.images.get_mut(image) {
                image.held.remove(&key);
            }
        }
        self.in_flight -= u64::from(open.is_in_flight());
        self.concurrent_connections -= u64::from(open.counted);
        Some(open)
    }

    /// Updates the count of concurrent connections after a change of holders.
    fn recount(&mut self, key: u64) {
        let Some(open) = self.connections.get_mut(&key) else { return };
        match (open.counted, open.is_in_process()) {
            (false, true) => self.concurrent_connections += 1,
            (true, false) => self.concurrent_connections -= 1,
            _ => return,
        }
        open.counted = !open.counted;
    }
}

impl Default for Exchanges {
    /// Follows all connections.
    fn default() -> Self {
        Exchanges::new(Vec::new())
    }
}

/// Maximum stored connections of ended images: 24 KB.
const INHERITED_MAX: usize = 1024;

/// A child reports when it first runs, and its parent may have closed a shared connection by then: a shared
/// connection is over if it was unused for this time.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// Time without events after which a connection with lost records is dropped: no keep-alive timeout is longer.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3600);
