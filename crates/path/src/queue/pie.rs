//! Proportional integral controller enhanced: drops at the tail with a probability that follows the delay (RFC 8033).

use units::time::saturating_nanos;

use super::MTU;
use crate::draw::Draw;
use crate::spec;

/// The state of section 4 of the RFC. The delay is computed, not estimated: the wait of a packet that arrives now.
#[derive(Debug)]
pub(super) struct Pie {
    /// QDELAY_REF, in nanoseconds.
    target: u64,
    /// T_UPDATE, in nanoseconds, at least 1.
    update: u64,
    /// Weights of the deviation from the target and of the trend, per second.
    alpha: f64,
    beta: f64,
    probability: f64,
    /// The delay at the last update, in nanoseconds.
    old_delay: u64,
    /// Remaining burst allowance in nanoseconds: while it is above 0 no packet is dropped.
    burst_allowance: u64,
    /// When the next update is due.
    next_update: u64,
    draw: Draw,
}

/// MAX_BURST: maximum duration of a burst that arrives at an idle queue (section 4.4).
const BURST_MAX: u64 = 150_000_000;

impl Pie {
    pub(super) fn new(spec: &spec::Pie, draw: Draw) -> Self {
        let update = saturating_nanos(spec.update).max(1);
        // 0.125 and 1.25 for updates every 15 ms; with half the interval, alpha is halved and beta grows by a quarter
        // of the old alpha (section 4.2).
        let alpha = 0.125 * update as f64 / 15e6;
        Pie {
            target: saturating_nanos(spec.target),
            update,
            alpha,
            beta: (1.25 + 0.0625 - alpha / 2.0).max(0.0),
            probability: 0.0,
            old_delay: 0,
            burst_allowance: BURST_MAX,
            next_update: update,
            draw,
        }
    }

    /// Performs every update due at `at` or before. `wait` returns the wait of a packet at a given time.
    pub(super) fn update_until(&mut self, at: u64, wait: impl Fn(u64) -> u64) {
        while self.next_update <= at {
            let update_at = self.next_update;
            let delay = wait(update_at);
            if delay == 0 && self.old_delay == 0 && self.probability == 0.0 && self.burst_allowance == 0 {
                // Idle until now: further updates would change nothing.
                self.next_update =
                    update_at.saturating_add(((at - update_at) / self.update + 1).saturating_mul(self.update));
                return;
            }
            self.update(delay);
            self.next_update = update_at.saturating_add(self.update);
        }
    }

    /// One update (sections 4.2 and 4.4).
    fn update(&mut self, delay: u64) {
        let seconds = |from: u64, to: u64| (to as f64 - from as f64) / 1e9;
        let step = self.alpha * seconds(self.target, delay) + self.beta * seconds(self.old_delay, delay);
        let divisor = match self.probability {
            p if p < 0.000_001 => 2048.0,
            p if p < 0.000_01 => 512.0,
            p if p < 0.000_1 => 128.0,
            p if p < 0.001 => 32.0,
            p if p < 0.01 => 8.0,
            p if p < 0.1 => 2.0,
            _ => 1.0,
        };
        self.probability += step / divisor;
        if delay == 0 && self.old_delay == 0 {
            self.probability *= 0.98;
        }
        self.probability = self.probability.clamp(0.0, 1.0);
        self.old_delay = delay;
        self.burst_allowance = self.burst_allowance.saturating_sub(self.update);
    }

    /// Whether a packet that arrives now is dropped, with `waiting` bytes in front of it that take `delay` (section
    /// 4.1).
    pub(super) fn drops(&mut self, delay: u64, waiting: u64) -> bool {
        let is_low = |delay: u64| delay < self.target / 2;
        // PIE must not drop a packet if the link has nothing else to send.
        let is_safe = (is_low(self.old_delay) && self.probability < 0.2) || waiting <= 2 * MTU;
        let is_quiet = self.probability == 0.0 && is_low(delay) && is_low(self.old_delay);
        // 53 bits of a draw: a number from 0 to below 1.
        let drops = self.burst_allowance == 0
            && !is_safe
            && ((self.draw.next() >> 11) as f64 / (1u64 << 53) as f64) < self.probability;
        if is_quiet && !drops {
            self.burst_allowance = BURST_MAX;
        }
        drops
    }
}
