//! The causes among which `explain` divides a response's time, how sure a division is, and the rules that decide.

/// What a part of a response time was spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The load generator started the request after its scheduled time.
    SendLag,
    /// The request waited until one of the permitted connections was free.
    ConnectionWait,
    /// The load generator read the last byte after its arrival.
    ReceiveLag,
    /// Name resolution.
    Dns,
    /// The round trip that opens the connection.
    TcpHandshake,
    /// The round trips that secure the connection, with the computation of both ends.
    TlsHandshake,
    /// The round trips that open and secure a connection of QUIC, with the computation of both ends.
    QuicHandshake,
    /// The server had sent as much as it may before the client's address is proven (QUIC's amplification limit).
    AmplificationLimit,
    /// The request's bytes leave the client, from its first to its last.
    RequestUpload,
    /// The server had the whole request and had sent nothing of the response.
    ServerProcessing,
    /// Nothing was left to send in mid-response: the server's application wrote slowly.
    ServerPause,
    /// The server was not allowed to run, by its CPU limit (cgroup quota).
    CpuThrottling,
    /// The server was ready to run and waited for a CPU.
    RunQueue,
    /// Data was ready; the sender waited for acknowledgements that open the congestion window.
    CongestionWindow,
    /// Data was ready and the congestion window open; congestion control spread the packets over time.
    Pacing,
    /// Data was ready; the receiver's advertised window was full.
    ReceiveWindow,
    /// The sender's socket buffer was full, so the application could not write ahead.
    SendBuffer,
    /// The HTTP/2 stream's flow-control window was used up.
    Http2StreamWindow,
    /// The HTTP/2 connection's flow-control window was used up.
    Http2ConnectionWindow,
    /// The stream's flow-control window of QUIC was used up.
    QuicStreamWindow,
    /// The connection's flow-control window of QUIC was used up.
    QuicConnectionWindow,
    /// The bottleneck transmitted the response's own bytes.
    BottleneckRate,
    /// The response waited in the queue of its client's own link, behind packets of other connections.
    Queue,
    /// The response waited in the queue of a link that several clients share.
    SharedQueue,
    /// A packet was lost; acknowledgements of later packets reported it.
    FastRetransmit,
    /// A packet was lost; the retransmission timer ended the wait.
    RetransmissionTimeout,
    /// The last packet in flight was lost, so that no later packet could report it.
    TailLoss,
    /// The sender waited for a congestion window that an earlier loss had reduced.
    ReducedWindow,
    /// The connection delivered the bytes of other streams.
    HeadOfLine,
    /// A packet was overtaken, and later packets waited for it; or the sender took it for lost.
    Reordering,
    /// One round trip without queues, which no server or client setting avoids.
    Propagation,
    /// The receiver delayed an acknowledgement that the sender waited for.
    AckDelay,
    /// The evidence does not decide.
    Unknown,
}

impl Cause {
    /// Every cause, in the order of declaration, which is about the order in a response's time.
    pub const ALL: [Cause; 33] = [
        Cause::SendLag,
        Cause::ConnectionWait,
        Cause::ReceiveLag,
        Cause::Dns,
        Cause::TcpHandshake,
        Cause::TlsHandshake,
        Cause::QuicHandshake,
        Cause::AmplificationLimit,
        Cause::RequestUpload,
        Cause::ServerProcessing,
        Cause::ServerPause,
        Cause::CpuThrottling,
        Cause::RunQueue,
        Cause::CongestionWindow,
        Cause::Pacing,
        Cause::ReceiveWindow,
        Cause::SendBuffer,
        Cause::Http2StreamWindow,
        Cause::Http2ConnectionWindow,
        Cause::QuicStreamWindow,
        Cause::QuicConnectionWindow,
        Cause::BottleneckRate,
        Cause::Queue,
        Cause::SharedQueue,
        Cause::FastRetransmit,
        Cause::RetransmissionTimeout,
        Cause::TailLoss,
        Cause::ReducedWindow,
        Cause::HeadOfLine,
        Cause::Reordering,
        Cause::Propagation,
        Cause::AckDelay,
        Cause::Unknown,
    ];

    /// Place in [`Cause::ALL`].
    pub const fn index(self) -> usize {
        self as usize
    }

    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Cause::SendLag => "send_lag",
            Cause::ConnectionWait => "connection_wait",
            Cause::ReceiveLag => "receive_lag",
            Cause::Dns => "dns",
            Cause::TcpHandshake => "tcp_handshake",
            Cause::TlsHandshake => "tls_handshake",
            Cause::QuicHandshake => "quic_handshake",
            Cause::AmplificationLimit => "amplification_limit",
            Cause::RequestUpload => "request_upload",
            Cause::ServerProcessing => "server_processing",
            Cause::ServerPause => "server_pause",
            Cause::CpuThrottling => "cpu_throttling",
            Cause::RunQueue => "run_queue",
            Cause::CongestionWindow => "congestion_window",
            Cause::Pacing => "pacing",
            Cause::ReceiveWindow => "receive_window",
            Cause::SendBuffer => "send_buffer",
            Cause::Http2StreamWindow => "http2_stream_window",
            Cause::Http2ConnectionWindow => "http2_connection_window",
            Cause::QuicStreamWindow => "quic_stream_window",
            Cause::QuicConnectionWindow => "quic_connection_window",
            Cause::BottleneckRate => "bottleneck_rate",
            Cause::Queue => "queue",
            Cause::SharedQueue => "shared_queue",
            Cause::FastRetransmit => "fast_retransmit",
            Cause::RetransmissionTimeout => "retransmission_timeout",
            Cause::TailLoss => "tail_loss",
            Cause::ReducedWindow => "reduced_window",
            Cause::HeadOfLine => "head_of_line",
            Cause::Reordering => "reordering",
            Cause::Propagation => "propagation",
            Cause::AckDelay => "ack_delay",
            Cause::Unknown => "unknown",
        }
    }

    /// As a table prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::SendLag => "generator: send lag",
            Cause::ConnectionWait => "generator: waiting for a connection",
            Cause::ReceiveLag => "generator: receive lag",
            Cause::Dns => "DNS",
            Cause::TcpHandshake => "TCP handshake",
            Cause::TlsHandshake => "TLS handshake",
            Cause::QuicHandshake => "QUIC handshake",
            Cause::AmplificationLimit => "QUIC amplification limit",
            Cause::RequestUpload => "request upload",
            Cause::ServerProcessing => "server processing",
            Cause::ServerPause => "server pause in mid-response",
            Cause::CpuThrottling => "server CPU limit",
            Cause::RunQueue => "server waiting for a CPU",
            Cause::CongestionWindow => "congestion window",
            Cause::Pacing => "congestion window: pacing",
            Cause::ReceiveWindow => "receive window",
            Cause::SendBuffer => "send buffer",
            Cause::Http2StreamWindow => "HTTP/2 stream window",
            Cause::Http2ConnectionWindow => "HTTP/2 connection window",
            Cause::QuicStreamWindow => "QUIC stream window",
            Cause::QuicConnectionWindow => "QUIC connection window",
            Cause::BottleneckRate => "bottleneck rate",
            Cause::Queue => "queue",
            Cause::SharedQueue => "queue of a shared link",
            Cause::FastRetransmit => "loss: fast retransmit",
            Cause::RetransmissionTimeout => "loss: retransmission timeout",
            Cause::TailLoss => "loss: last packet in flight",
            Cause::ReducedWindow => "loss: reduced congestion window",
            Cause::HeadOfLine => "head-of-line blocking",
            Cause::Reordering => "reordering",
            Cause::Propagation => "distance",
            Cause::AckDelay => "ACK delay",
            Cause::Unknown => "unknown",
        }
    }

    /// The limit to which the cause belongs: loss and the congestion window have several causes, every other limit
    /// has one.
    pub const fn limit(self) -> Limit {
        match self {
            Cause::FastRetransmit | Cause::RetransmissionTimeout | Cause::TailLoss | Cause::ReducedWindow => {
                Limit::Loss
            }
            // A larger window is paced faster.
            Cause::Pacing => Limit::Of(Cause::CongestionWindow),
            cause => Limit::Of(cause),
        }
    }
}

/// What a set of responses is said to be limited by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// Packet loss: recovery of lost packets and the smaller window afterwards.
    Loss,
    /// One cause.
    Of(Cause),
}

/// How sure the attribution of a share is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Consistent with the evidence, as other causes are.
    Weak,
    /// The evidence supports this cause; what would exclude the others is missing.
    Likely,
    /// The evidence states it.
    Certain,
}

impl Confidence {
    /// Every confidence, from the lowest on.
    pub const ALL: [Confidence; 3] = [Confidence::Weak, Confidence::Likely, Confidence::Certain];

    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Confidence::Weak => "weak",
            Confidence::Likely => "likely",
            Confidence::Certain => "certain",
        }
    }
}

/// The rule that attributed a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Between two recorded times of the request: of the load generator or, in a capture file, of packets.
    LoadRecord,
    /// The path's record states the packet's queueing, serialisation, propagation or reordering.
    PathRecord,
    /// A packet's times at both ends, compared with the fastest packet of the connection.
    BothEnds,
    /// Between the request's arrival and the response's departure at the server.
    ServerPackets,
    /// Between the request's departure and the response's arrival at the client, without the packets' way.
    ClientPackets,
    /// A wait of about one known round trip.
    RoundTrip,
    /// The server's accounting lists the interval.
    ServerCpu,
    /// The next packet left when an ACK arrived, with a full congestion window by TCP_INFO.
    AckReleasedFullWindow,
    /// The next packets left when an ACK arrived, and more were then in flight than ever before.
    AckReleasedGrowth,
    /// The next packet of QUIC left when an ACK arrived, with about as much in flight as ever before.
    AckReleased,
    /// The next packet left when an ACK arrived, after an earlier loss.
    AckReleasedAfterLoss,
    /// The next packet left later although TCP_INFO shows bytes that waited to be sent, and the receive window had room.
    UnsentBytes,
    /// The next packet left when an ACK arrived, and TCP_INFO counted time limited by the send buffer.
    SendBufferTime,
    /// The next packet left when an ACK arrived, with room in congestion and receive window.
    WindowsOpen,
    /// The next byte lay beyond the advertised window until an ACK or window update arrived.
    WindowEdge,
    /// The stream had received all that its window of HTTP/2 or QUIC granted.
    StreamWindow,
    /// The connection had received all that its window of HTTP/2 or QUIC granted.
    ConnectionWindow,
    /// The server had sent three times what it had received, and continued when the client's next packet arrived.
    AmplificationFull,
    /// The next packet left although no ACK had just arrived, with room in every known window.
    NoAckReleased,
    /// Full packets left one after the other although no ACK had just arrived, with others in flight.
    FullPackets,
    /// Packets left at the pacing rate of TCP_INFO.
    PacingRate,
    /// The lost bytes were sent again.
    SentAgain,
    /// A hole was filled sooner than a retransmission could have filled it.
    FilledEarly,
    /// A hole was filled after a round trip or more.
    FilledLate,
    /// A hole's bytes arrived twice, so the first copy had only been late.
    ArrivedTwice,
    /// Bytes between those of the response belong to other streams.
    OtherStream,
    /// The ACK left later than the packet it acknowledges arrived.
    AckLate,
    /// Arrivals are spaced as the estimated bottleneck rate spaces them.
    Spacing,
    /// No input covers the interval.
    NoInput,
    /// Several causes fit and no input separates them.
    Ambiguous,
}

impl Rule {
    /// Every rule, in the order of declaration.
    pub const ALL: [Rule; 30] = [
        Rule::LoadRecord,
        Rule::PathRecord,
        Rule::BothEnds,
        Rule::ServerPackets,
        Rule::ClientPackets,
        Rule::RoundTrip,
        Rule::ServerCpu,
        Rule::AckReleasedFullWindow,
        Rule::AckReleasedGrowth,
        Rule::AckReleased,
        Rule::AckReleasedAfterLoss,
        Rule::UnsentBytes,
        Rule::SendBufferTime,
        Rule::WindowsOpen,
        Rule::WindowEdge,
        Rule::StreamWindow,
        Rule::ConnectionWindow,
        Rule::AmplificationFull,
        Rule::NoAckReleased,
        Rule::FullPackets,
        Rule::PacingRate,
        Rule::SentAgain,
        Rule::FilledEarly,
        Rule::FilledLate,
        Rule::ArrivedTwice,
        Rule::OtherStream,
        Rule::AckLate,
        Rule::Spacing,
        Rule::NoInput,
        Rule::Ambiguous,
    ];

    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            Rule::LoadRecord => "load_record",
            Rule::PathRecord => "path_record",
            Rule::BothEnds => "both_ends",
            Rule::ServerPackets => "server_packets",
            Rule::ClientPackets => "client_packets",
            Rule::RoundTrip => "round_trip",
            Rule::ServerCpu => "server_cpu",
            Rule::AckReleasedFullWindow => "ack_released_full_window",
            Rule::AckReleasedGrowth => "ack_released_growth",
            Rule::AckReleased => "ack_released",
            Rule::AckReleasedAfterLoss => "ack_released_after_loss",
            Rule::UnsentBytes => "unsent_bytes",
            Rule::SendBufferTime => "send_buffer_time",
            Rule::WindowsOpen => "windows_open",
            Rule::WindowEdge => "window_edge",
            Rule::StreamWindow => "stream_window",
            Rule::ConnectionWindow => "connection_window",
            Rule::AmplificationFull => "amplification_full",
            Rule::NoAckReleased => "no_ack_released",
            Rule::FullPackets => "full_packets",
            Rule::PacingRate => "pacing_rate",
            Rule::SentAgain => "sent_again",
            Rule::FilledEarly => "filled_early",
            Rule::FilledLate => "filled_late",
            Rule::ArrivedTwice => "arrived_twice",
            Rule::OtherStream => "other_stream",
            Rule::AckLate => "ack_late",
            Rule::Spacing => "spacing",
            Rule::NoInput => "no_input",
            Rule::Ambiguous => "ambiguous",
        }
    }

    /// The rule as a half-sentence that explains a share.
    pub const fn text(self) -> &'static str {
        match self {
            Rule::LoadRecord => "between two recorded times of the request",
            Rule::PathRecord => "the packet's times at both ends of the configured path",
            Rule::BothEnds => "packet times at both ends against the connection's fastest packet",
            Rule::ServerPackets => "between request and response at the server's end",
            Rule::ClientPackets => "between request and response at the client's end, less a round trip",
            Rule::RoundTrip => "one known round trip",
            Rule::ServerCpu => "the server's CPU accounting",
            Rule::AckReleasedFullWindow => "sent when an ACK arrived, congestion window full by TCP_INFO",
            Rule::AckReleasedGrowth => "sent when an ACK arrived, with more in flight than before",
            Rule::AckReleased => {
                "sent when an ACK arrived, with about as much in flight as before; QUIC's state is not known"
            }
            Rule::AckReleasedAfterLoss => "sent when an ACK arrived, after a loss",
            Rule::UnsentBytes => "bytes waited to be sent by TCP_INFO, and the receive window had room",
            Rule::SendBufferTime => "sent when an ACK arrived, limited by the send buffer by TCP_INFO",
            Rule::WindowsOpen => "sent when an ACK arrived, although both windows had room",
            Rule::WindowEdge => "the next byte lay beyond the advertised window",
            Rule::StreamWindow => "all that the stream window granted had been sent",
            Rule::ConnectionWindow => "all that the connection window granted had been sent",
            Rule::AmplificationFull => {
                "sent three times what it had received, and more when the client's next packet arrived"
            }
            Rule::NoAckReleased => "sent although no ACK had just arrived",
            Rule::FullPackets => "full packets sent one by one, with others in flight",
            Rule::PacingRate => "sent at the pacing rate of TCP_INFO",
            Rule::SentAgain => "the bytes were sent again",
            Rule::FilledEarly => "a hole was filled in less than a round trip",
            Rule::FilledLate => "a hole was filled after a round trip or more",
            Rule::ArrivedTwice => "the bytes arrived twice",
            Rule::OtherStream => "bytes of other streams arrived",
            Rule::AckLate => "the ACK left later than its packet arrived",
            Rule::Spacing => "arrivals spaced by a constant rate",
            Rule::NoInput => "no input covers the interval",
            Rule::Ambiguous => "several causes fit",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_at_its_index() {
        assert!(Cause::ALL.iter().enumerate().all(|(at, cause)| cause.index() == at));
    }
}
