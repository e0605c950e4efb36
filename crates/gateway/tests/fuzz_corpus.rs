//! The corpus of the fuzz target that is about the tester's frames: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/gateway_frames.rs"]
mod gateway_frames;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn gateway_frames_replay() {
    replay::target("gateway_frames", gateway_frames::run);
}
