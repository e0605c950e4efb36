//! The corpus of the fuzz target of this crate, and mutations of it.

#[path = "../../../fuzz/bodies/field_sections.rs"]
mod field_sections;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn field_sections() {
    replay::target("field_sections", field_sections::run);
}
