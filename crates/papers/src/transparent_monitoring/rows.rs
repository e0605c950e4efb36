//! Names of the rows, for summary and page.

use schema::ReproductionRow;

use super::{LoggingServer, MonitoredLink};
pub use crate::figures::{row, with_published};

/// Experiment 1.
pub const OVERHEAD: &str = "1";
/// Experiment 2.
pub const LOGS: &str = "2";

/// Throughput of an amount.
pub const WITHOUT_TAP: &str = "throughput without the tap";
/// Throughput of an amount with the tap.
pub const WITH_TAP: &str = "throughput with the tap";
/// Cost of the tap.
pub const TAP_COST: &str = "throughput cost of the tap";
/// Variation between equal runs.
pub const VARIATION: &str = "variation of runs without tap";

/// Transfers seen at all three vantage points.
pub const TRANSFERS: &str = "transfers";
/// From connect to close.
pub const TC_MEAN: &str = "client's Tc, mean";
/// The longest.
pub const TC_MAX: &str = "client's Tc, longest";
/// Processing time by the server.
pub const LOG_MEAN: &str = "processing time in the log, mean";
/// The longest.
pub const LOG_MAX: &str = "processing time in the log, longest";
/// Tc less the log's time.
pub const DIFFERENCE_MEAN: &str = "difference, mean";
/// The largest.
pub const DIFFERENCE_MAX: &str = "difference, largest";

/// Drops on the path.
pub const DROPPED: &str = "packets dropped by the link's full queue";

/// Link and amount, as a setting.
pub fn setting_of_link(link: MonitoredLink, amount: &str) -> String {
    format!("{}, {amount}", link.name())
}

/// Server and number of clients, as a setting; all transfers without `band`.
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
