//! What is asked for, as meant: one URL, a list of them, requests with names, sessions, or a model's objects.
//!
//! ```text
//!   [load] url | urls = FILE | content = {..} | [[load.request]] ..      what is asked for
//!          [[load.session]] steps = [..]                                 in which order, where order matters
//! ```
//!
//! [`build`] makes a [`load::Workload`] of it, and refuses what cannot be meant.

mod build;
mod content;
mod expect;
mod list;
mod turn;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use schema::Method;
use serde::{Deserialize, Serialize};

pub use self::content::{ContentPlan, ModelName};
pub use self::expect::{ExpectPlan, ExtractPlan, LengthRange, StatusSet};
pub use self::turn::Turn;
use super::LoadPlan;

/// One request of a workload, `[[load.request]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestPlan {
    /// What sessions and results call it; absent: its URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A whole URL, or with `url` under `[load]` what follows its host, beginning with `/`. May hold places, though not
    /// in its host.
    pub url: String,
    /// Share among drawn requests, relative to the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Method; absent: POST with a body, GET without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Header lines, `Name: value`, with places; they replace those of the same name under `[load]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Body as text, with places.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// File sent as the body, as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_file: Option<PathBuf>,
    /// `user:password`, with places; absent: that under `[load]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<String>,
    /// What the response must be; absent: what is under `[load]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectPlan>,
    /// Values taken from the response for later steps of the session, by their names.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extract: BTreeMap<String, ExtractPlan>,
    /// Redirects followed one after another; absent: that under `[load]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirects: Option<u8>,
}

impl RequestPlan {
    /// A request of a URL, all else as under `[load]`.
    pub fn get(url: impl Into<String>) -> Self {
        RequestPlan {
            name: None,
            url: url.into(),
            weight: None,
            method: None,
            headers: Vec::new(),
            body: None,
            body_file: None,
            basic_auth: None,
            expect: None,
            extract: BTreeMap::new(),
            redirects: None,
        }
    }

    /// What sessions and results call it.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.url)
    }
}

/// How an arrival chooses among several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChoicePlan {
    /// Each in turn.
    InTurn,
    /// Drawn by their weights.
    Weighted,
}

/// What one user does, `[[load.session]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionPlan {
    /// What results call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Share among the sessions, relative to the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// What a failed request does to it.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// In order, at least one.
    pub steps: Vec<StepPlan>,
}

/// What a failed request does to its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// Ends it.
    #[default]
    End,
    /// Nothing: the next step comes all the same.
    GoOn,
}

/// One step of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepPlan {
    /// Name of the request.
    pub request: String,
    /// Time between the end of the step before (the session's arrival, for the first) and this request; absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think: Option<ThinkPlan>,
    /// Instead: so long after the session's arrival, whatever the steps before do.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub at: Option<Duration>,
    /// Names of requests for what the page embeds, sent once its response is whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub embedded: Vec<String>,
    /// How many embedded objects are asked for at once; absent: 6, as in browsers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u16>,
}

/// Embedded objects asked for at once by browsers over HTTP/1.
pub const PARALLEL: u16 = 6;

/// A time for which a user does nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "think is a time such as \"3s\", { exponential = { mean = \"3s\", max = \"30s\" } }, { uniform = [\"1s\", \"5s\"] } \
                 or { log_normal = { median = \"3s\", sigma = 1.0, max = \"1m\" } }"
)]
pub enum ThinkPlan {
    /// Always the same.
    Constant(Time),
    /// Drawn anew each time.
    Drawn(DrawnThink),
}

/// A time that is drawn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DrawnThink {
    /// Evenly spread from the first to the last.
    Uniform([Time; 2]),
    /// Exponential; what is drawn above `max` becomes `max`.
    Exponential {
        /// Mean before the cut.
        mean: Time,
        /// Longest.
        max: Time,
    },
    /// Log-normal; what is drawn above `max` becomes `max`.
    LogNormal {
        /// Median.
        median: Time,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Longest.
        max: Time,
    },
}

/// A time in a plan: text with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(#[serde(with = "units::time::text")] pub Duration);

/// Text as a plan has it where braces in it are braces, and no places.
pub fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

impl LoadPlan {
    /// The workload, its files read.
    ///
    /// # Errors
    /// One sentence: what cannot be meant, and a file that cannot be read.
    pub fn workload(&self) -> Result<load::Workload, String> {
        build::workload(self, build::Files::Read)
    }

    /// What holds for every request, as a GET: headers, credentials, what is expected, redirects. For requests that are
    /// not in the plan but in a recording.
    ///
    /// # Errors
    /// One sentence.
    pub fn every_request(&self) -> Result<load::RequestSpec, String> {
        build::every_request(self)
    }

    /// Refuses what cannot be meant; reads no file.
    ///
    /// # Errors
    /// One sentence.
    pub(super) fn check_workload(&self) -> Result<(), String> {
        if let Some(workload) = &self.cache_workload {
            return workload.check(self);
        }
        if self.replay.is_some() || self.har.is_some() {
            let own =
                !self.request.is_empty() || !self.session.is_empty() || self.urls.is_some() || self.content.is_some();
            return if own {
                Err("a log or recording (replay, har) says what is asked for: leave urls, content, [[load.request]] and \
                     [[load.session]] out"
                    .into())
            } else {
                Ok(())
            };
        }
        build::workload(self, build::Files::Left).map(drop)
    }

    /// Every URL that the plan itself states, those of requests on the host of `url` written out.
    pub fn stated_urls(&self) -> Vec<String> {
        let base = Some(&self.url).filter(|url| !url.is_empty());
        let requests = self.request.iter().map(|request| match (&request.url, base) {
            (url, Some(base)) if url.starts_with('/') => format!("{}{url}", base.trim_end_matches('/')),
            (url, _) => url.clone(),
        });
        base.cloned().into_iter().chain(requests).collect()
    }

    /// Whether requests of the plan's own URL have a body.
    pub fn has_body(&self) -> bool {
        self.body.is_some() || self.body_text.is_some()
    }

    /// The request with the plan's body.
    pub fn with_body(&self, request: RequestPlan) -> RequestPlan {
        // A request's text has places; that of a plan has none.
        let literal = |text: &String| text.replace('{', "{{").replace('}', "}}");
        RequestPlan { body: self.body_text.as_ref().map(literal), body_file: self.body.clone(), ..request }
    }

    /// Whether the plan says for every request which status is good.
    pub fn expects_statuses(&self) -> bool {
        let says = |expect: &Option<ExpectPlan>| expect.as_ref().is_some_and(|expect| expect.status.is_some());
        let common = says(&self.expect);
        let own = |request: &RequestPlan| if request.expect.is_some() { says(&request.expect) } else { common };
        self.content.is_some()
            || self.cache_workload.is_some()
            || if self.request.is_empty() { common } else { self.request.iter().all(own) }
    }

    /// Whether every request's redirects are followed, so that one is no wrong answer.
    pub fn follows_redirects(&self) -> bool {
        let follows = |request: &RequestPlan| request.redirects.unwrap_or(self.redirects) > 0;
        if self.request.is_empty() { self.redirects > 0 } else { self.request.iter().all(follows) }
    }

    /// Writes out what was left open: how several requests are chosen.
    pub fn settle_workload(&mut self) {
        // A list may have weights: nobody knows before it is read.
        if self.choice.is_none() && self.request.len() > 1 && self.session.is_empty() {
            let weighted = self.request.iter().any(|request| request.weight.is_some());
            self.choice = Some(if weighted { ChoicePlan::Weighted } else { ChoicePlan::InTurn });
        }
    }

    /// Files that the plan names are found from `folder` on, and named whole, so that the plan may be moved.
    pub fn find_files_from(&mut self, folder: &Path) {
        let bodies = self.request.iter_mut().filter_map(|request| request.body_file.as_mut());
        let recordings = self.replay.iter_mut().map(|replay| &mut replay.file);
        let recordings = recordings.chain(self.har.iter_mut().map(|har| &mut har.file));
        let recordings = recordings.chain(self.cache_workload.iter_mut().filter_map(|workload| workload.file.as_mut()));
        let plain = [&mut self.body, &mut self.urls, &mut self.rate_file].into_iter().flatten();
        let tls =
            self.tls.iter_mut().flat_map(|tls| [&mut tls.cacert, &mut tls.cert, &mut tls.key].into_iter().flatten());
        for file in plain.chain(recordings).chain(bodies).chain(tls) {
            let joined = folder.join(&*file);
            // Without a current folder there is nothing better than what was written.
            *file = std::path::absolute(&joined).unwrap_or(joined);
        }
    }
}

#[cfg(test)]
mod tests;
