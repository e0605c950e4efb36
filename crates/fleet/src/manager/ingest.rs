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
pub(crate) mod tests;

pub(crate) use check::{unpacked, Checked};
pub use intake::routes;
pub use queue::{Ingest, Taking};
