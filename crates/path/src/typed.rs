//! Effects as people type them: on a command line, in a plan, in a profile. What is printed reads back to the same.

mod aqm;
mod change;
mod loss;
mod queue;
mod rate;
mod reorder;
mod text_or_table;

pub(crate) use aqm::{CoDelTyped, PieTyped};
pub use change::PlannedChange;
pub(crate) use change::name_of_class;
pub use loss::Loss;
pub use rate::Rate;
pub use reorder::REORDER_BY;

#[cfg(test)]
mod tests;
