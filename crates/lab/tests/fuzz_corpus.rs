//! The corpora of the fuzz targets that are about this crate, or about several that it uses: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/agreement.rs"]
mod agreement;
#[path = "../../../fuzz/bodies/gateway_frames.rs"]
mod gateway_frames;
#[path = "../../../fuzz/bodies/packets.rs"]
mod packets;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn gateway_frames_replay() {
    replay::target("gateway_frames", gateway_frames::run);
}

#[test]
fn agreement_replays() {
    replay::target("agreement", agreement::run);
}
