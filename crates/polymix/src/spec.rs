//! A workload as meant: everything that the robots ask for and the origin answers, every part of it can be set in a plan.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Law;
use crate::world::EMBEDDED_MAX;

mod named;

/// A workload. [`CacheWorkload::named`] has the known ones; a plan may set any field otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheWorkload {
    /// What results call it.
    pub name: String,
    /// Where its figures come from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sources: Vec<String>,
    /// Share of the asks that are for an object that was asked for before, 0 to 1.
    pub recurrence: f64,
    /// Which of the objects so far a repeat is for.
    #[serde(default)]
    pub popularity: Popularity,
    /// Most objects among which repeats are drawn; beyond it the oldest leave as new ones come. Absent: no bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_set: Option<u64>,
    /// Forms of GET.
    #[serde(default)]
    pub forms: FormShares,
    /// Methods besides GET.
    #[serde(default)]
    pub methods: MethodShares,
    /// Share of the asks that the client ends within the body.
    #[serde(default)]
    pub client_abort: f64,
    /// Share of the asks whose reply the origin ends within the body.
    #[serde(default)]
    pub origin_abort: f64,
    /// How long the origin thinks before it answers, in seconds; absent: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think: Option<Law>,
    /// Requests on one connection of a client; absent: as the load says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_uses: Option<Law>,
    /// Requests on one connection to the origin before it closes it; absent: as many as the client wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin_uses: Option<Law>,
    /// For how long the origin keeps an idle connection.
    #[serde(default = "fifteen_seconds", with = "units::time::text")]
    pub origin_idle: Duration,
    /// Requests a second of one client, which says how many clients make the rate; absent: as the load says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_client_rate: Option<f64>,
    /// Share of the asks by clients that accept gzip. Drawn for each ask, so that one client's may differ.
    #[serde(default)]
    pub gzip_clients: f64,
    /// Share of the asks inside TLS.
    #[serde(default)]
    pub https: f64,
    /// Size of a POST's body in bytes.
    #[serde(default = "nothing", skip_serializing_if = "is_nothing")]
    pub post_body: Law,
    /// Kinds of objects, 1 to 26.
    pub kinds: Vec<KindSpec>,
    /// What changes as time goes; outside its phases the workload is as above.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub phases: Vec<WorkloadPhase>,
}

fn fifteen_seconds() -> Duration {
    Duration::from_secs(15)
}

fn nothing() -> Law {
    Law::Constant(0.0)
}

fn is_nothing(law: &Law) -> bool {
    *law == nothing()
}

/// A kind of objects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KindSpec {
    /// What results call it: `html`.
    pub name: String,
    /// End of its paths, dot included: `.html`.
    #[serde(default)]
    pub ext: String,
    /// Value of Content-Type.
    pub media_type: String,
    /// Share of what is asked for directly, relative to the others; 0: only embedded in other kinds.
    pub share: f64,
    /// Size of a body in bytes, without a content coding.
    pub size: Law,
    /// Share of its objects that caches may keep.
    pub cacheable: f64,
    /// How its objects change and expire.
    pub life: LifeSpec,
    /// It is text, and sent with gzip to clients that accept it. Sizes are then multiples of 256 bytes.
    #[serde(default)]
    pub gzip: bool,
    /// What its replies say that they vary by.
    #[serde(default)]
    pub vary: Vary,
    /// What its pages embed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embeds: Option<EmbedSpec>,
}

/// What pages embed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedSpec {
    /// Name of the kind of the embedded objects.
    pub kind: String,
    /// How many a page has; at most 64.
    pub count: Law,
}

/// What replies say that they vary by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vary {
    /// Nothing.
    #[default]
    None,
    /// `Vary: Accept-Encoding`.
    AcceptEncoding,
}

/// How objects change and expire.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LifeSpec {
    /// Time between two changes of one object, in seconds.
    pub cycle: Law,
    /// How far a change may be from its place in the cycle, as a share of the cycle, 0 to 1.
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
    /// When the object changes next, said by `Expires`.
    NextChange,
    /// So many seconds after it was made, said by `Cache-Control: max-age`.
    MaxAge(Law),
    /// Nothing is said.
    Absent,
}

/// Forms of GET that are not basic, as shares of all GETs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FormShares {
    /// If-Modified-Since a date before the last change: the origin answers with 200.
    pub ims200: f64,
    /// If-Modified-Since a date after it: the origin answers with 304.
    pub ims304: f64,
    /// `Cache-Control: no-cache`: the origin itself is asked for.
    pub reload: f64,
}

/// Methods besides GET, as shares of all asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MethodShares {
    /// POST, always for an object of its own: an unsafe method throws its URL out of every cache (RFC 9111, section 4.4).
    pub post: f64,
    /// HEAD.
    pub head: f64,
}

/// Which of the objects so far a repeat is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Popularity {
    /// Each alike.
    #[default]
    Uniform,
    /// A part of them more than the others; it moves on as the working set does.
    HotSet {
        /// Its share of the objects.
        fraction: f64,
        /// Its share of the repeats.
        probability: f64,
        /// With this probability a repeat of a cacheable object is for the smallest of it and the four cacheable ones on
        /// either side.
        #[serde(default)]
        prefer_small: f64,
    },
    /// By Zipf's law in the order of their first appearance: the r-th in proportion to r^-alpha.
    Zipf {
        /// Exponent.
        alpha: f64,
        /// Only the first so many of a kind are asked for again.
        objects: u64,
    },
}

/// A part of the time in which the workload is otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadPhase {
    /// Since the start of the load.
    #[serde(with = "units::time::text")]
    pub from: Duration,
    /// Its end.
    #[serde(with = "units::time::text")]
    pub to: Duration,
    /// Recurrence at its beginning and end, with a straight line between; absent: the workload's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recurrence: Option<(f64, f64)>,
    /// Factor of the shares of special forms and methods at its beginning and end.
    #[serde(default = "as_it_is")]
    pub special: (f64, f64),
    /// Whether new objects make the working set larger; false: the oldest leave as new ones come.
    #[serde(default = "yes")]
    pub grows: bool,
}

fn as_it_is() -> (f64, f64) {
    (1.0, 1.0)
}

fn yes() -> bool {
    true
}

/// Marks by which two ends tell, without sending it, whether they have the same workload: of the whole with its seed, and of each
/// of its fields. In hexadecimal. Both ends are of one build ([`crate::Matter::digest`]).
///
/// A workload of the same name may be another, since a plan may set any field. What an origin answers follows from
/// [`WorkloadDigest::OF_ORIGIN`] alone; the rest is the robots', and may differ between the ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkloadDigest {
    /// Of all fields and the seed.
    pub whole: String,
    /// Of each field that is there, by its name.
    pub fields: BTreeMap<String, String>,
}

impl WorkloadDigest {
    /// The fields by which an origin answers.
    pub const OF_ORIGIN: [&str; 5] = ["kinds", "origin_abort", "think", "origin_uses", "origin_idle"];

    /// Names of the fields by which an origin answers and in which two workloads differ: of the same ones both have the same
    /// objects, as old and as late.
    pub fn origin_differences(&self, other: &WorkloadDigest) -> Vec<&'static str> {
        Self::OF_ORIGIN.into_iter().filter(|&name| self.fields.get(name) != other.fields.get(name)).collect()
    }
}

/// FNV-1a (Fowler, Noll, Vo) of 64 bits, in hexadecimal: against mistakes, not against malice.
fn mark(bytes: impl Iterator<Item = u8>) -> String {
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

impl CacheWorkload {
    /// The marks of this workload with a seed.
    ///
    /// # Panics
    /// Never: a workload is text, numbers and lists, which JSON has.
    pub fn digest(&self, seed: u64) -> WorkloadDigest {
        let mut workload = self.clone();
        // Two ways to say that it does not think.
        workload.think = workload.think.filter(|law| !law.is_none());
        let serde_json::Value::Object(fields) = serde_json::to_value(&workload).expect("a workload can be written")
        else {
            unreachable!("a workload has fields")
        };
        let fields: BTreeMap<String, String> =
            fields.into_iter().map(|(name, value)| (name, mark(value.to_string().into_bytes().into_iter()))).collect();
        let all = fields.iter().flat_map(|(name, mark)| [name.as_bytes(), mark.as_bytes()]).flatten().copied();
        WorkloadDigest { whole: mark(all.chain(seed.to_le_bytes())), fields }
    }

    /// The document hit ratio that the workload is meant for: recurrence times the cacheable share of what is asked for.
    pub fn document_hit_ratio(&self) -> f64 {
        let (mut asked, mut cacheable) = (0.0, 0.0);
        for kind in &self.kinds {
            asked += kind.share;
            cacheable += kind.share * kind.cacheable;
            if let Some((embedded, count)) = self.embedded_by(kind) {
                asked += kind.share * count;
                cacheable += kind.share * count * embedded.cacheable;
            }
        }
        if asked > 0.0 { self.recurrence * cacheable / asked } else { 0.0 }
    }

    /// Requests that one ask leads to on the mean: 1, and what a page embeds. Special forms, methods and planned ends are
    /// left out of account; they make it less by some hundredths.
    pub fn requests_per_arrival(&self) -> f64 {
        let shares: f64 = self.kinds.iter().map(|kind| kind.share).sum();
        let embedded: f64 = self
            .kinds
            .iter()
            .filter_map(|kind| self.embedded_by(kind).map(|(_, count)| kind.share * count * self.read_share()))
            .sum();
        if shares > 0.0 { 1.0 + embedded / shares } else { 1.0 }
    }

    /// Share of the asks that bring a whole body: what a page embeds is asked for after those.
    fn read_share(&self) -> f64 {
        let gets = 1.0 - self.methods.post - self.methods.head;
        gets * (1.0 - self.forms.ims304) * (1.0 - self.client_abort)
    }

    /// What pages of a kind embed, and how many on the mean.
    fn embedded_by(&self, kind: &KindSpec) -> Option<(&KindSpec, f64)> {
        let embeds = kind.embeds.as_ref()?;
        let embedded = self.kinds.iter().find(|other| other.name == embeds.kind)?;
        Some((embedded, embeds.count.mean()))
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence, with the key in question.
    pub fn check(&self) -> Result<(), String> {
        if self.kinds.is_empty() || self.kinds.len() > KINDS_MAX {
            return Err(format!("kinds: {} of them; from 1 to {KINDS_MAX} are possible", self.kinds.len()));
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
            return Err("working_set: at least 1 object".into());
        }
        if self.per_client_rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
            return Err("per_client_rate: a rate above 0 is wanted".into());
        }
        if self.post_body.at(1.0 - f64::EPSILON) > f64::from(u32::MAX) {
            return Err("post_body: below 4 GiB".into());
        }
        self.check_popularity()?;
        self.kinds.iter().try_for_each(|kind| self.check_kind(kind))?;
        if self.kinds.iter().all(|kind| kind.share == 0.0) {
            return Err("kinds: all shares are 0, so that nothing would be asked for".into());
        }
        let mut end = Duration::ZERO;
        for phase in &self.phases {
            if phase.from < end || phase.to <= phase.from {
                return Err("phases: one after the other, each with an end after its beginning".into());
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
                Err("popularity.zipf: alpha from 0 to 3 and at least one object are wanted".into())
            }
        }
    }

    fn check_kind(&self, kind: &KindSpec) -> Result<(), String> {
        let name = &kind.name;
        let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        if name.is_empty() || !plain(name) {
            return Err(format!("kinds: `{name}` is no name: letters, digits, - and _ are wanted"));
        }
        let said = |why: &str| Err(format!("kind `{name}`: {why}"));
        if self.kinds.iter().filter(|other| other.name == *name).count() > 1 {
            return said("there are two of this name");
        }
        if !kind.ext.is_empty() && !kind.ext.strip_prefix('.').is_some_and(|ext| !ext.is_empty() && plain(ext)) {
            return said("ext is a dot and letters, such as .html, or empty");
        }
        if kind.media_type.is_empty() || !kind.media_type.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            return said("media_type is a Content-Type, such as text/html");
        }
        if !(kind.share.is_finite() && kind.share >= 0.0) {
            return said("share is a number from 0 on");
        }
        if kind.size.mean() < 1.0 {
            return said("size is 1 byte on the mean at least");
        }
        let life = &kind.life;
        for (key, value) in [
            ("cacheable", kind.cacheable),
            ("life.variance", life.variance),
            ("life.last_modified", life.last_modified),
            ("life.etag", life.etag),
        ] {
            is_share(key, value).or_else(|why| said(&why))?;
        }
        if life.cycle.mean() < 1.0 {
            return said("life.cycle is 1 s on the mean at least");
        }
        if life.expires != Expires::NextChange && life.last_modified + life.etag < 1.0 {
            return said(
                "life.last_modified and life.etag together are 1 at least where copies expire before the object changes:                  a copy that has expired and cannot be asked about is neither a hit nor a miss of the cache's own",
            );
        }
        let is_mixed = self.gzip_clients > 0.0 && self.gzip_clients < 1.0;
        if kind.gzip && kind.vary == Vary::None && is_mixed {
            return said("gzip for some clients alone wants vary = \"accept_encoding\"");
        }
        let Some(embeds) = &kind.embeds else { return Ok(()) };
        let Some(embedded) = self.kinds.iter().find(|other| other.name == embeds.kind) else {
            return said(&format!("embeds.kind = {} is no kind of this workload", embeds.kind));
        };
        if embedded.share != 0.0 || embedded.embeds.is_some() {
            return said("what is embedded is not asked for directly (share = 0) and embeds nothing itself");
        }
        let pages = self.kinds.iter().filter(|other| other.embeds.as_ref().is_some_and(|it| it.kind == embeds.kind));
        if pages.count() > 1 {
            return said("what is embedded is embedded by one kind alone");
        }
        if embeds.count.at(1.0 - f64::EPSILON) > EMBEDDED_MAX as f64 {
            return said(&format!("embeds.count: {EMBEDDED_MAX} at most"));
        }
        Ok(())
    }
}

/// As many as there are letters for them.
const KINDS_MAX: usize = 26;

fn is_share(key: &str, value: f64) -> Result<(), String> {
    // A sum of shares may be over by a rounding.
    if (0.0..=1.0 + 1e-9).contains(&value) {
        Ok(())
    } else {
        Err(format!("{key} = {value}: a share from 0 to 1 is wanted"))
    }
}

#[cfg(test)]
mod tests;
