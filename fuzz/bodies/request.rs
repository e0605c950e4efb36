//! Any bytes as requests to the server's parser.

/// An accepted request follows the grammar, parses the same when it is written again, and has a body that does not
/// depend on the pieces. The assertions are next to the parser, which is not public.
pub fn run(bytes: &[u8]) {
    serve::fuzzing::request(&bytes[..bytes.len().min(4096)]);
}
