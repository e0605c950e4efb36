//! Handles proxies that refuse a tunnel.

use schema::FailureCause;
use units::Timestamp;

use super::Load;
use crate::connection::{ConnectionKey, State};

impl Load {
    /// The proxy rejected CONNECT with `status`, which is not 2xx. The target is unreachable, and the record contains
    /// the proxy's status.
    pub fn handle_refused(&mut self, now: Timestamp, key: ConnectionKey, status: u16) {
        if self.pool.find(key).is_none_or(|connection| connection.state != State::Securing) {
            return;
        }
        if self.is_multiplexed() {
            self.note_refusal(key.index, status);
        } else if let Some(request) = &mut self.pool.at(key.index).request {
            request.record.status = status;
        }
        self.handle_failure(now, key, FailureCause::ProxyRefused);
    }
}
