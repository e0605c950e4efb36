//! The corpora of the fuzz targets of this crate: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/file.rs"]
mod file;
#[path = "../../../fuzz/bodies/http2.rs"]
mod http2;
#[path = "../../../fuzz/bodies/messages.rs"]
mod messages;
#[path = "../../../fuzz/bodies/outcome.rs"]
mod outcome;
#[path = "../../../fuzz/bodies/packets.rs"]
mod packets;
#[path = "../../../fuzz/bodies/quic.rs"]
mod quic;
#[path = "../../../fuzz/bodies/quic_frames.rs"]
mod quic_frames;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/bodies/segments.rs"]
mod segments;

#[test]
fn file_replays() {
    replay::target("file", file::run);
}

#[test]
fn segments_replays() {
    replay::target("segments", segments::run);
}

#[test]
fn messages_replays() {
    replay::target("messages", messages::run);
}

#[test]
fn http2_replays() {
    replay::target("http2", http2::run);
}

#[test]
fn quic_replays() {
    replay::target("quic", quic::run);
}

#[test]
fn quic_frames_replays() {
    replay::target("quic_frames", quic_frames::run);
}
