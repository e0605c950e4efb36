//! The client's connection against a quinn-proto server, in virtual time.

mod hostile;
mod link;
mod performance;
mod streams;
mod world;
