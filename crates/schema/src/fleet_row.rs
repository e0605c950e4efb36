//! The daily files of a tap manager: one row for each exchange, as seen by socket calls on an agent's machine.
//!
//! Unlike a run's tables these files contain text from other machines, stored without escaping. The manager checks the
//! text when it receives rows, so that it has no control characters.

use crate::{TapRow, record};

record! {
    // Small enough parts that eight files can be merged in some 100 MB.
    /// A row of the files of a manager's days (DATA/days/DATE/part-*.parquet): one request-response exchange as socket
    /// calls on an agent's machine show it, a connection without one, or a lookup that failed, as in taps. A file is
    /// sorted by at_unix_ns, stream, sequence and number; the last three identify a row permanently. Times that end in
    /// _unix_ns are of the manager's clock and comparable across agents, unless clock_offset_ns is absent; the others are
    /// ns of the machine's monotonic clock since zero_unix_ns, exact within a machine.
    #[derive(Clone, Debug, PartialEq)]
    pub struct FleetRow in "fleet", 16_384 rows a part {
        /// The agent that sent it.
        pub agent: String,
        /// The agent's group when the row came; empty for none.
        pub group: String,
        /// The agent's spool that it came from: 32 hexadecimal digits.
        pub stream: String,
        /// Number of its batch in the stream, from 1.
        pub sequence: u64,
        /// Its place in the batch, from 0.
        pub number: u32,
        /// When it ended, since 1970 (UTC), by the manager's clock.
        pub at_unix_ns: u64,
        /// opened_at_ns since 1970 (UTC), by the manager's clock.
        pub opened_at_unix_ns: u64,
        /// The manager's clock at the zero of the machine's times, as the agent measured it; the agent's own clock if
        /// clock_offset_ns is absent.
        pub zero_unix_ns: u64,
        /// The agent's own wall clock less the manager's. Null if it was not measured: over NATS, or waiting from an earlier
        /// boot.
        pub clock_offset_ns: Option<i64> [few],
        /// Share of the connections that the agent sent then: the row stands for 1 / share rows.
        pub share: f64 [blank (1.0)],
        /// The row as the agent sent it.
        pub row: TapRow [name ""],
    }
}
