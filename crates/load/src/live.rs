//! The counters a run keeps while it goes.

/// What is going on now, and how much has happened since the start. `offered = backlog + in_flight + completed +
/// failed`, always.
///
/// The levels (`in_flight`, `connections`, `backlog`) are counted up and down as things happen, not computed from
/// records: so that Little's law, which compares the two, says something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Live {
    /// Requests started and not done.
    pub in_flight: u64,
    /// Concurrent connections: connect called and not closed.
    pub connections: u64,
    /// Requests scheduled and not started.
    pub backlog: u64,
    /// Requests scheduled.
    pub offered: u64,
    /// Of these, the ones whose scheduled time lies in the measured phase.
    pub offered_measured: u64,
    /// Requests started.
    pub started: u64,
    /// Requests that got a complete response.
    pub completed: u64,
    /// Requests that failed.
    pub failed: u64,
    /// Of these, the ones whose connection was refused.
    pub refused: u64,
    /// Connections on which connect was called.
    pub connections_opened: u64,
    /// Response bytes read.
    pub bytes_received: u64,
    /// Request bytes written to the kernel.
    pub bytes_sent: u64,
    /// Arrivals that had to wait because every connection up to the cap was busy.
    pub cap_hits: u64,
    /// Requests retried on a fresh connection ([`Retry`](crate::Retry)).
    pub retried: u64,
    /// Times that a request was sent, retries included.
    pub sends: u64,
    /// Responses that were whole before the server had received the whole request.
    pub early_responses: u64,
    /// Connections to be opened first that were not established ([`Load::open_first`](crate::Load::open_first)).
    pub held_failed: u64,
    /// Empty lines before or behind responses, which belong to none and were skipped.
    pub stray_lines: u64,
    /// Connections closed because bytes came that no request had asked for.
    pub surplus: u64,
    /// Responses that had come on these: which request each answers is uncertain.
    pub untrusted: u64,
    /// Sessions begun and not over: with a request that has not ended, or a step that waits for its moment.
    pub sessions: u64,
    /// Sessions begun; `sessions + sessions_ended + sessions_failed + sessions_cut`, always.
    pub sessions_begun: u64,
    /// Of these, the ones that began in the measured phase.
    pub sessions_begun_measured: u64,
    /// Sessions that came to the end of their steps.
    pub sessions_ended: u64,
    /// Sessions ended by a failed request.
    pub sessions_failed: u64,
    /// Sessions that were not done when the load's phase was over: the steps left were not intended.
    pub sessions_cut: u64,
}

impl Live {
    /// What came that no request had asked for, if anything did.
    pub fn unsolicited(&self) -> Option<schema::document::Unsolicited> {
        let Live { surplus: connections, untrusted: responses, .. } = *self;
        (connections > 0).then_some(schema::document::Unsolicited { connections, responses })
    }

    /// The counters of two shards of one load as one.
    #[must_use]
    pub fn plus(self, other: Live) -> Live {
        // Every field by name: one that is new cannot be forgotten.
        let Live {
            in_flight,
            connections,
            backlog,
            offered,
            offered_measured,
            started,
            completed,
            failed,
            refused,
            connections_opened,
            bytes_received,
            bytes_sent,
            cap_hits,
            retried,
            sends,
            early_responses,
            held_failed,
            surplus,
            stray_lines,
            untrusted,
            sessions,
            sessions_begun,
            sessions_begun_measured,
            sessions_ended,
            sessions_failed,
            sessions_cut,
        } = other;
        Live {
            in_flight: self.in_flight + in_flight,
            connections: self.connections + connections,
            backlog: self.backlog + backlog,
            offered: self.offered + offered,
            offered_measured: self.offered_measured + offered_measured,
            started: self.started + started,
            completed: self.completed + completed,
            failed: self.failed + failed,
            refused: self.refused + refused,
            connections_opened: self.connections_opened + connections_opened,
            bytes_received: self.bytes_received + bytes_received,
            bytes_sent: self.bytes_sent + bytes_sent,
            cap_hits: self.cap_hits + cap_hits,
            retried: self.retried + retried,
            sends: self.sends + sends,
            early_responses: self.early_responses + early_responses,
            held_failed: self.held_failed + held_failed,
            surplus: self.surplus + surplus,
            stray_lines: self.stray_lines + stray_lines,
            untrusted: self.untrusted + untrusted,
            sessions: self.sessions + sessions,
            sessions_begun: self.sessions_begun + sessions_begun,
            sessions_begun_measured: self.sessions_begun_measured + sessions_begun_measured,
            sessions_ended: self.sessions_ended + sessions_ended,
            sessions_failed: self.sessions_failed + sessions_failed,
            sessions_cut: self.sessions_cut + sessions_cut,
        }
    }
}
