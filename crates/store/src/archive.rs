//! Run archives: runs in one gzipped tar file, for copying to another machine. [`export`] writes it, [`import`] reads
//! it.
//!
//! ```text
//!   20261121-220204-bench-guyq/plan.toml
//!   20261121-220204-bench-guyq/requests.parquet  ..       sorted by name; without owners; times to the second
//! ```
//!
//! An archive is reproducible: the same runs give the same bytes. An archive is untrusted input: [`import`] lists what
//! it refuses. The format (`header.rs`) is ustar, which every tar reads and writes (`tar --format=ustar`).

mod export;
mod header;
mod import;

pub use export::{Exported, export};
pub use import::{Import, Imported, import};
