//! `[path]`: the emulated network between clients and server.

use std::path::Path;
use std::time::Duration;

use path::{Discipline, Effects, PlannedChange, Profile, QueueLimit, Rate};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The emulated network between clients and server. Keys given with a profile replace the profile's values for every
/// client; `docs/concepts/profiles.md` shows the forms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields, default)]
#[cfg_attr(feature = "cli", derive(clap::Args), command(next_help_heading = "Path"))]
pub struct PathPlan {
    /// Emulate the distances of this built-in profile or profile file, or `none` [default: none; constant with --rtt,
    /// 0ms with --server]
    // Plan: `none` exists as an option only: a plan without a path has no `[path]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(id = "path", long = "path", value_name = "PROFILE"))]
    pub profile: Option<String>,
    /// Give every client this RTT
    #[serde(skip_serializing_if = "Option::is_none", with = "units::time::text::option")]
    #[cfg_attr(feature = "cli", arg(long, value_parser = units::parse_duration, allow_hyphen_values = true))]
    pub rtt: Option<Duration>,
    // One key and one option each; the list is in the crate `path` (`effect.rs`).
    #[serde(flatten, skip_deserializing)]
    #[cfg_attr(feature = "cli", command(flatten))]
    #[allow(missing_docs, reason = "clap would show it as help")]
    pub effects: Effects,
    /// Limit each client's link to the server to this rate, such as 1Mbit, or trace:FILE in mahimahi's format
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "RATE", allow_hyphen_values = true))]
    pub up: Option<Rate>,
    /// Limit each client's link from the server to this rate, such as 10Mbit, or trace:FILE
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "RATE", allow_hyphen_values = true))]
    pub down: Option<Rate>,
    /// Limit the queue in front of each rate, such as 64KB, '100 packets' or 100ms
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "LIMIT", allow_hyphen_values = true))]
    pub queue: Option<QueueLimit>,
    /// Drop packets by this rule before a queue is full: codel[:TARGET[,INTERVAL]], pie[:TARGET[,UPDATE]] or drop-tail
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DISCIPLINE", allow_hyphen_values = true))]
    pub aqm: Option<Discipline>,
    /// Change the path during the run, such as '10s for 3s: outage', '5s: rtt x2', '5s: rate x0.5', '5s: loss 5%'; may
    /// be repeated
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "cli", arg(long = "change", value_name = "AT [for TIME]: WHAT", allow_hyphen_values = true))]
    pub changes: Vec<PlannedChange>,
    /// Disable segmentation and checksum offload of the TUN devices
    // Plan: On links with more than a delay, segments are split in any case.
    #[cfg_attr(feature = "cli", arg(long = "no-offload", action = clap::ArgAction::SetFalse))]
    pub offload: bool,
}

impl Default for PathPlan {
    /// Nothing but the profile, and offload.
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
    /// The path of the command line; `None` without one. `with_ends`: the testbed creates both ends, so there is a path
    /// even if no option asks for one.
    ///
    /// # Errors
    /// `--path none` together with an option that only a path has.
    #[cfg(feature = "cli")]
    pub fn resolve(mut self, with_ends: bool) -> Result<Option<Self>, String> {
        let other = self.first_option();
        if self.profile.as_deref() == Some("none") {
            return match other {
                Some(option) => {
                    Err(format!("--path none disables the path, but --{option} needs one: leave one of the two out"))
                }
                None if with_ends => {
                    Err("--path none disables the path, but --server needs one: --rtt 0ms is the shortest".into())
                }
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

    /// The first option that is given, other than `--path`.
    #[cfg(feature = "cli")]
    fn first_option(&self) -> Option<String> {
        let keys = |path: &PathPlan| toml::Table::try_from(path).expect("a plan is plain tables of text and numbers");
        let (own, usual) = (keys(self), keys(&PathPlan::default()));
        let options = <PathPlan as clap::Args>::augment_args(clap::Command::new("path"));
        let is_given = |key: &str| key != "path" && own.get(key) != usual.get(key);
        let given = options.get_arguments().find(|option| is_given(option.get_id().as_str()));
        given.and_then(|option| option.get_long().map(str::to_owned))
    }

    /// Resolves the profile's file name against `folder`; a built-in profile has a name only.
    pub fn find_files_from(&mut self, folder: &Path) {
        let names_a_file = |profile: &&mut String| profile.contains('/') || profile.ends_with(".toml");
        if let Some(profile) = self.profile.as_mut().filter(names_a_file) {
            let joined = folder.join(&*profile);
            *profile = std::path::absolute(&joined).unwrap_or(joined).to_string_lossy().into_owned();
        }
    }

    /// Refuses contradictions.
    ///
    /// # Errors
    /// One sentence: which keys contradict each other, and what to write instead.
    pub fn check(&self) -> Result<(), String> {
        if self.profile.is_some() {
            return Ok(());
        }
        let queue = [("queue limit (--queue)", self.queue.is_some()), ("queue discipline (--aqm)", self.aqm.is_some())];
        if let Some((what, _)) = queue.into_iter().find(|&(_, given)| given && self.up.is_none() && self.down.is_none())
        {
            return Err(format!("a {what} needs a link rate: give up or down (--up, --down) as well"));
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
        /// All fields but the effects.
        struct Fields(PathPlan);

        impl<'de> Deserialize<'de> for Fields {
            fn deserialize<D: Deserializer<'de>>(table: D) -> Result<Self, D::Error> {
                PathPlan::deserialize(table).map(Fields)
            }
        }

        let (Fields(path), effects) = Effects::read_with_effects(table)?;
        Ok(PathPlan { effects, ..path })
    }
}
