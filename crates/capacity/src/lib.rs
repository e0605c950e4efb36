//! Capacity planning for servers: search for the highest load, comparison of two servers, prediction from small loads.
//!
//! ```text
//!   search    trials at loads that a search chooses --> the highest load that keeps the objective --> CapacityDocument
//!   compare   stored runs, or two servers interleaved --> differences with confidence intervals     --> CompareDocument
//!   predict   small loads, components measured alone --> limits, response times, users            --> PredictDocument
//!                 '-- checked by `search`, storage by the crate `disk`
//! ```
//!
//! Each module is an experiment of several runs. Start reading at [`search::sequence`]: the sequence of trials as a pure
//! function of the trials already made.

pub mod compare;
pub mod predict;
pub mod search;
