//! See `bodies/gateway_frames.rs`.
#![no_main]

#[path = "../bodies/gateway_frames.rs"]
mod gateway_frames;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gateway_frames::run(bytes));
