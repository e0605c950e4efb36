//! What an origin counts of itself: the document of `GET /-/origin`, written by `serve` and read by the sweep.

use std::collections::BTreeMap;

use ledger::Quantiles;
use serde::{Deserialize, Serialize};

/// Counts since the origin's start, over all its workers. Requests for these figures and for the server's own
/// (`/-/status`) are not in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginFigures {
    /// [`Matter::digest`](crate::Matter::digest) of the origin, in hexadecimal: other than the robots' means another
    /// build, whose bodies differ.
    pub matter: String,
    /// Name of the mix whose objects it has.
    pub mix: String,
    /// Seed from which they come.
    pub seed: u64,
    /// Requests for objects, of every method; counted when their head was complete.
    pub requests: u64,
    /// Of these, GET.
    pub get: u64,
    /// HEAD.
    pub head: u64,
    /// POST.
    pub post: u64,
    /// With a condition (If-Modified-Since, If-None-Match).
    pub conditional: u64,
    /// Without the field that names the robot's ask: a proxy's own requests, or a stranger's.
    pub without_ask: u64,
    /// For objects of another world than the origin's, where it has one of its own; answered all the same.
    pub foreign: u64,
    /// Answered with 200.
    pub full: u64,
    /// Answered with 304.
    pub not_modified: u64,
    /// Of those with 200, cut off as planned.
    pub aborted: u64,
    /// Given up by whoever asked, before the origin had answered.
    pub abandoned: u64,
    /// Requests that were for no object: paths that are none (404), methods that are not had (405). Not in `requests`.
    pub refused: u64,
    /// Bytes of bodies that were handed to the kernel, without heads.
    pub content_bytes: u64,
    /// Connections over which at least one request for an object came.
    pub connections: u64,
    /// Requests that it is thinking about now.
    pub thinking: u64,
    /// How much later than its think time an answer began, in nanoseconds, by the monotonic clock: to the moment at which
    /// its head was written, before it was sent. Since the start; empty where nothing is thought about.
    pub think_lateness_ns: Quantiles,
    /// By world, as its hexadecimal digits stand in URLs: the first [`OriginFigures::WORLDS_MAX`] that were asked for.
    pub worlds: BTreeMap<String, WorldFigures>,
}

/// What was asked of one world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldFigures {
    /// Requests for its objects.
    pub requests: u64,
    /// Bytes of their bodies.
    pub content_bytes: u64,
}

impl OriginFigures {
    /// Worlds that are counted each by itself. A sweep has one a point.
    pub const WORLDS_MAX: usize = 256;

    /// Adds the counts of another worker. Its name and seed are the same; the quantiles cannot be added and stay.
    pub fn add(&mut self, other: &OriginFigures) {
        for (sum, more) in self.counts().into_iter().zip(other.clone().counts()) {
            *sum += *more;
        }
        self.thinking += other.thinking;
        for (world, figures) in &other.worlds {
            let sum = self.worlds.entry(world.clone()).or_default();
            sum.requests += figures.requests;
            sum.content_bytes += figures.content_bytes;
        }
    }

    /// What was counted after `earlier`, which was read from the same origin before. A count that is smaller now (the
    /// origin was started again between) becomes zero. `thinking` and the lateness are those of now, the lateness since
    /// the start.
    #[must_use]
    pub fn since(&self, earlier: &OriginFigures) -> OriginFigures {
        let mut since = self.clone();
        for (now, before) in since.counts().into_iter().zip(earlier.clone().counts()) {
            *now = now.saturating_sub(*before);
        }
        for (world, now) in &mut since.worlds {
            if let Some(before) = earlier.worlds.get(world) {
                now.requests = now.requests.saturating_sub(before.requests);
                now.content_bytes = now.content_bytes.saturating_sub(before.content_bytes);
            }
        }
        since.worlds.retain(|_, figures| *figures != WorldFigures::default());
        since
    }

    /// All that only grows.
    fn counts(&mut self) -> [&mut u64; 14] {
        let OriginFigures { requests, get, head, post, conditional, without_ask, foreign, .. } = self;
        let OriginFigures { full, not_modified, aborted, abandoned, refused, content_bytes, connections, .. } = self;
        [
            requests,
            get,
            head,
            post,
            conditional,
            without_ask,
            foreign,
            full,
            not_modified,
            aborted,
            abandoned,
            refused,
            content_bytes,
            connections,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(count: u64) -> OriginFigures {
        let mut figures = OriginFigures { mix: "m".into(), seed: 7, thinking: count, ..OriginFigures::default() };
        figures.counts().into_iter().zip(1..).for_each(|(slot, number)| *slot = count * number);
        figures.worlds.insert("1f".into(), WorldFigures { requests: count, content_bytes: 2 * count });
        figures
    }

    #[test]
    fn sums_and_differences() {
        let mut sum = figures(1);
        sum.add(&figures(2));
        assert_eq!(sum, figures(3));
        assert_eq!(sum.since(&figures(1)), OriginFigures { thinking: 3, ..figures(2) });
        let nothing = sum.since(&sum);
        assert!(nothing.worlds.is_empty() && nothing.requests == 0 && nothing.connections == 0);
        // Started again between two readings: not a huge number.
        assert_eq!(figures(1).since(&figures(2)).requests, 0);
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let figures = figures(3);
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<OriginFigures>(&text).unwrap(), figures);
    }
}
