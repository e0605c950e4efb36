//! The corpus of the fuzz target that is about this crate: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/bodies/request.rs"]
mod request;

#[test]
fn the_request_fuzz_corpus_replays_without_panic() {
    replay::target("request", request::run);
}
