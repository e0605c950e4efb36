//! See `bodies/quic.rs`.
#![no_main]

#[path = "../bodies/quic.rs"]
mod quic;
#[path = "../bodies/outcome.rs"]
mod outcome;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quic::run(bytes));
