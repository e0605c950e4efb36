//! Names of the rows, which the words and the page look for.

use schema::ReproductionRow;

use super::{LoggingServer, MonitoredLink};
pub use crate::figures::{beside, row};

/// Experiment 1.
pub const OVERHEAD: &str = "1";
/// Experiment 2.
pub const LOGS: &str = "2";

/// Throughput of an amount.
pub const UNTAPPED: &str = "throughput without the tap";
/// The same under it.
pub const TAPPED: &str = "throughput under the tap";
/// What it costs.
pub const LOST: &str = "throughput that the tap costs";
/// What runs differ by that are the same.
pub const SPREAD: &str = "spread of the runs without";

/// Transfers with all three witnesses.
pub const TRANSFERS: &str = "transfers";
/// connect called to close.
pub const TC_MEAN: &str = "client's Tc, mean";
/// The longest.
pub const TC_MAX: &str = "client's Tc, longest";
/// By the server.
pub const LOG_MEAN: &str = "log's processing time, mean";
/// The longest.
pub const LOG_MAX: &str = "log's processing time, longest";
/// Tc less the log's time.
pub const APART_MEAN: &str = "apart, mean";
/// The largest.
pub const APART_MAX: &str = "apart, largest";

/// Lost on the way.
pub const DROPPED: &str = "packets that found the link's queue full";

/// Which link, and how much went over it.
pub fn setting_of_link(link: MonitoredLink, amount: &str) -> String {
    format!("{}, {amount}", link.name())
}

/// Which server, and under how many clients; all without `band`.
pub fn setting_of_server(server: LoggingServer, band: Option<&str>) -> String {
    match band {
        None => server.name().to_owned(),
        Some(band) => format!("{}, {band}", server.name()),
    }
}

/// The figure of a row.
pub fn find(rows: &[ReproductionRow], setting: &str, quantity: &str) -> Option<f64> {
    rows.iter().find(|row| row.setting == setting && row.quantity == quantity).and_then(|row| row.measured)
}
