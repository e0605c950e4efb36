//! From events to connections and request-response exchanges. Pure: events in, [`TapExchange`]s out; no clock, no
//! descriptor.
//!
//! ```text
//!   Event ──> image (process) ── lookups not yet used
//!         └─> connection ── the exchange under way ──next request, or close──> TapExchange
//! ```
//!
//! **What an exchange is.** Nothing that is said is looked at, so a request is what the asking end sends until the
//! answering end sends, and a response what that end sends until it is asked again. The asking end is who called
//! connect. That holds for HTTP/1, POP3, SMTP, Redis, SQL and TLS over any of them (a handshake is an exchange or two).
//! Requests that are pipelined are one exchange, an interim response (100 Continue) divides one in two, and streams that
//! are interleaved (HTTP/2, WebSocket) are exchanges by the letter only.
//!
//! Read [`Exchanges::take`] first, then `connection.rs` for how an exchange ends.

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
use crate::event::{Closed, Event, Opened, Origin, Role, What};
use crate::filter::Only;
use crate::rings::INDEX_SHIFT;

/// All connections of a run, open ones in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Exchanges {
    only: Vec<Only>,
    connections: HashMap<u64, Connection>,
    images: HashMap<u32, Image>,
    /// Images that are gone and left what a child may have, which has not told of itself yet: since when. In that order.
    departed: VecDeque<(u32, Timestamp, Image)>,
    done: Vec<TapExchange>,
    /// Connections that were open when their last image was gone, and who asks in them: by exec the next image of the process
    /// may have them still. The latest last.
    inherited: VecDeque<(u64, TapSide)>,
    /// Connections that linger: see [`Connection::lingering`]. In the order of closing.
    lingering: VecDeque<(u64, Timestamp)>,
    next: u64,
    in_flight: u64,
    in_process: u64,
    /// Open connections at most; those beyond are counted in [`left_out`](Self::left_out) and not followed.
    connections_max: usize,
    left_out: u64,
    lost: u64,
    /// When threads that found no ring, whosever, had lost something at last: by the index of their user's rings.
    lost_at: BTreeMap<u32, Timestamp>,
    /// Open connections by the index of their user's rings.
    open_by: BTreeMap<u32, usize>,
}

impl Exchanges {
    /// Open connections followed at once: some 100 MB.
    pub const CONNECTIONS_MAX: usize = 200_000;

    /// Follows connections that one of `only` means; all where there is none.
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
            in_process: 0,
            connections_max: Self::CONNECTIONS_MAX,
            left_out: 0,
            lost: 0,
            lost_at: BTreeMap::new(),
            open_by: BTreeMap::new(),
        }
    }

    /// From now on connections that one of `only` means are followed; those that are followed already go on.
    pub fn follow(&mut self, only: Vec<Only>) {
        self.only = only;
    }

    /// What is followed.
    pub fn only(&self) -> &[Only] {
        &self.only
    }

    /// Takes the next event. Events of one connection must come in the order of their times; those of different
    /// connections may come in any.
    pub fn take(&mut self, event: Event) {
        let origin = event.origin;
        match event.what {
            What::Loaded { program, .. } => self.image(origin).program = Some(program.into()),
            What::Forked { parent_image, fork, program, .. } => {
                self.forked(origin, parent_image, fork, &program);
            }
            What::Resolved { begin, end, error, .. } => self.resolved(origin, begin, end, error),
            What::Opened(opened) => self.opened(origin, &opened),
            What::Connected(attempt) => self.with(attempt.connection, |open, _| open.connected(&attempt)),
            What::ConnectFailed(attempt) => {
                if let Some(open) = self.remove(attempt.connection) {
                    open.not_made(&attempt, &mut self.done);
                }
            }
            What::Withdrawn { connection, .. } => drop(self.remove(connection)),
            What::Sent(run) => {
                self.hold(origin, run.connection);
                self.with(run.connection, |open, done| {
                    open.used_by(origin.image);
                    open.sent(&run, done);
                });
            }
            What::Received(run) => {
                self.hold(origin, run.connection);
                self.with(run.connection, |open, done| {
                    open.used_by(origin.image);
                    open.received(&run, done);
                });
            }
            What::Closed(closed) => self.closed(origin, &closed),
            What::Left(closed) => {
                self.hold(origin, closed.connection);
                self.with(closed.connection, |open, _| open.left(origin.image, &closed));
                if self.connections.contains_key(&closed.connection) {
                    self.image(origin).let_go(&closed);
                }
                self.recount(closed.connection);
            }
            What::Lost { records } => self.lost = self.lost.saturating_add(records),
            What::Shut { .. }
            | What::Filtered { .. }
            | What::Executing { .. }
            | What::Polled { .. }
            | What::Aside { .. } => {}
        }
    }

    /// An image is gone, after its last event: what it had open is closed, in order if it said that it was leaving, cut
    /// if not. `at` is when it was found out.
    pub fn gone(&mut self, image: u32, at: Timestamp) {
        self.ends(image, at, false);
    }

    /// The same of an image that became another by exec: what it had may be the next one's, which says so when it begins.
    pub fn replaced(&mut self, image: u32, at: Timestamp) {
        self.ends(image, at, true);
    }

    fn ends(&mut self, image: u32, at: Timestamp, is_replaced: bool) {
        let Some(gone) = self.images.remove(&image) else { return };
        let mut held: Vec<u64> = gone.held.iter().copied().collect();
        // In the order of their numbers in the run, so that the same events give the same rows.
        held.sort_by_key(|key| self.connections.get(key).map(|open| open.number));
        for key in held {
            let Some(open) = self.connections.get_mut(&key) else { continue };
            open.gone(image, at);
            let last = open.holders.is_empty() && open.lingering.is_none();
            if last && (is_replaced || gone.let_go.iter().any(|left| left.key == key)) {
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
        if !gone.let_go.is_empty() {
            self.departed.push_back((image, at, gone));
        }
    }

    /// It is `now`: what lingered long enough has ended.
    pub fn tick(&mut self, now: Timestamp) {
        while let Some(&(key, at)) = self.lingering.front()
            && now.since(at) >= LINGER_TIME
        {
            self.lingering.pop_front();
            // A later close of it has an entry of its own.
            if self.connections.get(&key).is_some_and(|open| open.lingering == Some(at))
                && let Some(open) = self.remove(key)
            {
                open.over(&mut self.done);
            }
        }
        while self.departed.front().is_some_and(|(_, at, _)| now.since(*at) >= LINGER_TIME) {
            self.departed.pop_front();
        }
    }

    /// Records of this image were lost before `at`; of image 0 of a user's: of any of them. Among them may be ends of connections.
    pub fn note_lost_records(&mut self, image: u32, at: Timestamp) {
        match self.images.get_mut(&image) {
            _ if image.trailing_zeros() >= INDEX_SHIFT => drop(self.lost_at.insert(image >> INDEX_SHIFT, at)),
            Some(image) => image.lost_at = Some(at),
            None => {}
        }
    }

    /// It is `now`: connections of which nothing was heard for an hour, and since a loss of records that may have been about them, are given up:
    /// nobody will tell their end. Without it a program that lives for months would have more and more of them.
    pub fn give_up(&mut self, now: Timestamp) {
        let lost_at = |open: &Connection| {
            let holders = open.holders.iter().filter_map(|image| self.images.get(image)?.lost_at);
            holders.chain(self.lost_at.get(&open.index).copied()).max()
        };
        let is_over = |open: &Connection| {
            let heard = open.heard_at();
            now.since(heard) >= SILENCE_TIMEOUT && lost_at(open).is_some_and(|lost| lost >= heard)
        };
        let over = self.connections.iter().filter(|(_, open)| is_over(open));
        let mut over: Vec<(u64, u64)> = over.map(|(key, open)| (open.number, *key)).collect();
        over.sort_unstable();
        for (_, key) in over {
            if let Some(open) = self.remove(key) {
                open.over(&mut self.done);
            }
        }
    }

    /// Whether something here waits for time to pass.
    pub fn waits(&self) -> bool {
        !self.lingering.is_empty() || !self.departed.is_empty()
    }

    /// The run ends: what is still open is cut.
    pub fn end(&mut self) {
        let mut keys: Vec<u64> = self.connections.keys().copied().collect();
        keys.sort_by_key(|key| self.connections[key].number);
        for key in keys {
            if let Some(open) = self.remove(key) {
                open.over(&mut self.done);
            }
        }
        self.images.clear();
        self.departed.clear();
        self.lingering.clear();
        self.lost_at.clear();
    }

    /// The rows that are complete, in the order of ending; `into` is added to.
    pub fn drain(&mut self, into: &mut Vec<TapExchange>) {
        into.append(&mut self.done);
    }

    /// Connections open now.
    pub fn open(&self) -> usize {
        self.connections.len()
    }

    /// Connections in process now: connect called or accept returned, and not closed, nor left by all that had it. Counted
    /// up and down as it happens, for Little's law; [`open`](Self::open) is how many are kept in mind, which is for longer.
    pub fn in_process(&self) -> u64 {
        self.in_process
    }

    /// Exchanges asked and not answered now.
    pub fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Connections opened so far.
    pub fn opened_so_far(&self) -> u64 {
        self.next
    }

    /// Connections that found no room.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Records that rings had no room for.
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
            // Closed or left before the child told of itself, and after the fork.
            let childs = parent.let_go.iter().filter(|gone| gone.forks[0] < fork && fork <= gone.forks[1]);
            held.extend(childs.map(|gone| gone.key).filter(|key| self.connections.contains_key(key)));
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
            image.looked_up(origin.tid, lookup_ns);
            return;
        }
        let (pid, program) = (image.pid, image.program.clone());
        // It has no peer, so a choice of peers is no choice of it.
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
        let (peer, own) = (known(opened.peer), known(opened.local));
        let side = match opened.role {
            Role::Connected => TapSide::Client,
            Role::Accepted => TapSide::Server,
            Role::Found if let Some(side) = self.inherited_side(opened.connection) => side,
            // Who began is not known: services have the lower port.
            Role::Found if opened.local.port() < opened.peer.port() => TapSide::Server,
            Role::Found => TapSide::Client,
        };
        // Also of one that is not followed: it was this connect that the lookup was for.
        let lookup_ns = if opened.role == Role::Connected { self.image(origin).lookup(origin.tid) } else { None };
        let service = match side {
            TapSide::Client => peer,
            TapSide::Server => own,
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
            // Its end was not seen; the number is new again.
            before.over(&mut self.done);
        }
        let index = origin.image >> INDEX_SHIFT;
        if !self.has_room_for(index) {
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
            local: own,
            opened_at: opened.at,
            lookup_ns,
            ..TapExchange::BLANK
        };
        image.held.insert(opened.connection);
        let mut open = Connection::new(self.next, opened.role, origin.image, row);
        open.is_bystander = opened.inherited;
        self.connections.insert(opened.connection, open);
        self.in_process += 1;
        self.next += 1;
    }

    /// Whether one more may be open: users other than the one whose tap it is have a share each, and leave one for that one.
    fn has_room_for(&self, index: u32) -> bool {
        let others = || self.open_by.range(1..).map(|(_, open)| open).sum::<usize>();
        let is_one_of_many = |open: usize| open < self.connections_max / 8 && others() < self.connections_max / 4 * 3;
        let own = self.open_by.get(&index).copied().unwrap_or(0);
        self.connections.len() < self.connections_max && (index == 0 || is_one_of_many(own))
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
            image.let_go(closed);
        }
        if last && let Some(open) = self.remove(closed.connection) {
            open.closed(closed.begin, &mut self.done);
        }
    }

    /// The asking side of a connection that an image before had, if that is known.
    fn inherited_side(&self, key: u64) -> Option<TapSide> {
        self.inherited.iter().rev().find(|(other, _)| *other == key).map(|(_, side)| *side)
    }

    /// Whoever uses a connection has it, also where the fork was not seen.
    fn hold(&mut self, origin: Origin, key: u64) {
        let Some(open) = self.connections.get_mut(&key) else { return };
        if open.hold(origin.image) {
            self.image(origin).held.insert(key);
            self.recount(key);
        }
    }

    /// Does something with a connection that is followed, and keeps the count of those in flight.
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
        self.in_process -= u64::from(open.counted);
        Some(open)
    }

    /// Keeps the count of those in process, when something was done to who has this one.
    fn recount(&mut self, key: u64) {
        let Some(open) = self.connections.get_mut(&key) else { return };
        match (open.counted, open.is_in_process()) {
            (false, true) => self.in_process += 1,
            (true, false) => self.in_process -= 1,
            _ => return,
        }
        open.counted = !open.counted;
    }
}

impl Default for Exchanges {
    /// Follows all.
    fn default() -> Self {
        Exchanges::new(Vec::new())
    }
}

/// So many of the latest are remembered: 24 KB.
const INHERITED_MAX: usize = 1024;

/// A child tells of itself when it first runs, and its parent may have closed by then what both had: a connection that was
/// shared is over if nobody has used it for so long.
const LINGER_TIME: Duration = Duration::from_secs(1);
/// No keep-alive of a connection is longer that is worth being followed without its beginning.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3600);
