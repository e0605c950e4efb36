//! See `bodies/field_sections.rs`.
#![no_main]

#[path = "../bodies/field_sections.rs"]
mod field_sections;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| field_sections::run(bytes));
