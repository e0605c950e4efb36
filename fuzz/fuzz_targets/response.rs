//! See `bodies/response.rs`.
#![no_main]

#[path = "../bodies/response.rs"]
mod response;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| response::run(bytes));
