//! The switch of a connection to HTTP/2 (RFC 7540, section 3.2).

use super::Http;
use super::exchange::Exchange;

/// What a connection that switches to HTTP/2 takes along.
pub(crate) struct Upgrade {
    /// The request, which is that of stream 1.
    pub(crate) exchange: Exchange,
    /// Number of requests, including this one.
    pub(crate) requests: u32,
    /// Whether the series counts the connection as an HTTP session.
    pub(crate) is_session: bool,
}

impl Http {
    /// Takes the switch to HTTP/2, if the last response was one. Nothing is left here then.
    pub(crate) fn take_upgrade(&mut self) -> Option<Upgrade> {
        let exchange = *self.upgraded.take()?;
        let is_session = std::mem::replace(&mut self.is_session, false);
        Some(Upgrade { exchange, requests: self.requests, is_session })
    }

    /// Whether the connection has just switched to HTTP/2.
    pub(crate) fn has_upgraded(&self) -> bool {
        self.upgraded.is_some()
    }
}
