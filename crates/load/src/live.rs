//! Live counters and gauges of a load.

/// The current gauges of a load, and its counters since the start. At all times `offered = backlog + in_flight +
/// completed + failed`.
///
/// The gauges (`in_flight`, `connections`, `backlog`) are incremented and decremented by events, not computed from
/// records. So the comparison of both by Little's law is an independent check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Live {
    /// Requests started and not ended.
    pub in_flight: u64,
    /// Concurrent connections: connect was called, and they are not closed.
    pub connections: u64,
    /// Requests scheduled and not started.
    pub backlog: u64,
    /// Requests scheduled.
    pub offered: u64,
    /// Of these, the ones whose scheduled time lies in the measured phase.
    pub offered_measured: u64,
    /// Requests started.
    pub started: u64,
    /// Requests with a complete response.
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
    /// Arrivals that waited because every connection up to the maximum was busy.
    pub cap_hits: u64,
    /// Requests retried on a new connection ([`Retry`](crate::Retry)).
    pub retried: u64,
    /// Number of sends of requests, retries included.
    pub sends: u64,
    /// Responses that were complete before the server had received the whole request.
    pub early_responses: u64,
    /// Idle connections that could not be opened before the load ([`Load::open_first`](crate::Load::open_first)).
    pub held_failed: u64,
    /// Stray empty lines before or after responses, which were skipped.
    pub stray_lines: u64,
    /// Connections closed because of unsolicited bytes.
    pub surplus: u64,
    /// Responses received on these connections, which cannot be attributed to requests with certainty.
    pub untrusted: u64,
    /// Active sessions: with a request that has not ended, or a step that waits for its time.
    pub sessions: u64,
    /// Sessions begun; at all times `sessions + sessions_ended + sessions_failed + sessions_cut`.
    pub sessions_begun: u64,
    /// Of these, the ones that began in the measured phase.
    pub sessions_begun_measured: u64,
    /// Sessions that have ended all their steps.
    pub sessions_ended: u64,
    /// Sessions ended by a failed request.
    pub sessions_failed: u64,
    /// Sessions that were unfinished at the end of the measured phase, whose remaining steps were not scheduled.
    pub sessions_cut: u64,
}

impl Live {
    /// The connections with unsolicited bytes and their responses; `None` if there were none.
    pub fn unsolicited(&self) -> Option<schema::document::Unsolicited> {
        let Live { surplus: connections, untrusted: responses, .. } = *self;
        (connections > 0).then_some(schema::document::Unsolicited { connections, responses })
    }

    /// The sums of the counters of two shards of one load.
    #[must_use]
    pub fn plus(self, other: Live) -> Live {
        // Every field is listed by name, so that the compiler reports a missing one.
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
