//! See `bodies/agreement.rs`.
#![no_main]

#[path = "../bodies/agreement.rs"]
mod agreement;
#[path = "../bodies/packets.rs"]
mod packets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| agreement::run(bytes));
