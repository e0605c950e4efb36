//! Requests of a plan: one URL, a list of URLs, requests with names, sessions, or the objects of a content model.
//!
//! ```text
//!   [load] url | urls = FILE | content = {..} | [[load.request]] ..      what is requested
//!          [[load.session]] steps = [..]                                 in which order, where order matters
//! ```
//!
//! [`build`] makes a [`load::Workload`] of it, and refuses contradictions.

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
    /// Name in sessions and results; absent: the URL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Complete URL, or with `url` under `[load]` its path, beginning with `/`. May have placeholders, except in its
    /// host.
    pub url: String,
    /// Share among the chosen requests, relative to the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Method; absent: POST with a body, GET without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// Header lines, `Name: value`, with placeholders; they replace those of the same name under `[load]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<String>,
    /// Body as text, with placeholders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// File to send as the body, without placeholders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_file: Option<PathBuf>,
    /// `user:password`, with placeholders; absent: that under `[load]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basic_auth: Option<String>,
    /// What the response must be; absent: `expect` under `[load]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectPlan>,
    /// Values to take from the response for later steps of the session, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extract: BTreeMap<String, ExtractPlan>,
    /// Redirects to follow, one after another; absent: the number under `[load]`.
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

    /// Name in sessions and results.
    pub fn label(&self) -> &str {
        self.name.as_deref().unwrap_or(&self.url)
    }
}

/// How an arrival chooses among several requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChoicePlan {
    /// One after another, in order.
    InTurn,
    /// At random, by weight.
    Weighted,
}

/// What one user does, `[[load.session]]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionPlan {
    /// Name in results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Share among the sessions, relative to the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// Effect of a failed request.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Steps in order, at least one.
    pub steps: Vec<StepPlan>,
}

/// Effect of a failed request on its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// The session ends.
    #[default]
    End,
    /// The session continues with its next step.
    GoOn,
}

/// One step of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepPlan {
    /// Name of the request.
    pub request: String,
    /// Time between the end of the step before (for the first step: the session's arrival) and this request; absent:
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think: Option<ThinkPlan>,
    /// Alternative to `think`: time from the session's arrival to this request, whatever the steps before do.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub at: Option<Duration>,
    /// Names of the requests for embedded objects, sent once the response of the step is complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub embedded: Vec<String>,
    /// Concurrent requests for embedded objects; absent: 6, as in browsers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel: Option<u16>,
}

/// Concurrent requests for embedded objects of browsers over HTTP/1.
pub const PARALLEL: u16 = 6;

/// Think time of a user.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "think is a time such as \"3s\", { exponential = { mean = \"3s\", max = \"30s\" } }, { uniform = [\"1s\", \"5s\"] } \
                 or { log_normal = { median = \"3s\", sigma = 1.0, max = \"1m\" } }"
)]
pub enum ThinkPlan {
    /// Constant.
    Constant(Time),
    /// Drawn for each step.
    Drawn(DrawnThink),
}

/// Distribution of a think time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum DrawnThink {
    /// Uniform between the two times.
    Uniform([Time; 2]),
    /// Exponential; values above `max` become `max`.
    Exponential {
        /// Mean without `max`.
        mean: Time,
        /// Longest time.
        max: Time,
    },
    /// Log-normal; values above `max` become `max`.
    LogNormal {
        /// Median.
        median: Time,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Longest time.
        max: Time,
    },
}

/// A time in a plan: text with its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(#[serde(with = "units::time::text")] pub Duration);

/// Escapes the braces of a text, so that a plan takes them literally and not as placeholders.
pub fn literal(text: &str) -> String {
    text.replace('{', "{{").replace('}', "}}")
}

impl LoadPlan {
    /// The workload, including the files that it names.
    ///
    /// # Errors
    /// One sentence: a contradiction, or an unreadable file.
    pub fn workload(&self) -> Result<load::Workload, String> {
        build::workload(self, build::Files::Read)
    }

    /// The settings of all requests as a GET: headers, credentials, expectations, redirects. For requests from a
    /// recording.
    ///
    /// # Errors
    /// One sentence.
    pub fn every_request(&self) -> Result<load::RequestSpec, String> {
        build::every_request(self)
    }

    /// Refuses contradictions; reads no file.
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
                Err("a log or recording (replay, har) defines the requests: leave urls, content, [[load.request]] and \
                     [[load.session]] out"
                    .into())
            } else {
                Ok(())
            };
        }
        build::workload(self, build::Files::Skip).map(drop)
    }

    /// All URLs in the plan itself; URLs relative to the host of `url` are completed.
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
        // The text of a request has placeholders; that of the plan has none.
        let literal = |text: &String| text.replace('{', "{{").replace('}', "}}");
        RequestPlan { body: self.body_text.as_ref().map(literal), body_file: self.body.clone(), ..request }
    }

    /// Whether the plan defines the expected status of every request.
    pub fn expects_statuses(&self) -> bool {
        let has_status = |expect: &Option<ExpectPlan>| expect.as_ref().is_some_and(|expect| expect.status.is_some());
        let common = has_status(&self.expect);
        let own = |request: &RequestPlan| if request.expect.is_some() { has_status(&request.expect) } else { common };
        self.content.is_some()
            || self.cache_workload.is_some()
            || if self.request.is_empty() { common } else { self.request.iter().all(own) }
    }

    /// Whether the redirects of every request are followed, so that a redirect is not an error.
    pub fn follows_redirects(&self) -> bool {
        let follows = |request: &RequestPlan| request.redirects.unwrap_or(self.redirects) > 0;
        if self.request.is_empty() { self.redirects > 0 } else { self.request.iter().all(follows) }
    }

    /// Writes out how one of several requests is chosen.
    pub fn settle_workload(&mut self) {
        // Whether a list has weights is known only after reading it.
        if self.choice.is_none() && self.request.len() > 1 && self.session.is_empty() {
            let weighted = self.request.iter().any(|request| request.weight.is_some());
            self.choice = Some(if weighted { ChoicePlan::Weighted } else { ChoicePlan::InTurn });
        }
    }

    /// Resolves the plan's file names against `folder` and makes them absolute, so that the plan may be moved.
    pub fn find_files_from(&mut self, folder: &Path) {
        for file in self.files_mut() {
            let joined = folder.join(&*file);
            // Without a current directory the name stays as written.
            *file = std::path::absolute(&joined).unwrap_or(joined);
        }
    }

    /// The names of all files that the load reads.
    pub fn files_mut(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        let bodies = self.request.iter_mut().filter_map(|request| request.body_file.as_mut());
        let recordings = self.replay.iter_mut().map(|replay| &mut replay.file);
        let recordings = recordings.chain(self.har.iter_mut().map(|har| &mut har.file));
        let recordings = recordings.chain(self.cache_workload.iter_mut().filter_map(|workload| workload.file.as_mut()));
        let plain = [&mut self.body, &mut self.urls, &mut self.rate_file].into_iter().flatten();
        let tls =
            self.tls.iter_mut().flat_map(|tls| [&mut tls.cacert, &mut tls.cert, &mut tls.key].into_iter().flatten());
        plain.chain(recordings).chain(bodies).chain(tls)
    }
}

#[cfg(test)]
mod tests;
