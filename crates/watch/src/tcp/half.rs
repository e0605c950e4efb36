//! One direction of a connection: sent, captured, and acknowledged bytes.
//!
//! Sequence numbers are unwrapped into 64-bit positions; the SYN has position [`START`]. `high` is one past the highest
//! position seen; the holes are below it. `delivered` is the end of the part of the stream passed to the sink: up to
//! the first hole, or beyond holes that the other side has acknowledged, since then the capture has lost their bytes.
//!
//! ```text
//!   START ...... delivered ...[hole].. seen ..[hole].. seen .. high
//!          passed to sink    waiting: pieces are held           next
//! ```

mod state;

use schema::{RttSummary, Sent};
use units::Timestamp;
use wire::tcp::flags::{FIN, RST, SYN};

use super::holes::Holes;
use super::pieces::{Piece, Pieces};
use super::rtt::Rtt;
use super::{Segment, Sink};
use crate::spec::Limits;
use crate::work;

/// One direction; see the module documentation.
#[derive(Debug)]
pub(crate) struct Half {
    high: u64,
    delivered: u64,
    acknowledged: u64,
    packets: u64,
    ip_bytes: u64,
    payload_bytes: u64,
    data_packets: u64,
    /// Position of the FIN; [`NEVER`] before it is seen.
    fin: u64,
    /// The segment whose acknowledgement is awaited: its end (0 for none) and its time.
    sample_end: u64,
    sample_at: u64,
    /// No RTT is taken before this position is acknowledged: a segment below it was retransmitted (Karn's algorithm).
    sample_from: u64,
    stamp_at: u64,
    stamp: u32,
    last_stamp: u32,
    isn: u32,
    syns: u32,
    fins: u32,
    fin_at: u64,
    rst_at: u64,
    data_rtt: Rtt,
    timestamp_rtt: Rtt,
    irregular: Option<Box<Irregularities>>,
    mss: u16,
    window_scale: u8,
    is_started: bool,
    has_ended: bool,
    has_stamp: bool,
    awaits_stamp: bool,
}

/// State that most connections never need.
#[derive(Debug, Default)]
struct Irregularities {
    holes: Holes,
    pieces: Pieces,
    retransmitted_packets: u64,
    retransmitted_bytes: u64,
    out_of_order_packets: u64,
    keep_alives: u64,
    zero_windows: u64,
    duplicate_sacks: u64,
    missing_bytes: u64,
    /// Time of its last selective acknowledgement.
    sacked_at: u64,
    /// Round trips that no longer fit in [`Rtt`].
    data_rtt: RttSummary,
    timestamp_rtt: RttSummary,
}

/// Classification of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Receipt {
    pub(crate) is_retransmitted: bool,
}

impl Half {
    pub(crate) fn new() -> Half {
        Half {
            high: 0,
            delivered: 0,
            acknowledged: 0,
            packets: 0,
            ip_bytes: 0,
            payload_bytes: 0,
            data_packets: 0,
            fin: NEVER,
            sample_end: 0,
            sample_at: 0,
            sample_from: 0,
            stamp_at: 0,
            stamp: 0,
            last_stamp: 0,
            isn: 0,
            syns: 0,
            fins: 0,
            fin_at: NEVER,
            rst_at: NEVER,
            data_rtt: Rtt::default(),
            timestamp_rtt: Rtt::default(),
            irregular: None,
            mss: 0,
            window_scale: NO_SCALE,
            is_started: false,
            has_ended: false,
            has_stamp: false,
            awaits_stamp: false,
        }
    }

    /// Processes a segment that this side sent.
    #[inline]
    pub(crate) fn receive(&mut self, segment: &Segment<'_>, limits: &Limits, sink: &mut impl Sink) -> Receipt {
        self.packets += 1;
        self.ip_bytes += segment.ip_bytes;
        self.payload_bytes += segment.length;
        self.data_packets += u64::from(segment.length > 0);
        self.note_stamp(segment);
        if segment.has(RST) {
            self.rst_at = self.rst_at.min(segment.at);
            // A RST's sequence number is arbitrary, and its payload is not part of the stream (RFC 9293, 3.5.3).
            return Receipt::default();
        }
        if segment.window == 0 && !segment.has(SYN) {
            self.irregular().zero_windows += 1;
        }
        if !self.is_started || segment.has(SYN) {
            self.open(segment);
        }
        let start = self.position(segment.sequence) + u64::from(segment.has(SYN));
        let end = start + segment.length;
        if segment.length <= 1 && self.is_keep_alive(segment, start) {
            let irregular = self.irregular();
            irregular.keep_alives += 1;
            irregular.retransmitted_bytes += segment.length;
            return Receipt::default();
        }
        let mut receipt = Receipt::default();
        if segment.length > 0 {
            if start == self.high && start == self.delivered {
                self.sample(segment.at, end);
                (self.high, self.delivered) = (end, end);
                if !self.has_ended {
                    sink.bytes(segment.payload, segment.length);
                }
            } else {
                receipt = self.receive_out_of_order(segment, start, end, limits, sink);
            }
        }
        if segment.has(FIN) {
            self.receive_fin(segment.at, end, limits, sink);
        }
        receipt
    }

    /// Processes an acknowledgement of this side's bytes. Returns the number of bytes acknowledged and never seen.
    #[inline]
    pub(crate) fn acknowledge(&mut self, segment: &Segment<'_>, limits: &Limits, sink: &mut impl Sink) -> u64 {
        self.note_echo(segment);
        if !self.is_started {
            // Open before the capture: the next byte is the one acknowledged now.
            self.start_at(segment.acknowledgement.wrapping_sub(1));
        }
        let position = self.position(segment.acknowledgement);
        if position <= self.acknowledged || position > self.high + ACKNOWLEDGEMENT_MAX {
            return 0;
        }
        self.acknowledged = position;
        if self.sample_end != 0 && position >= self.sample_end {
            // An acknowledgement with a time before its segment gives no RTT.
            let rtt = segment.at.checked_sub(self.sample_at);
            if let Some(rtt) = rtt
                && !self.data_rtt.record(rtt)
            {
                self.irregular().data_rtt.record(rtt);
            }
            self.sample_end = 0;
        }
        if position > self.high + 1 {
            // One byte above could be an unseen FIN; more than that is data.
            let (high, delivered) = (self.high, self.delivered);
            self.irregular().holes.push(high, position, delivered, limits.holes);
            self.high = position;
        }
        if self.delivered == self.high { 0 } else { self.skip_missing(sink) }
    }

    /// Processes the selective acknowledgements of a segment of this side: checks whether the first reports bytes
    /// received twice (RFC 2883, section 4).
    pub(crate) fn note_sack(&mut self, segment: &Segment<'_>) {
        let blocks = segment.options.sack();
        let Some(&(left, right)) = blocks.first() else { return };
        let irregular = self.irregular();
        irregular.sacked_at = irregular.sacked_at.max(segment.at);
        let below = (segment.acknowledgement.wrapping_sub(right) as i32) >= 0;
        let inside = blocks.get(1).is_some_and(|&(outer_left, outer_right)| {
            left.wrapping_sub(outer_left) as i32 >= 0 && outer_right.wrapping_sub(right) as i32 >= 0
        });
        if below || inside {
            self.irregular().duplicate_sacks += 1;
        }
    }

    /// The connection is over: releases held memory.
    pub(crate) fn release(&mut self, sink: &mut impl Sink) {
        if let Some(irregular) = &mut self.irregular {
            while irregular.pieces.first().is_some() {
                sink.release(irregular.pieces.drop_first());
            }
        }
    }

    /// The figures of the record, once: frees the remaining memory of this side.
    pub(crate) fn take_sent(&mut self) -> Sent {
        let irregular = self.irregular.take().unwrap_or_default();
        let timestamp = |at: u64| (at != NEVER).then_some(Timestamp::from_nanos(at));
        Sent {
            packets: self.packets,
            ip_bytes: self.ip_bytes,
            payload_bytes: self.payload_bytes,
            unique_bytes: self.payload_bytes.saturating_sub(irregular.retransmitted_bytes),
            data_packets: self.data_packets,
            retransmitted_packets: irregular.retransmitted_packets,
            retransmitted_bytes: irregular.retransmitted_bytes,
            out_of_order_packets: irregular.out_of_order_packets,
            keep_alives: irregular.keep_alives,
            zero_windows: irregular.zero_windows,
            duplicate_sacks: irregular.duplicate_sacks,
            missing_bytes: irregular.missing_bytes,
            syns: self.syns,
            fins: self.fins,
            mss: (self.mss != 0).then_some(self.mss),
            window_scale: (self.window_scale != NO_SCALE).then_some(self.window_scale),
            fin_at: timestamp(self.fin_at),
            rst_at: timestamp(self.rst_at),
            data_rtt: self.data_rtt.summary(irregular.data_rtt),
            timestamp_rtt: self.timestamp_rtt.summary(irregular.timestamp_rtt),
        }
    }

    #[cold]
    fn open(&mut self, segment: &Segment<'_>) {
        if segment.has(SYN) {
            if !self.is_started {
                self.start_at(segment.sequence);
            }
            if segment.sequence == self.isn {
                self.syns = self.syns.saturating_add(1);
            }
            self.mss = segment.options.mss.unwrap_or(self.mss);
            self.window_scale = segment.options.window_scale.unwrap_or(self.window_scale);
        } else {
            self.start_at(segment.sequence.wrapping_sub(1));
        }
    }

    fn start_at(&mut self, isn: u32) {
        self.isn = isn;
        self.is_started = true;
        (self.high, self.delivered, self.acknowledged) = (START + 1, START + 1, START);
    }

    /// The position of a sequence number: the one nearest to `high`.
    #[inline]
    fn position(&self, sequence: u32) -> u64 {
        let high = self.isn.wrapping_add((self.high - START) as u32);
        self.high.wrapping_add_signed(i64::from(sequence.wrapping_sub(high) as i32))
    }

    fn is_keep_alive(&self, segment: &Segment<'_>, start: u64) -> bool {
        start + 1 == self.high && !segment.has(SYN | FIN) && self.fin == NEVER && self.acknowledged >= self.high
    }

    /// Processes data that does not directly continue the stream.
    #[cold]
    fn receive_out_of_order(
        &mut self,
        segment: &Segment<'_>,
        start: u64,
        end: u64,
        limits: &Limits,
        sink: &mut impl Sink,
    ) -> Receipt {
        let (high, delivered) = (self.high, self.delivered);
        let irregular = self.irregular();
        let filled = irregular.holes.fill(start, end.min(high), delivered, limits.holes);
        // Bytes counted as missing have arrived after all.
        irregular.missing_bytes = irregular.missing_bytes.saturating_sub(filled.below);
        let seen = end.min(high).saturating_sub(start) - filled.bytes;
        if filled.bytes > 0 {
            irregular.out_of_order_packets += 1;
        }
        if seen > 0 {
            irregular.retransmitted_packets += 1;
            irregular.retransmitted_bytes += seen;
        }
        if start > high {
            irregular.holes.push(high, start, delivered, limits.holes);
        }
        if start < high {
            self.sample_end = 0;
            self.sample_from = high.max(end);
        } else {
            self.sample(segment.at, end);
        }
        self.high = high.max(end);
        if start > delivered {
            self.hold_piece(segment, start, end, limits, sink);
        } else if end > delivered {
            let stop = end.min(self.seen_up_to()).min(self.fin);
            if stop > delivered && !self.has_ended {
                let bytes = segment.payload.get((delivered - start) as usize..).unwrap_or(&[]);
                let length = stop - delivered;
                self.delivered = stop;
                sink.bytes(&bytes[..bytes.len().min(length as usize)], length);
            }
        }
        self.pass_to_sink(sink);
        Receipt { is_retransmitted: seen > 0 }
    }

    /// Holds a segment beyond a hole, if this direction is parsed.
    fn hold_piece(&mut self, segment: &Segment<'_>, start: u64, end: u64, limits: &Limits, sink: &mut impl Sink) {
        if !sink.is_read() || segment.payload.is_empty() || end <= self.delivered.saturating_add(sink.skipped_bytes()) {
            return;
        }
        let delivered = self.delivered;
        let pieces = &mut self.irregular().pieces;
        let cost = Pieces::cost(segment.payload.len());
        let fits = pieces.held() + cost <= limits.held_per_direction;
        if start > delivered && fits && !pieces.refuses(start, end) && sink.hold(cost) {
            pieces.insert(Piece { start, end, bytes: segment.payload.into() });
        }
    }

    fn receive_fin(&mut self, at: u64, position: u64, limits: &Limits, sink: &mut impl Sink) {
        self.fin_at = self.fin_at.min(at);
        self.fins = self.fins.saturating_add(1);
        if self.fin != NEVER || position < self.delivered {
            return;
        }
        self.fin = position;
        let (high, delivered) = (self.high, self.delivered);
        if position > high {
            self.irregular().holes.push(high, position, delivered, limits.holes);
        } else if position < high {
            self.irregular().holes.fill(position, position + 1, delivered, limits.holes);
        }
        self.high = high.max(position + 1);
        self.pass_to_sink(sink);
    }

    /// Skips holes that the other side has acknowledged.
    #[cold]
    fn skip_missing(&mut self, sink: &mut impl Sink) -> u64 {
        let mut missing = 0;
        while let Some(hole) = self.irregular.as_ref().and_then(|irregular| irregular.holes.first_above(self.delivered))
        {
            let end = hole.end.min(self.acknowledged);
            if hole.start > self.delivered || end <= self.delivered {
                break;
            }
            let length = end - self.delivered;
            self.delivered = end;
            missing += length;
            self.irregular().missing_bytes += length;
            if !self.has_ended {
                sink.bytes(&[], length);
            }
            self.pass_to_sink(sink);
        }
        missing
    }

    /// The end of the contiguous part seen from `delivered` on.
    fn seen_up_to(&self) -> u64 {
        let hole = self.irregular.as_ref().and_then(|irregular| irregular.holes.first_above(self.delivered));
        hole.map_or(self.high, |hole| hole.start.max(self.delivered))
    }

    /// Passes the contiguous part to the sink: from held pieces, and by length otherwise.
    fn pass_to_sink(&mut self, sink: &mut impl Sink) {
        loop {
            work::spend(1);
            let seen = self.seen_up_to();
            if self.delivered == self.fin && seen > self.fin {
                self.delivered += 1;
                if !self.has_ended {
                    self.has_ended = true;
                    sink.end();
                }
                continue;
            }
            let stop = if self.delivered < self.fin { seen.min(self.fin) } else { seen };
            if self.delivered >= stop {
                break;
            }
            let delivered = self.delivered;
            let (mut next, mut bytes): (u64, &[u8]) = (stop, &[]);
            if let Some(irregular) = &mut self.irregular {
                while irregular.pieces.first().is_some_and(|piece| piece.end <= delivered) {
                    sink.release(irregular.pieces.drop_first());
                }
                match irregular.pieces.first() {
                    Some(piece) if piece.start <= delivered => {
                        next = piece.end.min(stop);
                        bytes = piece.bytes.get((delivered - piece.start) as usize..).unwrap_or(&[]);
                        bytes = &bytes[..bytes.len().min((next - delivered) as usize)];
                    }
                    Some(piece) => next = piece.start.min(stop),
                    None => {}
                }
            }
            self.delivered = next;
            if !self.has_ended {
                sink.bytes(bytes, next - delivered);
            }
        }
        let delivered = self.delivered;
        if let Some(irregular) = &mut self.irregular {
            while irregular.pieces.first().is_some_and(|piece| piece.end <= delivered) {
                sink.release(irregular.pieces.drop_first());
            }
        }
    }

    /// Awaits the acknowledgement of new data up to `end`, unless another is awaited already.
    #[inline]
    fn sample(&mut self, at: u64, end: u64) {
        if self.sample_end == 0 && self.acknowledged >= self.sample_from {
            (self.sample_end, self.sample_at) = (end, at);
        }
    }

    /// Records the sender's timestamp. Only the first packet of a tick can be identified by its echo, and only data is
    /// acknowledged without a delay of the application.
    #[inline]
    fn note_stamp(&mut self, segment: &Segment<'_>) {
        let Some((stamp, _)) = segment.options.timestamps else { return };
        let is_new = !self.has_stamp || (stamp.wrapping_sub(self.last_stamp) as i32) > 0;
        if is_new {
            self.last_stamp = stamp;
            if segment.length > 0 && !self.awaits_stamp {
                (self.stamp, self.stamp_at, self.awaits_stamp) = (stamp, segment.at, true);
            }
        }
        self.has_stamp = true;
    }

    #[inline]
    fn note_echo(&mut self, segment: &Segment<'_>) {
        if let Some((_, echo)) = segment.options.timestamps
            && self.awaits_stamp
            && (echo.wrapping_sub(self.stamp) as i32) >= 0
        {
            if echo == self.stamp
                && let Some(rtt) = segment.at.checked_sub(self.stamp_at)
                && !self.timestamp_rtt.record(rtt)
            {
                self.irregular().timestamp_rtt.record(rtt);
            }
            self.awaits_stamp = false;
        }
    }

    fn irregular(&mut self) -> &mut Irregularities {
        self.irregular.get_or_insert_default()
    }
}

/// Position of the SYN. High enough that no earlier position is negative.
const START: u64 = 1 << 32;
/// A time or position that has not occurred.
pub(crate) const NEVER: u64 = u64::MAX;
/// The largest window (RFC 7323): an acknowledgement further ahead does not belong to this connection.
const ACKNOWLEDGEMENT_MAX: u64 = 1 << 30;
const NO_SCALE: u8 = u8::MAX;
const SECOND: u64 = 1_000_000_000;
