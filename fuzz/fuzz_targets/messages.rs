//! See `bodies/messages.rs`.
#![no_main]

#[path = "../bodies/outcome.rs"]
mod outcome;

#[path = "../bodies/messages.rs"]
mod messages;
#[path = "../bodies/packets.rs"]
mod packets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| messages::run(bytes));
