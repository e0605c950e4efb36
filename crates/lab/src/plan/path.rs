//! The distances as typed.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, Bytes, Probability};

/// The distances between the clients and the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathPlan {
    /// Name of a built-in profile, or a profile file; absent: constant, by `rtt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// RTT of every client; replaces the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub rtt: Option<Duration>,
    /// Variation of the delay per packet, each way; replaces the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub variation: Option<Duration>,
    /// Loss probability per packet, each way; replaces the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Probability>,
    /// Rate of each client's link to the server; replaces the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<BitRate>,
    /// Rate of each client's link from the server; replaces the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<BitRate>,
    /// Queue limit in front of each rate; replaces the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<Queue>,
    /// Whether big segments may pass the TUN devices whole. They are split wherever a link has a rate or a loss,
    /// whatever is said here.
    #[serde(default = "yes")]
    pub offload: bool,
}

/// A queue limit as typed: an amount or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// At most so many bytes wait.
    Bytes(Bytes),
    /// At most what the link sends in this time waits.
    Time(Duration),
}

impl std::str::FromStr for Queue {
    type Err = units::ParseError;

    fn from_str(typed: &str) -> Result<Self, Self::Err> {
        match units::parse_duration(typed) {
            Ok(time) => Ok(Queue::Time(time)),
            Err(_) => typed.parse().map(Queue::Bytes),
        }
    }
}

impl std::fmt::Display for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Queue::Bytes(bytes) => bytes.fmt(f),
            Queue::Time(time) => f.write_str(&units::time::text::exact(*time)),
        }
    }
}

impl Serialize for Queue {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Queue {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let typed = String::deserialize(deserializer)?;
        typed.parse().map_err(serde::de::Error::custom)
    }
}

impl PathPlan {
    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence that says which parts contradict each other and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        if self.queue.is_some() && self.profile.is_none() && self.up.is_none() && self.down.is_none() {
            return Err("a queue limit needs a rate to queue for: give up or down as well".into());
        }
        if let PathPlan { profile: None, rtt, variation: Some(variation), .. } = self
            && *variation * 2 > rtt.unwrap_or_default()
        {
            return Err(format!(
                "variation = {} is more than half of rtt = {}: no packet can be that early",
                units::format_duration(*variation),
                units::format_duration(rtt.unwrap_or_default())
            ));
        }
        Ok(())
    }
}

fn yes() -> bool {
    true
}
