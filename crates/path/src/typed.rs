//! Textual forms of rates, queues and changes: on a command line, in a plan, in a profile. Printed values read back to
//! the same value. The other effects are read by their own files (`effect/`).

mod aqm;
mod change;
mod queue;
mod rate;
pub(crate) mod text_or_table;

pub use crate::effect::{Loss, REORDER_BY};
pub(crate) use aqm::{CoDelTyped, PieTyped};
pub use change::PlannedChange;
pub(crate) use change::name_of_class;
pub use rate::Rate;

#[cfg(test)]
mod tests;
