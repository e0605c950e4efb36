//! The agent's word on itself: a file that it writes each second, and that `yamabiko tap agent status` reads.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use tap_protocol::{Levels, Settings, SpoolStand};

/// How an agent stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`Status::FORMAT`].
    pub format: String,
    /// When this was written, by the machine's wall clock: ns since 1970.
    pub at_unix_ns: u64,
    /// When the agent was started.
    pub started_unix_ns: u64,
    /// The program's version.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// The agent's name, which stands in its token.
    pub name: String,
    /// The manager's URL.
    pub manager: String,
    /// The folder that programs are given.
    pub folder: String,
    /// The stream.
    pub stream: String,
    /// How it is with the manager.
    pub link: Link,
    /// Batches that wait.
    pub spool: SpoolStand,
    /// Rows, since the start.
    pub rows: Rows,
    /// Levels of this moment.
    pub levels: Levels,
    /// What is gone by; version 0: the manager was never heard.
    pub settings: Settings,
    /// Whether addresses are hashed.
    pub hashes_addresses: bool,
    /// Entries of the journal, ever.
    pub entries: u64,
    /// The machine's wall clock less the manager's, ns; absent: the manager was never heard.
    pub clock_offset_ns: Option<i64>,
    /// By how much that may be off.
    pub clock_error_ns: Option<i64>,
    /// What does not go now, and is tried again.
    pub troubles: Vec<Trouble>,
}

/// How it is with the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// In a word.
    pub state: Connection,
    /// Since when.
    pub since_unix_ns: u64,
    /// Why, where it is not connected.
    pub why: String,
    /// When the manager last had a batch; 0: never, since the start.
    pub stored_unix_ns: u64,
}

/// The same in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// Not tried yet.
    Begins,
    /// It answers.
    Connected,
    /// Nobody answers.
    Away,
    /// It says no.
    Refused,
    /// What answers is not the manager, or cannot be trusted.
    Stranger,
}

impl Connection {
    /// As it is printed.
    pub fn words(self) -> &'static str {
        match self {
            Connection::Begins => "not tried yet",
            Connection::Connected => "connected",
            Connection::Away => "away",
            Connection::Refused => "refused",
            Connection::Stranger => "not the manager",
        }
    }
}

/// What became of rows, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// That were made.
    pub made: u64,
    /// That the manager has.
    pub sent: u64,
    /// That the filter left out.
    pub filtered: u64,
    /// Of connections that were not drawn.
    pub not_drawn: u64,
    /// That the spool's bound made the agent let go, or the manager refused.
    pub dropped: u64,
}

/// What does not go, and is tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

impl Status {
    /// What [`Status::format`] says.
    pub const FORMAT: &str = "yamabiko.tap_agent/1";

    /// Of the agent that has this folder; and whether it runs.
    ///
    /// # Errors
    /// No agent was ever there, or the folder may not be read.
    pub fn read(data: &Path) -> io::Result<(Status, bool)> {
        let mut text = Vec::new();
        File::open(data.join(FILE))?.take(1 << 20).read_to_end(&mut text)?;
        let lock = File::open(data.join(LOCK))?;
        // Who has it, has it until it ends, however it ends.
        let runs = lock.try_lock_shared().is_err();
        Ok((serde_json::from_slice(&text)?, runs))
    }
}

/// The status.
pub(crate) const FILE: &str = "status.json";
/// Locked by the agent that has the folder.
pub(crate) const LOCK: &str = "lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_agent_was_there() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Status::read(folder.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
