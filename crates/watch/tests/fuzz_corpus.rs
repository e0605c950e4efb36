//! The corpora of the fuzz targets of this crate: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/file.rs"]
mod file;
#[path = "../../../fuzz/bodies/messages.rs"]
mod messages;
#[path = "../../../fuzz/bodies/outcome.rs"]
mod outcome;
#[path = "../../../fuzz/bodies/packets.rs"]
mod packets;
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
