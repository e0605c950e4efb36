//! What a run keeps for `yamabiko explain` besides packets, and what `explain` found: rows of three tables.

use units::Timestamp;

use crate::record;
use crate::share::{Cause, Confidence, Rule};

record! {
    // Only sockets of the testbed's server.
    /// A connection's TCP state (TCP_INFO) at the server, when it differed from the row before or was about to.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct TcpSampleRow in "tcp_samples" {
        /// When it was read, since the run's zero.
        pub at: Timestamp,
        /// Index of the client.
        pub client: u32,
        /// The client's port.
        pub client_port: u16 [unit ""],
        /// Congestion window.
        pub congestion_window: u32 [unit "segments"],
        /// Segment size.
        pub segment_bytes: u32 [unit "bytes"],
        /// Lowest round-trip time so far. Null before the first measurement.
        pub min_rtt_ns: Option<u64>,
        /// Pacing rate of congestion control. Null without a limit.
        pub pacing_bytes_per_s: Option<u64> [unit "bytes/s"],
        /// Written by the server and not yet sent.
        pub unsent_bytes: u32 [unit "bytes"],
        /// Time since the connection's start in which the client's receive window was full.
        pub receive_window_limited_ns: u64,
        /// Time since the connection's start in which the send buffer was full and all of it had been sent.
        pub send_buffer_limited_ns: u64,
    }
}

/// Why a server that could run did not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitCause {
    /// Its control group had used up its CPU limit.
    #[default]
    CpuLimit,
    /// Every permitted core ran something else.
    RunQueue,
}

impl WaitCause {
    /// Both.
    pub const ALL: [WaitCause; 2] = [WaitCause::CpuLimit, WaitCause::RunQueue];

    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            WaitCause::CpuLimit => "cpu_limit",
            WaitCause::RunQueue => "run_queue",
        }
    }
}

record! {
    // The kernel counts durations; their ends are those of the readings, 5 ms apart or more.
    /// A time in which the server was ready to run and did not.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ServerWaitRow in "server_waits" {
        /// Its start, since the run's zero; to the interval of the readings.
        pub from: Timestamp,
        /// Its end.
        pub to: Timestamp,
        /// Why: `cpu_limit` or `run_queue`.
        pub cause: WaitCause [few],
    }
}

/// A frame of HTTP/2 that matters to flow control or to a response's place on its connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FrameKind {
    /// DATA of a response.
    #[default]
    Data,
    /// The head of a response, or its trailers: HEADERS or CONTINUATION.
    Headers,
    /// WINDOW_UPDATE of the load.
    WindowUpdate,
}

impl FrameKind {
    /// All.
    pub const ALL: [FrameKind; 3] = [FrameKind::Data, FrameKind::Headers, FrameKind::WindowUpdate];

    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            FrameKind::Data => "data",
            FrameKind::Headers => "headers",
            FrameKind::WindowUpdate => "window_update",
        }
    }
}

record! {
    // Pieces of frames of one stream that were read together are one row.
    /// Frames of HTTP/2 on a connection of the load.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Http2FrameRow in "http2_frames" {
        /// When the load read them, or wrote the update, since the run's zero.
        pub at: Timestamp,
        /// Number of the connection.
        pub connection: u64 [unit ""],
        /// Number of the stream, 0 for the connection.
        pub stream: u32 [unit ""],
        /// What: `data`, `headers` or `window_update`.
        pub kind: FrameKind [few],
        /// Bytes that count against the windows, or that the update grants.
        pub window_bytes: u32 [unit "bytes"],
        /// First byte of the frames on the connection's stream of TCP from the server, TLS included. Null for updates.
        pub from_byte: Option<u64> [unit "bytes"],
        /// Byte after the last one. Null for updates.
        pub to_byte: Option<u64> [unit "bytes"],
    }
}

record! {
    /// A share of an explained response's time.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct ShareRow in "shares" {
        /// The response's number in the run's table of requests; in a capture file, the number of the response.
        pub sequence: u64 [unit ""],
        /// Index of the client. Null for capture files.
        pub client: Option<u32>,
        /// Number of the connection. Null where it is not known.
        pub connection: Option<u64>,
        /// Round-trip time of the client's class of distance. Null without a path.
        pub distance_ns: Option<u64>,
        /// When the request was scheduled, since the run's zero; for capture files, when it began, since 1970 (UTC).
        pub scheduled_at: Timestamp,
        /// The response time, of which this is a share.
        pub response_time_ns: u64,
        /// What the time was spent on.
        pub cause: Cause [few],
        /// Time of the share; the shares of a response sum to its response time.
        pub time_ns: u64,
        /// How sure it is: `weak`, `likely` or `certain`.
        pub confidence: Confidence [few],
        /// The rule that attributed the largest part of it.
        pub rule: Rule [few],
    }
}
