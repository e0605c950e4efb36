//! The client's connection against a quinn-proto server, in virtual time.

#![allow(clippy::disallowed_methods, reason = "an Instant has no other origin; times are virtual from there on")]

mod hostile;
mod link;
mod performance;
mod settings;
mod streams;
mod world;
