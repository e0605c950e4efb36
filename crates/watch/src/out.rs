//! Output and shared state for the analysis of one packet.

use std::net::SocketAddr;

use schema::WireRequest;

use crate::interned::Words;
use crate::key::Key;
use crate::quic::PacketLog;
use crate::reading::Reading;
use crate::secrets::SecretStore;
use crate::series::Series;
use crate::spec::{CapturePoint, Limits};

/// Shared state for all connections of a protocol while one packet is processed.
pub(crate) struct Context<'a> {
    /// Capture time of the packet, in nanoseconds.
    pub(crate) at: u64,
    /// Number of the packet in the capture.
    pub(crate) packet: u64,
    /// Sequence number of the next connection that begins.
    pub(crate) next_connection: u64,
    /// Time after which a silent connection is recorded.
    pub(crate) idle_timeout_ns: u64,
    pub(crate) capture_point: CapturePoint,
    pub(crate) limits: &'a Limits,
    pub(crate) secrets: &'a mut SecretStore,
    pub(crate) later_protocols: bool,
    pub(crate) stores_words: bool,
    pub(crate) series: &'a mut Series,
    pub(crate) reading: &'a mut Reading,
    pub(crate) words: &'a mut Words,
    pub(crate) requests: &'a mut Vec<WireRequest>,
    /// Decrypted packets of QUIC connections.
    pub(crate) quic_packets: &'a mut PacketLog,
    pub(crate) held: &'a mut usize,
}

impl Context<'_> {
    /// What is lent to the connection between the ends of `key`.
    pub(crate) fn out<'b>(&'b mut self, key: &'b Key, connection: u64, client_is_second: bool) -> Out<'b> {
        Out {
            at: self.at,
            packet: self.packet,
            connection,
            key,
            client_is_second,
            limits: self.limits,
            secrets: self.secrets,
            later_protocols: self.later_protocols,
            stores_words: self.stores_words,
            series: self.series,
            reading: self.reading,
            words: self.words,
            requests: self.requests,
            quic_packets: self.quic_packets,
            held: self.held,
        }
    }
}

/// Lent to a flow while one packet is processed.
pub(crate) struct Out<'a> {
    /// Capture time of the packet, in nanoseconds.
    pub(crate) at: u64,
    /// Number of the packet in the capture.
    pub(crate) packet: u64,
    /// The connection's sequence number.
    pub(crate) connection: u64,
    /// Ends of the connection, and whether the second one is the client.
    pub(crate) key: &'a Key,
    pub(crate) client_is_second: bool,
    pub(crate) limits: &'a Limits,
    /// Secrets of TLS connections.
    pub(crate) secrets: &'a mut SecretStore,
    /// Whether HTTP/2 is analysed.
    pub(crate) later_protocols: bool,
    /// Whether methods, hosts and paths are stored.
    pub(crate) stores_words: bool,
    pub(crate) series: &'a mut Series,
    pub(crate) reading: &'a mut Reading,
    pub(crate) words: &'a mut Words,
    pub(crate) requests: &'a mut Vec<WireRequest>,
    /// Decrypted packets of QUIC connections.
    pub(crate) quic_packets: &'a mut PacketLog,
    /// Bytes held by all connections.
    pub(crate) held: &'a mut usize,
}

impl Out<'_> {
    /// Addresses and ports of client and server.
    pub(crate) fn ends(&self) -> [SocketAddr; 2] {
        [self.client_is_second, !self.client_is_second].map(|second| self.key.end(second))
    }

    /// The interning cache for strings of heads, if they are stored.
    pub(crate) fn stored_words(&mut self) -> Option<&mut Words> {
        self.stores_words.then_some(&mut *self.words)
    }

    /// Whether memory for `bytes` is available.
    pub(crate) fn has_space(&self, bytes: usize) -> bool {
        *self.held + bytes <= self.limits.held_in_all
    }

    /// Reserves memory for `bytes`; false when there is none.
    pub(crate) fn hold(&mut self, bytes: usize) -> bool {
        let fits = self.has_space(bytes);
        if fits {
            *self.held += bytes;
        }
        fits
    }

    /// Releases memory.
    pub(crate) fn release(&mut self, bytes: usize) {
        *self.held = self.held.saturating_sub(bytes);
    }
}
