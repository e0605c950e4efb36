//! TCP as an observer follows it: sequence numbers of both directions, holes, round trips, and how it ended.

pub(crate) mod half;
mod holes;
mod pieces;
mod rtt;
pub(crate) mod state;

/// A segment with what the analysis asks of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment<'a> {
    /// Capture time, in nanoseconds.
    pub(crate) at: u64,
    pub(crate) sequence: u32,
    /// Counts only with the ACK flag.
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
    /// The payload as far as it was captured.
    pub(crate) payload: &'a [u8],
    /// Bytes of payload there were, by the headers.
    pub(crate) length: u64,
    /// Bytes of the IP packet.
    pub(crate) ip_bytes: u64,
    pub(crate) options: wire::tcp::Options,
    /// The IP packet's, 0 where there is none.
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

/// Where one direction's bytes go, in order.
pub(crate) trait Sink {
    /// The next `length` bytes of the stream, of which only `bytes`, the first of them, can be read.
    fn bytes(&mut self, bytes: &[u8], length: u64);
    /// The direction ended with a FIN.
    fn end(&mut self);
    /// Whether anyone reads this direction.
    fn is_read(&self) -> bool;
    /// How many of the next bytes are passed over by length, so that they need not be held.
    fn passed_over(&self) -> u64;
    /// Asks for room for bytes to be held; false when there is none.
    fn hold(&mut self, bytes: usize) -> bool;
    /// Gives room back.
    fn release(&mut self, bytes: usize);
}
