//! The manager: receives the exchanges that agents record, stores them by day, and provides quality over time, alerts
//! and a page.
//!
//! ```text
//!   TLS, tokens ─▶ auth ─▶ ingest ──one thread, group commit──▶ index.sqlite: streams, pending
//!                   │                                                │ every few seconds, one transaction
//!                   │                                    days/DATE/part-NNNNNN.parquet, quality
//!                   └────▶ api: for people and programs
//! ```
//!
//! The agents' requests are defined by [`tap_protocol`]. The manager accepts the number of a batch once, in the same
//! transaction that stores the rows of the batch.
//!
//! Start with [`data`], the files in the manager's folder, then read [`ingest`] and [`days`]. [`start`] puts the parts
//! together.

pub mod alerts;
pub mod api;
pub mod auth;
pub mod data;
mod day_files;
pub mod days;
pub mod error;
pub mod export;
pub mod from_stream;
pub mod ingest;
pub mod notes;
pub mod otlp;
pub mod quality;
mod refused;
pub mod retention;
pub mod settings;
pub mod start;
#[cfg(test)]
mod test_server;
#[cfg(test)]
pub(crate) mod testing;
pub mod tls;
pub mod tokens;

pub use auth::Identity;
pub use data::Data;
pub use error::{Error, Result};
pub use refused::Refused;
