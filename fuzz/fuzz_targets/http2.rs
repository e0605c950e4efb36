//! See `bodies/http2.rs`.
#![no_main]

#[path = "../bodies/http2.rs"]
mod http2;
#[path = "../bodies/outcome.rs"]
mod outcome;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http2::run(bytes));
