//! What an origin counts of itself: the document of `GET /-/origin`, written by `serve` and read by the sweep.

use std::collections::BTreeMap;

use schema::Quantiles;
use serde::{Deserialize, Serialize};

use crate::WorkloadDigest;

/// Counts since the origin's start, over all its workers. Requests for these figures and for the server's own
/// (`/-/status`) are not in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginFigures {
    /// [`Matter::digest`](crate::Matter::digest) of the origin, in hexadecimal: other than the robots' means another
    /// build, whose bodies differ.
    pub body_content: String,
    /// Name of the workload whose objects it has.
    pub workload: String,
    /// Seed from which they come.
    pub seed: u64,
    /// Marks of the whole workload with its seed. Empty of an origin of an earlier build.
    #[serde(default)]
    pub digest: WorkloadDigest,
    /// When it was started, Unix time in milliseconds: counts are since then, and another moment is another origin.
    #[serde(default)]
    pub started_unix_ms: u64,
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
    pub without_request_id: u64,
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
    pub think_timing_error_ns: Quantiles,
    /// By world, as its hexadecimal digits stand in URLs: of each worker the last [`OriginFigures::WORLDS_MAX`] that it was
    /// asked for.
    pub worlds: BTreeMap<String, WorldFigures>,
    /// Worlds whose counts made room for others', once for each worker that had them.
    #[serde(default)]
    pub worlds_forgotten: u64,
}

/// What was asked of one world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldFigures {
    /// Requests for its objects.
    pub requests: u64,
    /// Bytes of their bodies.
    pub content_bytes: u64,
    /// Of these requests, the ones without the field that names the robot's ask.
    #[serde(default)]
    pub without_request_id: u64,
}

impl WorldFigures {
    /// Adds the counts of another worker.
    pub fn add(&mut self, other: WorldFigures) {
        self.requests += other.requests;
        self.content_bytes += other.content_bytes;
        self.without_request_id += other.without_request_id;
    }

    /// What was counted after `earlier`; `None` if less was counted now than then.
    fn since(self, earlier: WorldFigures) -> Option<WorldFigures> {
        Some(WorldFigures {
            requests: self.requests.checked_sub(earlier.requests)?,
            // What was announced and not sent after all is taken back.
            content_bytes: self.content_bytes.saturating_sub(earlier.content_bytes),
            without_request_id: self.without_request_id.checked_sub(earlier.without_request_id)?,
        })
    }
}

impl OriginFigures {
    /// Worlds that each worker counts by themselves. A sweep has one a point. Where there are more, the one that was not asked
    /// for the longest makes room.
    pub const WORLDS_MAX: usize = 256;

    /// What was counted of one world since `earlier`, which was read from the same origin before; since its start where there
    /// is none. `None` if that is not known: the origin was started again between, or the world's counts made room for
    /// others' meanwhile. A world that is asked for throughout keeps its place.
    pub fn of_world(&self, earlier: Option<&OriginFigures>, world: u32) -> Option<WorldFigures> {
        let name = format!("{world:x}");
        let of = |figures: &OriginFigures| figures.worlds.get(&name).copied();
        let (was_there, forgotten) = match earlier {
            None => (None, self.worlds_forgotten),
            Some(earlier) => {
                let is_another = self.started_unix_ms != earlier.started_unix_ms
                    || self.requests < earlier.requests
                    || self.worlds_forgotten < earlier.worlds_forgotten;
                if is_another {
                    return None;
                }
                (of(earlier), self.worlds_forgotten - earlier.worlds_forgotten)
            }
        };
        match (was_there, of(self)) {
            // Whether it was never asked for or forgotten again, is not known where any was forgotten.
            (None, now) if forgotten == 0 => Some(now.unwrap_or_default()),
            (None, now) => now,
            // It may have been forgotten and come back.
            (Some(before), Some(now)) if forgotten == 0 => now.since(before),
            _ => None,
        }
    }

    /// Adds the counts of another worker. Its name and seed are the same; the quantiles cannot be added and stay.
    pub fn add(&mut self, other: &OriginFigures) {
        for (sum, more) in self.counts().into_iter().zip(other.clone().counts()) {
            *sum += *more;
        }
        self.thinking += other.thinking;
        for (world, figures) in &other.worlds {
            self.worlds.entry(world.clone()).or_default().add(*figures);
        }
        self.worlds_forgotten += other.worlds_forgotten;
    }

    /// What was counted after `earlier`, which was read from the same origin before. A count that is smaller now (the
    /// origin was started again between) becomes zero: what of a world is surely known says [`Self::of_world`]. `thinking` and the lateness are those of now, the lateness since
    /// the start.
    #[must_use]
    pub fn since(&self, earlier: &OriginFigures) -> OriginFigures {
        let mut since = self.clone();
        for (now, before) in since.counts().into_iter().zip(earlier.clone().counts()) {
            *now = now.saturating_sub(*before);
        }
        for (world, now) in &mut since.worlds {
            if let Some(before) = earlier.worlds.get(world) {
                *now = now.since(*before).unwrap_or_default();
            }
        }
        since.worlds_forgotten = since.worlds_forgotten.saturating_sub(earlier.worlds_forgotten);
        since.worlds.retain(|_, figures| *figures != WorldFigures::default());
        since
    }

    /// All that only grows.
    fn counts(&mut self) -> [&mut u64; 14] {
        let OriginFigures { requests, get, head, post, conditional, without_request_id, foreign, .. } = self;
        let OriginFigures { full, not_modified, aborted, abandoned, refused, content_bytes, connections, .. } = self;
        [
            requests,
            get,
            head,
            post,
            conditional,
            without_request_id,
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
        let mut figures = OriginFigures { workload: "m".into(), seed: 7, thinking: count, ..OriginFigures::default() };
        figures.counts().into_iter().zip(1..).for_each(|(slot, number)| *slot = count * number);
        let world = WorldFigures { requests: count, content_bytes: 2 * count, without_request_id: count };
        figures.worlds.insert("1f".into(), world);
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
    fn a_world_is_counted_or_it_is_said_that_it_is_not() {
        let world = |requests| WorldFigures { requests, content_bytes: 0, without_request_id: 0 };
        let origin = |worlds: &[(&str, u64)], forgotten| OriginFigures {
            requests: 100,
            started_unix_ms: 5,
            worlds: worlds.iter().map(|&(name, requests)| (name.to_owned(), world(requests))).collect(),
            worlds_forgotten: forgotten,
            ..OriginFigures::default()
        };
        let before = origin(&[("1f", 7)], 0);
        let of = |after: &OriginFigures, id| after.of_world(Some(&before), id);
        assert_eq!(of(&origin(&[("1f", 9), ("20", 4)], 0), 0x1f), Some(world(2)));
        assert_eq!(of(&origin(&[("1f", 9), ("20", 4)], 0), 0x20), Some(world(4)));
        assert_eq!(of(&origin(&[("1f", 9)], 0), 0x20), Some(world(0)), "nobody asked for it, and that is known");
        // A new world pushed an old one out, as it does in an origin that lives long.
        assert_eq!(of(&origin(&[("20", 4)], 1), 0x20), Some(world(4)));
        assert_eq!(of(&origin(&[("21", 4)], 1), 0x20), None, "never asked for, or forgotten");
        assert_eq!(of(&origin(&[("20", 4)], 1), 0x1f), None, "forgotten");
        assert_eq!(of(&origin(&[("1f", 9)], 1), 0x1f), None, "perhaps forgotten and back");
        assert_eq!(of(&origin(&[("1f", 6)], 0), 0x1f), None, "less than before");
        // Started again between.
        assert_eq!(of(&OriginFigures { started_unix_ms: 6, ..origin(&[("20", 4)], 0) }, 0x20), None);
        assert_eq!(of(&OriginFigures { requests: 99, ..origin(&[("20", 4)], 0) }, 0x20), None);
        // One that lives for a point alone.
        assert_eq!(origin(&[("20", 4)], 0).of_world(None, 0x20), Some(world(4)));
        assert_eq!(origin(&[], 0).of_world(None, 0x20), Some(world(0)));
        assert_eq!(origin(&[], 1).of_world(None, 0x20), None);
    }

    #[test]
    fn a_document_is_read_as_it_was_written() {
        let figures = figures(3);
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<OriginFigures>(&text).unwrap(), figures);
    }
}
