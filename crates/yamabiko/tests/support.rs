//! Shared helpers of the program's tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod browser;
pub mod canned_responses;
pub mod capture;
pub mod daemons;
pub mod document;
pub mod host;
pub mod hostile;
pub mod http2;
pub mod leftovers;
pub mod load_monitor;
pub mod model_server;
pub mod nats_accounts;
pub mod processes;
pub mod proxy;
pub mod readers;
pub mod reference_tools;
pub mod scripted;
pub mod servers;
pub mod serving;
pub mod stored_runs;
pub mod tls;
pub mod user;
pub mod workspace;
