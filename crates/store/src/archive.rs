//! Runs in one file, to be carried to another machine: a gzipped tar, written by [`export`], read by [`import`].
//!
//! ```text
//!   20261121-220204-bench-guyq/plan.toml
//!   20261121-220204-bench-guyq/requests.parquet  ..       sorted by name; owners left out; moments to the second
//! ```
//!
//! The same runs make the same bytes. An archive is untrusted: [`import`] lists what it refuses.
//! The format ([`tar`]) is ustar, which every tar reads and writes (`tar --format=ustar`).

mod export;
mod import;
mod tar;

pub use export::{Exported, export};
pub use import::{Import, Imported, import};
