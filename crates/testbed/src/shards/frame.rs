//! Frames between a shard in another process and its parent.
//!
//! ```text
//!   length (4 bytes, little endian) | kind (1 byte) | payload
//! ```
//!
//! Both ends are this program, forked from one process, so there is no version; but lengths are limited and payloads
//! must match their kind exactly. An invalid frame ends the shard and does not exhaust the parent's memory.

use std::io::{self, ErrorKind, Read, Write};

use load::{CacheCounters, Live};
use serde::{Deserialize, Serialize};
use units::Timestamp;

use super::ShardEnd;
use crate::drive::progress::{Phase, Progress};
use crate::recorder::Batch;
use validity::evidence::LoopHealth;

/// Longest payload: far more than the records of a full queue.
const PAYLOAD_MAX: usize = 256 << 20;

/// From a shard.
#[derive(Debug)]
pub enum Said {
    /// Records.
    Batch(Box<Batch>),
    /// Progress.
    Progress(Box<Standing>),
    /// End of the shard; the last frame.
    Ended(Box<ShardEnd>),
    /// The shard failed, as text; the last frame.
    Failed(String),
}

/// To a shard: the arguments of [`Progress::ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// How often a stop was requested.
    pub times: u32,
    /// Requested end of the measured phase.
    pub at: Timestamp,
}

/// Progress of a shard, for the parent's main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    phase: u32,
    measured_end: Option<Timestamp>,
    stop_at: Option<Timestamp>,
    gave_up: bool,
    at: Timestamp,
    live: Live,
    mix: CacheCounters,
    health: LoopHealth,
}

impl Standing {
    /// Progress of a shard.
    pub fn of(progress: &Progress) -> Self {
        Standing {
            phase: progress.phase() as u32,
            measured_end: progress.measured_end(),
            stop_at: progress.stop_at(),
            gave_up: progress.gave_up(),
            at: progress.moment(),
            live: progress.live(),
            mix: progress.mix(),
            health: progress.health(),
        }
    }

    /// Stores it in this process. The last phase is not entered: its records are still in transit.
    pub fn tell(&self, progress: &Progress) {
        progress.store(self.live);
        progress.store_mix(self.mix);
        progress.store_moment(self.at);
        progress.store_health(self.health);
        if let Some(end) = self.measured_end {
            progress.set_measured_end(end);
        }
        if self.gave_up {
            progress.give_up(true);
            progress.ask(1, self.stop_at.unwrap_or(Timestamp::ZERO));
        }
        match self.phase {
            0 => {}
            1 => progress.enter(Phase::Measured),
            _ => progress.enter(Phase::Drain),
        }
    }
}

const BATCH: u8 = 1;
const PROGRESS: u8 = 2;
const ENDED: u8 = 3;
const FAILED: u8 = 4;
const ASK: u8 = 5;

/// Writes a frame of a shard.
///
/// # Errors
/// Those of the socket: the parent has ended.
pub fn say(into: &mut impl Write, said: &Said) -> io::Result<()> {
    match said {
        Said::Batch(batch) => write(into, BATCH, &packed(batch)?),
        Said::Progress(standing) => write(into, PROGRESS, &packed(standing)?),
        // As JSON: parts of the document omit absent values, which needs a format with field names.
        Said::Ended(end) => write(into, ENDED, &serde_json::to_vec(end)?),
        Said::Failed(why) => write(into, FAILED, why.as_bytes()),
    }
}

/// Reads a frame of a shard; `None` at its end.
///
/// # Errors
/// Those of the socket, and invalid frames.
pub fn hear(from: &mut impl Read) -> io::Result<Option<Said>> {
    let Some((kind, payload)) = read(from)? else { return Ok(None) };
    Ok(Some(match kind {
        BATCH => Said::Batch(unpacked(&payload)?),
        PROGRESS => Said::Progress(unpacked(&payload)?),
        ENDED => Said::Ended(serde_json::from_slice(&payload)?),
        FAILED => Said::Failed(String::from_utf8_lossy(&payload).into_owned()),
        other => return Err(broken(&format!("kind {other}"))),
    }))
}

/// Requests a shard to end.
///
/// # Errors
/// Those of the socket: the shard has ended.
pub fn ask(into: &mut impl Write, ask: Ask) -> io::Result<()> {
    write(into, ASK, &packed(&ask)?)
}

/// Reads a stop request; `None` when the parent has ended.
///
/// # Errors
/// Those of the socket, and invalid frames.
pub fn asked(from: &mut impl Read) -> io::Result<Option<Ask>> {
    match read(from)? {
        None => Ok(None),
        Some((ASK, payload)) => unpacked(&payload).map(Some),
        Some((other, _)) => Err(broken(&format!("kind {other}"))),
    }
}

fn packed<T: Serialize>(what: &T) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(what).map_err(|error| broken(&error.to_string()))
}

fn unpacked<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(payload) {
        Ok((what, [])) => Ok(what),
        Ok((_, rest)) => Err(broken(&format!("{} unexpected bytes", rest.len()))),
        Err(error) => Err(broken(&error.to_string())),
    }
}

fn write(into: &mut impl Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|&length| length as usize <= PAYLOAD_MAX);
    let length = length.ok_or_else(|| broken(&format!("a payload of {} bytes", payload.len())))?;
    let [a, b, c, d] = length.to_le_bytes();
    into.write_all(&[a, b, c, d, kind])?;
    into.write_all(payload)
}

fn read(from: &mut impl Read) -> io::Result<Option<(u8, Vec<u8>)>> {
    let mut head = [0; 5];
    let first = loop {
        match from.read(&mut head) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    if first == 0 {
        return Ok(None);
    }
    from.read_exact(&mut head[first..])?;
    let [a, b, c, d, kind] = head;
    let length = u32::from_le_bytes([a, b, c, d]) as usize;
    if length > PAYLOAD_MAX {
        return Err(broken(&format!("a payload of {length} bytes")));
    }
    let mut payload = Vec::new();
    // Memory grows with received bytes, not with the announced length.
    from.take(length as u64).read_to_end(&mut payload)?;
    if payload.len() < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((kind, payload)))
}

fn broken(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("invalid frame between a shard and its parent: {what}"))
}

#[cfg(test)]
mod tests;
