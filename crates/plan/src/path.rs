//! The distances as typed.

use std::path::Path;
use std::time::Duration;

use path::{Discipline, Effects, PlannedChange, Profile, QueueLimit, Rate};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The distances between the clients and the server. Whatever is given beside a profile replaces the profile's, for
/// every client; `docs/concepts/profiles.md` shows the forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Path"))]
pub struct PathPlan {
    /// Distances: a built-in profile, a profile file, or `none` [default: none, or constant with --rtt, or 0ms with
    /// --server]
    // Plan: `none` is for the option alone: a plan without a path leaves `[path]` out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "path", long = "path", value_name = "PROFILE"))]
    pub profile: Option<String>,
    /// The same RTT for every client
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = units::parse_duration, allow_hyphen_values = true))]
    pub rtt: Option<Duration>,
    // A key and an option each; the list is in the crate `path` (`effect.rs`).
    #[serde(flatten, skip_deserializing)]
    #[cfg_attr(feature = "cli", command(flatten))]
    #[allow(missing_docs, reason = "clap would take it for help")]
    pub effects: Effects,
    /// Rate of each client's link to the server, such as 1Mbit, or trace:FILE in mahimahi's format
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "RATE", allow_hyphen_values = true))]
    pub up: Option<Rate>,
    /// Rate of each client's link from the server, such as 10Mbit, or trace:FILE
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "RATE", allow_hyphen_values = true))]
    pub down: Option<Rate>,
    /// Queue limit in front of each rate, such as 64KB, '100 packets' or 100ms
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LIMIT", allow_hyphen_values = true))]
    pub queue: Option<QueueLimit>,
    /// What each queue drops before it is full: codel[:TARGET[,INTERVAL]], pie[:TARGET[,UPDATE]] or drop-tail
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DISCIPLINE", allow_hyphen_values = true))]
    pub aqm: Option<Discipline>,
    /// Something that changes meanwhile, such as '10s for 3s: outage', '5s: rtt x2', '5s: rate x0.5', '5s: loss 5%';
    /// may be given more than once
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(long = "change", value_name = "AT [for TIME]: WHAT", allow_hyphen_values = true))]
    pub changes: Vec<PlannedChange>,
    /// Switch segmentation and checksum offload of the TUN devices off
    // Plan: Segments are split wherever a link does more than delay, whatever is said here.
    #[cfg_attr(feature = "cli", arg(long = "no-offload", action = clap::ArgAction::SetFalse))]
    pub offload: bool,
}

impl Default for PathPlan {
    /// Nothing but what a profile says, and offload.
    fn default() -> Self {
        PathPlan {
            profile: None,
            rtt: None,
            effects: Effects::default(),
            up: None,
            down: None,
            queue: None,
            aqm: None,
            changes: Vec::new(),
            offload: true,
        }
    }
}

impl PathPlan {
    /// The path of a command line, which these options are; `None` for none. `with_ends`: the lab makes both ends, so there is a path
    /// even if none was asked for.
    ///
    /// # Errors
    /// `--path none` beside something that only a path has.
    #[cfg(feature = "cli")]
    pub fn resolve(mut self, with_ends: bool) -> Result<Option<Self>, String> {
        let other = self.first_option();
        if self.profile.as_deref() == Some("none") {
            return match other {
                Some(option) => Err(format!(
                    "--path none means no path at all, but --{option} asks for one: leave one of the two out"
                )),
                None if with_ends => Err(
                    "--path none means no path at all, but the lab makes both ends of one here: --rtt 0ms is the shortest".into(),
                ),
                None => Ok(None),
            };
        }
        if self.profile.is_none() {
            if other.is_none() && !with_ends {
                return Ok(None);
            }
            self.rtt.get_or_insert_default();
        }
        Ok(Some(self))
    }

    /// The first option that is given, besides `--path` itself.
    #[cfg(feature = "cli")]
    fn first_option(&self) -> Option<String> {
        let keys = |path: &PathPlan| toml::Table::try_from(path).expect("a plan is plain tables of text and numbers");
        let (own, usual) = (keys(self), keys(&PathPlan::default()));
        let options = <PathPlan as clap::Args>::augment_args(clap::Command::new("path"));
        let is_given = |key: &str| key != "path" && own.get(key) != usual.get(key);
        let given = options.get_arguments().find(|option| is_given(option.get_id().as_str()));
        given.and_then(|option| option.get_long().map(str::to_owned))
    }

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
        self.effects.iter().try_for_each(|effect| effect.check(rtt))?;
        let mut profile = Profile::constant(rtt);
        self.changes.iter().try_for_each(|change| profile.add(change.clone()))
    }
}

impl Serialize for PathPlan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PathPlan::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for PathPlan {
    fn deserialize<D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
        /// All but the effects.
        struct Fields(PathPlan);

        impl<'de> Deserialize<'de> for Fields {
            fn deserialize<D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
                PathPlan::deserialize(table).map(Fields)
            }
        }

        let (Fields(path), effects) = Effects::read_beside(table)?;
        Ok(PathPlan { effects, ..path })
    }
}
