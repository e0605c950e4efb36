//! The corpus of the fuzz target that is about this crate: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/identity.rs"]
mod identity;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn fuzz_corpus_of_identities_passes() {
    replay::target("identity", identity::run);
}
