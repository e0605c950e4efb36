//! A response in virtual time: slow start without losses, with windows, a rate and a distance.
//!
//! Deterministic, packet by packet: a segment leaves when every window admits it, passes the bottleneck, and its ACK
//! opens the windows further. Bias: congestion avoidance and losses are absent, so a transfer that loses packets takes
//! longer than this, with the change and without it.

/// What a transfer depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Bytes of the response.
    pub response_bytes: u64,
    /// Payload of a full segment, bytes; at least 1.
    pub segment_bytes: u64,
    /// Round-trip time without queues, nanoseconds.
    pub rtt_ns: u64,
    /// Rate of the bottleneck, bit/s; `None`: no transmission time.
    pub bit_per_s: Option<u64>,
    /// Congestion window at the response's start, segments; at least 1.
    pub initial_window: u64,
    /// Receive window, bytes; `None`: no limit.
    pub receive_window: Option<u64>,
    /// Bytes that may be in flight by the send buffer; `None`: no limit.
    pub send_buffer: Option<u64>,
    /// HTTP/2 window of stream or connection, bytes, renewed when half of it was received; `None`: no limit.
    pub stream_window: Option<u64>,
}

/// How long a transfer takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferTime {
    /// From the request's departure to the response's last byte, without server processing, nanoseconds.
    pub time_ns: u64,
    /// Round trips in which response segments were sent; 1 if all left in the first.
    pub round_trips: u32,
}

/// Segments that are simulated one by one; the rest of a longer response goes on at the pace of their second half.
const MAX_SEGMENTS: u64 = 100_000;
/// Bytes of IPv4 and TCP headers with timestamps.
const HEADER_BYTES: u64 = 52;

impl Transfer {
    /// Simulates the transfer.
    pub fn simulate(&self) -> TransferTime {
        let segment = self.segment_bytes.max(1);
        let count = self.response_bytes.div_ceil(segment).max(1);
        let simulated = count.min(MAX_SEGMENTS);
        let mut flight = Flight::new(self, segment);
        let mut middle = 0;
        for number in 0..simulated {
            flight.send(number);
            if number == simulated / 2 {
                middle = flight.last_arrival;
            }
        }
        let last = flight.last_arrival;
        let second_half = simulated.div_ceil(2).max(1);
        let rest = u128::from(last - middle) * u128::from(count - simulated) / u128::from(second_half);
        let time_ns = last.saturating_add(u64::try_from(rest).unwrap_or(u64::MAX)).saturating_add(self.rtt_ns / 2);
        TransferTime { time_ns, round_trips: flight.round_trips }
    }
}

/// The transfer's state at the sender.
struct Flight<'a> {
    transfer: &'a Transfer,
    segment: u64,
    /// Arrival of each segment's ACK at the sender, and the round trip in which the segment was sent.
    acks: Vec<(u64, u32)>,
    acked: usize,
    window: u64,
    now: u64,
    round: u32,
    busy_until: u64,
    last_arrival: u64,
    round_trips: u32,
}

impl Flight<'_> {
    fn new(transfer: &Transfer, segment: u64) -> Flight<'_> {
        Flight {
            transfer,
            segment,
            acks: Vec::new(),
            acked: 0,
            window: transfer.initial_window.max(1),
            now: 0,
            round: 1,
            busy_until: 0,
            last_arrival: 0,
            round_trips: 1,
        }
    }

    /// Byte after the last of a segment; the last segment may be short.
    fn end(&self, number: u64) -> u64 {
        (number + 1).saturating_mul(self.segment).min(self.transfer.response_bytes)
    }

    fn end_of_acked(&self) -> u64 {
        self.acked.checked_sub(1).map_or(0, |last| self.end(last as u64))
    }

    /// Whether every window admits the segment of this number.
    fn is_admitted(&self, number: u64) -> bool {
        let in_flight = number - self.acked as u64;
        let bytes = self.end(number) - self.end_of_acked();
        let fits = |window: Option<u64>| window.is_none_or(|window| bytes <= window);
        let granted = self.transfer.stream_window.is_none_or(|window| {
            let received = self.end_of_acked();
            let half = (window / 2).max(1);
            self.end(number) <= window.saturating_add(received / half * half)
        });
        // One segment in flight is always possible: a window below a segment admits a smaller one.
        in_flight == 0
            || (in_flight < self.window
                && fits(self.transfer.receive_window)
                && fits(self.transfer.send_buffer)
                && granted)
    }

    fn send(&mut self, number: u64) {
        while !self.is_admitted(number) {
            let (at, round) = self.acks[self.acked];
            let was_full = number - self.acked as u64 >= self.window;
            self.acked += 1;
            self.now = self.now.max(at);
            self.round = self.round.max(round + 1);
            if was_full || self.window < 2 * number.min(u64::from(u32::MAX)) {
                self.window += 1;
            }
        }
        let bits = (self.segment + HEADER_BYTES).saturating_mul(8);
        let serialisation = self.transfer.bit_per_s.map_or(0, |rate| bits.saturating_mul(1_000_000_000) / rate.max(1));
        self.busy_until = self.busy_until.max(self.now).saturating_add(serialisation);
        let rtt = self.transfer.rtt_ns;
        self.last_arrival = self.busy_until.saturating_add(rtt - rtt / 2);
        self.acks.push((self.busy_until.saturating_add(rtt), self.round));
        self.round_trips = self.round;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Transfer = Transfer {
        response_bytes: 100 * 1_448,
        segment_bytes: 1_448,
        rtt_ns: 100_000_000,
        bit_per_s: None,
        initial_window: 10,
        receive_window: None,
        send_buffer: None,
        stream_window: None,
    };

    #[test]
    fn slow_start_doubles_the_flight_each_round_trip() {
        // 10 + 20 + 40 + 30 segments.
        assert_eq!(PLAIN.simulate(), TransferTime { time_ns: 400_000_000, round_trips: 4 });
        let larger = Transfer { initial_window: 32, ..PLAIN };
        assert_eq!(larger.simulate(), TransferTime { time_ns: 300_000_000, round_trips: 3 });
        let unlimited = Transfer { initial_window: 100, ..PLAIN };
        assert_eq!(unlimited.simulate(), TransferTime { time_ns: 100_000_000, round_trips: 1 });
    }

    #[test]
    fn a_receive_window_is_one_window_each_round_trip() {
        let limited = Transfer { initial_window: 100, receive_window: Some(10 * 1_448), ..PLAIN };
        assert_eq!(limited.simulate(), TransferTime { time_ns: 1_000_000_000, round_trips: 10 });
    }

    #[test]
    fn a_slow_link_transmits_all_bytes_at_its_rate() {
        let slow = Transfer { initial_window: 100, bit_per_s: Some(1_200_000), ..PLAIN };
        assert_eq!(slow.simulate().time_ns, 100_000_000 + 100 * 10_000_000);
    }

    #[test]
    fn a_window_below_one_segment_still_transfers() {
        let tiny = Transfer { receive_window: Some(100), stream_window: Some(1), ..PLAIN };
        assert_eq!(tiny.simulate().round_trips, 100);
    }

    #[test]
    fn a_response_of_a_gigabyte_ends() {
        let long = Transfer { response_bytes: 1 << 30, bit_per_s: Some(1_000_000_000), ..PLAIN };
        let seconds = long.simulate().time_ns as f64 / 1e9;
        assert!((8.5..10.5).contains(&seconds), "{seconds}");
    }
}
