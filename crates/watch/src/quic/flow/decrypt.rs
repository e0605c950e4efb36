//! The part of a QUIC connection that the secrets of a key log make readable.

use schema::Direction;
use wire::quic::ConnectionId;
use wire::tls::handshake::{ServerHello, kind};

use super::QuicFlow;
use crate::flow::opposite;
use crate::out::Out;
use crate::quic::secure::{News, Packet, PacketKind, Secure};
use crate::secrets::Lookup;

impl QuicFlow {
    /// With the cipher suite, and the secrets, the rest can be decrypted.
    pub(super) fn note_server_hello(&mut self, kind: u8, body: &[u8], out: &mut Out<'_>) {
        if kind == kind::SERVER_HELLO && self.cipher_suite.is_none() {
            self.cipher_suite = ServerHello::parse(body).map(|hello| hello.cipher_suite);
            self.begin_decrypting(out);
        }
    }

    /// Begins to decrypt, if the cipher suite and the secrets are known.
    fn begin_decrypting(&mut self, out: &mut Out<'_>) {
        let (Some(random), Some(suite), None) = (self.client_random, self.cipher_suite, &self.secure) else { return };
        if let Lookup::Known(secrets) = out.secrets.take(&random) {
            self.secure = Secure::new(&secrets, self.version, suite, out).map(Box::new);
        }
    }

    /// Decrypts a packet that is not an Initial packet, if there are secrets. With those that a client reports the
    /// packets before wait for them.
    pub(super) fn receive_protected(
        &mut self,
        direction: Direction,
        packet: Packet<'_>,
        scratch: &mut Vec<u8>,
        out: &mut Out<'_>,
    ) {
        if !out.secrets.is_used() {
            return;
        }
        if self.secure.is_none() && self.may_be_read_later(out) {
            self.begin_decrypting(out);
            if self.secure.is_none() {
                self.unread.push(direction, packet, out);
                self.awaits_secrets = true;
                return;
            }
        }
        if self.secure.is_some() && std::mem::take(&mut self.awaits_secrets) {
            self.read_unread(scratch, out);
        }
        self.read_protected(direction, packet, scratch, out);
    }

    /// Whether packets that cannot be decrypted now wait: for a client's report, or, where each packet counts, for a
    /// ServerHello that was overtaken or lost.
    fn may_be_read_later(&self, out: &Out<'_>) -> bool {
        let may_be_known = || self.client_random.is_none_or(|random| out.secrets.may_know(&random));
        out.secrets.are_reported() || out.quic_packets.is_used() && may_be_known()
    }

    fn read_protected(&mut self, direction: Direction, packet: Packet<'_>, scratch: &mut Vec<u8>, out: &mut Out<'_>) {
        let is_ready = self.secure.as_ref().is_some_and(|secure| secure.is_ready());
        match packet.kind {
            PacketKind::Handshake if !is_ready => {
                self.decrypt(direction, packet, scratch, out);
                if self.secure.as_ref().is_some_and(|secure| secure.is_ready()) {
                    // Early data of the client.
                    self.read_unread(scratch, out);
                }
            }
            // After the first message the others are of use to a log of packets alone.
            PacketKind::Handshake if out.quic_packets.is_used() => self.decrypt(direction, packet, scratch, out),
            PacketKind::Handshake => {}
            PacketKind::Early if direction == Direction::Down => {}
            PacketKind::Early if !is_ready => self.unread.push(direction, packet, out),
            PacketKind::Early | PacketKind::Data => self.decrypt(direction, packet, scratch, out),
        }
    }

    /// Reads packets that have waited, at their times.
    fn read_unread(&mut self, scratch: &mut Vec<u8>, out: &mut Out<'_>) {
        let now = out.at;
        for held in self.unread.take(out) {
            out.at = held.at;
            self.read_protected(held.direction, held.packet(), scratch, out);
        }
        out.at = now;
    }

    /// Decrypts a packet with a short header, if there are secrets.
    pub(super) fn receive_data(
        &mut self,
        direction: Direction,
        bytes: &[u8],
        is_whole: bool,
        scratch: &mut Vec<u8>,
        out: &mut Out<'_>,
    ) {
        let id = if direction == Direction::Up { self.server_id } else { Some(self.client_id) };
        let is_read = self.secure.is_some() || out.secrets.is_used() && self.may_be_read_later(out);
        let Some(id) = id.filter(|_| is_read) else { return };
        if !is_whole {
            self.undecrypted = self.undecrypted.saturating_add(1);
            return;
        }
        let packet = Packet { bytes, number_at: 1 + id.len(), kind: PacketKind::Data };
        self.receive_protected(direction, packet, scratch, out);
    }

    /// Whether the connection has data that should have been decrypted and was not.
    pub(super) fn is_undecrypted(&self, out: &mut Out<'_>) -> bool {
        if self.secure.is_some() {
            return out.secrets.are_reported() && self.unread.has_overflowed;
        }
        if !out.secrets.are_reported() {
            return out.secrets.is_used();
        }
        // A client that gave up its handshake, or had no answer, sent no data.
        let gave_up = self.client_random.is_some_and(|random| out.secrets.forget(&random));
        self.sent[Direction::Up.index()].one_rtt_packets > 0 && !gave_up
    }

    fn decrypt(&mut self, direction: Direction, packet: Packet<'_>, scratch: &mut Vec<u8>, out: &mut Out<'_>) {
        let Some(secure) = &mut self.secure else { return };
        match secure.receive(direction, packet, scratch, out) {
            Some(News { close_error, ids }) => {
                // Packets to the sender of a connection ID have it.
                self.new_ids.extend(ids.into_iter().map(|id| (id, opposite(direction))));
                if let Some(error) = close_error {
                    self.note_close(error, out);
                }
            }
            None => self.undecrypted = self.undecrypted.saturating_add(1),
        }
    }

    /// Connection IDs that have become known since the last call.
    pub(in crate::quic) fn take_new_ids(&mut self) -> Vec<(ConnectionId, Direction)> {
        std::mem::take(&mut self.new_ids)
    }
}
