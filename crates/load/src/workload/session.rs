//! Sessions: what one user does, one step after another.

use std::time::Duration;

/// A sequence of requests by one client.
#[derive(Clone, Debug)]
pub struct SessionSpec {
    /// What results call it.
    pub name: Option<String>,
    /// Share among the sessions, relative to the others; above 0, finite.
    pub weight: f64,
    /// In order, at least one.
    pub steps: Vec<Step>,
    /// A failed request does not end the session.
    pub goes_on: bool,
}

/// One step: a request, and what its page embeds.
#[derive(Clone, Debug)]
pub struct Step {
    /// Index into [`Workload::requests`](super::Workload::requests).
    pub request: u32,
    /// When it is intended.
    pub when: When,
    /// Requests for what the page embeds, intended when the step's own response is whole. The step has ended when all
    /// have.
    pub embedded: Vec<u32>,
    /// Embedded objects in flight at once: over HTTP/1 that many connections of the client, 6 in browsers. 0 is taken
    /// as 1.
    pub parallel: u16,
}

/// When a step is intended.
#[derive(Clone, Debug)]
pub enum When {
    /// So long after the step before has ended; for the first step, after the session's arrival.
    After(Think),
    /// So long after the session's arrival, whatever the steps before do.
    At(Duration),
}

/// A time for which a user does nothing.
#[derive(Clone, Debug)]
pub enum Think {
    /// Always the same; may be zero.
    Constant(Duration),
    /// Evenly spread from the first to the last.
    Uniform(Duration, Duration),
    /// Exponential, cut at `max`.
    Exponential {
        /// Mean before the cut.
        mean: Duration,
        /// Longest.
        max: Duration,
    },
    /// Log-normal, cut at `max`.
    LogNormal {
        /// Median.
        median: Duration,
        /// Standard deviation of the logarithm.
        sigma: f64,
        /// Longest.
        max: Duration,
    },
}
