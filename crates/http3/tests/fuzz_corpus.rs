//! The corpus of the fuzz targets of this crate, and mutations of it.

#[path = "../../../fuzz/replay.rs"]
mod replay;

#[path = "../../../fuzz/bodies/http3_response.rs"]
mod http3_response;

#[test]
fn http3_response() {
    replay::target("http3_response", http3_response::run);
}
