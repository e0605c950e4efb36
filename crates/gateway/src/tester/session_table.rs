//! The server's single session as the listener thread sees it: which connections and datagrams it accepts.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtle::ConstantTimeEq;

use super::control_connection::Inbox;
use super::datagram::Introduction;
use super::handshake::Ticket;
use super::message::Test;
use super::secret::{Keys, ShortTag};

/// State shared by the listener thread and the session.
#[derive(Clone, Default)]
pub(super) struct SessionTable {
    client: Arc<Mutex<Option<CurrentClient>>>,
    listener_cpu_ns: Arc<AtomicU64>,
}

/// The client of the current session.
pub(super) struct CurrentClient {
    /// Address of the client.
    pub(super) peer: SocketAddr,
    /// Local address of the control connection.
    pub(super) local: IpAddr,
    pub(super) keys: Keys,
    pub(super) inbox: Inbox,
    pub(super) expected: Option<ExpectedConnections>,
}

/// Connections and datagrams that a prepared trial expects.
pub(super) struct ExpectedConnections {
    trial: u32,
    /// By stream: whether it has connected.
    streams: Vec<bool>,
    /// By ticket: whether it was used, one bit each; absent in trials without connections.
    tickets: Option<Vec<u64>>,
    /// Whether the trial has datagrams and none has arrived yet.
    datagrams: bool,
}

impl SessionTable {
    pub(super) fn lock_client(&self) -> MutexGuard<'_, Option<CurrentClient>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// CPU time of the listener thread so far, which serves trials of connections. Set by that thread.
    pub(super) fn listener_cpu(&self) -> Duration {
        Duration::from_nanos(self.listener_cpu_ns.load(Ordering::Relaxed))
    }

    pub(super) fn set_listener_cpu(&self, cpu: Duration) {
        self.listener_cpu_ns.store(cpu.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Whether the address is that of the current client.
    pub(super) fn is_current_client(&self, address: IpAddr) -> bool {
        self.lock_client().as_ref().is_some_and(|client| client.has_address(address))
    }

    /// Sets the expected connections; `None`: none are accepted.
    pub(super) fn expect_trial(&self, expected: Option<ExpectedConnections>) {
        if let Some(client) = &mut *self.lock_client() {
            client.expected = expected;
        }
    }
}

impl CurrentClient {
    /// Whether the address is the client's.
    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        self.peer.ip().to_canonical() == address.to_canonical()
    }

    /// Whether an authenticated stream is expected. Each is accepted once.
    pub(super) fn accept_stream(&mut self, session: &ShortTag, trial: u32, index: u32) -> bool {
        let Some(expected) = self.expected.as_mut().filter(|expected| expected.trial == trial) else { return false };
        let Some(connected) = expected.streams.get_mut(index as usize) else { return false };
        self.keys.session() == *session && !std::mem::replace(connected, true)
    }

    /// Whether a ticket is valid. Each is accepted once.
    pub(super) fn accept_ticket(&mut self, ticket: &Ticket) -> bool {
        let Some(expected) = self.expected.as_mut().filter(|expected| expected.trial == ticket.trial) else {
            return false;
        };
        let Some(used) = expected.tickets.as_mut() else { return false };
        let Some(word) = used.get_mut(ticket.index as usize / 64) else { return false };
        let bit = 1 << (ticket.index % 64);
        if *word & bit != 0 || !bool::from(self.keys.ticket(ticket.trial, ticket.index).ct_eq(&ticket.tag)) {
            return false;
        }
        *word |= bit;
        true
    }

    /// Whether an introduction of datagrams is valid and expected. It is accepted once.
    pub(super) fn accept_introduction(&mut self, introduction: &Introduction) -> bool {
        let Some(expected) = self.expected.as_mut() else { return false };
        let is_expected = expected.datagrams && expected.trial == introduction.trial;
        let expected_tag = self.keys.introduction(introduction.trial);
        let is_valid = is_expected
            && introduction.session == self.keys.session()
            && bool::from(expected_tag.ct_eq(&introduction.tag));
        expected.datagrams &= !is_valid;
        is_valid
    }
}

impl ExpectedConnections {
    /// The connections and datagrams of this test.
    pub(super) fn new(trial: u32, test: &Test) -> Self {
        ExpectedConnections {
            trial,
            streams: vec![false; usize::from(test.streams())],
            tickets: matches!(test, Test::Connections { .. }).then(|| vec![0; TICKETS / 64]),
            datagrams: test.needs_udp(),
        }
    }
}

/// Limit of tickets per trial: 130 s at 30,000/s. The bits take half a megabyte.
pub(super) const TICKETS: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tester::handshake::{HandshakeStep, Opening, Proof, ServerHandshake};
    use crate::tester::secret::Secret;

    fn client(test: &Test) -> CurrentClient {
        let secret = Secret::new(b"correct-horse-battery-staple");
        let mut server = ServerHandshake::with_nonce(&secret, [7; 32]);
        server.receive(&Opening::Control.write());
        let HandshakeStep::Proven { keys, .. } =
            server.receive(Proof::new(&secret, &Opening::Control, [7; 32]).bytes())
        else {
            panic!("not proven")
        };
        CurrentClient {
            peer: "[::ffff:192.0.2.1]:5000".parse().unwrap(),
            local: "192.0.2.9".parse().unwrap(),
            keys: *keys,
            inbox: crate::tester::control_connection::inbox().0,
            expected: Some(ExpectedConnections::new(4, test)),
        }
    }

    #[test]
    fn connections_are_delivered_once_to_their_trial() {
        let mut client = client(&Test::Connections { parallel: 4, lasts_ms: 1000 });
        assert!(client.has_address("192.0.2.1".parse().unwrap()) && !client.has_address("192.0.2.2".parse().unwrap()));
        let ticket = |trial, index| Ticket { trial, index, tag: client.keys.ticket(trial, index) };
        let last = TICKETS as u32 - 1;
        let tickets = [ticket(4, 0), ticket(4, 64), ticket(4, last), ticket(3, 1), ticket(4, last + 1)];
        assert_eq!(tickets.map(|ticket| client.accept_ticket(&ticket)), [true, true, true, false, false]);
        assert_eq!(tickets.map(|ticket| client.accept_ticket(&ticket)), [false; 5], "tickets are accepted once");
        let other = Ticket { tag: client.keys.ticket(4, 5), ..ticket_of(&client, 6) };
        assert!(
            !client.accept_ticket(&other) && client.accept_ticket(&ticket_of(&client, 6)),
            "an invalid ticket does not use up its index"
        );
        let introduction = Introduction::new(&client.keys, 4);
        assert!(!client.accept_introduction(&introduction), "this test has no datagrams");
    }

    fn ticket_of(client: &CurrentClient, index: u32) -> Ticket {
        Ticket { trial: 4, index, tag: client.keys.ticket(4, index) }
    }

    #[test]
    fn streams_and_datagrams_are_delivered_once() {
        let mut client = client(&Test::Stream {
            up: true,
            streams: 2,
            socket_bytes: None,
            message_bytes: 1,
            lasts_ms: 10,
            omit_ms: 0,
            probes: true,
        });
        let session = client.keys.session();
        assert!(!client.accept_stream(&[0; 16], 4, 0));
        let attempts = [(4, 0), (4, 1), (4, 1), (4, 2), (5, 0)];
        let accepted = attempts.map(|(trial, index)| client.accept_stream(&session, trial, index));
        assert_eq!(accepted, [true, true, false, false, false]);
        let good = Introduction::new(&client.keys, 4);
        let wrong = [
            Introduction::new(&client.keys, 5),
            Introduction { tag: [0; 16], ..good },
            Introduction { session: [0; 16], ..good },
        ];
        assert_eq!(wrong.map(|introduction| client.accept_introduction(&introduction)), [false; 3]);
        assert!(client.accept_introduction(&good) && !client.accept_introduction(&good));
        assert!(!client.accept_ticket(&ticket_of(&client, 0)), "this test has no connections");
    }
}
