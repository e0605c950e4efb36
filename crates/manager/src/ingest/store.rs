//! Checks the sequence of a batch and stores it, within a transaction of [`super::queue`].
//!
//! A refusal has changed nothing: each batch is checked before anything of it is written.

use std::net::IpAddr;

use rusqlite::{OptionalExtension as _, Transaction, params};

use super::check::Checked;
use crate::error::Result;
use crate::refused::Refused;
use crate::settings;
use crate::tokens::signed;
use tap_protocol::{Hello, Program, RefusalReason, Settings, Stored, Welcome};

/// Stores a hello of an agent.
pub(super) fn hello(
    index: &Transaction<'_>,
    agent: &str,
    hello: &Hello,
    address: Option<IpAddr>,
    now_ns: u64,
) -> Result<Result<Welcome, Refused>> {
    let stored_through = match position(index, agent, &hello.stream, now_ns)? {
        Ok(position) => position.through,
        Err(refused) => return Ok(Err(refused)),
    };
    let settings = settings::entered(index, agent, now_ns)?;
    index
        .prepare_cached(
            "UPDATE agents SET host = ?2, version = ?3, kernel = ?4, boot = ?5, last_seen_at = max(last_seen_at, ?6), \
             last_address = ?7, spool = ?8, settings_seen = ?9 WHERE name = ?1",
        )?
        .execute(params![
            agent,
            hello.host,
            hello.version,
            hello.kernel,
            hello.boot,
            signed(now_ns),
            address.map(|address| address.to_string()).unwrap_or_default(),
            serde_json::to_string(&hello.spool).unwrap_or_default(),
            signed(hello.settings),
        ])?;
    Ok(Ok(Welcome { stored_through, settings, received_unix_ns: now_ns, answered_unix_ns: now_ns }))
}

/// Stores a batch of an agent.
pub(super) fn batch(
    index: &Transaction<'_>,
    agent: &str,
    checked: &Checked,
    address: Option<IpAddr>,
    now_ns: u64,
) -> Result<Result<Stored, Refused>> {
    let batch = &checked.batch;
    let position = match position(index, agent, &batch.stream, now_ns)? {
        Ok(position) => position,
        Err(refused) => return Ok(Err(refused)),
    };
    if let Some(refused) = sequence_refusal(&position, checked) {
        return Ok(Err(refused));
    }
    let settings = write(index, agent, checked, address, None, now_ns)?;
    Ok(Ok(Stored {
        stored_through: batch.sequence,
        settings: (settings.version != batch.settings).then_some(settings),
        received_unix_ns: now_ns,
        answered_unix_ns: now_ns,
    }))
}

/// Rows of a stream's batches before one and with it, from the headers of a message: [`tap_protocol::log`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SealedRows {
    pub(crate) before: u64,
    pub(crate) after: u64,
}

/// Batches that a log discarded before this manager read them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) batches: u64,
    /// `None`: unknown.
    pub(crate) rows: Option<u64>,
}

/// Stores a batch that came through a log. Unlike one of the agent's own it may follow a gap, which is counted: what a
/// log has discarded does not come again.
pub(super) fn logged_batch(
    index: &Transaction<'_>,
    agent: &str,
    checked: &Checked,
    rows: SealedRows,
    now_ns: u64,
) -> Result<Result<Missed, Refused>> {
    let position = match position(index, agent, &checked.batch.stream, now_ns)? {
        Ok(position) => position,
        Err(refused) => return Ok(Err(refused)),
    };
    let batches = match sequence_refusal(&position, checked) {
        None => 0,
        Some(refused) if refused.why != RefusalReason::SequenceGap => return Ok(Err(refused)),
        Some(_) => checked.batch.sequence - position.through - 1,
    };
    let missed = Missed {
        batches,
        rows: if batches == 0 {
            Some(0)
        } else {
            position.rows_through.map(|through| rows.before.saturating_sub(through))
        },
    };
    write(index, agent, checked, None, Some(rows), now_ns)?;
    if batches > 0 {
        index
            .prepare_cached(
                "UPDATE agents SET batches_missed = min(batches_missed + ?2, ?4), rows_missed = min(rows_missed + ?3, ?4) \
                 WHERE name = ?1",
            )?
            .execute(params![agent, signed(batches), signed(missed.rows.unwrap_or_default()), SUM_MAX])?;
    }
    Ok(Ok(missed))
}

/// Writes a batch whose number is right. Returns the agent's settings.
fn write(
    index: &Transaction<'_>,
    agent: &str,
    checked: &Checked,
    address: Option<IpAddr>,
    rows: Option<SealedRows>,
    now_ns: u64,
) -> Result<Settings> {
    let batch = &checked.batch;
    let settings = settings::entered(index, agent, now_ns)?;
    index
        .prepare_cached(
            "INSERT INTO streams (stream, agent, through, digest, rows_through, touched_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
             ON CONFLICT (stream) DO UPDATE SET through = ?3, digest = ?4, rows_through = ?5, touched_at = ?6",
        )?
        .execute(params![
            batch.stream,
            agent,
            signed(batch.sequence),
            checked.digest,
            rows.map(|rows| signed(rows.after)),
            signed(now_ns)
        ])?;
    if !batch.rows.is_empty() {
        index
            .prepare_cached(
                "INSERT INTO pending (agent, stream, sequence, received_at, zero_at, clock_offset_ns, rows, first_at, last_at, body) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
            )?
            .execute(params![
                agent,
                batch.stream,
                signed(batch.sequence),
                signed(now_ns),
                signed(checked.zero_ns),
                checked.clock_offset_ns,
                signed(batch.rows.len() as u64),
                signed(checked.ends_ns.0),
                signed(checked.ends_ns.1),
                checked.packed,
            ])?;
    }
    note(index, agent, checked, address, rows.is_some(), now_ns)?;
    programs(index, agent, &batch.programs, now_ns)?;
    Ok(settings)
}

/// Stored position of a stream.
struct StreamState {
    through: u64,
    /// SHA-256 of the last batch's JSON.
    digest: Option<Vec<u8>>,
    /// Rows of its batches so far; `None`: unknown.
    rows_through: Option<u64>,
}

/// The position of a stream; refused if it belongs to another agent, or exceeds the maximum.
fn position(index: &Transaction<'_>, agent: &str, stream: &str, now_ns: u64) -> Result<Result<StreamState, Refused>> {
    let found = index
        .prepare_cached("SELECT agent, through, digest, rows_through FROM streams WHERE stream = ?1")?
        .query_row([stream], |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get(2)?, row.get::<_, Option<i64>>(3)?))
        })
        .optional()?;
    if let Some((owner, through, digest, rows)) = found {
        if owner == agent {
            return Ok(Ok(StreamState {
                through: through.unsigned_abs(),
                digest,
                rows_through: rows.map(i64::unsigned_abs),
            }));
        }
        return Ok(Err(Refused::new(
            RefusalReason::Forbidden,
            "The stream belongs to another agent. Two agents must not share a data directory, nor a copy of one.",
        )));
    }
    // A stream idle for long is replaced: its agent, if it returns, receives position 0, and starts another.
    let streams: i64 =
        index.prepare_cached("SELECT count(*) FROM streams WHERE agent = ?1")?.query_row([agent], |row| row.get(0))?;
    if streams >= STREAMS_MAX && !forget_oldest(index, agent, now_ns)? {
        let why = format!(
            "The agent has started {STREAMS_MAX} streams: its data directory does not seem to be \
         persistent."
        );
        return Ok(Err(Refused::new(RefusalReason::TooManyRequests, why)));
    }
    Ok(Ok(StreamState { through: 0, digest: None, rows_through: Some(0) }))
}

/// Removes the least recently used stream of an agent, if it is idle for long.
fn forget_oldest(index: &Transaction<'_>, agent: &str, now_ns: u64) -> rusqlite::Result<bool> {
    let forgotten = index
        .prepare_cached(
            "DELETE FROM streams WHERE stream = (SELECT stream FROM streams WHERE agent = ?1 ORDER BY touched_at LIMIT 1) \
             AND touched_at < ?2",
        )?
        .execute(params![agent, signed(now_ns.saturating_sub(IDLE_STREAM_NS))])?;
    Ok(forgotten > 0)
}

/// Why the batch is not the next in sequence.
fn sequence_refusal(position: &StreamState, checked: &Checked) -> Option<Refused> {
    let (sequence, through) = (checked.batch.sequence, position.through);
    if sequence == through + 1 {
        return None;
    }
    let is_other = sequence == through && position.digest.as_deref().is_some_and(|digest| digest != checked.digest);
    let mut refused = if is_other {
        Refused::new(
            RefusalReason::Conflict,
            "A batch of this number is already stored with other contents: another agent sends under the same stream, \
             from a copy of the data directory. This batch was not stored.",
        )
    } else if sequence <= through {
        Refused::new(RefusalReason::AlreadyStored, "The batch is already stored. Nothing was stored now.")
    } else {
        Refused::new(RefusalReason::SequenceGap, "The previous batch is missing. Nothing was stored.")
    };
    refused.stored_through = Some(through);
    Some(refused)
}

/// Updates the agent with the data of a batch. Through a log its clock is compared with no other.
fn note(
    index: &Transaction<'_>,
    agent: &str,
    checked: &Checked,
    address: Option<IpAddr>,
    is_logged: bool,
    now_ns: u64,
) -> rusqlite::Result<()> {
    let (batch, losses) = (&checked.batch, checked.batch.losses);
    index
        .prepare_cached(
            "UPDATE agents SET last_seen_at = max(last_seen_at, ?2), last_address = ?3, \
             clock_offset_ns = CASE WHEN ?16 THEN NULL ELSE coalesce(?4, clock_offset_ns) END, \
             clock_error_ns = CASE WHEN ?16 THEN NULL ELSE coalesce(?5, clock_error_ns) END, gauges = ?6, settings_seen = ?7, rows = rows + ?8, \
             records_lost = min(records_lost + ?9, ?15), rows_dropped = min(rows_dropped + ?10, ?15), \
             connections_left_out = min(connections_left_out + ?11, ?15), rows_filtered = min(rows_filtered + ?12, ?15), \
             rows_not_drawn = min(rows_not_drawn + ?13, ?15), told_at = max(told_at, ?14) WHERE name = ?1",
        )?
        .execute(params![
            agent,
            signed(now_ns),
            address.map(|address| address.to_string()).unwrap_or_default(),
            checked.clock_offset_ns,
            checked.zero_error_ns.map(signed),
            serde_json::to_string(&batch.gauges).unwrap_or_default(),
            signed(batch.settings),
            signed(batch.rows.len() as u64),
            signed(losses.records),
            signed(losses.rows_dropped),
            signed(losses.connections_left_out),
            signed(losses.rows_filtered),
            signed(losses.rows_not_drawn),
            signed(checked.sealed_ns()),
            SUM_MAX,
            is_logged,
        ])
        .map(drop)
}

/// Adds the program counts of a batch. Programs beyond the maximum are counted together, as `*`.
fn programs(index: &Transaction<'_>, agent: &str, programs: &[Program], now_ns: u64) -> rusqlite::Result<()> {
    if programs.is_empty() {
        return Ok(());
    }
    let mut known: i64 =
        index.prepare_cached("SELECT count(*) FROM programs WHERE agent = ?1")?.query_row([agent], |row| row.get(0))?;
    let mut is_known = index.prepare_cached("SELECT 1 FROM programs WHERE agent = ?1 AND name = ?2")?;
    let mut add = index.prepare_cached(
        "INSERT INTO programs (agent, name, seen, unseen, connections, unseen_bytes, why, last_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (agent, name) DO UPDATE SET \
         seen = min(seen + ?3, ?9), unseen = min(unseen + ?4, ?9), connections = min(connections + ?5, ?9), \
         unseen_bytes = min(unseen_bytes + ?6, ?9), why = ?7, last_at = ?8",
    )?;
    for program in programs {
        let mut name = program.name.as_str();
        if !is_known.exists(params![agent, name])? {
            if known >= PROGRAMS_MAX {
                name = OTHERS;
            } else {
                known += 1;
            }
        }
        add.execute(params![
            agent,
            name,
            signed(program.seen),
            signed(program.unseen),
            signed(program.connections),
            signed(program.unseen_bytes),
            program.why,
            signed(now_ns),
            SUM_MAX,
        ])?;
    }
    Ok(())
}

/// Maximum streams of an agent: a new one starts with each new data folder.
const STREAMS_MAX: i64 = 1000;
/// A stream counts as idle after a month without a batch.
const IDLE_STREAM_NS: u64 = 31 * 86_400_000_000_000;
/// Maximum programs of one agent that are stored separately.
const PROGRAMS_MAX: i64 = 2000;
/// Name under which further programs are counted together.
const OTHERS: &str = "*";
/// Sums stop here, far below SQLite's maximum, beyond which it would use floating point.
const SUM_MAX: i64 = 1 << 60;
