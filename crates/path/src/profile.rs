//! Profiles: how far away the clients are, as a distribution, and what their access links are like.
//!
//! A profile is a TOML file; the built-in ones are such files too (`profiles/` beside this crate's `src/`).
//!
//! ```toml
//! name = "adsl-2001"
//! about = "where the figures come from"
//! [[clients]]
//! share = 0.7                       # of the clients; the shares add to 1
//! rtt = "48ms"                      # or { lognormal = { median = "48ms", sigma = 1.3, min = "1ms", max = "3s" } },
//!                                   # { quantiles = "curve.csv" }, { quantiles = [[0.1, "9ms"], [0.5, "48ms"]] },
//!                                   # { file = "rtts.txt" }
//! variation = "2ms"                 # optional: each packet's delay each way, plus or minus, order kept
//! up_share = 0.5                    # optional: the part of the RTT that lies on the way up
//! up   = { rate = "512kbit", queue = "64KB", loss = 0.001 }    # optional, each key too
//! down = { rate = "8Mbit", queue = "200ms", loss = "0.1%" }
//! ```
//!
//! `quantiles` names a CSV file with the header `quantile,rtt` (rows such as `0.5,48ms`) or `quantile,rtt_ns` (whole
//! nanoseconds), sorted, read as a curve of straight lines, flat before the first row and after the last; or gives the
//! rows themselves, which [`Draft`] writes. `file` names a text file with one measured RTT a line. Both paths are taken from the folder of the profile. Lines that start
//! with `#` are comments.
//!
//! [`Profile::clients`] cuts the distributions into equal steps: client `i` of the `n` in its class has the quantile
//! `(i + 0.5) / n`. Nothing is drawn at random, so the same profile gives the same clients in every run.

mod curve;
mod document;
mod error;
mod rtt;
mod write;

use std::path::Path;
use std::time::Duration;

use units::{BitRate, Limit, Probability, format_duration, time::text::exact};

pub use error::ProfileError;
pub use write::Draft;

use crate::spec::{Bottleneck, ClientPath, EffectSpec, LinkSpec, PathSpec, Propagation, Queue, QueueLimit, RateSpec};
use rtt::Rtt;

/// How the text of a file is had: this room opens none itself. `&std::fs::read_to_string` outside of tests.
pub type Files<'a> = &'a dyn Fn(&Path) -> std::io::Result<String>;

/// Classes of clients, and what each has in common.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    name: String,
    about: String,
    classes: Vec<Class>,
}

/// Some of the clients. Built by `document` from a file, or by [`Profile::constant`].
#[derive(Clone, Debug, PartialEq)]
struct Class {
    share: f64,
    rtt: Rtt,
    variation: Duration,
    up_share: f64,
    up: Access,
    down: Access,
}

/// One direction of a class's access link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Access {
    rate: Limit<BitRate>,
    queue: QueueLimit,
    loss: Probability,
}

/// The built-in profiles: name, and the file.
const BUILT_IN: [(&str, &str); 2] =
    [("lan", include_str!("../profiles/lan.toml")), ("koshien-2001", include_str!("../profiles/koshien-2001.toml"))];

impl Profile {
    /// The names of the built-in profiles.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.into_iter().map(|(name, _)| name)
    }

    /// A built-in profile; `None` when there is none of that name.
    pub fn builtin(name: &str) -> Option<Self> {
        let (_, text) = BUILT_IN.into_iter().find(|&(known, _)| known == name)?;
        let no_files: Files<'_> = &|_| Err(std::io::ErrorKind::NotFound.into());
        Some(Self::parse(text, Path::new(name), no_files).expect("built-in profiles are checked by a test"))
    }

    /// The same RTT for everyone, half of it each way.
    pub fn constant(rtt: Duration) -> Self {
        let class = Class {
            share: 1.0,
            rtt: Rtt::Constant(rtt),
            variation: Duration::ZERO,
            up_share: 0.5,
            up: Access::default(),
            down: Access::default(),
        };
        Profile {
            name: format!("constant {}", exact(rtt)),
            about: format!("RTT {} for everyone", format_duration(rtt)),
            classes: vec![class],
        }
    }

    /// A profile from a file.
    ///
    /// # Errors
    /// A file that cannot be read, or is not a profile: which file, where possible which line, and what is wrong.
    pub fn read(file: &Path, files: Files<'_>) -> Result<Self, ProfileError> {
        let text =
            files(file).map_err(|source| ProfileError::Read { what: "profile", file: file.to_owned(), source })?;
        Self::parse(&text, file, files)
    }

    /// A profile from the text of `file`, which names it in errors and in whose folder other files are looked for.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn parse(text: &str, file: &Path, files: Files<'_>) -> Result<Self, ProfileError> {
        document::parse(text, file, files)
    }

    /// The name it goes by in reports.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its figures come from, in a sentence; may be empty.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The whole path for `n` clients.
    pub fn path(&self, n: u32) -> PathSpec {
        PathSpec::new(self.clients(n))
    }

    /// The paths of `n` clients: the classes one after the other, in each the nearest client first.
    pub fn clients(&self, n: u32) -> Vec<ClientPath> {
        let counts = apportion(&self.classes.iter().map(|class| class.share).collect::<Vec<_>>(), n);
        let class_clients = |(class, count): (&Class, u32)| {
            let class = class.clone();
            (0..count).map(move |i| class.client((f64::from(i) + 0.5) / f64::from(count)))
        };
        self.classes.iter().zip(counts).flat_map(class_clients).collect()
    }

    /// What each class is, a line each, for people.
    pub fn describe(&self) -> Vec<String> {
        self.classes.iter().map(Class::describe).collect()
    }
}

impl Class {
    /// The client at quantile `q` of the class.
    fn client(&self, q: f64) -> ClientPath {
        let rtt = self.rtt.quantile(q);
        let up = rtt.mul_f64(self.up_share).min(rtt);
        ClientPath { up: self.link(up, self.up), down: self.link(rtt - up, self.down) }
    }

    fn link(&self, delay: Duration, Access { rate, queue, loss }: Access) -> LinkSpec {
        let mut link = LinkSpec { propagation: Propagation::Constant(delay), effects: Vec::new() };
        if loss.value() > 0.0 {
            link.put(EffectSpec::Loss(loss));
        }
        if let Some(rate) = rate.value() {
            let queue = Queue { limit: queue, ..Queue::default() };
            link.put(EffectSpec::Bottleneck(Bottleneck { rate: RateSpec::Constant(rate), queue }));
        }
        if !self.variation.is_zero() {
            link.put(EffectSpec::Variation(self.variation));
        }
        link
    }

    fn describe(&self) -> String {
        let mut line = format!("{}% of clients: RTT {}", (self.share * 1e4).round() / 1e2, self.rtt.describe());
        if !self.variation.is_zero() {
            line.push_str(&format!(", each way +-{}", format_duration(self.variation)));
        }
        if self.up_share != 0.5 {
            line.push_str(&format!(", {}% of it on the way up", (self.up_share * 1e4).round() / 1e2));
        }
        for (direction, access) in [("up", self.up), ("down", self.down)] {
            if let Some(words) = access.describe() {
                line.push_str(&format!("; {direction} {words}"));
            }
        }
        line
    }
}

impl Access {
    fn describe(&self) -> Option<String> {
        let mut words = Vec::new();
        if let Some(rate) = self.rate.value() {
            words.push(rate.to_string());
            words.push(match self.queue {
                QueueLimit::Bytes(bytes) => format!("queue {bytes}"),
                QueueLimit::Packets(packets) => format!("queue {packets} packets"),
                QueueLimit::Time(time) => format!("queue {}", format_duration(time)),
            });
        }
        if self.loss.value() > 0.0 {
            words.push(format!("loss {}%", (self.loss.value() * 1e6).round() / 1e4));
        }
        (!words.is_empty()).then(|| words.join(", "))
    }
}

/// Cuts `n` into whole numbers in proportion to `shares`, which add to 1, by largest remainder (Hamilton's method):
/// everyone gets the whole part of their due, and what is left goes to the largest fractions, earlier classes first.
fn apportion(shares: &[f64], n: u32) -> Vec<u32> {
    let dues: Vec<f64> = shares.iter().map(|share| share * f64::from(n)).collect();
    // A due that is a whole number but for rounding (0.7 x 10) must not lose one.
    let mut counts: Vec<u32> = dues.iter().map(|due| (due + 1e-6).floor() as u32).collect();
    let left = n.saturating_sub(counts.iter().sum());
    let mut by_fraction: Vec<usize> = (0..dues.len()).collect();
    let fraction = |class: usize| dues[class] - f64::from(counts[class]);
    by_fraction.sort_by(|&a, &b| fraction(b).total_cmp(&fraction(a)));
    for &class in by_fraction.iter().cycle().take(left as usize) {
        counts[class] += 1;
    }
    counts
}

#[cfg(test)]
mod tests;
