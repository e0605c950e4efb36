//! The datagrams of a trial.
//!
//! ```text
//!   mark:u64 number:u64 sent_ns:u64, then zeroes to the length asked for         little endian
//!   introduction: "YBKDGRM1" session:16 trial:u32 tag:16                         the client's first
//! ```
//!
//! The mark is drawn for each trial and kind out of the session's key; both ends know it, and nobody who has not seen one.

use super::secret::{Keys, ShortTag};

/// What stands at the beginning of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Of the trial and kind.
    pub mark: u64,
    /// From 0, without a gap.
    pub number: u64,
    /// When it was sent, by the clock of the one who sent it first.
    pub sent_ns: u64,
}

impl Datagram {
    /// Its length.
    pub const BYTES: usize = 24;

    /// The bytes.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.mark.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.number.to_le_bytes());
        bytes[16..].copy_from_slice(&self.sent_ns.to_le_bytes());
        bytes
    }

    /// `None` where there are too few.
    pub fn read(bytes: &[u8]) -> Option<Datagram> {
        let (words, _) = bytes.as_chunks::<8>();
        let &[mark, number, sent_ns, ..] = words else { return None };
        let [mark, number, sent_ns] = [mark, number, sent_ns].map(u64::from_le_bytes);
        Some(Datagram { mark, number, sent_ns })
    }
}

/// The kinds of one trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Marks {
    /// What is counted.
    pub(super) packet: u64,
    /// What is sent back.
    pub(super) probe: u64,
    /// A sign of life.
    pub(super) alive: u64,
}

impl Marks {
    pub(super) fn new(keys: &Keys, trial: u32) -> Self {
        let [packet, probe, alive] = ["packet", "probe", "alive"].map(|kind| keys.mark(kind, trial));
        Marks { packet, probe, alive }
    }
}

/// The client's first datagram of a trial, from which the server learns the port to answer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Introduction {
    /// The session's number.
    pub session: ShortTag,
    /// The trial's.
    pub trial: u32,
    /// Proof.
    pub tag: ShortTag,
}

impl Introduction {
    /// Its length.
    pub const BYTES: usize = 44;

    /// Of this trial.
    pub fn new(keys: &Keys, trial: u32) -> Self {
        Introduction { session: keys.session(), trial, tag: keys.introduction(trial) }
    }

    /// The bytes.
    pub fn write(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..24].copy_from_slice(&self.session);
        bytes[24..28].copy_from_slice(&self.trial.to_le_bytes());
        bytes[28..].copy_from_slice(&self.tag);
        bytes
    }

    /// `None` where it is none.
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
