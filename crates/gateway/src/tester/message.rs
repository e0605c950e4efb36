//! Messages of the control connection, exchanged after the handshake as JSON in frames.

use serde::{Deserialize, Serialize};

use super::report::EndReport;

/// Version of the protocol, increased with every change of messages or handshake.
pub const PROTOCOL: u32 = 1;
/// Longest trial in milliseconds.
pub const LASTS_MS_MAX: u32 = 130_000;
/// Limit of streams in a trial.
pub const STREAMS_MAX: u16 = 64;
/// Limit of concurrent connections in a trial: fewer than the backlog of a listening socket.
pub const PARALLEL_MAX: u16 = 100;
/// Limit of the bytes of a write, a request, a response, and a socket buffer.
pub const BYTES_MAX: u32 = 1 << 24;
/// Valid lengths of IP packets: from the headers of IPv4 with a datagram header (IPv6 needs 20 bytes more) to that of a
/// jumbo frame.
pub const IP_BYTES: std::ops::RangeInclusive<u16> = 52..=9000;
/// Largest packet rate per second.
pub const PER_SECOND_MAX: f64 = 5e6;
/// Longest wait for packets after the last one was sent, in milliseconds.
pub const SETTLE_MS_MAX: u32 = 10_000;

/// Messages of the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToServer {
    /// The first message.
    Hello {
        /// Version of the program.
        version: String,
        /// [`PROTOCOL`].
        protocol: u32,
    },
    /// Prepare a trial. Trial numbers increase.
    Ready {
        /// Number of the trial.
        trial: u32,
        /// The test to run.
        test: Test,
    },
    /// Start the prepared trial.
    Go {
        /// Number of the trial.
        trial: u32,
    },
    /// End a trial early.
    Stop {
        /// Number of the trial.
        trial: u32,
    },
    /// Send the report when the trial has ended.
    Report {
        /// Number of the trial.
        trial: u32,
        /// Packets sent up. The server reports as soon as all have arrived.
        sent: Option<u64>,
    },
    /// Keep-alive.
    Alive {},
    /// End the session.
    Bye {},
}

/// Messages of the server.
#[allow(clippy::large_enum_variant, reason = "one a trial, handed on once")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToClient {
    /// The first message.
    Hello {
        /// Version of the program.
        version: String,
        /// [`PROTOCOL`].
        protocol: u32,
        /// CPU cores of the server's host.
        cores: u32,
        /// TCP congestion control (`cubic`, `bbr`); empty if it could not be read.
        congestion_control: String,
    },
    /// The trial is prepared.
    Ready {
        /// Number of the trial.
        trial: u32,
    },
    /// The client's first datagram came from this port, after all translation.
    UdpSeen {
        /// Number of the trial.
        trial: u32,
        /// The port as the server sees it.
        port: u16,
    },
    /// Report of the server's end.
    Report {
        /// Number of the trial.
        trial: u32,
        /// The report.
        seen: EndReport,
    },
    /// Keep-alive.
    Alive {},
    /// Another session is active; no further message follows.
    Busy {
        /// Its address.
        by: String,
    },
    /// The trial is rejected.
    Refused {
        /// Why.
        why: String,
    },
}

/// The test of a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "snake_case", deny_unknown_fields)]
pub enum Test {
    /// Throughput of TCP connections.
    Stream {
        /// From the client to the server.
        up: bool,
        /// Connections, 1 to [`STREAMS_MAX`].
        streams: u16,
        /// SO_SNDBUF and SO_RCVBUF at both ends; absent: as the kernel tunes them.
        socket_bytes: Option<u32>,
        /// Bytes per write.
        message_bytes: u32,
        /// Length of the trial.
        lasts_ms: u32,
        /// Warm-up at the start, which is not counted.
        omit_ms: u32,
        /// Whether probes are sent concurrently.
        probes: bool,
    },
    /// A request and its response on one open connection, one pair after the other.
    Transactions {
        /// Bytes of the request.
        request: u32,
        /// Bytes of the response.
        response: u32,
        /// Length of the trial.
        lasts_ms: u32,
    },
    /// New connections: connect, one byte from the server, closed by the server.
    Connections {
        /// Concurrent connections, 1 to [`PARALLEL_MAX`].
        parallel: u16,
        /// Length of the trial.
        lasts_ms: u32,
    },
    /// Datagrams of one size at one rate.
    Packets {
        /// From the client to the server.
        up: bool,
        /// Length of the IP packet, within [`IP_BYTES`].
        ip_bytes: u16,
        /// Packets a second, up to [`PER_SECOND_MAX`].
        per_second: f64,
        /// Length of the trial.
        lasts_ms: u32,
        /// Wait after the last packet was sent, ended when all have arrived (RFC 2544, 23: 2 s).
        settle_ms: u32,
        /// Whether probes are sent concurrently.
        probes: bool,
    },
    /// Probes only: timestamped datagrams that the server sends back.
    Probes {
        /// Length of the trial.
        lasts_ms: u32,
    },
}

impl Test {
    /// Whether the counted data is sent from client to server. False for transactions, connections and probes, which
    /// the client measures.
    pub fn is_up(&self) -> bool {
        matches!(self, Test::Stream { up: true, .. } | Test::Packets { up: true, .. })
    }

    /// Length of the trial in milliseconds.
    pub fn lasts_ms(&self) -> u32 {
        match self {
            Test::Stream { lasts_ms, .. }
            | Test::Transactions { lasts_ms, .. }
            | Test::Connections { lasts_ms, .. }
            | Test::Packets { lasts_ms, .. }
            | Test::Probes { lasts_ms } => *lasts_ms,
        }
    }

    /// Number of TCP connections established before the trial.
    pub fn streams(&self) -> u16 {
        match self {
            Test::Stream { streams, .. } => *streams,
            Test::Transactions { .. } => 1,
            _ => 0,
        }
    }

    /// Whether probes are sent.
    pub fn probes(&self) -> bool {
        matches!(self, Test::Probes { .. } | Test::Stream { probes: true, .. } | Test::Packets { probes: true, .. })
    }

    /// Whether the test needs datagrams.
    pub fn needs_udp(&self) -> bool {
        self.probes() || matches!(self, Test::Packets { .. })
    }

    /// Number of packets to send; 0 for other tests.
    pub fn packets(&self) -> u64 {
        match self {
            Test::Packets { per_second, lasts_ms, .. } => (per_second * f64::from(*lasts_ms) / 1e3).round() as u64,
            _ => 0,
        }
    }

    /// Checks that every value is within its limits.
    ///
    /// # Errors
    /// The value outside of its limits.
    pub fn check(&self) -> Result<(), String> {
        let within = |what: &str, value: u32, from: u32, to: u32| match value {
            value if (from..=to).contains(&value) => Ok(()),
            _ => Err(format!("{what} {value} is not within {from} to {to}")),
        };
        within("the length in ms", self.lasts_ms(), 1, LASTS_MS_MAX)?;
        match self {
            Test::Stream { streams, socket_bytes, message_bytes, lasts_ms, omit_ms, .. } => {
                within("streams", u32::from(*streams), 1, u32::from(STREAMS_MAX))?;
                within("message bytes", *message_bytes, 1, BYTES_MAX)?;
                within("omitted ms", *omit_ms, 0, *lasts_ms - 1)?;
                socket_bytes.map_or(Ok(()), |bytes| within("socket bytes", bytes, 1, BYTES_MAX))
            }
            Test::Transactions { request, response, .. } => {
                within("request bytes", *request, 1, BYTES_MAX)?;
                within("response bytes", *response, 1, BYTES_MAX)
            }
            Test::Connections { parallel, .. } => {
                within("parallel connections", u32::from(*parallel), 1, u32::from(PARALLEL_MAX))
            }
            Test::Packets { ip_bytes, per_second, settle_ms, .. } => {
                within("IP bytes", u32::from(*ip_bytes), u32::from(*IP_BYTES.start()), u32::from(*IP_BYTES.end()))?;
                within("settling ms", *settle_ms, 0, SETTLE_MS_MAX)?;
                // NaN is rejected as well.
                if *per_second > 0.0 && *per_second <= PER_SECOND_MAX {
                    Ok(())
                } else {
                    Err(format!("{per_second} packets a second are not within 0 to {PER_SECOND_MAX}"))
                }
            }
            Test::Probes { .. } => Ok(()),
        }
    }
}

/// Parses version and protocol from a `Hello` message of any version, ignoring other fields.
pub(super) fn hello(text: &[u8]) -> Option<(String, u32)> {
    let value: serde_json::Value = serde_json::from_slice(text).ok()?;
    if value.get("do")?.as_str()? != "hello" {
        return None;
    }
    let version = value.get("version")?.as_str()?.chars().filter(|letter| letter.is_ascii_graphic()).take(64);
    Some((version.collect(), value.get("protocol")?.as_u64()?.try_into().ok()?))
}

#[cfg(test)]
mod tests;
