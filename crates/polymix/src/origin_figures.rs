//! Counters of an origin: the document of `GET /-/origin`, written by `serve` and read by the sweep.

use std::collections::BTreeMap;

use schema::Quantiles;
use serde::{Deserialize, Serialize};

use crate::WorkloadDigest;

/// Counts since the start of the origin, over all workers. Requests for `/-/origin` and `/-/status` are not counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OriginFigures {
    /// [`BodyContent::digest`](crate::BodyContent::digest) of the origin, in hexadecimal. Another digest means another
    /// build with other bodies.
    pub body_content: String,
    /// Name of the workload.
    pub workload: String,
    /// Seed of the objects.
    pub seed: u64,
    /// Digests of the workload with its seed. Empty for an origin of an earlier build.
    #[serde(default)]
    pub digest: WorkloadDigest,
    /// Start of the origin and of the counts, Unix time in milliseconds.
    #[serde(default)]
    pub started_unix_ms: u64,
    /// Requests for objects of every method, counted at their complete head.
    pub requests: u64,
    /// Of these, GET.
    pub get: u64,
    /// HEAD.
    pub head: u64,
    /// POST.
    pub post: u64,
    /// Conditional requests (If-Modified-Since, If-None-Match).
    pub conditional: u64,
    /// Requests without request id: made by a proxy itself or by other clients.
    pub without_request_id: u64,
    /// Requests for another world, if the origin has one of its own; answered all the same.
    pub foreign: u64,
    /// Responses with 200.
    pub full: u64,
    /// Responses with 304.
    pub not_modified: u64,
    /// Responses with 200 aborted as planned.
    pub aborted: u64,
    /// Requests abandoned by the client before the response.
    pub abandoned: u64,
    /// Requests refused with 404 (path) or 405 (method). Not in `requests`.
    pub refused: u64,
    /// Body bytes sent, without heads.
    pub content_bytes: u64,
    /// Connections with at least one request for an object.
    pub connections: u64,
    /// Requests within their think time now.
    pub thinking: u64,
    /// Delay after the think time until the head of the response was written, in nanoseconds of the monotonic clock.
    /// Since the start; empty without think time.
    pub think_timing_error_ns: Quantiles,
    /// Counts by world, in hexadecimal as in URLs; of each worker the [`OriginFigures::WORLDS_MAX`] most recently
    /// requested.
    pub worlds: BTreeMap<String, WorldFigures>,
    /// Worlds whose counts were evicted, summed over workers.
    #[serde(default)]
    pub worlds_forgotten: u64,
}

/// Counts of one world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorldFigures {
    /// Requests for its objects.
    pub requests: u64,
    /// Body bytes.
    pub content_bytes: u64,
    /// Requests without request id.
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

    /// Difference to `earlier`; `None` if counts decreased.
    fn since(self, earlier: WorldFigures) -> Option<WorldFigures> {
        Some(WorldFigures {
            requests: self.requests.checked_sub(earlier.requests)?,
            // Bytes announced but not sent are subtracted later.
            content_bytes: self.content_bytes.saturating_sub(earlier.content_bytes),
            without_request_id: self.without_request_id.checked_sub(earlier.without_request_id)?,
        })
    }
}

impl OriginFigures {
    /// Worlds that each worker counts separately, one per point of a sweep. Beyond it the least recently requested is
    /// evicted.
    pub const WORLDS_MAX: usize = 256;

    /// Counts of one world since `earlier`, an earlier reading of the same origin, or since its start. `None` if
    /// unknown: the origin restarted, or the world's counts were evicted.
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
            // After an eviction, an absent world may have been requested or not.
            (None, now) if forgotten == 0 => Some(now.unwrap_or_default()),
            (None, now) => now,
            // The world may have been evicted and counted anew.
            (Some(before), Some(now)) if forgotten == 0 => now.since(before),
            _ => None,
        }
    }

    /// Adds the counts of another worker with the same workload and seed. Quantiles are not added.
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

    /// Counts since `earlier`, an earlier reading of the same origin. A count that decreased, since the origin was
    /// restarted, becomes zero; [`Self::of_world`] reports whether counts of a world are known. `thinking` and
    /// `think_timing_error_ns` are those of `self`; the latter covers the time since the start.
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

    /// The monotonic counters.
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
    fn origin_counters_of_workers_add_up_and_subtract() {
        let mut sum = figures(1);
        sum.add(&figures(2));
        assert_eq!(sum, figures(3));
        assert_eq!(sum.since(&figures(1)), OriginFigures { thinking: 3, ..figures(2) });
        let nothing = sum.since(&sum);
        assert!(nothing.worlds.is_empty() && nothing.requests == 0 && nothing.connections == 0);
        // A restart between two readings gives zero instead of an underflow.
        assert_eq!(figures(1).since(&figures(2)).requests, 0);
    }

    #[test]
    fn counts_of_a_world_are_unknown_after_restart_or_eviction() {
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
        assert_eq!(
            of(&origin(&[("1f", 9)], 0), 0x20),
            Some(world(0)),
            "a world that was never requested has zero requests"
        );
        // A new world evicted an old one.
        assert_eq!(of(&origin(&[("20", 4)], 1), 0x20), Some(world(4)));
        assert_eq!(of(&origin(&[("21", 4)], 1), 0x20), None, "never requested, or evicted");
        assert_eq!(of(&origin(&[("20", 4)], 1), 0x1f), None, "evicted");
        assert_eq!(of(&origin(&[("1f", 9)], 1), 0x1f), None, "possibly evicted and counted anew");
        assert_eq!(of(&origin(&[("1f", 6)], 0), 0x1f), None, "less than before");
        // Restarted between the readings.
        assert_eq!(of(&OriginFigures { started_unix_ms: 6, ..origin(&[("20", 4)], 0) }, 0x20), None);
        assert_eq!(of(&OriginFigures { requests: 99, ..origin(&[("20", 4)], 0) }, 0x20), None);
        // An origin started for one point.
        assert_eq!(origin(&[("20", 4)], 0).of_world(None, 0x20), Some(world(4)));
        assert_eq!(origin(&[], 0).of_world(None, 0x20), Some(world(0)));
        assert_eq!(origin(&[], 1).of_world(None, 0x20), None);
    }

    #[test]
    fn origin_figures_round_trip_through_json() {
        let figures = figures(3);
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<OriginFigures>(&text).unwrap(), figures);
    }
}
