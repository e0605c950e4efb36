//! Links without a closed form: those that reorder, copy, corrupt or store packets, change over time, or are shared.
//!
//! Each of their effects receives the packets in true order of time. A packet that reaches the next effect in the
//! future waits among the network's events, unless no other packet can arrive before it: an effect in closed form,
//! behind others that keep the order, is computed ahead of time as on a plain link.
//!
//! `network/travel.rs` moves packets along the effects; `build.rs` builds a link from its specification.

use std::sync::Arc;

use schema::DropCause;
use units::{Bytes, Timestamp};

use crate::draw::{Draw, Threshold};
use crate::effect::{self, ClosedEffect, Fate, Step, SteppedEffect};
use crate::spec::DelayOverTime;
use crate::timeline::{Start, State, Timeline};

/// One special link, in one direction.
#[derive(Debug)]
pub(crate) struct Special {
    pub nodes: Box<[Node]>,
    pub timeline: Option<Arc<Timeline>>,
    /// Whether a super-packet must be cut before it: on a client's own link, before any link on its way.
    pub acts_per_wire_packet: bool,
}

/// One effect at its position.
#[derive(Debug)]
pub(crate) struct Node {
    pub kind: Kind,
    /// Packets may be processed before their time, in order of arrival.
    pub is_ahead: bool,
}

/// The effect of a node.
#[derive(Debug)]
pub(crate) enum Kind {
    /// An effect in closed form.
    Closed(ClosedEffect, effect::State),
    /// An effect that is simulated step by step.
    Stepped(SteppedEffect),
    /// Loss that a change sets in place of the link's own.
    ChangedLoss(Draw),
    /// Delay.
    Delay(DelayNode),
    /// Waits in the queue of this number.
    Queue(u32),
}

impl Special {
    /// The changes in force on the link at `at`.
    #[inline]
    pub(crate) fn state(&self, start: Start, at: Timestamp) -> State {
        self.timeline.as_ref().map_or(State::UNCHANGED, |timeline| timeline.at(start, at.as_nanos()))
    }

    /// Changes the bytes of a packet for which the node at `place` returned [`Step::Altered`]. False when it could not.
    pub(crate) fn alter(&self, place: usize, frame: &mut [u8], draw: &mut Draw) -> bool {
        matches!(&self.nodes[place].kind, Kind::Stepped(effect) if effect.alter(frame, draw))
    }

    /// What the node at `place` does with a packet of `size` IP bytes that reaches it at `at`.
    #[inline]
    pub(crate) fn handle(&mut self, place: usize, at: Timestamp, size: Bytes, start: Start) -> Step {
        let state = self.state(start, at);
        match &mut self.nodes[place].kind {
            Kind::Closed(effect, _) if state.loss.is_some() && effect.is_loss() => Step::Leaves(at),
            Kind::Closed(effect, state) => match effect.handle(state, at, size) {
                Fate::Leaves(later) => Step::Leaves(later),
                Fate::Dropped(cause) => Step::Dropped(cause),
            },
            Kind::Stepped(effect) => effect.handle(at, size),
            Kind::ChangedLoss(draw) => match state.loss {
                Some(loss) if Threshold::new(loss).hit(draw) => Step::Dropped(DropCause::Loss),
                _ => Step::Leaves(at),
            },
            Kind::Delay(node) => Step::Leaves(node.handle(at, state.delay, start)),
            Kind::Queue(queue) => Step::Queued(*queue),
        }
    }
}

/// A delay, constant or over time; packets that arrive in order leave in order, even while it falls.
#[derive(Debug)]
pub(crate) struct DelayNode {
    pub delay: NodeDelay,
    /// Mean nanoseconds that the link's jitter adds: subtracted here.
    pub subtracted_ns: u64,
    /// Whether the delay ever changes; only then the order must be enforced.
    pub is_variable: bool,
    /// When the previous packet left.
    pub last: u64,
}

/// The delay.
#[derive(Debug)]
pub(crate) enum NodeDelay {
    /// Constant, in nanoseconds.
    Constant(u64),
    /// By the time since the start; before it, as at the start.
    Series(Arc<DelayOverTime>),
}

impl DelayNode {
    #[inline]
    fn handle(&mut self, at: Timestamp, factor: f64, start: Start) -> Timestamp {
        let at = at.as_nanos();
        let base = match &self.delay {
            NodeDelay::Constant(nanos) => *nanos,
            NodeDelay::Series(series) => {
                let position = std::time::Duration::from_nanos(start.position(at).unwrap_or(0));
                units::time::saturating_nanos(series.at(position))
            }
        };
        let delay = if factor == 1.0 { base } else { (base as f64 * factor).round() as u64 };
        let mut leaves = at.saturating_add(delay.saturating_sub(self.subtracted_ns));
        if self.is_variable {
            leaves = leaves.max(self.last);
            self.last = leaves;
        }
        Timestamp::from_nanos(leaves)
    }
}
