//! Batches from a stream of NATS, which agents publish to and several managers read.
//!
//! The same checks as for requests of agents, but nobody is answered: what is refused is counted, and the reading goes on.
//! The position in the stream is stored in the transaction that stores the rows, so that a killed manager continues
//! exactly there; and what comes again all the same has a number that is stored already.
//!
//! The time of a message is that at which the server stored it. So all managers place a batch of a wrong clock at the
//! same time, however late they read it.

use broker::{Kind, Message, Position};
use rusqlite::{OptionalExtension as _, Transaction, params};

use super::check::{self, Checked};
use super::store::{self, Missed, SealedRows};
use crate::data::{CrashPoint, Data};
use crate::error::Result;
use crate::refused::Refused;
use tap_protocol::{BODY_MAX, Hello, RefusalReason, is_name, log};

/// What became of some messages.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Report {
    /// Rows stored.
    pub(crate) rows: u64,
    /// Batches that were stored already.
    pub(crate) repeated: u64,
    /// Batches that the stream discarded before, by agent.
    pub(crate) missed: Vec<(String, Missed)>,
    /// What was refused, by the sender's name.
    pub(crate) refused: Vec<(String, Refused)>,
}

enum Prepared {
    Hello(Hello),
    Batch(Box<Checked>, SealedRows),
}

/// Stores messages and the position after them in one transaction. `now_ns`: this manager's clock.
///
/// # Errors
/// SQLite's: nothing is stored, and the same messages are to be stored later.
pub(crate) fn store_messages(data: &Data, messages: &[Message], position: &Position, now_ns: u64) -> Result<Report> {
    let mut report = Report::default();
    let mut ready = Vec::new();
    for message in messages {
        match prepare(message) {
            Ok(Some(prepared)) => ready.push((message, prepared)),
            Ok(None) => {}
            Err(refused) => report.refused.push((tap_protocol::printable(&message.subject.name), refused)),
        }
    }
    data.change(|index| {
        for (message, prepared) in &ready {
            // A server whose clock is ahead must not make an agent appear connected later.
            let at_ns = message.stored_unix_ns.min(now_ns);
            store_one(index, message, prepared, at_ns, &mut report)?;
        }
        write_position(index, position)?;
        data.crash_at(CrashPoint::BatchesWritten)
    })?;
    data.crash_at(CrashPoint::BatchesCommitted)?;
    Ok(report)
}

fn store_one(
    index: &Transaction<'_>,
    message: &Message,
    prepared: &Prepared,
    at_ns: u64,
    report: &mut Report,
) -> Result<()> {
    let agent = &message.subject.name;
    if let Some(refused) = is_one_too_many(index, agent)? {
        report.refused.push((agent.clone(), refused));
        return Ok(());
    }
    match prepared {
        Prepared::Hello(hello) => {
            if let Err(refused) = store::hello(index, agent, hello, None, at_ns)? {
                report.refused.push((agent.clone(), refused));
            }
        }
        Prepared::Batch(checked, rows) => match store::logged_batch(index, agent, checked, *rows, at_ns)? {
            Ok(missed) => {
                report.rows += checked.batch.rows.len() as u64;
                if missed.batches > 0 {
                    report.missed.push((agent.clone(), missed));
                }
            }
            Err(refused) if refused.why == RefusalReason::AlreadyStored => report.repeated += 1,
            Err(refused) => report.refused.push((agent.clone(), refused)),
        },
    }
    Ok(())
}

fn prepare(message: &Message) -> std::result::Result<Option<Prepared>, Refused> {
    let subject = &message.subject;
    if subject.kind == Kind::Watch {
        return Ok(None);
    }
    let malformed = |why: &str| Refused::new(RefusalReason::Malformed, format!("Nothing was stored: {why}."));
    if !is_name(&subject.name) {
        return Err(malformed("the name in the subject is not that of an agent"));
    }
    if message.payload.len() > BODY_MAX {
        return Err(Refused::new(RefusalReason::TooLarge, format!("The body is too large: at most {BODY_MAX} bytes.")));
    }
    let other = || malformed("the subject has another stream than the message");
    if subject.kind == Kind::Hello {
        let hello = check::hello(&message.payload, false)?;
        return if hello.stream == subject.id { Ok(Some(Prepared::Hello(hello))) } else { Err(other()) };
    }
    let number = |name: &str| {
        let number = message.header(name).and_then(|text| text.parse::<u64>().ok());
        number
            .filter(|number| *number <= ROWS_SUM_MAX)
            .ok_or_else(|| malformed("a header is missing, or is not a number"))
    };
    let rows = SealedRows { before: number(log::ROWS_BEFORE)?, after: number(log::ROWS_AFTER)? };
    let checked = check::batch(&message.payload, true, None, message.stored_unix_ns)?;
    if checked.batch.stream != subject.id {
        return Err(other());
    }
    if rows.after.checked_sub(rows.before).is_none_or(|sealed| sealed < checked.batch.rows.len() as u64) {
        return Err(malformed("its headers count fewer rows than it has"));
    }
    Ok(Some(Prepared::Batch(Box::new(checked), rows)))
}

/// Refuses an agent beyond the limit: no token of this manager limits their number.
fn is_one_too_many(index: &Transaction<'_>, agent: &str) -> Result<Option<Refused>> {
    if index.prepare_cached("SELECT 1 FROM agents WHERE name = ?1")?.exists([agent])? {
        return Ok(None);
    }
    let agents: i64 = index.prepare_cached("SELECT count(*) FROM agents")?.query_row([], |row| row.get(0))?;
    Ok((agents >= AGENTS_MAX).then(|| {
        Refused::new(
            RefusalReason::Forbidden,
            format!("The manager has {AGENTS_MAX} agents, and takes no more from NATS."),
        )
    }))
}

/// The stored position in this stream of this server.
///
/// # Errors
/// SQLite's.
pub(crate) fn read_position(data: &Data) -> Result<Position> {
    data.read(|index| {
        let text: Option<String> =
            index.query_row("SELECT value FROM facts WHERE name = ?1", [POSITION_FACT], |row| row.get(0)).optional()?;
        let found = text
            .as_deref()
            .and_then(|text| text.rsplit_once(' '))
            .and_then(|(stream, through)| Some(Position { stream: stream.to_owned(), through: through.parse().ok()? }));
        // Without a position everything is read: the numbers tell what is stored.
        Ok(found.unwrap_or_default())
    })
}

fn write_position(index: &Transaction<'_>, position: &Position) -> Result<()> {
    index
        .prepare_cached("INSERT OR REPLACE INTO facts (name, value) VALUES (?1, ?2)")?
        .execute(params![POSITION_FACT, format!("{} {}", position.stream, position.through)])?;
    Ok(())
}

/// Fact with the position.
const POSITION_FACT: &str = "nats_position";
/// Maximum rows of an agent's stream that a header may count.
const ROWS_SUM_MAX: u64 = 1 << 48;
/// Agents that are accepted without a token.
const AGENTS_MAX: i64 = 10_000;

#[cfg(test)]
mod tests;
