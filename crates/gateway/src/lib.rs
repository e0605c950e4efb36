//! Forwarding of the machine in the middle: what a gateway, a NAT or a proxy host carries, loses and adds to the response time.
//!
//! ```text
//!   GatewayPlan --link, condition--> an emulated gateway (`emulation`), or a real one as it is (`remote`)
//!                                     |  the tester: its client here, its server beyond (`tester`)
//!                                     v
//!                    survey, trials in turns, searches, RTT under load (`trials`, `rates`)
//!                                     |
//!                  figures (`document`), findings (`findings`), checks (`checks`) --> GatewayDocument
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`gateway_plan`] | what can be configured |
//! | [`emulation`] | three networks, two links and between them an emulated gateway host whose forwarding is limited and counted |
//! | [`tester`] | the two ends of the tester: their protocol, their handshake, the trials they make |
//! | `trials`, `rates` | which trials are made, and the search for the rate without loss (RFC 2544, RFC 9971) |
//! | `load` | what keeps a proxy busy meanwhile |
//!
//! Start reading at [`gateway_plan`], then `trials`.

mod checks;
mod condition;
mod document;
#[allow(clippy::disallowed_methods, reason = "the emulation waits for processes, and owns their time")]
pub mod emulation;
mod findings;
pub mod gateway_plan;
mod labs;
mod link;
mod load;
mod measure;
mod measured;
mod rates;
mod remote;
#[allow(clippy::disallowed_methods, reason = "both ends of the tester own their clock and their waiting")]
pub mod tester;
mod trials;
mod way;

pub use condition::Condition;
pub use gateway_plan::{Directions, GatewayPlan, ProxyLoading, TestName, Where};
pub use link::{Link, links};
pub use measure::{GatewayDone, is_on_this_host, message_bytes, run, run_against, share, socket_bytes, time};
