//! The manager: takes what agents saw, keeps it by day, and shows it.
//!
//! ```text
//!   TLS, tokens ─▶ gate ─▶ ingest ──one thread, group commit──▶ index.sqlite: streams, pending
//!                   │                                                │ every few seconds, one transaction
//!                   │                                    days/DATE/part-NNNNNN.parquet, quality
//!                   └────▶ api: what it has, for people and programs
//! ```
//!
//! Read [`data`] for what lies in its folder, then [`ingest`] and [`days`]; [`start`] puts all of it together.

pub mod alerts;
pub mod api;
pub mod data;
pub mod days;
pub mod error;
pub mod export;
pub mod gate;
pub mod ingest;
pub mod notes;
pub mod otlp;
pub mod quality;
pub mod retention;
#[cfg(test)]
mod scripted;
pub mod settings;
pub mod start;
#[cfg(test)]
pub(crate) mod testing;
pub mod tls;
pub mod tokens;

pub use data::Data;
pub use days::Placed;
pub use error::{Error, Result};
pub use gate::{Refused, Who};
