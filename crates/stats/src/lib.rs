//! Pure functions of their input: seeded randomness, histograms and quantiles, intervals, warm-up.
//!
//! Nothing here reads a clock or a global generator: every random choice comes from a [`Rng`] that the caller seeds,
//! so a seed repeats a run exactly.

pub mod rng;

pub use rng::Rng;
