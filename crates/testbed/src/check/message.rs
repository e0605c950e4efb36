//! The datagrams of a check.

/// Purpose of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The server's end returns it unchanged.
    Ping,
    /// The server's end counts it, and answers the first datagram of each number with the next number in the other
    /// direction.
    Probe,
    /// The receiver only counts it.
    Flood,
}

/// Head of a datagram; any payload may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) kind: Kind,
    /// The client, by number.
    pub(super) client: u32,
    /// Number from 0, for each client and kind.
    pub(super) number: u32,
    /// CLOCK_MONOTONIC at the first sender.
    pub(super) sent_ns: u64,
}

impl Message {
    /// Bytes of a head.
    pub(super) const LENGTH: usize = 17;

    /// Writes the head to the front of `buffer`, which must be long enough.
    pub(super) fn write(&self, buffer: &mut [u8]) {
        buffer[0] = match self.kind {
            Kind::Ping => 1,
            Kind::Probe => 2,
            Kind::Flood => 3,
        };
        buffer[1..5].copy_from_slice(&self.client.to_be_bytes());
        buffer[5..9].copy_from_slice(&self.number.to_be_bytes());
        buffer[9..17].copy_from_slice(&self.sent_ns.to_be_bytes());
    }

    /// Parses a head; `None` for anything else.
    pub(super) fn read(datagram: &[u8]) -> Option<Self> {
        let (head, _) = datagram.split_first_chunk::<{ Self::LENGTH }>()?;
        let kind = match head[0] {
            1 => Kind::Ping,
            2 => Kind::Probe,
            3 => Kind::Flood,
            _ => return None,
        };
        let number = |from: usize| u32::from_be_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
        let sent_ns = u64::from(number(9)) << 32 | u64::from(number(13));
        Some(Message { kind, client: number(1), number: number(5), sent_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_head_reads_back_as_it_was_written() {
        let message = Message { kind: Kind::Flood, client: 65_533, number: u32::MAX, sent_ns: u64::MAX - 7 };
        let mut buffer = [0; 100];
        message.write(&mut buffer);
        assert_eq!(Message::read(&buffer), Some(message));
        assert_eq!(Message::read(&buffer[..16]), None);
        assert_eq!(Message::read(&[0; 17]), None);
    }
}
