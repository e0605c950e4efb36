//! The corpora of the fuzz targets of this crate: see `fuzz/` and docs/notes/watch-fuzzing.md.

#[path = "../../../fuzz/bodies/capture.rs"]
mod capture;
#[path = "../../../fuzz/bodies/headers.rs"]
mod headers;
#[path = "../../../fuzz/bodies/hello.rs"]
mod hello;
#[path = "../../../fuzz/replay.rs"]
mod replay;
#[path = "../../../fuzz/bodies/tunnels.rs"]
mod tunnels;

#[test]
fn capture_replays() {
    replay::target("capture", capture::run);
}

#[test]
fn hello_replays() {
    replay::target("hello", hello::run);
}

#[test]
fn headers_replays() {
    replay::target("headers", headers::run);
}

#[test]
fn tunnels_replays() {
    replay::target("tunnels", tunnels::run);
}
