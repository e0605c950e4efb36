//! Headers of a batch in a stream of NATS, from which managers read instead of answering.
//!
//! The message's body is that of the POST request, in gzip. Subject and server's permissions name the agent. The stream
//! discards its oldest messages at its limits; a manager finds by [`SEQUENCE`] which batches it never received, and by
//! [`ROWS_BEFORE`] how many rows they had. There is no [`ZERO`](crate::ZERO): the agent compares its clock with no
//! manager's.

/// [`Batch::sequence`](crate::Batch::sequence).
pub const SEQUENCE: &str = "Yamabiko-Sequence";
/// Rows that the agent sealed in earlier batches of this stream, those that it dropped later included.
pub const ROWS_BEFORE: &str = "Yamabiko-Rows-Before";
/// The same with this batch.
pub const ROWS_AFTER: &str = "Yamabiko-Rows-After";
/// Half of the SHA-256 of the body, in hexadecimal digits: tells two batches of one number apart.
pub const DIGEST: &str = "Yamabiko-Digest";
