//! See `bodies/file.rs`.
#![no_main]

#[path = "../bodies/outcome.rs"]
mod outcome;

#[path = "../bodies/file.rs"]
mod file;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| file::run(bytes));
