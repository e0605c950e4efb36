//! One QUIC packet as read out of a decrypted capture: its number and the frames that tell what limits a connection.

use units::Timestamp;

use crate::Direction;

/// A packet (RFC 9000, section 17). Times are capture times on the clock of [`Timestamp`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicPacket {
    /// Number of its connection: see [`crate::QuicConnectionRecord`].
    pub connection: u64,
    /// When it was captured.
    pub at: Timestamp,
    /// Up is from the client to the server.
    pub direction: Direction,
    /// Its type, which decides in what space it is numbered.
    pub kind: QuicPacketKind,
    /// Packet number; 0 of a type without numbers.
    pub number: u64,
    /// Bytes of the packet, header and authentication tag included; without those of other packets of its datagram.
    pub length: u32,
    /// Whether the receiver acknowledges it (RFC 9002, section 2).
    pub is_ack_eliciting: bool,
    /// The frames that are of use, in their order, up to the first that is malformed or unknown.
    pub frames: Vec<QuicFrame>,
}

/// Types of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum QuicPacketKind {
    /// Begins the handshake.
    Initial,
    /// Ends the handshake.
    Handshake,
    /// Data of the client before the handshake ends (0-RTT). Numbered together with [`QuicPacketKind::Data`].
    EarlyData,
    /// Data (1-RTT).
    Data,
    /// The server wants the client's address proven first. Without a number.
    Retry,
    /// The server does not support the client's version. Without a number.
    VersionNegotiation,
}

/// A frame, or what the ClientHello states about the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuicFrame {
    /// Bytes of a stream (section 19.8).
    Stream {
        /// The stream.
        id: u64,
        /// Place of the first byte on the stream.
        offset: u64,
        /// Number of bytes; may be 0.
        length: u32,
        /// Whether the stream ends after them (FIN).
        ends: bool,
    },
    /// Bytes of the handshake (section 19.6).
    Crypto {
        /// Place of the first byte in the handshake's messages of this packet number space.
        offset: u64,
        /// Number of bytes.
        length: u32,
    },
    /// Packets that the sender received (section 19.3).
    Ack {
        /// First and last number of each range, from the highest range on; at most [`QuicFrame::ACK_RANGES_MAX`].
        ranges: Vec<(u64, u64)>,
        /// The ACK Delay field as sent, without the sender's exponent.
        delay: u64,
    },
    /// The sender gives up its part of a stream (section 19.4).
    Reset {
        /// The stream.
        id: u64,
    },
    /// The receiver admits this many bytes of all streams (section 19.9).
    MaxData {
        /// Bytes since the connection's start.
        bytes: u64,
    },
    /// The receiver admits this many bytes of a stream (section 19.10).
    MaxStreamData {
        /// The stream.
        id: u64,
        /// Bytes since the stream's start.
        bytes: u64,
    },
    /// The sender has data that the connection's window does not admit (section 19.12).
    DataBlocked {
        /// The window's end, bytes.
        limit: u64,
    },
    /// The sender has data that the stream's window does not admit (section 19.13).
    StreamDataBlocked {
        /// The stream.
        id: u64,
        /// The window's end, bytes.
        limit: u64,
    },
    /// Nothing but a request for an acknowledgement (section 19.2).
    Ping,
    /// The sender closes the connection (section 19.19).
    Close {
        /// Error code.
        error: u64,
    },
    /// Transport parameters of the ClientHello that this packet completed (section 18.2).
    ClientParameters {
        /// Bytes of all streams that the server may send at first (initial_max_data).
        connection_window: u64,
        /// Bytes of the response on each stream of the client that the server may send at first
        /// (initial_max_stream_data_bidi_local).
        stream_window: u64,
        /// Exponent of the delays in the client's ACKs (ack_delay_exponent).
        ack_delay_exponent: u64,
    },
}

impl QuicFrame {
    /// Most ranges of an ACK that are read. An ACK repeats its ranges, so that earlier ones are known already.
    pub const ACK_RANGES_MAX: usize = 64;
}
