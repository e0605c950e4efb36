//! Format of the datagrams of a trial.
//!
//! ```text
//!   mark:u64 number:u64 sent_ns:u64, then zeros to the configured length       little endian
//!   introduction: "YBKDGRM1" session:16 trial:u32 tag:16                         the client's first datagram
//! ```
//!
//! The mark is derived from the session's key for each trial and kind of datagram, so that only both ends know it.

use super::secret::{Keys, ShortTag};

/// Header of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Mark of trial and kind.
    pub mark: u64,
    /// Sequence number, from 0 without gaps.
    pub number: u64,
    /// Time of sending on the sender's monotonic clock, in nanoseconds. An echoed datagram has the time of the client.
    pub sent_ns: u64,
}

impl Datagram {
    /// Length in bytes.
    pub const BYTES: usize = 24;

    /// The datagram as sent.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.mark.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// Parses a header; `None` if there are too few bytes.
    pub fn read(bytes: &[u8]) -> Option<Datagram> {
        let (words, _) = bytes.as_chunks::<8>();
        let &[mark, number, sent_ns, ..] = words else { return None };
        let [mark, number, sent_ns] = [mark, number, sent_ns].map(u64::from_le_bytes);
        Some(Datagram { mark, number, sent_ns })
    }
}

/// Marks of the datagrams of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    /// Counted packets.
    pub(super) packet: u64,
    /// Probes, which the server sends back.
    pub(super) probe: u64,
    /// Keep-alives.
    pub(super) keep_alive: u64,
}

impl Marks {
    pub(super) fn new(keys: &Keys, trial: u32) -> Self {
        let [packet, probe, keep_alive] = ["packet", "probe", "alive"].map(|kind| keys.mark(kind, trial));
        Marks { packet, probe, keep_alive }
    }
}

/// The client's first datagram of a trial, which tells the server the client's port after address translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// Number of the session.
    pub session: ShortTag,
    /// Number of the trial.
    pub trial: u32,
    /// Proof of the secret.
    pub tag: ShortTag,
}

impl Introduction {
    /// Length in bytes.
    pub const BYTES: usize = 44;

    /// The introduction of a trial.
    pub fn new(keys: &Keys, trial: u32) -> Self {
        Introduction { session: keys.session(), trial, tag: keys.introduction(trial) }
    }

    /// The datagram as sent.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.session);
        bytes[24..28].copy_from_slice(&self.trial.to_le_bytes());
        bytes[28..].copy_from_slice(&self.tag);
        bytes
    }

    /// Parses an introduction; `None` if the bytes are not one.
    pub fn read(bytes: &[u8]) -> Option<Introduction> {
        let bytes: &[u8; Self::BYTES] = bytes.try_into().ok()?;
        let (magic, rest) = bytes.split_first_chunk::<8>()?;
        let (session, rest) = rest.split_first_chunk::<16>()?;
        let (trial, tag) = rest.split_first_chunk::<4>()?;
        (magic == MAGIC).then_some(Introduction {
            session: *session,
            trial: u32::from_le_bytes(*trial),
            tag: *tag.first_chunk()?,
        })
    }
}

const MAGIC: &[u8; 8] = b"YBKDGRM1";

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn datagrams_round_trip(mark: u64, number: u64, sent_ns: u64, session: [u8; 16], trial: u32, tag: [u8; 16]) {
            let datagram = Datagram { mark, number, sent_ns };
            prop_assert_eq!(Datagram::read(&datagram.write()), Some(datagram));
            prop_assert_eq!(Datagram::read(&datagram.write()[..23]), None);
            let introduction = Introduction { session, trial, tag };
            let bytes = introduction.write();
            prop_assert_eq!(Introduction::read(&bytes), Some(introduction));
            prop_assert_eq!(Introduction::read(&bytes[..43]), None);
            prop_assert_eq!(Introduction::read(&[&bytes[..], b"x"].concat()), None);
        }
    }
}
