//! What the two ends say to each other once each knows that the other has the secret.

use serde::{Deserialize, Serialize};

use super::seen::EndReport;

/// Raised with every change of what follows here, or of the handshake.
pub const PROTOCOL: u32 = 1;
/// No trial lasts longer.
pub const LASTS_MS_MAX: u32 = 130_000;
/// Streams of one trial.
pub const STREAMS_MAX: u16 = 64;
/// Connections under way at once in one trial: fewer than a listening socket keeps waiting.
pub const PARALLEL_MAX: u16 = 100;
/// Bytes of a message, a request or a response; and of a socket's buffer.
pub const BYTES_MAX: u32 = 1 << 24;
/// Length of an IP packet: room for what each holds behind the headers of IPv4 (those of IPv6 take 20 more), up to a
/// jumbo frame's.
pub const IP_BYTES: std::ops::RangeInclusive<u16> = 52..=9000;
/// Packets a second that may be asked for.
pub const PER_SECOND_MAX: f64 = 5e6;
/// What may still be waited for after the last packet was sent.
pub const SETTLE_MS_MAX: u32 = 10_000;

/// From the client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToServer {
    /// The first message.
    Hello {
        /// The program's.
        version: String,
        /// [`PROTOCOL`].
        protocol: u32,
    },
    /// Prepare a trial. Numbers rise.
    Ready {
        /// Its number.
        trial: u32,
        /// What is done in it.
        test: Test,
    },
    /// Begin it.
    Go {
        /// Its number.
        trial: u32,
    },
    /// End it early.
    Stop {
        /// Its number.
        trial: u32,
    },
    /// Say what was seen of it, once it is over.
    Report {
        /// Its number.
        trial: u32,
        /// Packets that were sent up: the answer may come as soon as all have arrived.
        sent: Option<u64>,
    },
    /// Still there.
    Alive {},
    /// The end.
    Bye {},
}

/// From the server.
#[allow(clippy::large_enum_variant, reason = "one a trial, handed on once")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum ToClient {
    /// The first message.
    Hello {
        /// The program's.
        version: String,
        /// [`PROTOCOL`].
        protocol: u32,
        /// Processor cores of the server's host.
        cores: u32,
        /// What its TCP uses (`cubic`, `bbr`); empty where that could not be read.
        congestion_control: String,
    },
    /// The trial is prepared.
    Ready {
        /// Its number.
        trial: u32,
    },
    /// The client's first datagram came from this port, after all translation.
    UdpSeen {
        /// The trial's number.
        trial: u32,
        /// The port as the server sees it.
        port: u16,
    },
    /// What was seen.
    Report {
        /// The trial's number.
        trial: u32,
        /// What was seen.
        seen: EndReport,
    },
    /// Still there.
    Alive {},
    /// Another client is being served; nothing follows.
    Busy {
        /// Its address.
        by: String,
    },
    /// The trial cannot be.
    Refused {
        /// Why.
        why: String,
    },
}

/// What is measured in a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "test", rename_all = "snake_case", deny_unknown_fields)]
pub enum Test {
    /// Bytes through TCP connections, as fast as they go.
    Stream {
        /// From the client to the server.
        up: bool,
        /// Connections, 1 to [`STREAMS_MAX`].
        streams: u16,
        /// SO_SNDBUF and SO_RCVBUF at both ends; absent: as the kernel tunes them.
        socket_bytes: Option<u32>,
        /// Bytes handed over at once.
        message_bytes: u32,
        /// Length of the trial.
        lasts_ms: u32,
        /// Its beginning, which does not count.
        omit_ms: u32,
        /// Timestamped datagrams beside the streams.
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
    /// Connect, one byte back, closed by the server.
    Connections {
        /// Under way at once, 1 to [`PARALLEL_MAX`].
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
        /// What may still arrive after the last was sent: waited for unless all are there (RFC 2544, 23: 2 s).
        settle_ms: u32,
        /// Timestamped datagrams beside them.
        probes: bool,
    },
    /// Timestamped datagrams alone.
    Probes {
        /// Length of the trial.
        lasts_ms: u32,
    },
}

impl Test {
    /// Whether what counts goes from the client to the server. Transactions, connections and probes are measured by the
    /// client.
    pub fn is_up(&self) -> bool {
        matches!(self, Test::Stream { up: true, .. } | Test::Packets { up: true, .. })
    }

    /// Its length.
    pub fn lasts_ms(&self) -> u32 {
        match self {
            Test::Stream { lasts_ms, .. }
            | Test::Transactions { lasts_ms, .. }
            | Test::Connections { lasts_ms, .. }
            | Test::Packets { lasts_ms, .. }
            | Test::Probes { lasts_ms } => *lasts_ms,
        }
    }

    /// TCP connections that take part from the beginning.
    pub fn streams(&self) -> u16 {
        match self {
            Test::Stream { streams, .. } => *streams,
            Test::Transactions { .. } => 1,
            _ => 0,
        }
    }

    /// Whether timestamped datagrams go with it.
    pub fn probes(&self) -> bool {
        matches!(self, Test::Probes { .. } | Test::Stream { probes: true, .. } | Test::Packets { probes: true, .. })
    }

    /// Whether datagrams are needed at all.
    pub fn needs_udp(&self) -> bool {
        self.probes() || matches!(self, Test::Packets { .. })
    }

    /// Packets that it asks for; 0 where it is no test of packets.
    pub fn packets(&self) -> u64 {
        match self {
            Test::Packets { per_second, lasts_ms, .. } => (per_second * f64::from(*lasts_ms) / 1e3).round() as u64,
            _ => 0,
        }
    }

    /// Whether it is one that either end does: every figure within its range.
    ///
    /// # Errors
    /// Which is not.
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
                // Not a number fails too.
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

/// Version and protocol of a first message, whatever else the other end's version puts into it.
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
