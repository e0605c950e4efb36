//! Batches taken in: read, checked, and stored, each once and in its turn, before it is answered.
//!
//! ```text
//!   door's thread                                     thread `ingest`                                 index.sqlite
//!   whose? kind? length? ─▶ body, bounded ──queue──▶ unpack, parse, check ─▶ all that wait: one ──▶ streams, pending,
//!        │ refused: nothing of the body was read         │ refused              transaction           agents, programs
//!        ◀──────────────────────────────answer─────────────────────────────────────┘
//! ```
//!
//! A transaction costs a write to the disk, whatever is in it; so all batches that wait when one begins are in it (group commit),
//! and an answer comes after it. Where it fails, all of them are answered with 503 and none is stored.
//!
//! What is in `check` is the whole of what a batch may say; `store` is where it is decided whether it is its turn.

mod check;
mod intake;
mod queue;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use check::unpacked;
pub use intake::routes;
pub use queue::{Ingest, IngestThread};

/// Stores a batch as if it had come from an agent at `now_ns`, its zero being `zero_ns`.
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
