//! TCP for an observer: sequence numbers of both directions, holes, round trips, and connection states.

pub(crate) mod half;
mod holes;
mod pieces;
mod rtt;
pub(crate) mod state;

/// A segment with the fields that the analysis uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    /// Capture time, in nanoseconds.
    pub(crate) at: u64,
    pub(crate) sequence: u32,
    /// Valid only with the ACK flag.
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// The captured part of the payload.
    pub(crate) payload: &'a [u8],
    /// Payload length, by the headers.
    pub(crate) length: u64,
    /// Bytes of the IP packet.
    pub(crate) ip_bytes: u64,
    pub(crate) options: wire::tcp::Options,
    /// The IP packet's identification, 0 if there is none.
    pub(crate) identification: u16,
    /// Number of the packet in the capture.
    pub(crate) number: u64,
}

impl Segment<'_> {
    #[inline]
    pub(crate) fn has(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }
}

/// The consumer of one direction's stream, in order.
pub(crate) trait Sink {
    /// The next `length` bytes of the stream, of which only `bytes`, the first of them, were captured.
    fn bytes(&mut self, bytes: &[u8], length: u64);
    /// The direction ended with a FIN.
    fn end(&mut self);
    /// Whether this direction is parsed.
    fn is_read(&self) -> bool;
    /// Number of the next bytes that are skipped by length, and need not be held.
    fn skipped_bytes(&self) -> u64;
    /// Reserves memory for `bytes`; false when there is none.
    fn hold(&mut self, bytes: usize) -> bool;
    /// Releases memory.
    fn release(&mut self, bytes: usize);
}
