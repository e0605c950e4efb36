//! Unauthenticated connections, of which a limited number stays open, and addresses that are blocked after wrong
//! secrets.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::tester::handshake::ServerHandshake;

/// An unauthenticated connection.
pub(super) struct PendingConnection {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) since_ns: u64,
    /// Whether the connection is from the address of the current client.
    pub(super) is_client_address: bool,
    pub(super) handshake: ServerHandshake,
}

/// All unauthenticated connections, by a unique token, in order of arrival.
#[derive(Default)]
pub(super) struct PendingConnections {
    connections: Vec<(u64, PendingConnection)>,
    next: u64,
}

/// Limit of connections that have not sent the magic, from other addresses than the current client's.
const WITHOUT_HANDSHAKE_MAX: usize = 64;
/// The same limit for the address of the current client: connections of a trial, which send tickets.
const CLIENT_CONNECTIONS_MAX: usize = 256;
/// Limit of connections that have sent the magic and not yet proved that they know the secret.
const HANDSHAKES_MAX: usize = 8;

impl PendingConnections {
    pub(super) fn get(&mut self, token: u64) -> Option<&mut PendingConnection> {
        let at = self.index_of(token)?;
        Some(&mut self.connections[at].1)
    }

    pub(super) fn add(&mut self, connection: PendingConnection) -> (u64, &TcpStream) {
        let token = self.next;
        self.next += 1;
        self.connections.push((token, connection));
        (token, &self.connections[self.connections.len() - 1].1.stream)
    }

    pub(super) fn remove(&mut self, token: u64) -> Option<PendingConnection> {
        let at = self.index_of(token)?;
        Some(self.connections.remove(at).1)
    }

    /// Closes the oldest connection, if the limit is reached, before a new one is added. Returns its address.
    pub(super) fn evict_for_new(&mut self, is_client_address: bool) -> Option<SocketAddr> {
        let most = if is_client_address { CLIENT_CONNECTIONS_MAX } else { WITHOUT_HANDSHAKE_MAX };
        self.close_oldest(most - 1, |connection| {
            connection.is_client_address == is_client_address && !connection.handshake.is_open()
        })
    }

    /// Closes the oldest handshake, if the limit is exceeded, after a connection has sent the magic. Returns its
    /// address.
    pub(super) fn evict_for_handshake(&mut self, token: u64) -> Option<SocketAddr> {
        let is_client_address = self.get(token)?.is_client_address;
        self.close_oldest(HANDSHAKES_MAX, |connection| {
            connection.is_client_address == is_client_address && connection.handshake.is_open()
        })
    }

    /// Closes connections that have been open for longer than the timeout. Returns their addresses.
    pub(super) fn remove_expired(&mut self, now_ns: u64, timeout_ns: u64) -> Vec<SocketAddr> {
        let is_expired =
            |(_, connection): &mut (u64, PendingConnection)| now_ns.saturating_sub(connection.since_ns) > timeout_ns;
        self.connections.extract_if(.., is_expired).map(|(_, connection)| connection.peer).collect()
    }

    /// Closes the oldest of the selected connections, if there are more than `most`. The list is in order of arrival.
    fn close_oldest(&mut self, most: usize, selects: impl Fn(&PendingConnection) -> bool) -> Option<SocketAddr> {
        let mut selected =
            self.connections.iter().enumerate().filter(|(_, (_, connection))| selects(connection)).map(|(at, _)| at);
        let oldest = selected.next()?;
        if selected.count() < most {
            return None;
        }
        Some(self.connections.remove(oldest).1.peer)
    }

    fn index_of(&self, token: u64) -> Option<usize> {
        // Tokens increase with the index.
        self.connections.binary_search_by_key(&token, |(token, _)| *token).ok()
    }
}

/// Recent wrong secrets by address.
#[derive(Default)]
pub(super) struct FailedAttempts(Vec<AddressFailures>);

struct AddressFailures {
    address: IpAddr,
    times_ns: [Option<u64>; FAILURES_ALLOWED],
}

/// Number of wrong secrets within [`BLOCK_TIME`] that blocks an address for the same time.
const FAILURES_ALLOWED: usize = 3;
const BLOCK_TIME: Duration = Duration::from_secs(60);
/// Limit of remembered addresses; the oldest are evicted.
const ADDRESSES_MAX: usize = 256;

impl FailedAttempts {
    /// Records a wrong secret.
    pub(super) fn add(&mut self, address: IpAddr, now_ns: u64) {
        let address = address.to_canonical();
        let mut times_ns = [None; FAILURES_ALLOWED];
        if let Some(at) = self.0.iter().position(|failure| failure.address == address) {
            times_ns = self.0.remove(at).times_ns;
        } else if self.0.len() == ADDRESSES_MAX {
            self.0.remove(0);
        }
        times_ns.rotate_left(1);
        times_ns[FAILURES_ALLOWED - 1] = Some(now_ns);
        self.0.push(AddressFailures { address, times_ns });
    }

    /// Whether the address is blocked: its last three wrong secrets arrived within a minute, the last less than a
    /// minute ago.
    pub(super) fn is_blocked(&self, address: IpAddr, now_ns: u64) -> bool {
        let address = address.to_canonical();
        let minute = BLOCK_TIME.as_nanos() as u64;
        self.0.iter().filter(|failure| failure.address == address).any(|failure| {
            let (Some(first), Some(last)) = (failure.times_ns[0], failure.times_ns[FAILURES_ALLOWED - 1]) else {
                return false;
            };
            last - first <= minute && now_ns.saturating_sub(last) <= minute
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tester::handshake::Opening;
    use crate::tester::secret::Secret;
    use std::net::TcpListener;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn three_wrong_secrets_in_a_minute_block_the_address_for_a_minute() {
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        let mut failures = FailedAttempts::default();
        failures.add(address, SECOND);
        failures.add(mapped, 2 * SECOND);
        assert!(!failures.is_blocked(address, 2 * SECOND));
        failures.add(address, 61 * SECOND);
        assert!(failures.is_blocked(address, 121 * SECOND) && failures.is_blocked(mapped, 61 * SECOND));
        assert!(!failures.is_blocked(address, 121 * SECOND + 1), "the block ends after a minute");
        assert!(!failures.is_blocked("192.0.2.8".parse().unwrap(), 61 * SECOND));
        // Three wrong secrets within more than a minute do not block the address.
        let mut slow = FailedAttempts::default();
        [0, 30 * SECOND, 60 * SECOND + 1].into_iter().for_each(|at| slow.add(address, at));
        assert!(!slow.is_blocked(address, 61 * SECOND));
    }

    #[test]
    fn oldest_addresses_beyond_the_limit_are_evicted() {
        let mut failures = FailedAttempts::default();
        let address = |number: usize| IpAddr::from([10, 0, (number / 256) as u8, (number % 256) as u8]);
        for number in 0..=ADDRESSES_MAX {
            [1, 2, 3].into_iter().for_each(|at| failures.add(address(number), at));
        }
        assert_eq!(failures.0.len(), ADDRESSES_MAX);
        assert!(
            !failures.is_blocked(address(0), 3)
                && failures.is_blocked(address(1), 3)
                && failures.is_blocked(address(ADDRESSES_MAX), 3)
        );
    }

    #[test]
    fn handshake_slots_are_limited_and_the_oldest_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut pending = PendingConnections::default();
        let mut clients = Vec::new();
        let mut connection = |pending: &mut PendingConnections, open: bool, is_client_address: bool, since_ns| {
            clients.push(TcpStream::connect(at).unwrap());
            let (stream, peer) = listener.accept().unwrap();
            let mut handshake = ServerHandshake::new(&Secret::none());
            if open {
                handshake.receive(&Opening::Control.write());
            }
            let closed = pending.evict_for_new(is_client_address);
            let (token, _) = pending.add(PendingConnection { stream, peer, since_ns, is_client_address, handshake });
            let handshake = open.then(|| pending.evict_for_handshake(token)).flatten();
            (peer, token, closed, handshake)
        };
        let first = connection(&mut pending, false, false, 0);
        for number in 1..WITHOUT_HANDSHAKE_MAX {
            assert_eq!(connection(&mut pending, false, false, number as u64).2, None);
        }
        assert_eq!(connection(&mut pending, false, false, 70).2, Some(first.0), "a new connection closes the oldest");
        assert!(pending.get(first.1).is_none() && pending.remove(first.1).is_none());
        // Connections of the current client are counted separately.
        assert_eq!(connection(&mut pending, false, true, 71).2, None);
        for _ in 0..HANDSHAKES_MAX {
            // Each replaces one without handshake.
            pending.remove(pending.connections[0].0).unwrap();
            assert_eq!(connection(&mut pending, true, false, 72).3, None);
        }
        pending.remove(pending.connections[0].0).unwrap();
        let ninth = connection(&mut pending, true, false, 73);
        assert!(ninth.3.is_some() && pending.get(ninth.1).is_some());
        let before = pending.connections.len();
        let removed = pending.remove_expired(SECOND + 71, SECOND);
        assert!(!removed.is_empty() && removed.len() < before);
        assert!(pending.connections.iter().all(|(_, connection)| connection.since_ns >= 71));
    }
}
