//! See `bodies/identity.rs`.
#![no_main]

#[path = "../bodies/identity.rs"]
mod identity;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| identity::run(bytes));
