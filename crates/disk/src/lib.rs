//! Storage, measured by fio: what Bonnie showed of the school gateway's machine, and what a cache or a database needs.
//!
//! ```text
//!   DiskPlan --> scratch file without a name --> fio, one test after the other --> figures, checks --> DiskDocument
//!                                                  '-- bytes that the kernel moved to and from storage --^
//! ```
//!
//! fio does the reading and writing. This crate says what to do, sees to it that nothing is left of it, keeps fio's own answers,
//! and judges whether storage was measured or the page cache. The file has no name, so it is gone when the last process that
//! has it is, however that ends.
//!
//! Start reading at [`Trial`], the tests; then [`run`].

mod fio;
mod measure;
mod scratch;
mod trial;

pub use measure::{DiskDone, DiskPlan, run};
pub use trial::Trial;
