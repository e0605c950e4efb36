//! Rules for a response of which only arrivals at the client are known.
//!
//! Departures are arrivals less a one-way delay, so losses, queues and pauses look alike in part. What does is *unknown*;
//! the rest is likely where the path's round-trip time is known by configuration, and weak where it was measured at the
//! client, since a queue that never empties is then part of it.

use crate::cause::{Cause, Confidence, Rule};
use crate::hold::Sender;
use crate::spacing::Spacing;
use crate::steps::Step;
use crate::timeline::{Label, Timeline};

/// Longer than a round trip by this, a hole was filled by a timer: the least retransmission timeout of Linux.
const LEAST_TIMEOUT_NS: u64 = 200_000_000;
/// So many pairs of arrivals with the same spacing are no accident.
const MANY_PAIRS: usize = 20;

impl Sender<'_> {
    /// Divides the time from the arrival before to `step`.
    pub(crate) fn seen_by_client(&self, timeline: &mut Timeline, step: &Step, spacing: &Spacing) {
        let rtt = self.view.rtt();
        let best = if self.view.is_grounded() { Confidence::Likely } else { Confidence::Weak };
        if let Some(overtaken_at) = step.overtaken_at.filter(|_| rtt > 0) {
            timeline.push(overtaken_at.min(step.at), Label::unknown(Rule::Ambiguous));
            let waited = step.at.saturating_sub(overtaken_at);
            let (cause, rule) = match waited {
                waited if waited < rtt - rtt / 8 => (Cause::Reordering, Rule::FilledEarly),
                waited if waited < rtt.saturating_add(LEAST_TIMEOUT_NS) => (Cause::FastRetransmit, Rule::FilledLate),
                _ => (Cause::RetransmissionTimeout, Rule::FilledLate),
            };
            timeline.push(step.at, Label::new(cause, Confidence::Likely, rule));
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
        } else if let Some((until, label)) = self.http2_block(from, step) {
            timeline.push(until.saturating_add(shift).min(step.at), label.at_most(Confidence::Likely));
            timeline.push(step.at, Label::unknown(Rule::Ambiguous));
        } else if let Some((until, label)) = self.receive_window_block(&hold) {
            timeline.push(until.saturating_add(shift).min(step.at), label.at_most(Confidence::Likely));
            timeline.push(step.at, Label::unknown(Rule::Ambiguous));
        } else if self.acknowledgement(hold.until.saturating_add(rtt / 10)).is_some() {
            timeline.push(step.at, self.window(&hold).at_most(best));
        } else {
            timeline.push(step.at, Label::unknown(Rule::Ambiguous));
        }
    }
}
