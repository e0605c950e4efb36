//! The server's reader of requests: any bytes as what a client sends.

/// What is taken is a request to the letter, means the same written anew, and its body does not depend on how it is
/// cut. What must hold is written beside the reader, which is no public part of the server.
pub fn run(bytes: &[u8]) {
    serve::fuzzing::request(&bytes[..bytes.len().min(4096)]);
}
