//! Those who have knocked and not been let in: a bounded number, the oldest of whom go first; and who is shut out.

use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::tester::handshake::Answering;

/// One who has knocked.
pub(super) struct Knock {
    pub(super) stream: TcpStream,
    pub(super) peer: SocketAddr,
    pub(super) since_ns: u64,
    /// It comes from the address of the one who is being served.
    pub(super) of_guest: bool,
    pub(super) answering: Answering,
}

/// All of them, by a token that is never used twice.
#[derive(Default)]
pub(super) struct Slots {
    knocks: Vec<(u64, Knock)>,
    next: u64,
}

/// Strangers who have not shown the magic.
const SILENT_MAX: usize = 64;
/// The same of the guest's own address: connections of a trial, which have their tickets with them.
const GUEST_MAX: usize = 256;
/// Those who have, and are to show that they have the secret.
const HANDSHAKES_MAX: usize = 8;

impl Slots {
    pub(super) fn get(&mut self, token: u64) -> Option<&mut Knock> {
        let at = self.place(token)?;
        Some(&mut self.knocks[at].1)
    }

    pub(super) fn put(&mut self, knock: Knock) -> (u64, &TcpStream) {
        let token = self.next;
        self.next += 1;
        self.knocks.push((token, knock));
        (token, &self.knocks[self.knocks.len() - 1].1.stream)
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Knock> {
        let at = self.place(token)?;
        Some(self.knocks.remove(at).1)
    }

    /// Before one more is put: whoever had to go for it.
    pub(super) fn make_room(&mut self, of_guest: bool) -> Option<SocketAddr> {
        let most = if of_guest { GUEST_MAX } else { SILENT_MAX };
        self.close_oldest(most - 1, |knock| knock.of_guest == of_guest && !knock.answering.is_open())
    }

    /// After one has shown the magic: whoever had to go for it.
    pub(super) fn make_room_for_handshake(&mut self, token: u64) -> Option<SocketAddr> {
        let of_guest = self.get(token)?.of_guest;
        self.close_oldest(HANDSHAKES_MAX, |knock| knock.of_guest == of_guest && knock.answering.is_open())
    }

    /// Closes those who have been here for so long: who it was.
    pub(super) fn sweep(&mut self, now_ns: u64, patience_ns: u64) -> Vec<SocketAddr> {
        let is_late = |(_, knock): &mut (u64, Knock)| now_ns.saturating_sub(knock.since_ns) > patience_ns;
        self.knocks.extract_if(.., is_late).map(|(_, knock)| knock.peer).collect()
    }

    /// The oldest of these, where there are more than `most`. In the order of coming, which the list has.
    fn close_oldest(&mut self, most: usize, of_these: impl Fn(&Knock) -> bool) -> Option<SocketAddr> {
        let mut these = self.knocks.iter().enumerate().filter(|(_, (_, knock))| of_these(knock)).map(|(at, _)| at);
        let oldest = these.next()?;
        if these.count() < most {
            return None;
        }
        Some(self.knocks.remove(oldest).1.peer)
    }

    fn place(&self, token: u64) -> Option<usize> {
        // Tokens rise with the places.
        self.knocks.binary_search_by_key(&token, |(token, _)| *token).ok()
    }
}

/// Wrong secrets of late, by address.
#[derive(Default)]
pub(super) struct Failures(Vec<Failure>);

struct Failure {
    address: IpAddr,
    times_ns: [Option<u64>; ALLOWED],
}

/// So many wrong secrets within [`SHUT_OUT`] shut an address out for as long.
const ALLOWED: usize = 3;
const SHUT_OUT: Duration = Duration::from_secs(60);
/// Addresses remembered: of more, the oldest are forgotten.
const ADDRESSES_MAX: usize = 256;

impl Failures {
    /// One more.
    pub(super) fn add(&mut self, address: IpAddr, now_ns: u64) {
        let address = address.to_canonical();
        let mut times_ns = [None; ALLOWED];
        if let Some(at) = self.0.iter().position(|failure| failure.address == address) {
            times_ns = self.0.remove(at).times_ns;
        } else if self.0.len() == ADDRESSES_MAX {
            self.0.remove(0);
        }
        times_ns.rotate_left(1);
        times_ns[ALLOWED - 1] = Some(now_ns);
        self.0.push(Failure { address, times_ns });
    }

    /// Whether the address is shut out: its last three wrong secrets came within a minute, and the last is no minute ago.
    pub(super) fn bars(&self, address: IpAddr, now_ns: u64) -> bool {
        let address = address.to_canonical();
        let minute = SHUT_OUT.as_nanos() as u64;
        self.0.iter().filter(|failure| failure.address == address).any(|failure| {
            let (Some(first), Some(last)) = (failure.times_ns[0], failure.times_ns[ALLOWED - 1]) else { return false };
            last - first <= minute && now_ns.saturating_sub(last) <= minute
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tester::handshake::Opening;
    use crate::tester::secret::Secret;
    use std::net::TcpListener;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn three_wrong_secrets_in_a_minute_block_the_address_for_a_minute() {
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let mapped: IpAddr = "::ffff:192.0.2.7".parse().unwrap();
        let mut failures = Failures::default();
        failures.add(address, SECOND);
        failures.add(mapped, 2 * SECOND);
        assert!(!failures.bars(address, 2 * SECOND));
        failures.add(address, 61 * SECOND);
        assert!(failures.bars(address, 121 * SECOND) && failures.bars(mapped, 61 * SECOND));
        assert!(!failures.bars(address, 121 * SECOND + 1), "over");
        assert!(!failures.bars("192.0.2.8".parse().unwrap(), 61 * SECOND));
        // A minute and a bit for three is slow enough.
        let mut slow = Failures::default();
        [0, 30 * SECOND, 60 * SECOND + 1].into_iter().for_each(|at| slow.add(address, at));
        assert!(!slow.bars(address, 61 * SECOND));
    }

    #[test]
    fn oldest_addresses_beyond_the_limit_are_evicted() {
        let mut failures = Failures::default();
        let address = |number: usize| IpAddr::from([10, 0, (number / 256) as u8, (number % 256) as u8]);
        for number in 0..=ADDRESSES_MAX {
            [1, 2, 3].into_iter().for_each(|at| failures.add(address(number), at));
        }
        assert_eq!(failures.0.len(), ADDRESSES_MAX);
        assert!(
            !failures.bars(address(0), 3) && failures.bars(address(1), 3) && failures.bars(address(ADDRESSES_MAX), 3)
        );
    }

    #[test]
    fn handshake_slots_are_limited_and_the_oldest_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let mut slots = Slots::default();
        let mut clients = Vec::new();
        let mut knock = |slots: &mut Slots, open: bool, of_guest: bool, since_ns| {
            clients.push(TcpStream::connect(at).unwrap());
            let (stream, peer) = listener.accept().unwrap();
            let mut answering = Answering::new(&Secret::none());
            if open {
                answering.take(&Opening::Control.write());
            }
            let closed = slots.make_room(of_guest);
            let (token, _) = slots.put(Knock { stream, peer, since_ns, of_guest, answering });
            let handshake = open.then(|| slots.make_room_for_handshake(token)).flatten();
            (peer, token, closed, handshake)
        };
        let first = knock(&mut slots, false, false, 0);
        for number in 1..SILENT_MAX {
            assert_eq!(knock(&mut slots, false, false, number as u64).2, None);
        }
        assert_eq!(knock(&mut slots, false, false, 70).2, Some(first.0), "the oldest goes for one more");
        assert!(slots.get(first.1).is_none() && slots.take(first.1).is_none());
        // The guest's own are counted apart.
        assert_eq!(knock(&mut slots, false, true, 71).2, None);
        for _ in 0..HANDSHAKES_MAX {
            // Each was among the silent before.
            slots.take(slots.knocks[0].0).unwrap();
            assert_eq!(knock(&mut slots, true, false, 72).3, None);
        }
        slots.take(slots.knocks[0].0).unwrap();
        let ninth = knock(&mut slots, true, false, 73);
        assert!(ninth.3.is_some() && slots.get(ninth.1).is_some());
        let before = slots.knocks.len();
        let swept = slots.sweep(SECOND + 71, SECOND);
        assert!(!swept.is_empty() && swept.len() < before);
        assert!(slots.knocks.iter().all(|(_, knock)| knock.since_ns >= 71));
    }
}
