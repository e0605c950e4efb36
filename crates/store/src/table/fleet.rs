//! The files of a manager's days: one row an exchange, as the program of an agent's machine saw it.
//!
//! Unlike a run's tables these hold what came from other machines: text is text, whatever it says. It is checked where it comes
//! in, so that no control character is in it.

use schema::record;

record! {
    // Small enough parts that eight files can be merged in some 100 MB.
    /// A row of the files of a manager's days (DATA/days/DATE/part-*.parquet): one request-response exchange as the
    /// program of an agent's machine saw it, a connection without one, or a lookup that failed, as in taps. A file is
    /// sorted by at_unix_ns, stream, sequence and number; the last three name a row for ever. Moments that end in
    /// _unix_ns are of the manager's clock and comparable from agent to agent; the others are ns of the machine's
    /// monotonic clock since zero_unix_ns, exact within a machine.
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
        /// What the manager's clock showed at the zero of the machine's moments, as the agent measured it.
        pub zero_unix_ns: u64,
        /// The agent's own wall clock less the manager's.
        pub clock_off_ns: i64 [few],
        /// Share of the connections that the agent sent then: the row stands for 1 / share rows.
        pub share: f64 [blank (1.0)],
        /// Number of the connection at the agent, in the order of opening. Null for a lookup that failed.
        pub connection: Option<u64>,
        /// Place on its connection, from 0, a greeting included. Null where the connection had none.
        pub exchange: Option<u32>,
        /// Whether it is the connection's last row: count these to count connections.
        pub last: bool,
        /// Process that opened or accepted the connection.
        pub pid: u32,
        /// Name of its program. Null if it was gone before it could be read.
        pub program: Option<String>,
        /// Which end the program is: client (it called connect) or server (it called accept).
        pub side: String,
        /// Address of the other end, or h: and 16 hexadecimal digits that stand for it where the agent hashes
        /// addresses. Null where it is not known.
        pub peer: Option<String>,
        /// Its port. Null where the address is.
        pub peer_port: Option<u16>,
        /// Address of the program's own end, or what stands for it. Null where it is not known.
        pub own: Option<String>,
        /// Its port. Null where the address is.
        pub own_port: Option<u16>,
        /// connect called, accept returned, or the lookup called.
        pub opened_at_ns: u64,
        /// Time in getaddrinfo before it. Null on all rows but the first, and where there was none.
        pub lookup_ns: Option<u64>,
        /// connect called to connection known to be made. Null on all rows but the first, at a server, and where it was
        /// not made.
        pub setup_ns: Option<u64>,
        /// First call that sent was entered. Null if nothing was sent.
        pub sent_first_at_ns: Option<u64>,
        /// Last call that sent had returned. Null if nothing was sent.
        pub sent_last_at_ns: Option<u64>,
        /// First call that received had returned: first byte in hand. Null if nothing was received.
        pub received_first_at_ns: Option<u64>,
        /// Last call that received had returned: last byte in hand. Null if nothing was received.
        pub received_last_at_ns: Option<u64>,
        /// Bytes handed to the kernel.
        pub sent_bytes: u64 [unit "bytes"],
        /// Bytes taken from the kernel.
        pub received_bytes: u64 [unit "bytes"],
        /// Calls that sent or received, the empty-handed ones included.
        pub calls: u64,
        /// Time that the socket took the program: inside its calls, and from a call that found nothing (EAGAIN) to the
        /// next that succeeded.
        pub blocked_ns: u64,
        /// succeeded, failed, cut, greeting, farewell or unused: as in taps.
        pub outcome: String,
        /// Why it failed: the system's name of the error, no_response, or given_up. Null if it did not fail.
        pub error: Option<String>,
        /// close called, or the program found gone. Null on all rows but the last, and where the agent's machine went
        /// down first.
        pub closed_at_ns: Option<u64>,
        /// Bytes sent and received on the whole connection, by the program's calls. Null on all rows but the last.
        pub connection_bytes: Option<u64> [unit "bytes"],
        /// Segments that TCP at this end sent again. Null on all rows but the last, and where TCP was not asked.
        pub retransmits: Option<u64> [unit "segments"],
        /// Bytes that TCP counted and no hook saw. Null on all rows but the last, and where TCP was not asked.
        pub unseen_bytes: Option<u64> [unit "bytes"],
    }
}
