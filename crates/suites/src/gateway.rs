//! Forwarding of the machine in the middle, as P5 measured it with netperf, and what RFC 2544 asks of it besides.
//!
//! ```text
//!   GatewayPlan --link, condition--> a lab of its own (`labs`), or a real gateway, as it is (`remote`)
//!                                     |  the tester: its client here, its server beyond (lab::forward)
//!                                     v
//!                    survey, trials in turns, searches, RTT under load (`trials`, `rates`)
//!                                     |
//!                  figures (`document`), what was come upon (`findings`), whether to believe it (`checks`)
//! ```
//!
//! Read [`plan`] first: what can be asked; then `trials`. `load` keeps a proxy busy meanwhile.

mod condition;
mod link;
pub mod plan;

use std::path::PathBuf;
use std::time::Duration;

use ledger::GatewayDocument;
use store::Book;
use sys::signal::Interrupts;
use units::CpuShare;

pub use self::condition::Condition;
pub use self::link::{Link, links};
pub use self::plan::{Directions, GatewayPlan, ProxyLoading, TestName, Where};

use crate::error::SuiteError;
use crate::reproduce::{Order, Stage};

/// A gateway that was measured, all in its document.
#[derive(Debug)]
pub struct GatewayDone {
    /// Its document.
    pub document: GatewayDocument,
    /// Its folder in the book.
    pub folder: PathBuf,
}

/// A share of a core as typed, or `none`.
///
/// # Errors
/// One sentence.
pub fn share(typed: &str) -> Result<Option<CpuShare>, String> {
    match typed.trim() {
        "none" => Ok(None),
        share => share.parse().map(Some).map_err(|error| format!("{error}, or none")),
    }
}

/// Socket buffers as typed: a number of bytes, or `auto`.
///
/// # Errors
/// One sentence.
pub fn socket_bytes(typed: &str) -> Result<Option<u32>, String> {
    match typed.trim() {
        "auto" => Ok(None),
        bytes => bytes.parse().map(Some).map_err(|_| "a number of bytes is wanted, such as 16384, or auto".to_owned()),
    }
}

/// How long it takes, nearly.
pub fn time(plan: &GatewayPlan) -> Duration {
    plan.lasts
}

/// To come.
///
/// # Errors
/// Always.
pub fn run(
    plan: &GatewayPlan,
    _order: &Order,
    _book: &Book,
    _interrupts: &Interrupts,
    _stage: &mut dyn Stage,
) -> Result<GatewayDone, SuiteError> {
    plan.check().map_err(lab::LabError::from)?;
    Err(SuiteError::Plan("gateway: not there yet".into()))
}
