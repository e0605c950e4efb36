//! See `bodies/tunnels.rs`.
#![no_main]

#[path = "../bodies/tunnels.rs"]
mod tunnels;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tunnels::run(bytes));
