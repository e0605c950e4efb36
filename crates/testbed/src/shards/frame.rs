//! Frames between a shard in another process and its parent.
//!
//! ```text
//!   length (4 bytes, little endian) | kind (1 byte) | payload
//! ```
//!
//! Parent and shard are this program, forked from one process, so there is no version; but lengths are limited and
//! payloads must match their kind exactly. An invalid frame ends the shard and does not exhaust the parent's memory.

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

/// Message from a shard to its parent.
#[derive(Debug)]
pub enum ShardMessage {
    /// Records.
    Batch(Box<Batch>),
    /// Progress.
    Progress(Box<ShardProgress>),
    /// End of the shard; the last frame.
    Ended(Box<ShardEnd>),
    /// The shard failed, as text; the last frame.
    Failed(String),
}

/// Message from the parent to a shard: the arguments of [`Progress::request_stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    /// How often a stop was requested.
    pub times: u32,
    /// Requested end of the measured phase.
    pub at: Timestamp,
}

/// Progress of a shard, for the parent's main thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardProgress {
    phase: u32,
    measured_end: Option<Timestamp>,
    stop_at: Option<Timestamp>,
    gave_up: bool,
    at: Timestamp,
    live: Live,
    mix: CacheCounters,
    health: LoopHealth,
}

impl ShardProgress {
    /// Progress of a shard.
    pub fn of(progress: &Progress) -> Self {
        ShardProgress {
            phase: progress.phase() as u32,
            measured_end: progress.measured_end(),
            stop_at: progress.stop_at(),
            gave_up: progress.gave_up(),
            at: progress.time(),
            live: progress.live(),
            mix: progress.mix(),
            health: progress.health(),
        }
    }

    /// Stores this progress in the parent's `progress`. The last phase is not entered: its records are still in
    /// transit.
    pub fn store_in(&self, progress: &Progress) {
        progress.store(self.live);
        progress.store_mix(self.mix);
        progress.store_time(self.at);
        progress.store_health(self.health);
        if let Some(end) = self.measured_end {
            progress.set_measured_end(end);
        }
        if self.gave_up {
            progress.give_up(true);
            progress.request_stop(1, self.stop_at.unwrap_or(Timestamp::ZERO));
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
const STOP_REQUEST: u8 = 5;

/// Writes a frame of a shard.
///
/// # Errors
/// The errors of the socket: the parent has ended.
pub fn write_message(into: &mut impl Write, message: &ShardMessage) -> io::Result<()> {
    match message {
        ShardMessage::Batch(batch) => write(into, BATCH, &to_bytes(batch)?),
        ShardMessage::Progress(progress) => write(into, PROGRESS, &to_bytes(progress)?),
        // As JSON: parts of the document omit absent values, which needs a format with field names.
        ShardMessage::Ended(end) => write(into, ENDED, &serde_json::to_vec(end)?),
        ShardMessage::Failed(why) => write(into, FAILED, why.as_bytes()),
    }
}

/// Reads a frame of a shard; `None` at its end.
///
/// # Errors
/// The errors of the socket, and invalid frames.
pub fn read_message(from: &mut impl Read) -> io::Result<Option<ShardMessage>> {
    let Some((kind, payload)) = read(from)? else { return Ok(None) };
    Ok(Some(match kind {
        BATCH => ShardMessage::Batch(from_bytes(&payload)?),
        PROGRESS => ShardMessage::Progress(from_bytes(&payload)?),
        ENDED => ShardMessage::Ended(serde_json::from_slice(&payload)?),
        FAILED => ShardMessage::Failed(String::from_utf8_lossy(&payload).into_owned()),
        other => return Err(invalid_frame(&format!("kind {other}"))),
    }))
}

/// Requests a shard to end.
///
/// # Errors
/// The errors of the socket: the shard has ended.
pub fn write_stop_request(into: &mut impl Write, request: StopRequest) -> io::Result<()> {
    write(into, STOP_REQUEST, &to_bytes(&request)?)
}

/// Reads a stop request; `None` when the parent has ended.
///
/// # Errors
/// The errors of the socket, and invalid frames.
pub fn read_stop_request(from: &mut impl Read) -> io::Result<Option<StopRequest>> {
    match read(from)? {
        None => Ok(None),
        Some((STOP_REQUEST, payload)) => from_bytes(&payload).map(Some),
        Some((other, _)) => Err(invalid_frame(&format!("kind {other}"))),
    }
}

fn to_bytes<T: Serialize>(what: &T) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(what).map_err(|error| invalid_frame(&error.to_string()))
}

fn from_bytes<T: for<'a> Deserialize<'a>>(payload: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(payload) {
        Ok((what, [])) => Ok(what),
        Ok((_, rest)) => Err(invalid_frame(&format!("{} unexpected bytes", rest.len()))),
        Err(error) => Err(invalid_frame(&error.to_string())),
    }
}

fn write(into: &mut impl Write, kind: u8, payload: &[u8]) -> io::Result<()> {
    let length = u32::try_from(payload.len()).ok().filter(|&length| length as usize <= PAYLOAD_MAX);
    let length = length.ok_or_else(|| invalid_frame(&format!("a payload of {} bytes", payload.len())))?;
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
        return Err(invalid_frame(&format!("a payload of {length} bytes")));
    }
    let mut payload = Vec::new();
    // Memory grows with received bytes, not with the announced length.
    from.take(length as u64).read_to_end(&mut payload)?;
    if payload.len() < length {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(Some((kind, payload)))
}

fn invalid_frame(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("invalid frame between a shard and its parent: {what}"))
}

#[cfg(test)]
mod tests;
