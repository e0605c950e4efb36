//! What the server's door knows of the session inside: whom to let in to it, and with what.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use subtle::ConstantTimeEq;

use super::datagram::Introduction;
use super::handshake::Ticket;
use super::line::Inbox;
use super::message::Test;
use super::secret::{Keys, ShortTag};

/// Shared by the door and the session.
#[derive(Clone, Default)]
pub(super) struct SessionTable {
    guest: Arc<Mutex<Option<Guest>>>,
    door_cpu_ns: Arc<AtomicU64>,
}

/// The one who is being served.
pub(super) struct Guest {
    /// The other end of the control connection.
    pub(super) peer: SocketAddr,
    /// This end of it.
    pub(super) local: IpAddr,
    pub(super) keys: Keys,
    pub(super) inbox: Inbox,
    pub(super) awaited: Option<Awaited>,
}

/// What a trial that is prepared lets in.
pub(super) struct Awaited {
    trial: u32,
    /// Of each stream, whether it has come.
    streams: Vec<bool>,
    /// Of each ticket, whether it was used.
    tickets: Option<Vec<u64>>,
    /// Datagrams belong to it, and none has come.
    datagrams: bool,
}

impl SessionTable {
    pub(super) fn look(&self) -> MutexGuard<'_, Option<Guest>> {
        self.guest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the door's thread has used so far: of a trial of connections it is the server's part. ServerEvent by the door.
    pub(super) fn door_cpu(&self) -> Duration {
        Duration::from_nanos(self.door_cpu_ns.load(Ordering::Relaxed))
    }

    pub(super) fn tell_door_cpu(&self, cpu: Duration) {
        self.door_cpu_ns.store(cpu.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Whether it is the guest's address.
    pub(super) fn is_guest(&self, address: IpAddr) -> bool {
        self.look().as_ref().is_some_and(|guest| guest.is_at(address))
    }

    /// From now on this trial, or none, is let in to.
    pub(super) fn await_trial(&self, awaited: Option<Awaited>) {
        if let Some(guest) = &mut *self.look() {
            guest.awaited = awaited;
        }
    }
}

impl Guest {
    /// Whether the address is the guest's.
    pub(super) fn is_at(&self, address: IpAddr) -> bool {
        self.peer.ip().to_canonical() == address.to_canonical()
    }

    /// Whether a stream that has proved itself is one that is waited for: once.
    pub(super) fn admits_stream(&mut self, session: &ShortTag, trial: u32, index: u32) -> bool {
        let Some(awaited) = self.awaited.as_mut().filter(|awaited| awaited.trial == trial) else { return false };
        let Some(came) = awaited.streams.get_mut(index as usize) else { return false };
        self.keys.session() == *session && !std::mem::replace(came, true)
    }

    /// Whether a ticket is good: once.
    pub(super) fn admits(&mut self, ticket: &Ticket) -> bool {
        let Some(awaited) = self.awaited.as_mut().filter(|awaited| awaited.trial == ticket.trial) else { return false };
        let Some(used) = awaited.tickets.as_mut() else { return false };
        let Some(word) = used.get_mut(ticket.index as usize / 64) else { return false };
        let bit = 1 << (ticket.index % 64);
        if *word & bit != 0 || !bool::from(self.keys.ticket(ticket.trial, ticket.index).ct_eq(&ticket.tag)) {
            return false;
        }
        *word |= bit;
        true
    }

    /// Whether it introduces the datagrams of the trial: once.
    pub(super) fn admits_datagrams(&mut self, introduction: &Introduction) -> bool {
        let Some(awaited) = self.awaited.as_mut() else { return false };
        let is_awaited = awaited.datagrams && awaited.trial == introduction.trial;
        let own = self.keys.introduction(introduction.trial);
        let is_good =
            is_awaited && introduction.session == self.keys.session() && bool::from(own.ct_eq(&introduction.tag));
        awaited.datagrams &= !is_good;
        is_good
    }
}

impl Awaited {
    /// For this test.
    pub(super) fn new(trial: u32, test: &Test) -> Self {
        Awaited {
            trial,
            streams: vec![false; usize::from(test.streams())],
            tickets: matches!(test, Test::Connections { .. }).then(|| vec![0; TICKETS / 64]),
            datagrams: test.needs_udp(),
        }
    }
}

/// Tickets of one trial: 130 s of 30,000 a second; half a megabyte.
pub(super) const TICKETS: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tester::handshake::{Answering, HandshakeStep, Opening, Proof};
    use crate::tester::secret::Secret;

    fn guest(test: &Test) -> Guest {
        let secret = Secret::new(b"correct-horse-battery-staple");
        let mut server = Answering::with_nonce(&secret, [7; 32]);
        server.take(&Opening::Control.write());
        let HandshakeStep::Proven { keys, .. } = server.take(Proof::new(&secret, &Opening::Control, [7; 32]).bytes())
        else {
            panic!("not proven")
        };
        Guest {
            peer: "[::ffff:192.0.2.1]:5000".parse().unwrap(),
            local: "192.0.2.9".parse().unwrap(),
            keys: *keys,
            inbox: crate::tester::line::inbox().0,
            awaited: Some(Awaited::new(4, test)),
        }
    }

    #[test]
    fn connections_are_delivered_once_to_their_trial() {
        let mut guest = guest(&Test::Connections { parallel: 4, lasts_ms: 1000 });
        assert!(guest.is_at("192.0.2.1".parse().unwrap()) && !guest.is_at("192.0.2.2".parse().unwrap()));
        let ticket = |trial, index| Ticket { trial, index, tag: guest.keys.ticket(trial, index) };
        let last = TICKETS as u32 - 1;
        let tickets = [ticket(4, 0), ticket(4, 64), ticket(4, last), ticket(3, 1), ticket(4, last + 1)];
        assert_eq!(tickets.map(|ticket| guest.admits(&ticket)), [true, true, true, false, false]);
        assert_eq!(tickets.map(|ticket| guest.admits(&ticket)), [false; 5], "a second time");
        let other = Ticket { tag: guest.keys.ticket(4, 5), ..ticket_of(&guest, 6) };
        assert!(!guest.admits(&other) && guest.admits(&ticket_of(&guest, 6)), "a wrong one uses none up");
        let introduction = Introduction::new(&guest.keys, 4);
        assert!(!guest.admits_datagrams(&introduction), "none belong to this test");
    }

    fn ticket_of(guest: &Guest, index: u32) -> Ticket {
        Ticket { trial: 4, index, tag: guest.keys.ticket(4, index) }
    }

    #[test]
    fn streams_and_datagrams_are_delivered_once() {
        let mut guest = guest(&Test::Stream {
            up: true,
            streams: 2,
            socket_bytes: None,
            message_bytes: 1,
            lasts_ms: 10,
            omit_ms: 0,
            probes: true,
        });
        let session = guest.keys.session();
        assert!(!guest.admits_stream(&[0; 16], 4, 0));
        let asked = [(4, 0), (4, 1), (4, 1), (4, 2), (5, 0)];
        let admitted = asked.map(|(trial, index)| guest.admits_stream(&session, trial, index));
        assert_eq!(admitted, [true, true, false, false, false]);
        let good = Introduction::new(&guest.keys, 4);
        let wrong = [
            Introduction::new(&guest.keys, 5),
            Introduction { tag: [0; 16], ..good },
            Introduction { session: [0; 16], ..good },
        ];
        assert_eq!(wrong.map(|introduction| guest.admits_datagrams(&introduction)), [false; 3]);
        assert!(guest.admits_datagrams(&good) && !guest.admits_datagrams(&good));
        assert!(!guest.admits(&ticket_of(&guest, 0)), "no connections belong to this test");
    }
}
