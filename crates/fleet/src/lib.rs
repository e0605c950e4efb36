//! Standing taps on many machines, and the one that gathers what they saw.
//!
//! ```text
//!   programs ─rings─▶ agent: journal ─▶ rows ─▶ spool ══ HTTPS, batches in order ══▶ manager: ingest ─▶ index.sqlite
//!   (LD_PRELOAD)             (tap::standing)    (bounded)                               │  ─▶ days/DATE/part.parquet
//!                                                                                       └─▶ quality, alerts, OTLP, page
//! ```
//!
//! A row that an agent made reaches the manager's files exactly once, whichever of the two is killed, and when: batches of
//! one stream are numbered without a gap, the agent keeps one until the manager says that it has it, and the manager takes
//! a number once, in the same transaction that keeps its rows. What a bound made an agent drop travels in the next batch, as a count.
//!
//! Read [`wire`] first: what the two say to each other. Then [`agent`] and [`manager`].

pub mod agent;
pub mod manager;
pub mod wire;
