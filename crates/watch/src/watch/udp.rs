//! UDP datagrams: those of QUIC connections are analysed, others are counted.

use schema::{Quantiles, QuicConnectionRecord, QuicPacket};
use units::Timestamp;
use units::time::saturating_nanos;
use wire::ip;
use wire::tunnel::{Tunnels, Unread};

use super::Watch;
use crate::key::Key;
use crate::out::Context;
use crate::quic::{Datagram, Quic, idle_timeout_ns};

impl Watch {
    /// Processes a UDP packet with the IP header `header` at the start of `packet`.
    #[cold]
    pub(super) fn handle_udp(&mut self, at: Timestamp, header: &ip::Packet, packet: &[u8], tunnels: Tunnels) {
        let packet = &packet[..packet.len().min(header.total_len)];
        let bytes = packet.get(header.transport_at..).unwrap_or(&[]);
        let available = header.total_len - header.transport_at;
        let Some(udp) = bytes.first_chunk::<UDP_HEADER>() else { return self.note_other(Unread::Udp(0)) };
        let [source, destination, length] = [0, 2, 4].map(|at| u16::from_be_bytes([udp[at], udp[at + 1]]));
        // A super-packet that the kernel had not yet cut may have no length.
        let length = if length == 0 { available } else { usize::from(length) };
        let is_whole = header.fragment.is_none() && (UDP_HEADER..=available).contains(&length);
        let datagram = Datagram {
            payload: bytes.get(UDP_HEADER..length.min(bytes.len())).unwrap_or(&[]),
            length: length.saturating_sub(UDP_HEADER),
            ip_bytes: header.total_len as u64,
        };
        let (key, is_second) = Key::new(header.addresses, source, destination);
        let is_quic = is_whole
            && self.spec.later_protocols
            && self.with_quic(at.as_nanos(), |quic, context| quic.datagram(&key, is_second, &datagram, context));
        if is_quic {
            self.counts.quic += 1;
            self.reading.note_tunnels(tunnels);
        } else {
            self.note_other(Unread::Udp(source.min(destination)));
        }
    }

    fn note_other(&mut self, what: Unread) {
        self.counts.other += 1;
        self.reading.note_unread(what);
    }

    /// Calls `then` with all QUIC connections, and with what they share with the others.
    pub(super) fn with_quic<T>(&mut self, at: u64, then: impl FnOnce(&mut Quic, &mut Context<'_>) -> T) -> T {
        let before = self.counts.connections + self.counts.quic_connections;
        let mut context = Context {
            at,
            packet: self.number,
            next_connection: before,
            idle_timeout_ns: idle_timeout_ns(&self.spec),
            capture_point: self.spec.capture_point,
            limits: &self.spec.limits,
            secrets: &mut self.secrets,
            later_protocols: self.spec.later_protocols,
            stores_words: self.spec.words,
            series: &mut self.series,
            reading: &mut self.reading,
            words: &mut self.words,
            requests: &mut self.requests,
            quic_packets: &mut self.quic_packets,
            held: &mut self.held,
        };
        let result = then(&mut self.quic, &mut context);
        self.counts.quic_connections += context.next_connection - before;
        result
    }

    /// Ages QUIC connections.
    pub(super) fn age_quic(&mut self) {
        if self.quic.len() > 0 {
            let (now, linger_ns) = (self.series.clock(), saturating_nanos(self.spec.linger));
            let at = self.series.now().as_nanos();
            self.with_quic(at, |quic, context| quic.age(now, linger_ns, context));
        }
    }

    /// Records at most `most` of the remaining QUIC connections; true while there are more.
    pub(super) fn finish_quic(&mut self, most: usize) -> bool {
        let at = self.series.now().as_nanos();
        self.with_quic(at, |quic, context| quic.finish_some(most, context))
    }

    /// Appends the QUIC connections whose records were closed since the last call, in the order of closing.
    pub fn take_quic_connections(&mut self, into: &mut Vec<QuicConnectionRecord>) {
        self.quic.take(into);
    }

    /// Appends the decrypted packets of QUIC connections since the last call, if they are asked for
    /// ([`crate::WatchSpec::quic_packets`]). Take them often: at most a million wait.
    pub fn take_quic_packets(&mut self, into: &mut Vec<QuicPacket>) {
        self.quic_packets.take(into);
    }

    /// Decrypted packets that were left out, because too many waited to be taken.
    pub fn quic_packets_lost(&self) -> u64 {
        self.quic_packets.lost()
    }

    /// Round-trip times of all QUIC handshakes so far at this capture point, in ns.
    pub fn quic_handshake_rtt(&self) -> Quantiles {
        self.quic.handshake_rtt.quantiles()
    }

    /// Mean round-trip times by the spin bit, in ns, of the recorded QUIC connections that use it.
    pub fn quic_spin_rtt(&self) -> Quantiles {
        self.quic.spin_rtt.quantiles()
    }
}

const UDP_HEADER: usize = 8;
