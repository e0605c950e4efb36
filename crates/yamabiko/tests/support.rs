//! What the real-network tests share.
#![allow(dead_code, reason = "each test file uses its own part")]

pub mod answers;
pub mod browser;
pub mod capture;
pub mod daemons;
pub mod document;
pub mod host;
pub mod lab;
pub mod others;
pub mod processes;
pub mod remains;
pub mod sentinel;
pub mod servers;
pub mod serving;
pub mod tls;
pub mod user;
