//! Shared helpers of the program's tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod answers;
pub mod browser;
pub mod capture;
pub mod daemons;
pub mod document;
pub mod host;
pub mod hostile;
pub mod http2;
pub mod lab;
pub mod model_server;
pub mod others;
pub mod processes;
pub mod proxy;
pub mod readers;
pub mod remains;
pub mod scripted;
pub mod sentinel;
pub mod servers;
pub mod serving;
pub mod shelf;
pub mod tls;
pub mod user;
