//! Common code of experiments, which make several runs. Code of a single experiment is not here.
//!
//! An experiment writes the plans of its runs, lets the testbed make one after the other, reads the stored results of
//! each, and draws its conclusion. An experiment moves no packet and reads no clock.
//!
//! ```text
//!   Order (seed, command) --> experiment --> plan of a run --> testbed --> document of the run --> verdict of all runs
//!                                 |                             |
//!                   Stage, ExperimentProgress       Watchdog, ObjectiveGuard: observe the run,
//!                   (what viewers see)              and end it early
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`stage`] | input of an experiment ([`Order`]), and the receiver of its progress ([`Stage`]) |
//! | [`progress`] | the progress of an experiment as a file of its own directory |
//! | [`verdict`] | the verdict of several runs: that of the worst run on which a figure depends |
//! | [`watchdog`] | observers that end a run early: too many failures, an objective that is certainly missed |
//! | [`programs`] | foreign servers, proxies and load generators, found and configured |
//! | [`local`] | a server on this host, in a sandbox, with its CPU time; the division of the cores |
//! | [`certificate`] | a certificate for such a server |
//!
//! Start reading at [`stage`], then [`verdict`].

pub mod certificate;
mod error;
pub mod local;
pub mod programs;
pub mod progress;
pub mod stage;
pub mod verdict;
pub mod watchdog;

pub use error::ExperimentError;
pub use stage::{Order, SearchProgress, Stage};
