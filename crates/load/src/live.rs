//! The counters a run keeps while it goes.

/// What is going on now, and how much has happened since the start. `offered = backlog + in_flight + completed +
/// failed`, always.
///
/// The levels (`in_flight`, `connections`, `backlog`) are counted up and down as things happen, not computed from
/// records: so that Little's law, which compares the two, says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Requests started and not done.
    pub in_flight: u64,
    /// Connections in process: connect called and not closed.
    pub connections: u64,
    /// Requests intended and not started.
    pub backlog: u64,
    /// Requests intended.
    pub offered: u64,
    /// Of these, the ones whose intended moment lies in the measured phase.
    pub offered_measured: u64,
    /// Requests started.
    pub started: u64,
    /// Requests that got a whole response.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Connections on which connect was called.
    pub connections_opened: u64,
    /// Response bytes read.
    pub bytes_received: u64,
    /// Request bytes handed to the kernel.
    pub bytes_sent: u64,
    /// Arrivals that had to wait because every connection up to the cap was busy.
    pub cap_hits: u64,
    /// Requests sent again on a fresh connection because the server had closed the kept one.
    pub retried: u64,
    /// Connections closed because bytes came that no request had asked for.
    pub surplus: u64,
}
