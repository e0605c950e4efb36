//! Measures how a gateway, a NAT or a proxy host forwards: throughput, packet loss and added latency.
//!
//! ```text
//!   GatewayPlan --link, condition--> an emulated gateway (`emulation`), or a real one (`remote`)
//!                                     |  the tester: client here, server behind the gateway (`tester`)
//!                                     v
//!                    survey, interleaved trials, searches, RTT under load (`trials`, `rates`)
//!                                     |
//!                  figures (`document`), findings (`findings`), checks (`checks`) --> GatewayDocument
//! ```
//!
//! | module | content |
//! |---|---|
//! | [`gateway_plan`] | the configuration |
//! | [`emulation`] | three networks, two links, and between them an emulated gateway host with limited, accounted forwarding |
//! | [`tester`] | both ends of the tester: protocol, handshake, trials |
//! | `trials`, `rates` | the sequence of trials, and the search for the maximum loss-free rate (RFC 2544, RFC 9971) |
//! | `load` | load of the proxy during the measurement |
//!
//! Start reading at [`gateway_plan`], then `trials`.

mod checks;
mod condition;
mod document;
#[allow(clippy::disallowed_methods, reason = "the emulation waits for processes in real time")]
pub mod emulation;
mod findings;
pub mod gateway_plan;
mod gateway_under_test;
mod labs;
mod link;
mod load;
mod measure;
mod measured;
mod rates;
mod remote;
#[allow(clippy::disallowed_methods, reason = "both ends of the tester run in real time")]
pub mod tester;
mod trials;

pub use condition::Condition;
pub use gateway_plan::{Directions, GatewayLocation, GatewayPlan, ProxyLoading, TestName};
pub use link::{Link, links};
pub use measure::{GatewayDone, is_on_this_host, message_bytes, run, run_against, share, socket_bytes, time};
