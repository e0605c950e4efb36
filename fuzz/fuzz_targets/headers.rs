//! See `bodies/headers.rs`.
#![no_main]

#[path = "../bodies/headers.rs"]
mod headers;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| headers::run(bytes));
