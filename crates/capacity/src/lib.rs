//! What a server can do: how much load, compared with another server, and predicted for loads that were not made.
//!
//! ```text
//!   search    trials at loads that a search chooses --> the highest load that keeps the objective --> CapacityDocument
//!   compare   stored runs, or two servers in turns  --> differences with their intervals          --> CompareDocument
//!   predict   small loads, components measured alone --> limits, response times, users            --> PredictDocument
//!                 '-- checked by `search`, storage by the crate `disk`
//! ```
//!
//! Each is an experiment of several runs. Start reading at [`search::course`]: the course of a search as a pure function of its
//! trials.

pub mod compare;
pub mod predict;
pub mod search;
