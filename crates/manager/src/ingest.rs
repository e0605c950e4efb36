//! Receives batches: each is read, checked and stored, once and in sequence, before the response.
//!
//! ```text
//!   server's thread                                   thread `ingest`                                 index.sqlite
//!   agent? kind? length? ─▶ body, bounded ──queue──▶ unpack, parse, check ─▶ all queued: one   ──▶ streams, pending,
//!        │ refused: nothing of the body was read         │ refused              transaction           agents, programs
//!        ◀──────────────────────────────reply──────────────────────────────────────┘
//! ```
//!
//! A transaction costs one disk write, whatever its size; so each transaction stores all waiting batches (group
//! commit), and the responses follow it. If it fails, all of them get status 503 and none is stored.
//!
//! `check` has all rules for the contents of a batch; `store` checks its sequence number.

mod check;
mod intake;
mod logged;
mod queue;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use check::unpacked;
pub use intake::routes;
pub(crate) use logged::{Report, read_position, store_messages};
pub use queue::{Ingest, IngestThread};

/// Stores a batch as if an agent had sent it at `now_ns`, with its clock zero at `zero_ns`.
#[cfg(test)]
pub(crate) fn put(
    data: &crate::data::Data,
    agent: &str,
    batch: &tap_protocol::Batch,
    zero_ns: u64,
    now_ns: u64,
) -> Result<tap_protocol::Stored, crate::refused::Refused> {
    let body = serde_json::to_vec(batch).expect("a batch is text and numbers");
    let checked = check::batch(&body.into(), false, Some((zero_ns, 1_000_000)), now_ns)?;
    data.change(|index| store::batch(index, agent, &checked, None, now_ns)).expect("the index can be written")
}
