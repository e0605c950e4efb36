//! The verbs of the command line, one module each, and what they share.

pub mod ab;
pub mod bench;
pub mod cache;
pub mod capacity;
mod capture_file;
pub mod compare;
pub mod completions;
pub mod demo;
pub mod disk;
pub mod doctor;
pub mod explain;
#[cfg(feature = "export")]
pub mod export;
pub mod gateway;
#[cfg(feature = "web")]
pub mod live;
pub mod man;
pub mod net;
pub mod predict;
pub mod profile;
pub mod report;
pub mod reproduce;
mod result_page;
pub mod run;
pub mod runs;
pub mod serve;
pub mod tap;
pub mod watch;
