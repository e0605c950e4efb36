//! The verbs of the command line, one module each, and what they share.

pub mod ab;
pub mod auto;
pub mod bench;
#[cfg(feature = "experiments")]
pub mod cache;
#[cfg(feature = "experiments")]
pub mod capacity;
mod capture_file;
#[cfg(feature = "experiments")]
pub mod compare;
pub mod completions;
#[cfg(feature = "coordination")]
pub mod coordinate;
pub mod demo;
#[cfg(feature = "experiments")]
pub mod disk;
pub mod doctor;
pub mod explain;
#[cfg(feature = "export")]
pub mod export;
#[cfg(feature = "experiments")]
pub mod gateway;
#[cfg(feature = "web")]
pub mod live;
pub mod man;
pub mod manifests;
pub mod merge;
pub mod net;
#[cfg(feature = "experiments")]
pub mod predict;
pub mod profile;
pub mod protocols;
pub mod report;
#[cfg(feature = "experiments")]
pub mod reproduce;
#[cfg_attr(not(feature = "experiments"), allow(dead_code, reason = "experiments write pages of their own"))]
mod result_page;
pub mod run;
pub mod runs;
pub mod serve;
pub mod tap;
pub mod watch;
