//! How a connection stands, by Zeek's rules (`base/protocols/conn/main.zeek`).

use ledger::{ConnectionState, Direction};
use wire::tcp::flags::{ACK, FIN, RST, SYN};

/// How far one end has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Endpoint {
    /// Nothing heard of it.
    #[default]
    Inactive,
    /// Heard of, but not from the start.
    Partial,
    SynSent,
    /// Answered a SYN that was not seen.
    SynAckSent,
    Established,
    /// Sent FIN.
    Closed,
    /// Sent RST.
    Reset,
}

/// Both ends, indexed by [`Direction::index`] of what they send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Endpoints([Endpoint; 2]);

impl Endpoints {
    /// Takes in the control bits of a packet sent in `direction`.
    #[inline]
    pub(crate) fn packet(&mut self, direction: Direction, flags: u8) {
        let (own, peer) = (self.0[direction.index()], self.0[1 - direction.index()]);
        let next = if flags & RST != 0 {
            // What follows both FINs is the tear-down's own noise.
            if self.both_closed() { own } else { Endpoint::Reset }
        } else if own == Endpoint::Reset {
            own
        } else if flags & FIN != 0 {
            Endpoint::Closed
        } else if flags & SYN != 0 && matches!(own, Endpoint::Inactive | Endpoint::SynSent) {
            match (flags & ACK != 0, peer) {
                (false, _) => Endpoint::SynSent,
                (true, Endpoint::Inactive | Endpoint::Partial) => Endpoint::SynAckSent,
                (true, _) => {
                    if peer == Endpoint::SynSent {
                        self.0[1 - direction.index()] = Endpoint::Established;
                    }
                    Endpoint::Established
                }
            }
        } else if own == Endpoint::Inactive {
            Endpoint::Partial
        } else {
            own
        };
        self.0[direction.index()] = next;
    }

    /// Both sides sent FIN, or one sent RST: the connection is no longer in process.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.both_closed() || self.0.contains(&Endpoint::Reset)
    }

    /// Whether `direction`'s end has sent its SYN and has had no answer.
    pub(crate) fn is_calling(&self, direction: Direction) -> bool {
        self.0[direction.index()] == Endpoint::SynSent
    }

    /// Zeek's name for it.
    pub(crate) fn name(&self) -> ConnectionState {
        use Endpoint::{Closed, Established, Inactive, Partial, Reset, SynAckSent, SynSent};
        let silent = |end| matches!(end, Inactive | Partial);
        match self.0 {
            [SynSent | SynAckSent, Reset] => ConnectionState::Rej,
            [up, Reset] if silent(up) => ConnectionState::Rstrh,
            [_, Reset] => ConnectionState::Rstr,
            [Reset, down] if silent(down) => ConnectionState::Rstos0,
            [Reset, _] => ConnectionState::Rsto,
            [Closed, Closed] => ConnectionState::SF,
            [Closed, down] if silent(down) => ConnectionState::Sh,
            [Closed, _] => ConnectionState::S2,
            [up, Closed] if silent(up) => ConnectionState::Shr,
            [_, Closed] => ConnectionState::S3,
            [SynSent, Inactive] => ConnectionState::S0,
            [Established, Established] => ConnectionState::S1,
            _ => ConnectionState::Oth,
        }
    }

    fn both_closed(&self) -> bool {
        self.0 == [Endpoint::Closed, Endpoint::Closed]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Direction::{Down, Up};

    fn after(packets: &[(Direction, u8)]) -> ConnectionState {
        let mut ends = Endpoints::default();
        for &(direction, flags) in packets {
            ends.packet(direction, flags);
        }
        ends.name()
    }

    const OPEN: [(Direction, u8); 3] = [(Up, SYN), (Down, SYN | ACK), (Up, ACK)];

    fn then(rest: &[(Direction, u8)]) -> ConnectionState {
        after(&[&OPEN[..], rest].concat())
    }

    #[test]
    fn every_name_has_its_packets() {
        let (fin, rst) = (FIN | ACK, RST | ACK);
        let cases = [
            (after(&[(Up, SYN), (Up, SYN)]), ConnectionState::S0),
            (then(&[]), ConnectionState::S1),
            (then(&[(Up, fin), (Down, fin), (Up, ACK)]), ConnectionState::SF),
            (after(&[(Up, SYN), (Down, rst)]), ConnectionState::Rej),
            (then(&[(Up, fin), (Down, ACK)]), ConnectionState::S2),
            (then(&[(Down, fin), (Up, ACK)]), ConnectionState::S3),
            (then(&[(Up, RST)]), ConnectionState::Rsto),
            (then(&[(Down, RST)]), ConnectionState::Rstr),
            (after(&[(Up, SYN), (Up, RST)]), ConnectionState::Rstos0),
            (after(&[(Down, SYN | ACK), (Down, RST)]), ConnectionState::Rstrh),
            (after(&[(Up, SYN), (Up, FIN)]), ConnectionState::Sh),
            (after(&[(Down, SYN | ACK), (Down, FIN)]), ConnectionState::Shr),
            (after(&[(Up, ACK), (Down, ACK)]), ConnectionState::Oth),
        ];
        for (found, wanted) in cases {
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn a_late_reset_does_not_undo_a_tear_down_and_an_early_one_decides() {
        assert_eq!(then(&[(Up, FIN), (Down, FIN), (Up, RST)]), ConnectionState::SF);
        assert_eq!(then(&[(Up, FIN), (Down, RST)]), ConnectionState::Rstr);
        assert_eq!(then(&[(Up, RST), (Up, FIN), (Down, FIN)]), ConnectionState::Rsto);
    }

    #[test]
    fn both_may_open_at_once() {
        let open = [(Up, SYN), (Down, SYN), (Up, SYN | ACK), (Down, SYN | ACK)];
        assert_eq!(after(&open), ConnectionState::S1);
    }
}
