//! Measures a cache at one request rate after another, as the school gateway paper did with Web Polygraph.
//!
//! ```text
//!   CachePlan --plan_of----> Plan of each point --testbed--> its run, with every exchange recorded
//!       |                                              |
//!       '--origin--> started once, counters read       |--point--> figures by the verifier, ideals by a simulation
//!                    before and after each point ------'
//!                                                      '--clients_supported--> number of clients supported
//! ```
//!
//! Start reading at [`sweep_plan`], the configuration. [`phases`] is the schedule of a point, [`experiment::watchdog`]
//! ends a point with too many failures, [`ideal`] simulates the best possible hit ratio.

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

pub use self::sweep_plan::{CachePlan, CachePosition, StopErrors, SweepPlan, rates};
pub use runs::{CacheTarget, TimedPhase};
pub use sweep::{CacheDone, check, run, time};
