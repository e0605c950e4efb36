//! The corpus of the fuzz target that is about the tester's frames: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/gateway_frames.rs"]
mod gateway_frames;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn fuzz_corpus_of_gateway_frames_passes() {
    replay::target("gateway_frames", gateway_frames::run);
}
