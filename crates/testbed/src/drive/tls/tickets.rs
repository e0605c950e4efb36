//! Stored TLS sessions of one client.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls_pki_types::ServerName;

/// Stored TLS 1.3 tickets. Each is used once (RFC 8446, appendix C.4), and each concurrent connection of a client needs
/// its own: rustls' own store keeps 8 and would force full handshakes on a client with 64 connections.
const TICKETS_MAX: usize = 256;

/// A client's sessions with one target, so server names need not be compared.
#[derive(Debug, Default)]
pub(super) struct Tickets(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Tickets {
    /// One thread uses it; rustls requires the lock.
    fn open(&self) -> MutexGuard<'_, Remembered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.open().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.open().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.open().session = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.open().session.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.open().session = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let tickets = &mut self.open().tickets;
        if tickets.len() == TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.open().tickets.pop_back()
    }
}
