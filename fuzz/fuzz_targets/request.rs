//! See `bodies/request.rs`.
#![no_main]

#[path = "../bodies/request.rs"]
mod request;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| request::run(bytes));
