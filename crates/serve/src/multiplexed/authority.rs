//! For which hosts a client uses a connection over TLS.

use super::Ends;
use crate::connection::WorkerContext;

/// The host of a connection's first request, for which the client has chosen it, or a later one of the certificate's.
#[derive(Debug, Default)]
pub(crate) struct Authority(Vec<u8>);

impl Authority {
    /// Whether the client reuses this connection for a host that is not one of the certificate's (RFC 9113, section
    /// 9.1.1; RFC 9114, section 3.3). Why it chose the connection for the host of its first request is its own decision.
    pub(crate) fn is_misdirected(&mut self, context: &WorkerContext, ends: &Ends, authority: &[u8]) -> bool {
        let Some(tls) = context.tls.as_ref().filter(|_| ends.secure) else { return false };
        if authority == self.0 {
            return false;
        }
        if !self.0.is_empty() {
            let host = host_of(authority);
            if !host.eq_ignore_ascii_case(host_of(&self.0)) && !tls.is_for(host) {
                return true;
            }
        }
        self.0.clear();
        self.0.extend_from_slice(authority);
        false
    }
}

/// The host of an authority, without port.
fn host_of(authority: &[u8]) -> &[u8] {
    match authority {
        [b'[', ..] => authority.split_inclusive(|&byte| byte == b']').next().unwrap_or(authority),
        _ => authority.split(|&byte| byte == b':').next().unwrap_or(authority),
    }
}
