//! The configuration of a workload: requests of virtual users and responses of the origin. Plans can set every field.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Distribution;
use crate::world::EMBEDDED_MAX;

mod named;

/// A workload. [`CacheWorkload::named`] has the built-in ones; plans can override any field.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheWorkload {
    /// Name in the results.
    pub name: String,
    /// Sources of its figures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Share of requests for objects that were requested before, 0 to 1.
    pub recurrence: f64,
    /// How a repeat selects among the objects requested so far.
    #[serde(default)]
    pub popularity: Popularity,
    /// Limit of the objects available for repeats; beyond it new objects replace the oldest. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set: Option<u64>,
    /// Forms of GET.
    #[serde(default)]
    pub forms: FormShares,
    /// Methods other than GET.
    #[serde(default)]
    pub methods: MethodShares,
    /// Share of requests that the client aborts within the body.
    #[serde(default)]
    pub client_abort: f64,
    /// Share of requests whose response the origin aborts within the body.
    #[serde(default)]
    pub origin_abort: f64,
    /// Think time of the origin in seconds; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think: Option<Distribution>,
    /// Requests per connection of a client; absent: set by the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_uses: Option<Distribution>,
    /// Requests per connection before the origin closes it; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_uses: Option<Distribution>,
    /// Idle timeout of the origin.
    #[serde(default = "fifteen_seconds", with = "units::time::text")]
    pub origin_idle: Duration,
    /// Requests per second of one virtual user, which determines their number; absent: set by the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_client_rate: Option<f64>,
    /// Share of requests that accept gzip, drawn for each request.
    #[serde(default)]
    pub gzip_clients: f64,
    /// Share of requests inside TLS.
    #[serde(default)]
    pub https: f64,
    /// Size of a POST's body in bytes.
    #[serde(default = "nothing", skip_serializing_if = "is_nothing")]
    pub post_body: Distribution,
    /// Kinds of objects, 1 to 26.
    pub kinds: Vec<KindSpec>,
    /// Phases in which some fields differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<WorkloadPhase>,
}

fn fifteen_seconds() -> Duration {
    Duration::from_secs(15)
}

fn nothing() -> Distribution {
    Distribution::Constant(0.0)
}

fn is_nothing(distribution: &Distribution) -> bool {
    *distribution == nothing()
}

/// A kind of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindSpec {
    /// Name in the results, such as `html`.
    pub name: String,
    /// Extension of its paths with the dot: `.html`.
    #[serde(default)]
    pub ext: String,
    /// Value of Content-Type.
    pub media_type: String,
    /// Weight among directly requested kinds; 0: only embedded in other kinds.
    pub share: f64,
    /// Body size in bytes without content coding.
    pub size: Distribution,
    /// Share of cacheable objects.
    pub cacheable: f64,
    /// Changes and expiry of its objects.
    pub life: LifeSpec,
    /// Whether bodies are text, sent with gzip to clients that accept it. Sizes are then multiples of 256 bytes.
    #[serde(default)]
    pub gzip: bool,
    /// The Vary field of its responses.
    #[serde(default)]
    pub vary: Vary,
    /// Objects that its pages embed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embeds: Option<EmbedSpec>,
}

/// Objects embedded in pages.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedSpec {
    /// Name of the kind of the embedded objects.
    pub kind: String,
    /// Embedded objects per page, at most 64.
    pub count: Distribution,
}

/// The Vary field of responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vary {
    /// Nothing.
    #[default]
    None,
    /// `Vary: Accept-Encoding`.
    AcceptEncoding,
}

/// Changes and expiry of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LifeSpec {
    /// Time between changes of an object in seconds.
    pub cycle: Distribution,
    /// Largest shift of a change within its cycle, as a share of the cycle, 0 to 1.
    #[serde(default)]
    pub variance: f64,
    /// Share of the objects with Last-Modified.
    pub last_modified: f64,
    /// When a copy expires.
    pub expires: Expires,
    /// Share of the objects with ETag.
    #[serde(default)]
    pub etag: f64,
}

/// When a copy expires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expires {
    /// At the next change of the object, by `Expires`.
    NextChange,
    /// This number of seconds after its generation, by `Cache-Control: max-age`.
    MaxAge(Distribution),
    /// Not stated.
    Absent,
}

/// Special forms of GET, as shares of all GETs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FormShares {
    /// If-Modified-Since with a date before the last change: the origin responds with 200.
    pub ims200: f64,
    /// If-Modified-Since with a date after the last change: the origin responds with 304.
    pub ims304: f64,
    /// `Cache-Control: no-cache`.
    pub reload: f64,
}

/// Methods other than GET, as shares of all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MethodShares {
    /// POST, each for a new object, since an unsafe method invalidates its URL in caches (RFC 9111, section 4.4).
    pub post: f64,
    /// HEAD.
    pub head: f64,
}

/// How a repeat selects among the objects requested so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Popularity {
    /// All with equal probability.
    #[default]
    Uniform,
    /// A hot set is preferred, which moves with the working set.
    HotSet {
        /// Share of the objects in the hot set.
        fraction: f64,
        /// Share of repeats from the hot set.
        probability: f64,
        /// Probability that a repeat of a cacheable object selects the smallest of it and the four cacheable neighbours
        /// on either side.
        #[serde(default)]
        prefer_small: f64,
    },
    /// Zipf distribution in order of first appearance: the r-th object in proportion to r^-alpha.
    Zipf {
        /// Exponent.
        alpha: f64,
        /// Number of objects per kind, the first ones, that are repeated.
        objects: u64,
    },
}

/// A time span in which fields of the workload differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadPhase {
    /// Begin, since the start of the load.
    #[serde(with = "units::time::text")]
    pub from: Duration,
    /// End.
    #[serde(with = "units::time::text")]
    pub to: Duration,
    /// Recurrence at begin and end, linear in between; absent: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<(f64, f64)>,
    /// Factor of special forms and methods at begin and end.
    #[serde(default = "as_it_is")]
    pub special: (f64, f64),
    /// Whether new objects enlarge the working set; false: they replace the oldest.
    #[serde(default = "yes")]
    pub grows: bool,
}

fn as_it_is() -> (f64, f64) {
    (1.0, 1.0)
}

fn yes() -> bool {
    true
}

/// Digests by which both ends compare their workloads: of the whole with its seed, and of each field, in hexadecimal.
///
/// Workloads of the same name may differ, since plans can set any field. Responses of the origin depend on the fields
/// [`WorkloadDigest::OF_ORIGIN`] only; the others concern the load and may differ between both ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadDigest {
    /// Digest of all fields and the seed.
    pub whole: String,
    /// Digest of each field that is set, by name.
    pub fields: BTreeMap<String, String>,
}

impl WorkloadDigest {
    /// Fields on which responses of the origin depend.
    pub const OF_ORIGIN: [&str; 5] = ["kinds", "origin_abort", "think", "origin_uses", "origin_idle"];

    /// Names of the fields in which the responses of two origins differ.
    pub fn origin_differences(&self, other: &WorkloadDigest) -> Vec<&'static str> {
        Self::OF_ORIGIN.into_iter().filter(|&name| self.fields.get(name) != other.fields.get(name)).collect()
    }
}

/// FNV-1a (Fowler, Noll, Vo) of 64 bits in hexadecimal; detects mistakes, not manipulation.
fn mark(bytes: impl Iterator<Item = u8>) -> String {
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

impl CacheWorkload {
    /// The digests of this workload with a seed.
    ///
    /// # Panics
    /// Never: a workload is valid JSON.
    pub fn digest(&self, seed: u64) -> WorkloadDigest {
        let mut workload = self.clone();
        // `none` and absence mean the same.
        workload.think = workload.think.filter(|distribution| !distribution.is_none());
        let serde_json::Value::Object(fields) = serde_json::to_value(&workload).expect("a workload can be written")
        else {
            unreachable!("a workload has fields")
        };
        let fields: BTreeMap<String, String> =
            fields.into_iter().map(|(name, value)| (name, mark(value.to_string().into_bytes().into_iter()))).collect();
        let all = fields.iter().flat_map(|(name, mark)| [name.as_bytes(), mark.as_bytes()]).flatten().copied();
        WorkloadDigest { whole: mark(all.chain(seed.to_le_bytes())), fields }
    }

    /// The document hit ratio that the workload aims at: recurrence times the cacheable share of requests.
    pub fn document_hit_ratio(&self) -> f64 {
        let (mut requests, mut cacheable) = (0.0, 0.0);
        for kind in &self.kinds {
            requests += kind.share;
            cacheable += kind.share * kind.cacheable;
            if let Some((embedded, count)) = self.embedded_by(kind) {
                requests += kind.share * count;
                cacheable += kind.share * count * embedded.cacheable;
            }
        }
        if requests > 0.0 { self.recurrence * cacheable / requests } else { 0.0 }
    }

    /// Mean requests per arrival: 1, and embedded objects. Ignores special forms, methods and aborts, which reduce it
    /// by a few hundredths.
    pub fn requests_per_arrival(&self) -> f64 {
        let shares: f64 = self.kinds.iter().map(|kind| kind.share).sum();
        let embedded: f64 = self
            .kinds
            .iter()
            .filter_map(|kind| self.embedded_by(kind).map(|(_, count)| kind.share * count * self.read_share()))
            .sum();
        if shares > 0.0 { 1.0 + embedded / shares } else { 1.0 }
    }

    /// Share of requests with a complete body, after which embedded objects are requested.
    fn read_share(&self) -> f64 {
        let gets = 1.0 - self.methods.post - self.methods.head;
        gets * (1.0 - self.forms.ims304) * (1.0 - self.client_abort)
    }

    /// The kind that pages of a kind embed, and their mean number.
    fn embedded_by(&self, kind: &KindSpec) -> Option<(&KindSpec, f64)> {
        let embeds = kind.embeds.as_ref()?;
        let embedded = self.kinds.iter().find(|other| other.name == embeds.kind)?;
        Some((embedded, embeds.count.mean()))
    }

    /// Rejects invalid fields.
    ///
    /// # Errors
    /// One sentence with the key.
    pub fn check(&self) -> Result<(), String> {
        if self.kinds.is_empty() || self.kinds.len() > KINDS_MAX {
            return Err(format!("kinds: {} given; expected 1 to {KINDS_MAX}", self.kinds.len()));
        }
        for (key, value) in [
            ("recurrence", self.recurrence),
            ("client_abort", self.client_abort),
            ("origin_abort", self.origin_abort),
            ("gzip_clients", self.gzip_clients),
            ("https", self.https),
            ("forms", self.forms.ims200 + self.forms.ims304 + self.forms.reload),
            ("forms.ims200", self.forms.ims200),
            ("forms.ims304", self.forms.ims304),
            ("forms.reload", self.forms.reload),
            ("methods", self.methods.post + self.methods.head),
            ("methods.post", self.methods.post),
            ("methods.head", self.methods.head),
        ] {
            is_share(key, value)?;
        }
        if self.working_set == Some(0) {
            return Err("working_set: expected at least 1 object".into());
        }
        if self.per_client_rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err("per_client_rate: expected a rate above 0".into());
        }
        if self.post_body.at(1.0 - f64::EPSILON) > f64::from(u32::MAX) {
            return Err("post_body: expected less than 4 GiB".into());
        }
        self.check_popularity()?;
        self.kinds.iter().try_for_each(|kind| self.check_kind(kind))?;
        if self.kinds.iter().all(|kind| kind.share == 0.0) {
            return Err("kinds: all shares are 0: give at least one kind a share above 0".into());
        }
        let mut end = Duration::ZERO;
        for phase in &self.phases {
            if phase.from < end || phase.to <= phase.from {
                return Err("phases: expected consecutive phases, each with `to` after `from`".into());
            }
            end = phase.to;
            let (from, to) = phase.recurrence.unwrap_or_default();
            for (key, value) in [("phases.recurrence", from), ("phases.recurrence", to)] {
                is_share(key, value)?;
            }
            for value in [phase.special.0, phase.special.1] {
                is_share("phases.special", value)?;
            }
        }
        Ok(())
    }

    fn check_popularity(&self) -> Result<(), String> {
        match self.popularity {
            Popularity::Uniform => Ok(()),
            Popularity::HotSet { fraction, probability, prefer_small } => {
                is_share("popularity.hot_set.fraction", fraction)?;
                is_share("popularity.hot_set.probability", probability)?;
                is_share("popularity.hot_set.prefer_small", prefer_small)
            }
            Popularity::Zipf { alpha, objects } if (0.0..=3.0).contains(&alpha) && objects > 0 => Ok(()),
            Popularity::Zipf { .. } => {
                Err("popularity.zipf: expected alpha from 0 to 3 and at least one object".into())
            }
        }
    }

    fn check_kind(&self, kind: &KindSpec) -> Result<(), String> {
        let name = &kind.name;
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        if name.is_empty() || !plain(name) {
            return Err(format!("kinds: `{name}` is not a valid name; expected letters, digits, - and _"));
        }
        let refuse = |why: &str| Err(format!("kind `{name}`: {why}"));
        if self.kinds.iter().filter(|other| other.name == *name).count() > 1 {
            return refuse("the name is used twice");
        }
        if !kind.ext.is_empty() && !kind.ext.strip_prefix('.').is_some_and(|ext| !ext.is_empty() && plain(ext)) {
            return refuse("ext: expected a dot and letters, such as .html, or nothing");
        }
        if kind.media_type.is_empty() || !kind.media_type.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            return refuse("media_type: expected a Content-Type, such as text/html");
        }
        if !(kind.share.is_finite() && kind.share >= 0.0) {
            return refuse("share: expected a number of at least 0");
        }
        if kind.size.mean() < 1.0 {
            return refuse("size: expected a mean of at least 1 byte");
        }
        let life = &kind.life;
        for (key, value) in [
            ("cacheable", kind.cacheable),
            ("life.variance", life.variance),
            ("life.last_modified", life.last_modified),
            ("life.etag", life.etag),
        ] {
            is_share(key, value).or_else(|why| refuse(&why))?;
        }
        if life.cycle.mean() < 1.0 {
            return refuse("life.cycle: expected a mean of at least 1 s");
        }
        if life.expires != Expires::NextChange && life.last_modified + life.etag < 1.0 {
            return refuse(
                "life.last_modified + life.etag: expected at least 1 if copies expire before the object changes: \
                 a cache could not validate an expired copy",
            );
        }
        let is_mixed = self.gzip_clients > 0.0 && self.gzip_clients < 1.0;
        if kind.gzip && kind.vary == Vary::None && is_mixed {
            return refuse("gzip for some clients only needs vary = \"accept_encoding\"");
        }
        let Some(embeds) = &kind.embeds else { return Ok(()) };
        let Some(embedded) = self.kinds.iter().find(|other| other.name == embeds.kind) else {
            return refuse(&format!("embeds.kind = {} is not a kind of this workload", embeds.kind));
        };
        if embedded.share != 0.0 || embedded.embeds.is_some() {
            return refuse("an embedded kind must have share = 0 and no embeds");
        }
        let pages = self.kinds.iter().filter(|other| other.embeds.as_ref().is_some_and(|it| it.kind == embeds.kind));
        if pages.count() > 1 {
            return refuse("a kind can be embedded by one other kind only");
        }
        if embeds.count.at(1.0 - f64::EPSILON) > EMBEDDED_MAX as f64 {
            return refuse(&format!("embeds.count: expected at most {EMBEDDED_MAX}"));
        }
        Ok(())
    }
}

/// Kinds have one letter each.
const KINDS_MAX: usize = 26;

fn is_share(key: &str, value: f64) -> Result<(), String> {
    // Tolerates rounding of a sum of shares.
    if (0.0..=1.0 + 1e-9).contains(&value) {
        Ok(())
    } else {
        Err(format!("{key} = {value}: expected a share from 0 to 1"))
    }
}

#[cfg(test)]
mod tests;
