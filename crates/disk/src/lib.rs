//! Measures storage by fio: the tests of Bonnie, as in the school gateway paper, and those relevant to caches and
//! databases.
//!
//! ```text
//!   DiskPlan --> scratch file without a name --> fio, one test after the other --> figures, checks --> DiskDocument
//!                                                  '-- bytes that the kernel moved to and from storage --^
//! ```
//!
//! fio reads and writes. This crate configures the tests, stores fio's output, and checks whether storage or the page
//! cache was measured. The file has no name, so that it disappears with the last process that has it open.
//!
//! Start reading at [`Trial`], the tests; then [`run`].

mod fio;
mod measure;
mod scratch;
mod trial;

pub use measure::{DiskDone, DiskPlan, run};
pub use trial::Trial;
