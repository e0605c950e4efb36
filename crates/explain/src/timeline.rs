//! Time divided without gap or overlap: intervals are only ever appended at the cursor.

use schema::share::{Cause, Confidence, Rule};

/// A part of a response time and what it was spent on. Times are nanoseconds since the run's zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Interval {
    /// Start, the end of the interval before.
    pub from_ns: u64,
    /// End, after the start.
    pub to_ns: u64,
    /// What it was spent on.
    pub cause: Cause,
    /// How sure that is.
    pub confidence: Confidence,
    /// The rule that decided.
    pub rule: Rule,
}

/// A cause with its confidence and rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) cause: Cause,
    pub(crate) confidence: Confidence,
    pub(crate) rule: Rule,
}

impl Label {
    pub(crate) const fn new(cause: Cause, confidence: Confidence, rule: Rule) -> Label {
        Label { cause, confidence, rule }
    }

    /// The label of time that no input covers.
    pub(crate) const fn unknown(rule: Rule) -> Label {
        Label { cause: Cause::Unknown, confidence: Confidence::Weak, rule }
    }

    /// The same with at most this confidence.
    pub(crate) fn at_most(self, confidence: Confidence) -> Label {
        Label { confidence: self.confidence.min(confidence), ..self }
    }
}

/// A time that some input gives to a cause, whatever the phase around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overlay {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) label: Label,
}

/// The division in progress.
#[derive(Debug)]
pub(crate) struct Timeline {
    cursor: u64,
    end: u64,
    intervals: Vec<Interval>,
}

impl Timeline {
    /// A division of the time from `start` to `end`; nothing if `end` is earlier.
    pub(crate) fn new(start: u64, end: u64) -> Timeline {
        Timeline { cursor: start, end: end.max(start), intervals: Vec::new() }
    }

    /// Up to where time is divided.
    pub(crate) fn cursor(&self) -> u64 {
        self.cursor
    }

    /// Gives the time from the cursor until `until` to `label`. A time before the cursor changes nothing, and one after
    /// the end counts as the end: so contradictory inputs still give a division.
    pub(crate) fn push(&mut self, until: u64, label: Label) {
        let until = until.min(self.end);
        if until <= self.cursor {
            return;
        }
        let Label { cause, confidence, rule } = label;
        match self.intervals.last_mut() {
            Some(last) if (last.cause, last.confidence, last.rule) == (cause, confidence, rule) => last.to_ns = until,
            _ => self.intervals.push(Interval { from_ns: self.cursor, to_ns: until, cause, confidence, rule }),
        }
        self.cursor = until;
    }

    /// The same, except that the times of `overlays` go to their own labels. Of two overlays that overlap, the one that
    /// starts first has the common time.
    pub(crate) fn push_over(&mut self, until: u64, label: Label, overlays: &[Overlay]) {
        let mut inside: Vec<&Overlay> =
            overlays.iter().filter(|overlay| overlay.to > self.cursor && overlay.from < until).collect();
        inside.sort_by_key(|overlay| overlay.from);
        for overlay in inside {
            self.push(overlay.from, label);
            self.push(overlay.to.min(until), overlay.label);
        }
        self.push(until, label);
    }

    /// The intervals, with the rest until the end as unknown.
    pub(crate) fn finish(mut self) -> Vec<Interval> {
        self.push(self.end, Label::unknown(Rule::NoInput));
        self.intervals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: Label = Label::new(Cause::ServerProcessing, Confidence::Certain, Rule::ServerPackets);
    const QUEUE: Label = Label::new(Cause::Queue, Confidence::Certain, Rule::PathRecord);

    #[test]
    fn times_before_the_cursor_and_after_the_end_leave_no_gap_and_no_overlap() {
        let mut timeline = Timeline::new(10, 100);
        timeline.push(5, SERVER);
        timeline.push(30, SERVER);
        timeline.push(20, QUEUE);
        timeline.push(200, QUEUE);
        let intervals = timeline.finish();
        let times: Vec<_> = intervals.iter().map(|part| (part.from_ns, part.to_ns, part.cause)).collect();
        assert_eq!(times, [(10, 30, Cause::ServerProcessing), (30, 100, Cause::Queue)]);
    }

    #[test]
    fn overlays_take_their_time_out_of_the_phase() {
        let mut timeline = Timeline::new(0, 100);
        let overlays = [
            Overlay { from: 40, to: 60, label: QUEUE },
            Overlay { from: 10, to: 20, label: QUEUE },
            Overlay { from: 90, to: 300, label: QUEUE },
        ];
        timeline.push_over(95, SERVER, &overlays);
        let parts = timeline.finish();
        let queue: u64 =
            parts.iter().filter(|part| part.cause == Cause::Queue).map(|part| part.to_ns - part.from_ns).sum();
        assert_eq!(queue, 10 + 20 + 5);
        assert_eq!(parts.last().map(|part| part.cause), Some(Cause::Unknown));
    }
}
