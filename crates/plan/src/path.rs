//! The distances as typed.

use std::path::Path;
use std::time::Duration;

use path::{Discipline, Loss, PlannedChange, Profile, QueueLimit, Rate, Reorder};
use serde::{Deserialize, Serialize};
use units::Probability;

/// The distances between the clients and the server. Whatever is given beside a profile replaces the profile's, for
/// every client; `docs/concepts/profiles.md` shows the forms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathPlan {
    /// Name of a built-in profile, or a profile file; absent: constant, by `rtt`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// RTT of every client.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub rtt: Option<Duration>,
    /// Variation of the delay per packet, each way.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    pub variation: Option<Duration>,
    /// Loss of packets, each way: even or in bursts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<Loss>,
    /// Probability that a bit of a packet is inverted, each way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrupt: Option<Probability>,
    /// Probability that a packet arrives twice, each way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicate: Option<Probability>,
    /// Packets that are overtaken, each way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reorder: Option<Reorder>,
    /// Rate of each client's link to the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<Rate>,
    /// Rate of each client's link from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<Rate>,
    /// Queue limit in front of each rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueLimit>,
    /// Which packets each queue drops before it is full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aqm: Option<Discipline>,
    /// Whether big segments may pass the TUN devices whole. They are split wherever a link does more than delay,
    /// whatever is said here.
    #[serde(default = "yes")]
    pub offload: bool,
    /// What changes while the run goes, besides what the profile says; moments count from the start of what is
    /// measured.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<PlannedChange>,
}

impl PathPlan {
    /// A profile's file is found from `folder` on; a built-in profile is a name alone.
    pub fn find_files_from(&mut self, folder: &Path) {
        let names_a_file = |profile: &&mut String| profile.contains('/') || profile.ends_with(".toml");
        if let Some(profile) = self.profile.as_mut().filter(names_a_file) {
            let joined = folder.join(&*profile);
            *profile = std::path::absolute(&joined).unwrap_or(joined).to_string_lossy().into_owned();
        }
    }

    /// Refuses what cannot be meant.
    ///
    /// # Errors
    /// One sentence that says which parts contradict each other and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        if self.profile.is_some() {
            return Ok(());
        }
        let queue = [("queue limit", self.queue.is_some()), ("queue discipline (aqm)", self.aqm.is_some())];
        if let Some((what, _)) = queue.into_iter().find(|&(_, given)| given && self.up.is_none() && self.down.is_none())
        {
            return Err(format!("a {what} needs a rate to queue for: give up or down as well"));
        }
        let rtt = self.rtt.unwrap_or_default();
        if let Some(variation) = self.variation
            && variation * 2 > rtt
        {
            return Err(format!(
                "variation = {} is more than half of rtt = {}: no packet can be that early",
                units::format_duration(variation),
                units::format_duration(rtt)
            ));
        }
        let mut profile = Profile::constant(rtt);
        self.changes.iter().try_for_each(|change| profile.add(change.clone()))
    }
}

fn yes() -> bool {
    true
}
