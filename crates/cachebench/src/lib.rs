//! A cache measured at one rate after another, as the school gateway was with Web Polygraph.
//!
//! ```text
//!   CachePlan --runs--> Plan of each point --lab--> its run, with every exchange recorded
//!       |                                              |
//!       '--origin--> started once, asked before        |--point--> figures by the judge, ideals by a simulation
//!                    and after each point  ------------'
//!                                                      '--clients_supported--> how many clients that machine supports
//! ```
//!
//! Start reading at [`sweep_plan`]: what can be configured. [`phases`] is the schedule of a point, [`experiment::watchdog`] ends one that fails too much,
//! [`ideal`] is the second opinion on the hit ratio.

pub mod clients_supported;
pub mod doubts;
mod exchanges;
pub mod ideal;
pub mod origin;
pub mod phases;
mod point;
mod runs;
mod sweep;
pub mod sweep_plan;

pub use self::sweep_plan::{CachePlan, Front, StopErrors, SweepPlan, rates};
pub use runs::{CacheTarget, Timed};
pub use sweep::{CacheDone, check, run, time};
