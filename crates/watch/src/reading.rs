//! Quality of a capture: excluded, corrected and doubtful packets.

use wire::tunnel::{Tunnel, Tunnels, Unread};

/// In addition to [`crate::Counts`]: properties of the captured packets that affect the figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Copies of recent TCP packets, excluded from every figure.
    pub duplicates: u64,
    /// Packets whose headers were truncated; [`crate::Counts::malformed`] includes them.
    pub cut: u64,
    /// Packets with a time before that of an earlier packet, beyond [`crate::WatchSpec::disorder`]. `most_ns` is the
    /// maximum difference.
    pub late: Fault,
    /// Packets that acknowledge bytes captured only after them, or with a later time. They were moved behind these;
    /// `most_ns` is the maximum difference.
    pub early_acks: Fault,
    /// Connections that continued after a silence of the capture as if no time had passed. `most_ns` is its length.
    pub jumps: Fault,
    /// Connections whose first data was not captured, so that their protocol is unknown.
    pub unread_streams: u64,
    /// Heads of HTTP/2 or HTTP/3 with fields that could not be decoded: the table that they refer to was not captured.
    pub undecoded_heads: u64,
    /// TLS and QUIC connections that were not decrypted, or TLS not to their end, although there is a key log: their secrets are not
    /// in it, their suite is unknown, or the capture lost bytes.
    pub undecrypted_tls: u64,
    /// Connections that began with a header of the PROXY protocol.
    pub proxied: u64,
    /// Packets inside of tunnels.
    pub tunnelled: u64,
    tunnels: [u64; Tunnel::ALL.len()],
    unread: Vec<(Unread, u64)>,
    unread_rest: u64,
}

/// An anomaly of packets: number, first occurrence, maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Number of occurrences.
    pub count: u64,
    /// Number of the first such packet in the capture, from 1; 0 if there is none.
    pub first_packet: u64,
    /// The maximum.
    pub most_ns: u64,
}

impl Fault {
    #[cold]
    pub(crate) fn note(&mut self, packet: u64, ns: u64) {
        if self.count == 0 {
            self.first_packet = packet;
        }
        self.count += 1;
        self.most_ns = self.most_ns.max(ns);
    }
}

impl Reading {
    /// Packets inside of each kind of tunnel; a packet inside of two kinds counts for both.
    pub fn tunnels(&self) -> impl Iterator<Item = (Tunnel, u64)> {
        Tunnel::ALL.into_iter().zip(self.tunnels).filter(|(_, packets)| *packets > 0)
    }

    /// Packets that were not analysed, most frequent kind first; `None` is the sum of the kinds beyond [`KINDS_MAX`].
    pub fn unread(&self) -> Vec<(Option<Unread>, u64)> {
        let mut unread: Vec<_> = self.unread.iter().map(|&(what, packets)| (Some(what), packets)).collect();
        unread.sort_by_key(|&(what, packets)| (std::cmp::Reverse(packets), what));
        if self.unread_rest > 0 {
            unread.push((None, self.unread_rest));
        }
        unread
    }

    pub(crate) fn note_tunnels(&mut self, tunnels: Tunnels) {
        let mut is_tunnelled = false;
        for (tunnel, packets) in Tunnel::ALL.into_iter().zip(&mut self.tunnels) {
            *packets += u64::from(tunnels.has(tunnel));
            is_tunnelled |= tunnels.has(tunnel);
        }
        self.tunnelled += u64::from(is_tunnelled);
    }

    pub(crate) fn note_unread(&mut self, what: Unread) {
        match self.unread.iter().position(|(known, _)| *known == what) {
            Some(at) => {
                self.unread[at].1 += 1;
                // Moved to the front, so that frequent kinds are found first.
                if at > 0 && self.unread[at - 1].1 < self.unread[at].1 {
                    self.unread.swap(at - 1, at);
                }
            }
            None if self.unread.len() < KINDS_MAX => self.unread.push((what, 1)),
            None => self.unread_rest += 1,
        }
    }
}

/// Maximum number of distinct kinds of unread packets: more than any network has, fewer than there are UDP ports.
pub const KINDS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unread_kinds_are_counted_and_bounded() {
        let mut reading = Reading::default();
        for port in 0..100u16 {
            for _ in 0..=port {
                reading.note_unread(Unread::Udp(port));
            }
        }
        let unread = reading.unread();
        assert_eq!(unread.len(), KINDS_MAX + 1);
        assert_eq!(unread[0], (Some(Unread::Udp(63)), 64));
        assert_eq!(unread.iter().map(|(_, packets)| packets).sum::<u64>(), (1..=100).sum::<u64>());
    }
}
