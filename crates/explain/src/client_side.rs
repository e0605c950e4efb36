//! Rules for a response of which only arrivals at the client are known.
//!
//! Departures are arrivals less a one-way delay, so some losses, queues and pauses look alike. Time that several of
//! them explain is *unknown*. The rest is likely where the path's round-trip time is known by configuration, and weak
//! where it was measured at the client: a queue that never empties is then part of it.

use crate::hold::Sender;
use crate::spacing::Spacing;
use crate::steps::Step;
use crate::timeline::{Label, Overlay, Timeline};
use schema::share::{Cause, Confidence, Rule};

/// A hole that was open this long was filled by a timer: the least retransmission timeout of Linux.
const LEAST_TIMEOUT_NS: u64 = 200_000_000;
/// A fast retransmit takes a round trip and this for the hosts.
const FAST_TOLERANCE_NS: u64 = 2_000_000;
/// Number of pairs of arrivals from which an equal spacing is not a coincidence.
const MANY_PAIRS: usize = 20;

impl Sender<'_> {
    /// Divides the time from the arrival before to `step`.
    pub(crate) fn seen_by_client(&self, timeline: &mut Timeline, step: &Step, spacing: &Spacing) {
        let rtt = self.view.rtt();
        let best = if self.view.is_grounded() { Confidence::Likely } else { Confidence::Weak };
        if let Some(overtaken_at) = step.overtaken_at.filter(|_| rtt > 0) {
            timeline.push(overtaken_at.min(step.at), Label::unknown(Rule::Ambiguous));
            let waited = step.at.saturating_sub(overtaken_at);
            let fast = rtt.saturating_mul(3) / 2 + FAST_TOLERANCE_NS;
            let label = match waited {
                waited if waited < rtt - rtt / 8 => {
                    Label::new(Cause::Reordering, Confidence::Likely, Rule::FilledEarly)
                }
                waited if waited <= fast => Label::new(Cause::FastRetransmit, Confidence::Likely, Rule::FilledLate),
                // QUIC's probe timer has no least time.
                waited if waited >= LEAST_TIMEOUT_NS && self.view.quic.is_none() => {
                    Label::new(Cause::RetransmissionTimeout, Confidence::Likely, Rule::FilledLate)
                }
                // Too late for a fast retransmit, too early for the timer: perhaps a packet that was very late.
                _ => Label::unknown(Rule::Ambiguous),
            };
            timeline.push(step.at, label);
            return;
        }
        let shift = self.view.down_delay();
        let from = timeline.cursor().saturating_sub(shift);
        let hold = crate::hold::Hold {
            from,
            until: step.at.saturating_sub(shift),
            byte: step.from,
            length: step.to - step.from,
        };
        let gap = step.at.saturating_sub(timeline.cursor());
        let serialisation = spacing.serialisation(step.to - step.from);
        if spacing.constant && gap <= serialisation + serialisation / 3 {
            let sure = if spacing.agreeing >= MANY_PAIRS { Confidence::Likely } else { Confidence::Weak };
            timeline.push(step.at, Label::new(Cause::BottleneckRate, sure, Rule::Spacing).at_most(best));
        } else if let Some((until, label)) = self.stream_window_block(from, step) {
            timeline.push(until.saturating_add(shift).min(step.at), label.at_most(Confidence::Likely));
            timeline.push(step.at, Label::unknown(Rule::Ambiguous));
        } else if let Some((until, label)) = self.receive_window_block(&hold) {
            timeline.push(until.saturating_add(shift).min(step.at), label.at_most(Confidence::Likely));
            timeline.push(step.at, Label::unknown(Rule::Ambiguous));
        } else if let Some(place) = self.round_trip_before(&hold) {
            let at_client = |delay: Overlay| Overlay {
                from: delay.from.saturating_add(shift),
                to: delay.to.saturating_add(shift),
                label: delay.label.at_most(Confidence::Likely),
            };
            let delays: Vec<Overlay> = self.delays(place).into_iter().map(at_client).collect();
            timeline.push_over(step.at, self.window(&hold).at_most(best), &delays);
        } else {
            timeline.push(step.at, Label::unknown(Rule::Ambiguous));
        }
    }

    /// The ACK that arrived at the server about when the packet left: it left about a round trip before the packet's
    /// arrival.
    fn round_trip_before(&self, hold: &crate::hold::Hold) -> Option<usize> {
        let tolerance = (self.view.rtt() / 10).max(ROUND_TRIP_TOLERANCE_NS);
        let (from, to) = (hold.until.saturating_sub(tolerance), hold.until.saturating_add(tolerance));
        self.acknowledgement_between(from, to)
    }
}

/// Two times that differ by this are the same, nanoseconds.
const ROUND_TRIP_TOLERANCE_NS: u64 = 500_000;
