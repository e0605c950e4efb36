//! Packets captured twice: on two interfaces, or by a mirror port of both ways.
//!
//! A copy has the connection, sequence and acknowledgement numbers, flags, window, length, first bytes and time stamp of a
//! packet seen at most [`WINDOW_NS`] before, and its IP identification. What routers change (TTL, addresses of the link, tags)
//! does not matter. A retransmission has another identification, or comes later: the shortest timeouts of TCP are longer.
//!
//! IPv6 has no identification, and some senders write 0 where a packet may not be fragmented. Then a repetition within the window
//! is a retransmission if the receiver has asked for it (selective acknowledgement) since the packet was first seen, and a copy
//! otherwise. Resets without one are never copies: a kernel answers each packet for a socket that is gone with the same reset.

use crate::tcp::Segment;

/// The packets of the last milliseconds, in a table of fixed size.
pub(crate) struct Copies {
    /// Two places for each print.
    places: Vec<[Place; 2]>,
}

#[derive(Clone, Copy, Default)]
struct Place {
    print: u64,
    at: u64,
}

impl Copies {
    pub(crate) fn new() -> Copies {
        Copies { places: vec![[Place::default(); 2]; PLACES] }
    }

    /// Notes a packet; gives the time of one with the same print within the window, if there was one.
    #[inline]
    pub(crate) fn note(&mut self, print: u64, at: u64) -> Option<u64> {
        let places = &mut self.places[print as usize % PLACES];
        for place in places.iter() {
            if place.print == print && place.at.abs_diff(at) <= WINDOW_NS {
                return Some(place.at);
            }
        }
        let older = usize::from(places[1].at < places[0].at);
        places[older] = Place { print, at };
        None
    }
}

/// What copies of a packet have in common. `hash` is that of its connection, `is_second` its direction.
#[inline]
pub(crate) fn print(hash: u32, is_second: bool, segment: &Segment<'_>) -> u64 {
    let (stamp, echo) = segment.options.timestamps.unwrap_or_default();
    let first = segment.payload.first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let mut print = u64::from(hash) << 1 | u64::from(is_second);
    for word in [
        u64::from(segment.sequence) << 32 | u64::from(segment.acknowledgement),
        segment.length << 40 | u64::from(segment.flags) << 32 | u64::from(segment.window) << 16,
        u64::from(stamp) << 32 | u64::from(echo),
        first,
        u64::from(segment.identification),
    ] {
        print = (print ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    }
    for &(left, right) in segment.options.sack() {
        print =
            (print ^ (u64::from(left) << 32 | u64::from(right))).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
    }
    print ^ print >> 29
}

/// How long after a packet its copy may come. Copies of one machine come within microseconds, those of a mirror port within a
/// millisecond; a retransmission takes a round trip at least, and a timeout 200 ms.
pub(crate) const WINDOW_NS: u64 = 5_000_000;
/// 128 KB in all: room for 1.6 million packets a second within the window.
const PLACES: usize = 4096;
