//! See `bodies/http3_response.rs`.
#![no_main]

#[path = "../bodies/http3_response.rs"]
mod http3_response;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| http3_response::run(bytes));
