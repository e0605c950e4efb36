//! The server: an application that writes, and a TCP sender with slow start, SACK recovery and a retransmission timer.

use std::collections::VecDeque;

use crate::world::{MS, World};

/// Payload of a full segment.
pub const SEGMENT: u64 = 1_448;

/// A segment of the response that was sent at least once.
#[derive(Clone, Copy, Debug)]
struct Piece {
    first: u64,
    end: u64,
    sent_at: u64,
    transmissions: u32,
    sacked: bool,
    lost: bool,
}

/// The sending half of the connection at the server. Offsets count from the response's first byte.
pub struct Sender {
    pieces: VecDeque<Piece>,
    acked: u64,
    next: u64,
    /// Bytes that the socket has taken from the application.
    written: u64,
    /// Congestion window in segments.
    pub window: f64,
    threshold: f64,
    max_out: f64,
    recovery_until: Option<u64>,
    /// Highest byte that the receiver admits.
    pub edge: u64,
    /// Bytes that HTTP/2 windows admit: stream, connection.
    pub granted: [u64; 2],
    smoothed: Option<(f64, f64)>,
    backoff: u32,
    /// When the retransmission timer fires.
    pub timeout_at: Option<u64>,
    /// Time limited by the send buffer so far.
    pub buffer_limited: u64,
    limited_since: Option<u64>,
    /// Earliest departure of the next segment, where the sender is paced.
    pub paced_until: u64,
    /// End of the application's pause, once half of the response has left.
    pub paused_until: Option<u64>,
}

impl Sender {
    pub fn new(world: &World) -> Sender {
        Sender {
            pieces: VecDeque::new(),
            acked: 0,
            next: 0,
            written: 0,
            window: world.initial_window.map_or(1e9, |window| window as f64),
            threshold: f64::INFINITY,
            max_out: 0.0,
            recovery_until: None,
            edge: world.receive_buffer,
            granted: [world.stream_window.unwrap_or(u64::MAX), world.connection_window.unwrap_or(u64::MAX)],
            smoothed: None,
            backoff: 0,
            timeout_at: None,
            buffer_limited: 0,
            limited_since: None,
            paced_until: 0,
            paused_until: None,
        }
    }

    fn pipe(&self) -> f64 {
        let out = |piece: &&Piece| !piece.sacked && !piece.lost;
        self.pieces.iter().filter(out).map(|piece| piece.end - piece.first).sum::<u64>() as f64 / SEGMENT as f64
    }

    /// Processes an acknowledgement that arrives at `now`.
    pub fn acknowledge(&mut self, world: &World, now: u64, ack: u64, sack: &[(u64, u64)]) {
        let newly = ack.saturating_sub(self.acked);
        if newly > 0 {
            self.backoff = 0;
            while self.pieces.front().is_some_and(|piece| piece.end <= ack) {
                let piece = self.pieces.pop_front().expect("the front exists");
                if piece.transmissions == 1 {
                    self.sample((now - piece.sent_at) as f64);
                }
            }
            self.acked = ack;
        }
        for piece in self.pieces.iter_mut().filter(|_| !sack.is_empty()) {
            piece.sacked |= sack.iter().any(|(first, end)| *first <= piece.first && piece.end <= *end);
        }
        if !sack.is_empty() {
            self.mark_lost();
        }
        if self.recovery_until.is_some_and(|until| self.acked >= until) {
            self.recovery_until = None;
        }
        if self.recovery_until.is_none() && self.pieces.iter().any(|piece| piece.lost) {
            self.recovery_until = Some(self.next);
            if world.initial_window.is_some() {
                self.threshold = (self.window.min(self.max_out.max(2.0)) / 2.0).max(2.0);
                self.window = self.threshold;
            }
        } else if self.recovery_until.is_none() && newly > 0 {
            let segments = newly as f64 / SEGMENT as f64;
            // As in Linux, a window that is not used up does not grow.
            if self.window < self.threshold && self.window < 2.0 * self.max_out {
                self.window += segments;
            } else if self.window >= self.threshold && self.max_out + 1.0 >= self.window {
                self.window += segments / self.window;
            }
        }
        self.timeout_at = (!self.pieces.is_empty()).then(|| now + self.timeout());
    }

    /// Three segments above a hole were reported: the hole is a loss.
    fn mark_lost(&mut self) {
        let mut above = 0;
        for piece in self.pieces.iter_mut().rev() {
            if piece.sacked {
                above += 1;
            } else if above >= 3 && piece.transmissions == 1 {
                piece.lost = true;
            }
        }
    }

    fn sample(&mut self, rtt: f64) {
        self.smoothed = Some(match self.smoothed {
            None => (rtt, rtt / 2.0),
            Some((mean, deviation)) => (mean * 0.875 + rtt * 0.125, deviation * 0.75 + (mean - rtt).abs() * 0.25),
        });
    }

    fn timeout(&self) -> u64 {
        let (mean, deviation) = self.smoothed.unwrap_or((1e9, 0.0));
        ((mean + (4.0 * deviation).max(200.0 * MS as f64)) as u64) << self.backoff.min(6)
    }

    /// The retransmission timer fired: everything unreported counts as lost.
    pub fn fire(&mut self, world: &World, now: u64) {
        self.backoff += 1;
        let pipe = self.pipe();
        self.pieces.iter_mut().filter(|piece| !piece.sacked).for_each(|piece| piece.lost = true);
        self.recovery_until = Some(self.next);
        if world.initial_window.is_some() {
            self.threshold = (pipe / 2.0).max(2.0);
            self.window = 1.0;
        }
        self.timeout_at = Some(now + self.timeout());
    }

    /// Bytes that the application would have written by `now`, started at `begin`.
    fn wanted(&self, world: &World, begin: u64, now: u64) -> u64 {
        if now < begin {
            0
        } else if world.pause == 0 || self.paused_until.is_some_and(|until| until <= now) {
            world.size
        } else {
            world.size / 2
        }
    }

    /// Sends what may be sent at `now`: (first byte, length, whether it was sent before).
    pub fn send(&mut self, world: &World, begin: u64, now: u64) -> Vec<(u64, u64)> {
        let wanted = self.wanted(world, begin, now);
        if let Some(since) = self.limited_since.take() {
            self.buffer_limited += now - since;
        }
        let admitted = self.granted[0].min(self.granted[1]).min(self.acked + world.send_buffer);
        self.written = self.written.max(wanted.min(admitted));
        let mut out = Vec::new();
        let mut pipe = self.pipe();
        let mut lost = self.pieces.iter().filter(|piece| piece.lost).count();
        while pipe < self.window {
            if world.pacing && self.paced_until > now {
                break;
            }
            if lost > 0
                && let Some(piece) = self.pieces.iter_mut().find(|piece| piece.lost)
            {
                lost -= 1;
                (piece.lost, piece.sent_at) = (false, now);
                piece.transmissions += 1;
                out.push((piece.first, piece.end - piece.first));
                pipe += (piece.end - piece.first) as f64 / SEGMENT as f64;
                continue;
            }
            let length = SEGMENT.min(self.written - self.next);
            if length == 0
                || self.next + length > self.edge
                || (pipe + length as f64 / SEGMENT as f64) > self.window + 0.01
            {
                break;
            }
            let piece = Piece {
                first: self.next,
                end: self.next + length,
                sent_at: now,
                transmissions: 1,
                sacked: false,
                lost: false,
            };
            self.pieces.push_back(piece);
            out.push((self.next, length));
            self.next += length;
            if self.acked > 0 && world.pacing {
                self.paced_until = self.paced_until.max(now) + (world.rtt as f64 / 2.0 / self.window) as u64;
            }
            pipe += length as f64 / SEGMENT as f64;
        }
        self.max_out = self.max_out.max(pipe);
        if self.next >= world.size / 2 {
            self.paused_until.get_or_insert(now + world.pause);
        }
        if !out.is_empty() && self.timeout_at.is_none() {
            self.timeout_at = Some(now + self.timeout());
        }
        let has_room = pipe + 1.0 <= self.window;
        let is_full =
            self.written == self.acked + world.send_buffer && self.next == self.written && wanted > self.written;
        self.limited_since = (is_full && has_room).then_some(now);
        out
    }

    /// Bytes that the application has written and that were not sent.
    pub fn unsent(&self) -> u64 {
        self.written.saturating_sub(self.next)
    }

    /// Time limited by the send buffer until `now`.
    pub fn buffer_limited_at(&self, now: u64) -> u64 {
        self.buffer_limited + self.limited_since.map_or(0, |since| now.saturating_sub(since))
    }
}
