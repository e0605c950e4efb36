//! Rates, queues and changes as people type them: on a command line, in a plan, in a profile. What is printed reads
//! back to the same. Other effects are read by their own files (`effect/`).

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
