//! The agent's status file: written each second, and read by `yamabiko tap agent status`.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use tap_protocol::{Gauges, Settings, SpoolUsage};

/// Status of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// [`Status::FORMAT`].
    pub format: String,
    /// When this was written, on the machine's wall clock: ns since 1970.
    pub at_unix_ns: u64,
    /// When the agent was started.
    pub started_unix_ns: u64,
    /// The program's version.
    pub version: String,
    /// Process number.
    pub pid: u32,
    /// The agent's name, which is part of its token.
    pub name: String,
    /// The manager's URL.
    pub manager: String,
    /// The tap folder for programs.
    pub folder: String,
    /// The stream name.
    pub stream: String,
    /// Connection to the manager.
    pub link: Link,
    /// Usage of the spool.
    pub spool: SpoolUsage,
    /// Row counts since the start.
    pub rows: Rows,
    /// Current gauges.
    pub gauges: Gauges,
    /// The applied settings; version 0: no manager has responded yet.
    pub settings: Settings,
    /// Whether addresses are hashed.
    pub hashes_addresses: bool,
    /// Number of the last journal entry.
    pub entries: u64,
    /// The machine's wall clock less the manager's, ns; absent: the manager has not responded yet.
    pub clock_offset_ns: Option<i64>,
    /// Maximum error of that difference.
    pub clock_error_ns: Option<i64>,
    /// Operations that fail now and are retried.
    pub troubles: Vec<Trouble>,
}

/// Connection to the manager.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// State of the connection.
    pub state: Connection,
    /// Since when, ns since 1970.
    pub since_unix_ns: u64,
    /// The reason, if not connected.
    pub why: String,
    /// When the manager last stored a batch; 0: not since the start.
    pub stored_unix_ns: u64,
}

/// States of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// No connection was attempted yet.
    NotTried,
    /// The manager responds.
    Connected,
    /// The manager is unreachable.
    Away,
    /// The manager refuses requests.
    Refused,
    /// The server that responds is not the manager, or is not trusted.
    NotAManager,
}

impl Connection {
    /// Name of the state, as printed.
    pub fn words(self) -> &'static str {
        match self {
            Connection::NotTried => "not tried yet",
            Connection::Connected => "connected",
            Connection::Away => "away",
            Connection::Refused => "refused",
            Connection::NotAManager => "not the manager",
        }
    }
}

/// Row counts since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rows {
    /// Recorded rows.
    pub made: u64,
    /// Rows stored by the manager.
    pub sent: u64,
    /// Rows excluded by the filter.
    pub filtered: u64,
    /// Rows of connections that were not sampled.
    pub not_drawn: u64,
    /// Rows dropped by the spool limit or rejected by the manager.
    pub dropped: u64,
}

/// An operation that fails and is retried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// The operation.
    pub what: String,
    /// The reason.
    pub why: String,
}

impl Status {
    /// Value of [`Status::format`].
    pub const FORMAT: &str = "yamabiko.tap_agent/1";

    /// Reads the status of the agent in this folder, and whether it runs.
    ///
    /// # Errors
    /// No agent has used the folder, or it is not readable.
    pub fn read(data: &Path) -> io::Result<(Status, bool)> {
        let mut text = Vec::new();
        File::open(data.join(FILE))?.take(1 << 20).read_to_end(&mut text)?;
        let lock = File::open(data.join(LOCK))?;
        // The lock is held until the agent ends, however it ends.
        let runs = lock.try_lock_shared().is_err();
        Ok((serde_json::from_slice(&text)?, runs))
    }
}

/// The status.
pub(crate) const FILE: &str = "status.json";
/// Locked by the agent that uses the folder.
pub(crate) const LOCK: &str = "lock";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_without_a_previous_agent_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Status::read(folder.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
