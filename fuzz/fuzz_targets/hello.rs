//! See `bodies/hello.rs`.
#![no_main]

#[path = "../bodies/hello.rs"]
mod hello;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| hello::run(bytes));
