//! The live page: the state of a running run, read from its folder, in a form that a browser draws and updates.
//!
//! ```text
//!   run folder ──Follower::poll──▶ records ──▶ State ──whole()──▶ JSON: the complete state, for a new viewer
//!                                                └─────step()───▶ JSON: the changes since the previous state
//! ```
//!
//! A [`State`] is the content of a page: facts, the current verdict, sections of charts, tables and text. The script of
//! the page draws states and applies steps ([`state`] defines both); it has no code specific to runs. Therefore a run,
//! a capacity search, a capture and the list of runs share one page, with figures formatted as everywhere else in the
//! program.
//!
//! Every size is bounded for a run of any length: points of a series, columns of a heat map ([`POINTS_MAX`]). Text from
//! servers, URLs and files is text in the state, and the script inserts it into the page as text.
//!
//! This module reads no clock and has no thread; [`Follower`] reads the folder on each poll. Read [`Follower`] first
//! for the input, then `run` for the output.

mod assets;
mod experiment;
mod follow;
mod heat;
mod listed;
mod paged;
mod run;
mod seconds;
mod shards;
pub mod state;
mod step;

pub use assets::{Asset, assets, html};
pub(crate) use assets::{DOM, FIGURES, SCRIPT_KIND, STYLE_KIND, library, styles};
pub use follow::Follower;
pub use listed::{Listed, RunList, list};
pub use seconds::POINTS_MAX;
pub use state::State;
pub use step::step;
