//! Experiments that take several runs: each a plan template and a check, not a second engine.
//!
//! A suite writes the plans of its runs, lets the lab make them one after the other, reads what the book holds of
//! them, and draws its own conclusion. Nothing here moves a packet or reads a clock.

pub mod apache;
pub mod cache;
pub mod capacity;
mod certificate;
pub mod compare;
pub mod curl;
pub mod disk;
mod error;
pub mod experiment;
pub mod gateway;
mod get;
pub mod httperf;
pub mod local;
pub mod nginx;
pub mod predict;
pub mod proxies;
pub mod reproduce;
pub mod standing;
mod verdict;
pub mod watchdog;

pub use error::SuiteError;
