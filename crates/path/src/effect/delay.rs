//! Propagation: the time a packet takes when nothing else happens to it.

use std::time::Duration;

use units::Timestamp;
use units::time::saturating_nanos;

/// A constant delay. The last thing on every link, and the only one without state, so it is kept apart from the
/// others (`link.rs`): 8 bytes a link. Packets that come in order leave in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delay {
    nanos: u64,
}

impl Delay {
    pub(crate) fn new(delay: Duration) -> Self {
        Delay { nanos: saturating_nanos(delay) }
    }

    /// When a packet that starts to travel at `at` arrives.
    #[inline]
    pub(crate) fn handle(self, at: Timestamp) -> Timestamp {
        Timestamp::from_nanos(at.as_nanos().saturating_add(self.nanos))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constant_delay_is_exact() {
        let delay = Delay::new(Duration::from_millis(24));
        assert_eq!(delay.handle(Timestamp::from_nanos(7)).as_nanos(), 24_000_007);
        assert_eq!(delay.handle(Timestamp::MAX), Timestamp::MAX);
    }
}
