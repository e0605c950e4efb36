//! Settings of agents, validated and stored. An agent receives a change with the response to its next batch.

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::tokens::signed;

/// Settings without their version: [`tap_protocol::Settings`]. The manager sets the version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnversionedSettings {
    /// See [`tap_protocol::Settings::only`]. At most 64.
    #[serde(default)]
    pub only: Vec<String>,
    /// See [`tap_protocol::Settings::programs`]. At most 64, of at most 64 bytes each.
    #[serde(default)]
    pub programs: Vec<String>,
    /// See [`tap_protocol::Settings::share`]: from 0.000001 to 1.
    #[serde(default = "all")]
    pub share: f64,
}

fn all() -> f64 {
    1.0
}

impl UnversionedSettings {
    /// Validates the settings.
    ///
    /// # Errors
    /// [`Error::Refused`], with what is expected.
    pub fn check(&self) -> Result<()> {
        let refuse = |why: String| Err(Error::Refused(why));
        if self.only.len() > EACH_MAX || self.programs.len() > EACH_MAX {
            return refuse(format!("`only` and `programs` may have at most {EACH_MAX} entries each"));
        }
        for only in &self.only {
            if only.len() > TEXT_MAX {
                return refuse("an entry of `only` must be a peer, a port or both".to_owned());
            }
            if let Err(why) = only.parse::<tap::Only>() {
                return refuse(format!("only: {}", why.replace(only.as_str(), &tap_protocol::printable(only))));
            }
        }
        let is_name = |name: &String| !name.is_empty() && name.len() <= TEXT_MAX && !name.contains(char::is_control);
        if !self.programs.iter().all(is_name) {
            return refuse(format!(
                "programs: each entry must be the name of a program, 1 to {TEXT_MAX} bytes without control characters"
            ));
        }
        if !(SHARE_MIN..=1.0).contains(&self.share) {
            return refuse(format!(
                "share: expected a number from {SHARE_MIN} to 1, the share of the connections that are sent"
            ));
        }
        Ok(())
    }
}

/// Changes an agent's settings and returns the current ones, with a new version if anything changed. The agent may
/// have a token and not have connected yet.
///
/// # Errors
/// No such agent exists, or the settings are invalid; SQLite's.
pub fn change(
    index: &Transaction<'_>,
    agent: &str,
    settings: &UnversionedSettings,
    now_ns: u64,
) -> Result<tap_protocol::Settings> {
    settings.check()?;
    let before = settings_of_agent(index, agent, now_ns)?;
    let after = tap_protocol::Settings {
        version: before.version,
        only: settings.only.clone(),
        programs: settings.programs.clone(),
        share: settings.share,
    };
    if after == before {
        return Ok(before);
    }
    let after = tap_protocol::Settings { version: before.version + 1, ..after };
    index.execute("UPDATE agents SET settings = ?2 WHERE name = ?1", params![agent, text(&after)])?;
    Ok(after)
}

/// Puts an agent into a group; an empty name removes it. Rows written to files from now on have the group.
///
/// # Errors
/// No such agent exists, or the name is invalid; SQLite's.
pub fn set_group(index: &Transaction<'_>, agent: &str, group: &str, now_ns: u64) -> Result<()> {
    if !group.is_empty() && !tap_protocol::is_name(group) {
        return Err(Error::Refused(
            "a group name must be 1 to 63 of a-z, 0-9, `-`, `.` and `_`, and start with a letter or digit; empty: no \
             group"
                .to_owned(),
        ));
    }
    settings_of_agent(index, agent, now_ns)?;
    index.execute("UPDATE agents SET \"group\" = ?2 WHERE name = ?1", params![agent, group])?;
    Ok(())
}

/// An agent's settings; `None`: it never connected, and has no settings.
///
/// # Errors
/// SQLite's.
pub fn of(index: &Connection, agent: &str) -> Result<Option<tap_protocol::Settings>> {
    let mut statement = index.prepare_cached("SELECT settings FROM agents WHERE name = ?1")?;
    let text: Option<String> = statement.query_row([agent], |row| row.get(0)).optional()?;
    // Unreadable settings count as unset: an agent must not stop for them.
    Ok(text.map(|text| serde_json::from_str(&text).unwrap_or_default()))
}

/// The settings of an agent; creates its row if needed.
pub(crate) fn entered(index: &Transaction<'_>, agent: &str, now_ns: u64) -> Result<tap_protocol::Settings> {
    if let Some(settings) = of(index, agent)? {
        return Ok(settings);
    }
    let settings = tap_protocol::Settings::default();
    index.execute(
        "INSERT INTO agents (name, settings, first_seen_at, last_seen_at) VALUES (?1, ?2, ?3, 0)",
        params![agent, text(&settings), signed(now_ns)],
    )?;
    Ok(settings)
}

/// The settings of an agent that has connected or has a token; creates its row if needed.
fn settings_of_agent(index: &Transaction<'_>, agent: &str, now_ns: u64) -> Result<tap_protocol::Settings> {
    if let Some(settings) = of(index, agent)? {
        return Ok(settings);
    }
    let token = "SELECT 1 FROM tokens WHERE name = ?1 AND role = 'agent' AND revoked_at IS NULL";
    match index.query_row(token, [agent], |_| Ok(())).optional()? {
        Some(()) => entered(index, agent, now_ns),
        None => Err(Error::Unknown { kind: "agent", name: tap_protocol::printable(agent) }),
    }
}

fn text(settings: &tap_protocol::Settings) -> String {
    serde_json::to_string(settings).expect("settings are text and numbers")
}

/// Maximum entries of a list, and maximum bytes of an entry.
const EACH_MAX: usize = 64;
const TEXT_MAX: usize = 64;
/// Minimum share: a row stands for 1 / share rows, and sums must stay finite.
pub(crate) const SHARE_MIN: f64 = 0.000_001;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Data;
    use crate::tokens::{self, Role};

    fn settings(only: &[&str], programs: &[&str], share: f64) -> UnversionedSettings {
        let texts = |of: &[&str]| of.iter().map(|&text| text.to_owned()).collect();
        UnversionedSettings { only: texts(only), programs: texts(programs), share }
    }

    #[test]
    fn settings_versions_rise_only_with_changes() {
        let folder = tempfile::tempdir().unwrap();
        let data = Data::open(folder.path()).unwrap();
        let change =
            |agent: &str, settings: &UnversionedSettings| data.change(|index| super::change(index, agent, settings, 1));
        assert!(matches!(change("a", &settings(&[], &[], 1.0)), Err(Error::Unknown { .. })));
        tokens::add(&data, "a", Role::Agent, 1).unwrap();
        assert_eq!(change("a", &settings(&[], &[], 1.0)).unwrap(), tap_protocol::Settings::default());
        let sampled = change("a", &settings(&["443", "192.0.2.0/24"], &["curl"], 0.5)).unwrap();
        assert_eq!((sampled.version, sampled.share), (2, 0.5));
        assert_eq!(change("a", &settings(&["443", "192.0.2.0/24"], &["curl"], 0.5)).unwrap(), sampled);
        assert_eq!(data.read(|index| of(index, "a")).unwrap(), Some(sampled));
        data.change(|index| set_group(index, "a", "shops", 1)).unwrap();
        assert!(data.change(|index| set_group(index, "a", "Shops!", 1)).is_err());
        assert!(data.change(|index| set_group(index, "b", "shops", 1)).is_err());
    }

    #[test]
    fn settings_that_no_agent_can_apply_are_rejected() {
        assert!(settings(&["443"], &["a b"], SHARE_MIN).check().is_ok());
        for wrong in [
            settings(&["example.com"], &[], 1.0),
            settings(&["\u{1b}[31m"], &[], 1.0),
            settings(&[], &[""], 1.0),
            settings(&[], &["a\nb"], 1.0),
            settings(&[], &[&"x".repeat(65)], 1.0),
            settings(&["1"; 65], &[], 1.0),
            settings(&[], &[], 0.0),
            settings(&[], &[], 1.000_001),
            settings(&[], &[], f64::NAN),
            settings(&[], &[], -1.0),
        ] {
            let error = wrong.check().unwrap_err().to_string();
            assert!(!error.contains('\u{1b}'), "{error}");
        }
    }
}
