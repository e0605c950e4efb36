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
pub(super) struct Tickets(Mutex<StoredSessions>);

#[derive(Debug, Default)]
struct StoredSessions {
    group: Option<NamedGroup>,
    session: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl Tickets {
    /// Locks the sessions. Only one thread uses them, but rustls requires a lock.
    fn lock(&self) -> MutexGuard<'_, StoredSessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.lock().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.lock().session = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().session.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.lock().session = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let tickets = &mut self.lock().tickets;
        if tickets.len() == TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().tickets.pop_back()
    }
}
