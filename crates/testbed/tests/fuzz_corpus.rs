//! The corpora of the fuzz targets that are about this crate, or about several that it uses: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/agreement.rs"]
mod agreement;
#[path = "../../../fuzz/bodies/packets.rs"]
mod packets;
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[test]
fn agreement_corpus_replays() {
    replay::target("agreement", agreement::run);
}
