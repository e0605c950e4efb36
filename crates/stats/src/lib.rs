//! Pure functions of their input: seeded randomness, histograms and quantiles, intervals, warm-up.
//!
//! Nothing here reads a clock or a global generator: every random choice comes from a [`Rng`] that the caller seeds,
//! so a seed repeats a run exactly.
//!
//! [`Histogram`] is what hot paths record into, [`quantiles_of`] its exact counterpart. [`mser5`] finds the end of a
//! warm-up, [`batch_means`] and [`mean_interval`] say how well a mean is known, [`trend`](fn@trend) whether a level rises. Each
//! estimator states its bias and its source. [`search`] finds the highest load that is not too much. [`compare`] says
//! whether two things differ, [`bootstrap`] how well a figure of one run is known, [`abba`] in which order runs are
//! compared. [`materiality`] says whether an error matters. [`regression`], [`queueing`] and [`usl`] are what a prediction is made of.

pub mod abba;
pub mod arrivals;
pub mod bootstrap;
pub mod compare;
pub mod histogram;
pub mod interval;
pub mod materiality;
pub mod mser;
pub mod normal;
pub mod queueing;
pub mod regression;
pub mod rng;
pub mod sample;
pub mod search;
mod student;
pub mod trend;
pub mod usl;

pub use histogram::Histogram;
pub use interval::{Interval, batch_means, mean_interval};
pub use mser::{Truncation, mser5};
pub use rng::Rng;
pub use sample::{median, quantiles_of, quantiles_of_sorted};
pub use trend::{Trend, trend};
