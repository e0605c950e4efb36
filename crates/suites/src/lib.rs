//! Experiments that take several runs: each a plan template and a check, not a second engine.
//!
//! A suite writes the plans of its runs, lets the lab make them one after the other, reads what the book holds of
//! them, and draws its own conclusion. Nothing here moves a packet or reads a clock.

pub mod gateway;
pub mod reproduce;
