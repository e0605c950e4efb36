//! The part of a QUIC connection that the secrets of a key log make readable.

use schema::Direction;
use wire::quic::{ConnectionId, LongKind};
use wire::tls::handshake::{ServerHello, kind};

use super::QuicFlow;
use crate::flow::opposite;
use crate::out::Out;
use crate::quic::secure::{News, Packet, PacketKind, Secure};

impl QuicFlow {
    /// With the cipher suite, and the secrets of a key log, the rest can be decrypted.
    pub(super) fn note_server_hello(&mut self, kind: u8, body: &[u8], out: &mut Out<'_>) {
        if kind != kind::SERVER_HELLO || self.secure.is_some() {
            return;
        }
        if let (Some(log), Some(random), Some(hello)) = (out.key_log, self.client_random, ServerHello::parse(body)) {
            self.secure = Secure::new(log, &random, self.version, hello.cipher_suite, out).map(Box::new);
        }
    }

    /// Decrypts a Handshake or 0-RTT packet, if there are secrets.
    pub(super) fn receive_protected(
        &mut self,
        direction: Direction,
        kind: LongKind,
        packet: &[u8],
        number_at: usize,
        scratch: &mut Vec<u8>,
        out: &mut Out<'_>,
    ) {
        let is_ready = self.secure.as_ref().is_some_and(|secure| secure.is_ready());
        match kind {
            LongKind::Handshake if !is_ready => {
                self.decrypt(direction, Packet { bytes: packet, number_at, kind: PacketKind::Handshake }, scratch, out);
                if self.secure.as_ref().is_some_and(|secure| secure.is_ready()) {
                    self.open_early(scratch, out);
                }
            }
            LongKind::ZeroRtt if direction == Direction::Up && is_ready => {
                self.decrypt(direction, Packet { bytes: packet, number_at, kind: PacketKind::Early }, scratch, out);
            }
            LongKind::ZeroRtt if direction == Direction::Up && out.key_log.is_some() => {
                let held: usize = self.early.iter().map(|(_, _, packet)| packet.len()).sum();
                if held + packet.len() <= out.limits.held_per_direction && out.hold(packet.len()) {
                    self.early.push((out.at, number_at, packet.to_vec()));
                }
            }
            _ => {}
        }
    }

    /// Reads the client's early data, at its times.
    fn open_early(&mut self, scratch: &mut Vec<u8>, out: &mut Out<'_>) {
        let now = out.at;
        for (at, number_at, packet) in std::mem::take(&mut self.early) {
            out.release(packet.len());
            out.at = at;
            let packet = Packet { bytes: &packet, number_at, kind: PacketKind::Early };
            self.decrypt(Direction::Up, packet, scratch, out);
        }
        out.at = now;
    }

    /// Decrypts a packet with a short header, if there are secrets.
    pub(super) fn receive_data(
        &mut self,
        direction: Direction,
        packet: &[u8],
        is_whole: bool,
        scratch: &mut Vec<u8>,
        out: &mut Out<'_>,
    ) {
        let id = if direction == Direction::Up { self.server_id } else { Some(self.client_id) };
        let Some(id) = id.filter(|_| self.secure.is_some()) else { return };
        if !is_whole {
            self.undecrypted = self.undecrypted.saturating_add(1);
            return;
        }
        self.decrypt(
            direction,
            Packet { bytes: packet, number_at: 1 + id.len(), kind: PacketKind::Data },
            scratch,
            out,
        );
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
