//! See `bodies/quic_frames.rs`.
#![no_main]

#[path = "../bodies/quic_frames.rs"]
mod quic_frames;
#[path = "../bodies/outcome.rs"]
mod outcome;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quic_frames::run(bytes));
