//! Statistics as pure functions: seeded randomness, histograms and quantiles, confidence intervals, warm-up.
//!
//! This crate reads no clock and no global random generator. Every random choice comes from a [`Rng`] that the caller
//! seeds, so a seed reproduces a run exactly.
//!
//! Hot paths record into a [`Histogram`]; [`quantiles_of`] is its exact counterpart. [`mser5`] finds the end of a
//! warm-up. [`batch_means`] and [`mean_interval`] estimate a mean with its confidence interval, [`trend`](fn@trend)
//! tests whether a series rises. Each estimator states its bias and its source. [`search`] finds the highest load that
//! meets an objective. [`compare`] tests whether two quantities differ, [`bootstrap`] estimates the error of a
//! statistic of one run, [`abba`] determines the order of runs in a comparison. [`materiality`] decides whether an
//! error matters. Predictions use [`regression`], [`queueing`] and [`usl`].

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
