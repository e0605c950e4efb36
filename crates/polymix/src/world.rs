//! Properties of every object, the same at both ends.
//!
//! ```text
//!   seed, kind, number --hash--> share 0..1 --distribution--> size, cacheable, life cycle, embedded objects
//!   seed, run, sequence --hash-> think time, planned abort;   seed, connection --hash--> its requests
//!   seed, world, kind, number, version --hash--> pieces of the body content
//! ```
//!
//! Nothing is stored: virtual user and origin with the same workload and seed agree on every object. Requests and
//! properties follow from the seed alone, so that the same seed repeats a run in another world.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::body::Selection;
use crate::{Body, BodyContent, CacheWorkload, Distribution, Expires};

/// The set of all objects of a workload under a seed. Worlds with different ids have no path in common, so that copies
/// from an earlier run cause no hits.
#[derive(Clone, Debug)]
pub struct World {
    /// The workload.
    pub spec: Arc<CacheWorkload>,
    /// Number of the world, part of every path.
    pub id: u32,
    /// The run's seed.
    pub seed: u64,
    /// Source of all bodies.
    pub body_content: Arc<BodyContent>,
    /// For each kind the kind that it embeds.
    embeds: Arc<[Option<u8>]>,
}

impl PartialEq for World {
    fn eq(&self, other: &World) -> bool {
        self.id == other.id && self.seed == other.seed && self.spec == other.spec
    }
}

/// One object of a world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Object {
    /// Index into the workload's kinds.
    pub kind: u8,
    /// Number within its kind.
    pub number: u64,
}

/// Content coding of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Variant {
    /// No coding.
    #[default]
    Plain,
    /// gzip.
    Gzip,
}

/// Identity of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RequestId {
    /// The run.
    pub run: u32,
    /// Number of the request in the run.
    pub sequence: u64,
}

/// A version of an object. Times are Unix times in whole seconds, the resolution of HTTP dates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Version {
    /// Version number, increased by every change.
    pub number: u32,
    /// Begin of the version.
    pub modified_s: i64,
    /// Begin of the next version.
    pub next_change_s: i64,
    /// Expiry of a copy generated now; `None` if the origin states none.
    pub expires_s: Option<i64>,
    /// Value of `Cache-Control: max-age` with [`Expires::MaxAge`].
    pub max_age_s: Option<u64>,
}

/// Limit of embedded objects per page.
pub const EMBEDDED_MAX: u64 = 64;

/// Largest body, 1 GiB.
const SIZE_MAX: f64 = (1u64 << 30) as f64;

/// Sizes of texts are multiples of this, so that gzip pieces can be precomputed.
pub(crate) const TEXT_STEP: u64 = 256;

/// Domain of a hash, so that properties have independent random numbers.
#[derive(Clone, Copy)]
enum Property {
    Size = 1,
    Cacheable,
    Cycle,
    Change,
    Lifetime,
    Validators,
    Embedded,
    Body,
    OriginAbort,
    AbortAt,
    Think,
    Uses,
}

impl World {
    /// The world `id` of a workload that has passed [`CacheWorkload::check`].
    pub fn new(spec: Arc<CacheWorkload>, seed: u64, id: u32) -> World {
        let embedded = |name: &str| spec.kinds.iter().position(|kind| kind.name == name).map(|index| index as u8);
        let embeds =
            spec.kinds.iter().map(|kind| kind.embeds.as_ref().and_then(|embeds| embedded(&embeds.kind))).collect();
        World { spec, id, seed, body_content: BodyContent::shared(), embeds }
    }

    /// Another world of the same workload and seed; clones references only.
    pub fn with_id(&self, id: u32) -> World {
        World { id, ..self.clone() }
    }

    /// Whether the workload has this object. The other methods panic for objects that it does not have.
    pub fn has(&self, object: Object) -> bool {
        usize::from(object.kind) < self.spec.kinds.len()
    }

    /// Body size in bytes without content coding, at least 1, the same for all versions; a multiple of 256 for gzip
    /// kinds.
    pub fn size(&self, object: Object) -> u64 {
        let kind = &self.spec.kinds[usize::from(object.kind)];
        let size = kind.size.at(self.share(Property::Size, object)).clamp(1.0, SIZE_MAX);
        if kind.gzip {
            let steps = (size / TEXT_STEP as f64).round() as u64;
            steps.max(1) * TEXT_STEP
        } else {
            size.round() as u64
        }
    }

    /// A key that orders objects of a kind by size, cheaper than the size itself.
    pub(crate) fn size_order(&self, object: Object) -> u64 {
        // Quantile functions are monotonic, so that the hash has the order of the sizes.
        self.hash(Property::Size, object)
    }

    /// Whether caches may store the object.
    pub fn cacheable(&self, object: Object) -> bool {
        self.share(Property::Cacheable, object) < self.spec.kinds[usize::from(object.kind)].cacheable
    }

    /// Whether its responses have Last-Modified.
    pub fn has_last_modified(&self, object: Object) -> bool {
        let life = &self.spec.kinds[usize::from(object.kind)].life;
        self.share(Property::Validators, object) < life.last_modified
    }

    /// Whether its responses have an ETag. As far as both shares allow, every object has one of both, so that caches
    /// can validate their copies.
    pub fn has_etag(&self, object: Object) -> bool {
        let life = &self.spec.kinds[usize::from(object.kind)].life;
        self.share(Property::Validators, object) >= 1.0 - life.etag
    }

    /// The version at a time.
    pub fn version(&self, object: Object, at_unix_s: i64) -> Version {
        let life = &self.spec.kinds[usize::from(object.kind)].life;
        let cycle_s = life.cycle.at(self.share(Property::Cycle, object)).max(1.0);
        let changes = self.hash(Property::Change, object);
        let beginning = share(changes);
        // The hash shifts change k within its cycle, so that changes keep their order.
        let change_s = |k: i64| {
            let moved = if life.variance > 0.0 { life.variance * share(mixed(changes ^ k as u64)) } else { 0.0 };
            ((k as f64 + moved - beginning) * cycle_s).floor() as i64
        };
        let mut number = (at_unix_s as f64 / cycle_s + beginning).floor() as i64;
        while change_s(number + 1) <= at_unix_s {
            number += 1;
        }
        while change_s(number) > at_unix_s {
            number -= 1;
        }
        let max_age_s = match &life.expires {
            Expires::MaxAge(distribution) => {
                Some(distribution.at(self.share(Property::Lifetime, object)).round() as u64)
            }
            _ => None,
        };
        let next_change_s = change_s(number + 1);
        Version {
            // Fits until 2106 with cycles of at least a second.
            number: number.clamp(0, i64::from(u32::MAX)) as u32,
            modified_s: change_s(number),
            next_change_s,
            expires_s: match &life.expires {
                Expires::NextChange => Some(next_change_s),
                Expires::MaxAge(_) => max_age_s.map(|age| at_unix_s.saturating_add_unsigned(age)),
                Expires::Absent => None,
            },
            max_age_s,
        }
    }

    /// The constant list of embedded objects of a page, at most [`EMBEDDED_MAX`].
    pub fn embedded(&self, object: Object) -> impl Iterator<Item = Object> + use<> {
        let kind = usize::from(object.kind);
        let count = match (&self.spec.kinds[kind].embeds, self.embeds[kind]) {
            (Some(embeds), Some(_)) => embeds.count.at(self.share(Property::Embedded, object)).round() as u64,
            _ => 0,
        };
        let kind = self.embeds[kind].unwrap_or(0);
        let first = object.number.wrapping_mul(EMBEDDED_MAX);
        (0..count.min(EMBEDDED_MAX)).map(move |index| Object { kind, number: first.wrapping_add(index) })
    }

    /// The body of a version in a variant. Of `version` only the number matters.
    pub fn body(&self, object: Object, version: Version, variant: Variant) -> Body {
        let mark = mixed(self.hash(Property::Body, object) ^ (u64::from(self.id) << 32 | u64::from(version.number)));
        let selection = if self.spec.kinds[usize::from(object.kind)].gzip { Selection::Text } else { Selection::Noise };
        Body::new(Arc::clone(&self.body_content), selection, mark, self.size(object), variant)
    }

    /// The variant that the origin sends to a client.
    pub fn variant(&self, object: Object, accepts_gzip: bool) -> Variant {
        if accepts_gzip && self.spec.kinds[usize::from(object.kind)].gzip { Variant::Gzip } else { Variant::Plain }
    }

    /// Body bytes after which the origin aborts the response to this request, below 16 KiB and below the body's size;
    /// `None` for most requests.
    pub fn origin_aborts(&self, request_id: RequestId) -> Option<u64> {
        let planned = self.spec.origin_abort > 0.0
            && share(self.of_request(Property::OriginAbort, request_id)) < self.spec.origin_abort;
        planned.then(|| self.of_request(Property::AbortAt, request_id) % (16 << 10))
    }

    /// Think time of the origin for this request.
    pub fn think(&self, request_id: RequestId) -> Duration {
        match &self.spec.think {
            Some(distribution) if !distribution.is_none() => {
                seconds(distribution.at(share(self.of_request(Property::Think, request_id))))
            }
            _ => Duration::ZERO,
        }
    }

    /// Requests on the origin's connection of this number before it closes it, at least 1; `u32::MAX` without limit.
    pub fn uses(&self, connection: u64) -> u32 {
        let uses = |distribution: &Distribution| {
            distribution.at(share(mixed(self.base(Property::Uses) ^ mixed(connection)))).round().max(1.0) as u32
        };
        self.spec.origin_uses.as_ref().map_or(u32::MAX, uses)
    }

    /// Appends the path of an object: `/y/<world>/<kind><number><ext>`, such as `/y/1f3a/A2b7.html`. Numbers are in
    /// hexadecimal; kinds are letters from `A` on.
    pub fn write_path(&self, object: Object, into: &mut Vec<u8>) {
        into.extend_from_slice(b"/y/");
        crate::reply::write_hex(u64::from(self.id), into);
        into.extend_from_slice(&[b'/', crate::reply::letter(object.kind)]);
        crate::reply::write_hex(object.number, into);
        // A foreign response can name a kind that the workload does not have.
        let ext = self.spec.kinds.get(usize::from(object.kind)).map_or("", |kind| &kind.ext);
        into.extend_from_slice(ext.as_bytes());
    }

    /// Parses world and object from a path of [`World::write_path`], ignoring its extension. [`World::has`] tells
    /// whether the workload has the kind.
    pub fn read_path(path: &[u8]) -> Option<(u32, Object)> {
        let rest = path.strip_prefix(b"/y/")?;
        let (world, rest) = crate::reply::read_hex(rest)?;
        let (&letter, rest) = rest.strip_prefix(b"/")?.split_first()?;
        let kind = crate::reply::read_letter(letter)?;
        let (number, rest) = crate::reply::read_hex(rest)?;
        if !rest.is_empty() && rest[0] != b'.' {
            return None;
        }
        Some((u32::try_from(world).ok()?, Object { kind, number }))
    }

    fn base(&self, about: Property) -> u64 {
        mixed(self.seed ^ (about as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    fn hash(&self, about: Property, object: Object) -> u64 {
        mixed(self.base(about) ^ mixed(object.number.wrapping_add(u64::from(object.kind) << 56)))
    }

    /// A number from 0 up to but not including 1.
    fn share(&self, about: Property, object: Object) -> f64 {
        share(self.hash(about, object))
    }

    fn of_request(&self, about: Property, request_id: RequestId) -> u64 {
        mixed(self.base(about) ^ mixed(request_id.sequence ^ mixed(u64::from(request_id.run))))
    }
}

fn share(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014).
fn mixed(z: u64) -> u64 {
    let z = z.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Converts seconds, limited to an hour.
fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds.clamp(0.0, 3600.0))
}

#[cfg(test)]
mod tests;
