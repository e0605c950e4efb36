//! The corpus of the fuzz target that is about this crate: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/identity.rs"]
mod identity;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn identity_replays() {
    replay::target("identity", identity::run);
}
