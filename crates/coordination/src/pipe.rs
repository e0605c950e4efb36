//! Lines of JSON between the process that makes the load and its coordinator, by the coordinator's stdin and stdout.

use std::io::{self, BufRead, Read as _, Write};

use serde::{Deserialize, Serialize};

use crate::message::{BYTES_MAX, Ended, Prepared, Progress};

/// To the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToCoordinator {
    /// The first line: what to coordinate.
    Hello(Box<Hello>),
    /// Counts so far.
    Progress(Progress),
    /// The own run is stored in this folder; its progress is read there.
    Run(String),
    /// The user interrupted the load.
    Interrupted,
    /// The load ended with a stored run.
    Ended(Ended),
    /// The load ended without one.
    Failed(String),
    /// The next trial of the search (the leader's).
    Trial {
        /// Number of the trial, from 1.
        number: u32,
        /// What varies from trial to trial.
        request: String,
        /// What the leader's shard prepared.
        prepared: Prepared,
        /// Folder of the search, whose live page shows all shards.
        folder: String,
    },
    /// The requested trial is prepared (a member's).
    Prepared(Prepared),
    /// The search has no further trial: why it ended early, or nothing (the leader's).
    Finish(String),
}

/// What to coordinate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The address, as typed.
    pub address: String,
    /// Number of the shard.
    pub index: u32,
    /// Number of shards.
    pub count: u32,
    /// Digest of the plan of the whole load.
    pub plan_digest: String,
    /// Version of the program.
    pub version: String,
    /// Whether the load is a search of many trials.
    pub is_search: bool,
    /// Whether the loss of a shard ends the load of all (the leader's; of a search always).
    pub abort_on_lost: bool,
    /// Whether to print progress of all shards on stderr (the leader's).
    pub prints_progress: bool,
    /// Folder for archives, which are received (the leader) or made to be sent (a member).
    pub archives: String,
}

/// From the coordinator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromCoordinator {
    /// Begin the load at this time by the wall clock, nanoseconds since 1970.
    Start(u64),
    /// The load is ended, by the SIGINT that follows.
    Abort(String),
    /// A member's run: an archive to import, or the folder of a run that is in the run store already.
    Archive(String),
    /// See [`FromCoordinator::Archive`].
    Folder(String),
    /// There was no start: of a load, or of a trial. For a member of a search it is the last line.
    NotStarted(String),
    /// The load is over: what is missing. The last line, except in a search.
    Done(Vec<String>),
    /// Prepare this trial of the search (to a member).
    Trial {
        /// Number of the trial, from 1.
        number: u32,
        /// What varies from trial to trial.
        request: String,
    },
    /// The last line of a search: why it ended early, or nothing.
    Finished(String),
}

/// Writes one line.
///
/// # Errors
/// The other process has ended.
pub fn write(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    out.write_all(&text)?;
    out.flush()
}

/// Reads one line; `None` at the end.
///
/// # Errors
/// A line that is too long or no message, or a failed read.
pub fn read<T: for<'de> Deserialize<'de>>(input: &mut impl BufRead) -> io::Result<Option<T>> {
    let mut line = Vec::new();
    input.take(LINE_MAX).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long or incomplete"));
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// Longest line: the names of all missing shards.
const LINE_MAX: u64 = 512 * BYTES_MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_written_until_the_end() {
        let mut bytes = Vec::new();
        write(&mut bytes, &FromCoordinator::Start(7)).unwrap();
        write(&mut bytes, &FromCoordinator::Done(vec!["a\nb".into()])).unwrap();
        let mut input = bytes.as_slice();
        assert_eq!(read(&mut input).unwrap(), Some(FromCoordinator::Start(7)));
        assert_eq!(read(&mut input).unwrap(), Some(FromCoordinator::Done(vec!["a\nb".into()])));
        assert_eq!(read::<FromCoordinator>(&mut input).unwrap(), None);
        assert!(read::<FromCoordinator>(&mut &b"{\"start\":1}"[..]).is_err(), "no line feed");
        assert!(read::<FromCoordinator>(&mut &b"ok\n"[..]).is_err());
    }
}
