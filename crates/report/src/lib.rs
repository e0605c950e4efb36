//! Terminal and page output. Reads the book, never a running experiment.
//!
//! [`terminal::render`] turns a run's document into one screen of text, [`terminal::runs`] a list of runs,
//! [`terminal::profile`] a path profile. All are pure: a document in, text out; whether there is a terminal, how wide
//! it is and whether it has colours is the caller's to say ([`Style`]).
//!
//! [`run_page::page`] turns a run into one HTML page. Any verb builds its own page from [`page::Page`] and the plots of
//! [`plot`]; the same page is Markdown ([`page::Page::to_markdown`]), and a comparison JUnit's XML ([`junit()`]). What both kinds of output say alike is in [`words`].
//!
//! [`export`] writes a run as other tools read it. [`ab`] is ApacheBench's layout, for scripts that read it.
//!
//! Text in a document may come from a server or a URL. Everything printed goes through [`figures::plain`], so that no
//! control character of theirs reaches the terminal.

pub mod ab;
mod buckets;
mod cache_page;
mod capacity;
mod capacity_page;
mod compare;
mod compare_page;
pub mod disk;
mod disk_page;
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
mod predict_page;
mod predict_parts;
pub mod reproduction;
pub mod run_page;
pub mod sentences;
mod server_words;
mod sweep;
pub mod tap_slice;
pub mod terminal;
mod wire_seconds;

pub use cache_page::cache_page;
pub use capacity_page::capacity_page;
pub use compare_page::{CompareSources, SideRun, compare_page};
pub use disk_page::disk_page;
pub use gateway_page::gateway_page;
#[cfg(feature = "export")]
pub use junit::junit;
pub use predict_page::predict_page;
pub use terminal::{ProfileEntry, ProfileView, Series, Spread, SpreadUnit, Style};
pub use units::figures;
