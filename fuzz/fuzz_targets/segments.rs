//! See `bodies/segments.rs`.
#![no_main]

#[path = "../bodies/outcome.rs"]
mod outcome;

#[path = "../bodies/segments.rs"]
mod segments;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| segments::run(bytes));
