//! QUIC connections: finds the connection of a datagram, by its ends or, after a migration, by its connection ID.
//!
//! A connection begins with a client's Initial packet that decrypts with the keys of its version; connections that were
//! open before the capture are not recognized, since a packet with a short header shows nothing. Between two ends there
//! is one connection at a time: another Initial packet of the client begins the next.
//!
//! A client whose address or port changes is followed if it keeps the connection ID that the server chose in the
//! handshake, as behind a NAT that rebinds. A client that migrates on purpose takes a new ID, which is encrypted: without
//! the secrets of a key log its datagrams are not assigned.
//!
//! Read [`flow::QuicFlow`] for one connection, [`protection`] for its keys, [`secure`] for what a key log adds.

mod assembly;
mod flow;
mod initial;
mod packets;
mod protection;
mod secure;
mod session;
mod spin;

use std::collections::BTreeMap;

use schema::{Direction, QuicConnectionRecord, RecordEnd};
use stats::Histogram;
use units::time::saturating_nanos;
use wire::quic::{CONNECTION_ID_MAX, ConnectionId, is_long};

use crate::key::Key;
use crate::out::Context;
use crate::table::{Index, Table};
use crate::tcp::half::NEVER;
pub(crate) use assembly::{Assembly, Received};
pub(crate) use flow::{Datagram, QuicFlow};
pub(crate) use packets::PacketLog;

/// All QUIC connections of a capture.
pub(crate) struct Quic {
    table: Table<QuicFlow>,
    /// Pairs of ends after migrations.
    paths: BTreeMap<Key, Index>,
    /// Connection IDs of clients and servers, and the direction of packets to them.
    ids: BTreeMap<ConnectionId, (Index, Direction)>,
    /// Number of these IDs by length.
    id_lengths: [u32; CONNECTION_ID_MAX + 1],
    records: Vec<QuicConnectionRecord>,
    pub(crate) handshake_rtt: Histogram,
    /// Mean round trips by the spin bit, of connections that were recorded.
    pub(crate) spin_rtt: Histogram,
    scratch: Vec<u8>,
    due: Vec<Index>,
}

/// The connection of a datagram.
struct Found {
    index: Index,
    direction: Direction,
}

impl Quic {
    pub(crate) fn new(hash_seed: u64) -> Quic {
        Quic {
            table: Table::new(hash_seed),
            paths: BTreeMap::new(),
            ids: BTreeMap::new(),
            id_lengths: [0; CONNECTION_ID_MAX + 1],
            records: Vec::new(),
            handshake_rtt: Histogram::new(),
            spin_rtt: Histogram::new(),
            scratch: Vec::new(),
            due: Vec::new(),
        }
    }

    /// Number of connections in memory.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Appends the records that were closed.
    pub(crate) fn take(&mut self, into: &mut Vec<QuicConnectionRecord>) {
        into.append(&mut self.records);
    }

    /// Processes a datagram between the ends of `key`, sent by the second of them if `is_second`. False if it belongs to
    /// no QUIC connection.
    pub(crate) fn datagram(
        &mut self,
        key: &Key,
        is_second: bool,
        datagram: &Datagram<'_>,
        context: &mut Context<'_>,
    ) -> bool {
        let found = match self.find(key, is_second) {
            Some(found) => {
                let is_replaced =
                    found.direction == Direction::Up && self.table.flow(found.index).is_replaced_by(datagram);
                if is_replaced {
                    self.end(found.index, RecordEnd::Reused, context);
                    self.begin(key, is_second, datagram, context)
                } else {
                    Some(found)
                }
            }
            None => {
                self.find_migrated(key, is_second, datagram).or_else(|| self.begin(key, is_second, datagram, context))
            }
        };
        let Some(Found { index, direction }) = found else { return false };
        let mut scratch = std::mem::take(&mut self.scratch);
        let (number, client_is_second) = (self.table.flow(index).number, self.table.flow(index).client_is_second);
        let own = self.table.key(index);
        let mut out = context.out(&own, number, client_is_second);
        let flow = self.table.flow(index);
        let timeout_before = flow.idle_timeout_ns;
        let has_closed = flow.receive(direction, datagram, &mut scratch, &mut out);
        if let Some(rtt) = flow.take_rtts(|client, server| context.capture_point.handshake_rtt_ns(client, server)) {
            self.handshake_rtt.record(rtt);
        }
        if scratch.capacity() <= SCRATCH_KEPT_MAX {
            self.scratch = scratch;
        }
        self.note_ids(index);
        for (id, direction) in self.table.flow(index).take_new_ids() {
            if id.len() >= ID_DECISIVE_MIN {
                self.add_id(index, id, direction);
            }
        }
        let flow = self.table.flow(index);
        let has_timeout = flow.idle_timeout_ns != timeout_before;
        let second = next_check(flow.last_packet_at, timeout_of(flow, context.idle_timeout_ns));
        if has_closed {
            self.table.close(index);
        } else if has_timeout && flow.over_at == NEVER {
            self.table.schedule(index, second);
        }
        true
    }

    /// The connection between these ends.
    fn find(&mut self, key: &Key, is_second: bool) -> Option<Found> {
        let hash = self.table.hash(key);
        if let Some(index) = self.table.find(key, hash) {
            let is_up = is_second == self.table.flow(index).client_is_second;
            return Some(Found { index, direction: if is_up { Direction::Up } else { Direction::Down } });
        }
        let index = *self.paths.get(key)?;
        let server = self.server(index);
        let source = key.end(is_second);
        Some(Found { index, direction: if source == server { Direction::Down } else { Direction::Up } })
    }

    fn server(&mut self, index: Index) -> std::net::SocketAddr {
        let second = !self.table.flow(index).client_is_second;
        self.table.key(index).end(second)
    }

    /// The connection that continues between these new ends: its server is one of them, and the packet has one of its
    /// connection IDs.
    fn find_migrated(&mut self, key: &Key, is_second: bool, datagram: &Datagram<'_>) -> Option<Found> {
        let (&first, rest) = datagram.payload.split_first()?;
        if is_long(first) {
            return None;
        }
        let lengths = (ID_DECISIVE_MIN..=CONNECTION_ID_MAX).filter(|&length| self.id_lengths[length] > 0);
        let mut found = lengths.filter_map(|length| {
            let id = ConnectionId::new(rest.get(..length)?)?;
            self.ids.get(&id).copied()
        });
        let (index, direction) = found.next()?;
        let server = self.server(index);
        let is_to_server = direction == Direction::Up && key.end(!is_second) == server;
        let is_of_server = direction == Direction::Down && key.end(is_second) == server;
        let flow = self.table.flow(index);
        if !(is_to_server || is_of_server) || flow.paths.len() >= PATHS_MAX || flow.over_at != NEVER {
            return None;
        }
        flow.note_migration();
        flow.paths.push(*key);
        flow.migrated_client = Some(key.end(if is_to_server { is_second } else { !is_second }));
        self.paths.insert(*key, index);
        Some(Found { index, direction })
    }

    /// The connection that a client's first packet begins.
    #[cold]
    fn begin(
        &mut self,
        key: &Key,
        is_second: bool,
        datagram: &Datagram<'_>,
        context: &mut Context<'_>,
    ) -> Option<Found> {
        let number = context.next_connection;
        let flow = QuicFlow::begin(number, datagram, &mut context.out(key, number, is_second))?;
        if self.table.len() >= context.limits.flows.max(1) {
            self.evict_one(context);
        }
        context.next_connection += 1;
        let second = next_check(flow.last_packet_at, context.idle_timeout_ns);
        let hash = self.table.hash(key);
        // A path of another connection, which is over.
        self.paths.remove(key);
        Some(Found { index: self.table.insert(*key, hash, second, flow), direction: Direction::Up })
    }

    /// Registers the connection IDs that have become known.
    fn note_ids(&mut self, index: Index) {
        let flow = self.table.flow(index);
        let known = [(Some(flow.client_id), Direction::Down), (flow.server_id, Direction::Up)];
        for (id, direction) in known {
            let Some(id) = id.filter(|id| id.len() >= ID_DECISIVE_MIN) else { continue };
            self.add_id(index, id, direction);
        }
    }

    fn add_id(&mut self, index: Index, id: ConnectionId, direction: Direction) {
        let flow = self.table.flow(index);
        if flow.ids.contains(&id) || flow.ids.len() >= IDS_MAX || self.ids.contains_key(&id) {
            return;
        }
        flow.ids.push(id);
        self.ids.insert(id, (index, direction));
        self.id_lengths[id.len()] += 1;
    }

    #[cold]
    fn evict_one(&mut self, context: &mut Context<'_>) {
        if let Some(index) = self.table.first_closed() {
            return self.end(index, RecordEnd::Closed, context);
        }
        let mut due = std::mem::take(&mut self.due);
        self.table.soonest(EVICTION_CANDIDATES, &mut due);
        let silent = due.drain(..).min_by_key(|&index| self.table.flow(index).last_packet_at);
        self.due = due;
        if let Some(index) = silent {
            self.end(index, RecordEnd::Evicted, context);
        }
    }

    /// Records closed connections after their linger time, and open ones that are idle.
    pub(crate) fn age(&mut self, now: u64, linger_ns: u64, context: &mut Context<'_>) {
        while let Some(index) = self.table.first_closed() {
            if now.saturating_sub(self.table.flow(index).over_at) < linger_ns {
                break;
            }
            self.end(index, RecordEnd::Closed, context);
        }
        let mut due = std::mem::take(&mut self.due);
        self.table.turn(now / SECOND, &mut due);
        for index in due.drain(..) {
            let flow = self.table.flow(index);
            let last_packet_at = flow.last_packet_at;
            let timeout_ns = timeout_of(flow, context.idle_timeout_ns);
            if now.saturating_sub(last_packet_at) >= timeout_ns {
                self.end(index, RecordEnd::Idle, context);
            } else {
                self.table.schedule(index, next_check(last_packet_at, timeout_ns));
            }
        }
        self.due = due;
    }

    /// Records at most `most` of the remaining connections; true while there are more.
    pub(crate) fn finish_some(&mut self, most: usize, context: &mut Context<'_>) -> bool {
        for index in self.table.indices().into_iter().take(most) {
            self.end(index, RecordEnd::CaptureEnd, context);
        }
        self.table.len() > 0
    }

    /// Removes a connection and records it.
    fn end(&mut self, index: Index, end: RecordEnd, context: &mut Context<'_>) {
        let key = self.table.remove(index);
        let flow = self.table.flow(index);
        for path in flow.paths.drain(..) {
            self.paths.remove(&path);
        }
        for id in flow.ids.drain(..) {
            self.ids.remove(&id);
            self.id_lengths[id.len()] -= 1;
        }
        // A connection whose close was seen has closed, whatever ended the record.
        let end = if flow.over_at != NEVER { RecordEnd::Closed } else { end };
        if let Some(rtt) = flow.spin_rtt_ns() {
            self.spin_rtt.record(rtt);
        }
        let mut out = context.out(&key, flow.number, flow.client_is_second);
        self.records.push(flow.record([key.end(false), key.end(true)], end, &mut out));
    }
}

/// The time after which a connection without packets has ended: that of the analysis, or the one that the client
/// announced. The shorter of both ends' timeouts counts, so that the client's is an upper bound.
fn timeout_of(flow: &QuicFlow, idle_timeout_ns: u64) -> u64 {
    idle_timeout_ns.min(flow.idle_timeout_ns.unwrap_or(u64::MAX).saturating_add(SECOND))
}

/// The second in which a connection is checked: when it will have been idle.
fn next_check(last_packet_at: u64, timeout_ns: u64) -> u64 {
    last_packet_at.saturating_add(timeout_ns).div_ceil(SECOND)
}

/// The idle timeout of an analysis.
pub(crate) fn idle_timeout_ns(spec: &crate::WatchSpec) -> u64 {
    saturating_nanos(spec.idle_timeout).max(SECOND)
}

const SECOND: u64 = 1_000_000_000;
/// Shorter IDs would be found in other connections' packets by chance.
const ID_DECISIVE_MIN: usize = 4;
/// Connection IDs by which a connection is found, and pairs of ends after migrations.
const IDS_MAX: usize = 16;
const PATHS_MAX: usize = 16;
/// Connections examined to find the longest silent one.
const EVICTION_CANDIDATES: usize = 16;
/// Largest scratch memory that is kept: that of any datagram.
const SCRATCH_KEPT_MAX: usize = 128 * 1024;

#[cfg(test)]
mod tests;
