//! Exports of a run for other tools; docs/concepts/exports.md describes every format.
//!
//! ```text
//!   histogram ──> fortio, hgrm                              one distribution
//!   any table ──> csv, jsonl                                row by row, in constant memory
//!   requests  ──> har                                       an even sample of bounded size
//!   seconds   ──> Figures ──> metrics ──> exposition        Prometheus' text, OpenMetrics' text
//!                                    |──> remote_write      messages for Prometheus
//!                                    '──> otlp              messages for OpenTelemetry
//! ```
//!
//! All are pure functions from records to bytes; the command sends or stores them.
//!
//! Read [`metrics`] for the names and units that Prometheus, OpenTelemetry and Grafana's dashboard share.

pub mod exposition;
mod figures;
mod fortio;
mod har;
pub mod metrics;
#[cfg(feature = "export")]
pub mod otlp;
mod percentiles;
#[cfg(feature = "export")]
pub mod remote_write;
mod spread;
mod tables;

pub use exposition::{openmetrics, prometheus};
pub use figures::Figures;
pub use fortio::fortio;
pub use har::{Archive, har};
pub use metrics::metrics;
pub use percentiles::hgrm;
pub use tables::{csv, jsonl, object, push_field, write_csv, write_csv_head, write_json};

/// Method and URL of a request. The index in a list of these is [`schema::RequestRecord::url`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestTarget {
    /// Method.
    pub method: schema::Method,
    /// Complete URL as in the plan, placeholders included.
    pub url: String,
}
