//! Terminal and page output, from stored runs.
//!
//! [`terminal::render`] turns a run's document into one screen of text, [`terminal::runs`] a list of runs,
//! [`terminal::profile`] a path profile. All are pure functions from a document to text; the caller passes width and
//! colours of the terminal ([`Style`]).
//!
//! [`run_page::page`] turns a run into one HTML page. Other verbs build pages from [`page::Page`] and the plots of [`plot`].
//! A page can be written as Markdown ([`page::Page::to_markdown`]), a comparison as JUnit XML ([`junit()`]). Texts that
//! terminal and pages have in common are in [`phrases`].
//!
//! [`export`] writes a run in formats of other tools. [`ab`] prints ApacheBench's report.
//!
//! Text in a document may come from a server or a URL. All printed text passes [`figures::plain`], which escapes control
//! characters.

pub mod ab;
mod buckets;
mod cache_page;
mod capacity;
mod capacity_page;
mod capture_time;
mod compare;
mod compare_page;
pub mod disk;
mod disk_page;
pub mod durations;
mod explain_page;
pub mod export;
pub mod fleet;
mod gateway;
mod gateway_page;
pub mod json;
#[cfg(feature = "export")]
mod junit;
pub mod live;
pub mod page;
pub mod phrases;
pub mod plot;
mod predict;
mod predict_components;
mod predict_page;
pub mod protocols;
pub mod reproduction;
pub mod result_sentence;
pub mod run_page;
mod server_figures;
mod sweep;
pub mod tap_slice;
pub mod terminal;

pub use cache_page::cache_page;
pub use capacity_page::capacity_page;
pub use compare_page::{CompareSources, SideRun, compare_page};
pub use disk_page::disk_page;
pub use explain_page::{ExplainSources, ExplainedResponse, explain_page};
pub use gateway_page::gateway_page;
#[cfg(feature = "export")]
pub use junit::junit;
pub use predict_page::predict_page;
pub use terminal::{ProfileEntry, ProfileView, Series, Spread, SpreadUnit, Style};
pub use units::figures;
