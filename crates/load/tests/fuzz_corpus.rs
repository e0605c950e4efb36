//! Replays the corpora of this crate's fuzz targets: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/bodies/response.rs"]
mod response;

#[test]
fn fuzz_corpus_of_responses_replays_without_failure() {
    replay::target("response", response::run);
}
