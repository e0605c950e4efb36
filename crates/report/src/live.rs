//! The live page: what a run's folder holds while it goes, as something that a browser draws and keeps up to date.
//!
//! ```text
//!   run folder ──Follower::look──▶ records ──▶ State ──whole()──▶ JSON: all of it, for who comes to look
//!                                                └─────step()───▶ JSON: what is new since the state before
//! ```
//!
//! A [`State`] is a page in words and numbers: facts, the verdict as it stands, sections of charts, tables and text. The
//! script of the page knows nothing of runs: it draws states and applies steps ([`state`] says what they are made of). So
//! a run, a search for a capacity, a capture, the list of runs are one page, and a figure is written there as everywhere
//! else in the program.
//!
//! Every size is bounded: so many points a series, so many columns of a heat map ([`POINTS_MAX`]), whatever a run lasts.
//! Text that comes from servers, URLs and files is text in the state, and the script puts it on the page as text.
//!
//! Nothing here reads a clock or owns a thread; [`Follower`] reads the folder when it is asked to. Start with
//! [`Follower`] for what is read, then `run` for what is shown of it.

mod assets;
mod experiment;
mod follow;
mod heat;
mod listed;
mod paged;
mod run;
mod seconds;
pub mod state;
mod step;

pub use assets::{Asset, assets, html};
pub(crate) use assets::{DOM, FIGURES, SCRIPT_KIND, STYLE_KIND, library, styles};
pub use follow::Follower;
pub use listed::{Listed, RunList, list};
pub use seconds::POINTS_MAX;
pub use state::State;
pub use step::step;
