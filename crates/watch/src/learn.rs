//! Learns a path profile from a real server's packets: distances of its clients, their shares of the load, packet loss,
//! arrivals of connections and requests.
//!
//! ```text
//!   ConnectionRecord --> distance: handshake, else data --> three histograms: by connection, by request, by client
//!                   \--> clients: connections, requests, some RTTs of each (a bounded sample of clients)
//!                   \--> loss: retransmissions, late data                   \--> curve: points of the quantiles
//!   WireRequest -------> arrivals: a count for each second
//! ```
//!
//! Memory is bounded for any capture and any number of clients: histograms have a fixed size, at most
//! [`LearnSpec::clients_max`] clients are stored (a uniform sample if there are more), and at most [`BINS_MAX`] counts
//! over time.
//!
//! **Quantiles over what?** `bench` gives client `i` of `n` the quantile `(i + 0.5) / n` and distributes arrivals
//! evenly over clients. So its server sees the distribution of the profile *over arrivals*, and a profile that should
//! put the same load on a server must be learned over connections ([`By::Connection`], for one request per connection)
//! or over requests ([`By::Request`]). Over clients ([`By::Client`]) a client with one connection counts as much as one
//! with a thousand: that is where the clients are, not where the load comes from.
//!
//! Read [`Learn`] first, then [`Learned`] for the result, `distance` for the RTT of a connection.

mod arrivals;
mod clients;
mod curve;
mod distance;
mod loss;

use std::net::IpAddr;

use schema::{ConnectionRecord, WireRequest};
use stats::Histogram;
use units::Timestamp;

pub use arrivals::{ArrivalRate, Arrivals, BINS_MAX, BINS_MIN, Bin};
pub use clients::{Heavy, Shares, Spread};
pub use curve::{Estimate, POINTS_MAX, points};
pub use loss::Loss;

use crate::CapturePoint;
use arrivals::Counts;
use clients::Clients;
use distance::ConnectionRtt;
use loss::LossSums;

/// What to learn from, and the memory limit.
#[derive(Clone, Debug)]
pub struct LearnSpec {
    /// Where the packets were captured.
    pub capture_point: CapturePoint,
    /// Only connections to these addresses; empty for any.
    pub servers: Vec<IpAddr>,
    /// Only connections to these ports; empty for any.
    pub ports: Vec<u16>,
    /// Exclude connections from these clients: monitors, health checks of load balancers. In IPv6 each means its /64
    /// network.
    pub except: Vec<IpAddr>,
    /// Maximum number of stored clients, at least 1. About 220 bytes each.
    pub clients_max: usize,
    /// Seed of the samples: which clients are stored if there are too many, and which RTTs of each.
    pub seed: u64,
}

impl Default for LearnSpec {
    /// At the server, all connections, 131,072 clients: their quantiles are then within 0.3 % of rank of those of all.
    fn default() -> LearnSpec {
        LearnSpec {
            capture_point: CapturePoint::AtServer,
            servers: Vec::new(),
            ports: Vec::new(),
            except: Vec::new(),
            clients_max: 1 << 17,
            seed: 1,
        }
    }
}

/// Unit of the distribution's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A connection: reproduces the load of connections, with each connection's own RTT.
    #[default]
    Connection,
    /// A request, with the RTT of its connection. Needs unencrypted requests.
    Request,
    /// A client address, by the median of its connections' RTTs.
    Client,
}

impl By {
    /// The name on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            By::Connection => "connection",
            By::Request => "request",
            By::Client => "client",
        }
    }
}

/// Learns from the records of a capture, in any order.
#[derive(Debug)]
pub struct Learn {
    spec: LearnSpec,
    clients: Clients,
    by_connection: Histogram,
    by_request: Histogram,
    /// RTTs of the handshakes towards the client and towards the server: they show where the capture was taken.
    parts: [Histogram; 2],
    tallies: Tallies,
    loss: LossSums,
    arrivals: Counts,
}

/// How the RTTs of connections were determined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Connections that were established, or open when the capture began.
    pub connections: u64,
    /// SYNs without a connection: refused, unanswered, abandoned, scans. No other figure includes them.
    pub half_open: u64,
    /// Connections whose RTT is that of their handshake.
    pub by_handshake: u64,
    /// Connections without a usable handshake whose RTT is the smallest one of their data.
    pub by_data: u64,
    /// Connections with an unknown RTT; every figure but the distances includes them.
    pub untold: u64,
    /// Requests on the connections.
    pub requests: u64,
    /// Established connections whose SYN-ACK was sent more than once: lost, or acknowledged later than the server's
    /// timeout (a second on Linux).
    pub handshakes_repeated: u64,
}

impl Learn {
    /// A learner without records.
    pub fn new(spec: LearnSpec) -> Learn {
        Learn {
            clients: Clients::new(spec.clients_max.max(1), spec.seed),
            by_connection: Histogram::new(),
            by_request: Histogram::new(),
            parts: [Histogram::new(), Histogram::new()],
            tallies: Tallies::default(),
            loss: LossSums::default(),
            arrivals: Counts::new(),
            spec,
        }
    }

    /// Adds closed connections.
    pub fn add_connections(&mut self, records: &[ConnectionRecord]) {
        for record in records {
            if self.selects(record.client.ip(), record.server) {
                self.add_connection(record);
            }
        }
    }

    /// Adds ended requests.
    pub fn add_requests(&mut self, requests: &[WireRequest]) {
        for request in requests {
            if let (true, Some(at)) = (self.selects(request.client.ip(), request.server), request.request_first_at) {
                self.arrivals.request(at);
            }
        }
    }

    /// How the RTTs of connections were determined so far.
    pub fn tallies(&self) -> Tallies {
        self.tallies
    }

    /// The profile of a capture from `from` to `to`. With `steady` every connection counts with its client's median RTT
    /// instead of its own, for a profile that also varies each packet's delay ([`Learned::spread`]): otherwise the
    /// jitter would be included twice.
    ///
    /// # Errors
    /// The records do not give a distribution: see [`LearnError`].
    pub fn finish(&self, by: By, steady: bool, from: Timestamp, to: Timestamp) -> Result<Learned, LearnError> {
        let Tallies { connections, half_open, .. } = self.tallies;
        if connections == 0 {
            return Err(if half_open > 0 { LearnError::HalfOpen { half_open } } else { LearnError::Nothing });
        }
        if by == By::Request && self.tallies.requests == 0 {
            return Err(LearnError::NoRequests { connections });
        }
        let distances = match (by, steady) {
            (By::Connection, false) => self.by_connection.clone(),
            (By::Request, false) => self.by_request.clone(),
            (By::Client, _) => self.clients.medians(|_| 1),
            (By::Connection, true) => self.clients.medians(|client| client.connections),
            (By::Request, true) => self.clients.medians(|client| client.requests),
        };
        let measured = self.tallies.by_handshake + self.tallies.by_data;
        if measured == 0 {
            return Err(LearnError::Untold { connections });
        }
        if measured < CONNECTIONS_MIN {
            return Err(LearnError::TooFew { measured, connections });
        }
        if distances.is_empty() {
            return Err(LearnError::NoRequests { connections });
        }
        let effective = self.clients.effective(by);
        Ok(Learned {
            from,
            to,
            capture_point: self.spec.capture_point,
            by,
            steady,
            tallies: self.tallies,
            clients: self.clients.count(),
            clients_sampled: self.clients.is_sampled(),
            effective,
            points: points(&distances),
            rtt_ns: distances.quantiles(),
            estimates: curve::estimates(&distances, effective),
            shares: self.clients.shares(),
            spread: self.clients.spread(),
            up: self.loss.up(self.spec.capture_point),
            down: self.loss.down(self.spec.capture_point),
            arrivals: self.arrivals.arrivals(from, to),
            place: self.place(),
        })
    }

    fn selects(&self, client: IpAddr, server: std::net::SocketAddr) -> bool {
        let among = |addresses: &[IpAddr]| addresses.is_empty() || addresses.contains(&server.ip());
        among(&self.spec.servers)
            && (self.spec.ports.is_empty() || self.spec.ports.contains(&server.port()))
            && !self.spec.except.iter().any(|&except| clients::key(except) == clients::key(client))
    }

    fn add_connection(&mut self, record: &ConnectionRecord) {
        let is_established = record.ack_at.is_some() || record.up.data_packets + record.down.data_packets > 0;
        if !is_established {
            self.tallies.half_open += 1;
            return;
        }
        self.tallies.connections += 1;
        self.tallies.requests += u64::from(record.requests);
        self.tallies.handshakes_repeated += u64::from(record.ack_at.is_some() && record.down.syns > 1);
        for (histogram, part) in self.parts.iter_mut().zip([record.handshake_rtt_ns, record.server_rtt_ns]) {
            part.into_iter().for_each(|part| histogram.record(part));
        }
        let rtt = distance::measure(record, self.spec.capture_point);
        let rtt_ns = match rtt {
            ConnectionRtt::Handshake(rtt_ns) => {
                self.tallies.by_handshake += 1;
                Some(rtt_ns)
            }
            ConnectionRtt::Data(rtt_ns) => {
                self.tallies.by_data += 1;
                Some(rtt_ns)
            }
            ConnectionRtt::Nothing => {
                self.tallies.untold += 1;
                None
            }
        };
        if let Some(rtt_ns) = rtt_ns {
            self.by_connection.record(rtt_ns);
            self.by_request.record_n(rtt_ns, u64::from(record.requests));
        }
        self.clients.add(record.client.ip(), rtt_ns, u64::from(record.requests));
        self.loss.add(record);
        if let Some(at) = record.syn_at {
            self.arrivals.connection(at);
        }
    }

    /// Where the capture was taken, by the handshakes: at one end of the path, the RTT towards that end is negligible.
    fn place(&self) -> CaptureLocation {
        let [towards_client, towards_server] =
            self.parts.each_ref().map(|part| (!part.is_empty()).then(|| part.value_at(0.5)));
        let (Some(client_ns), Some(server_ns)) = (towards_client, towards_server) else {
            return CaptureLocation::AsConfigured;
        };
        let (near, far) = match self.spec.capture_point {
            CapturePoint::AtServer => (server_ns, client_ns),
            CapturePoint::AtClient => (client_ns, server_ns),
            CapturePoint::Between => return CaptureLocation::AsConfigured,
        };
        if near > NEAR_END_RTT_MAX_NS && near > far.saturating_mul(2) {
            CaptureLocation::OtherEnd { near_ns: near, far_ns: far }
        } else if near > KERNEL_RESPONSE_NS && near > far / 10 {
            CaptureLocation::Between { near_ns: near, far_ns: far }
        } else {
            CaptureLocation::AsConfigured
        }
    }
}

/// Whether the capture was taken at the configured capture point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CaptureLocation {
    /// No contradiction.
    #[default]
    AsConfigured,
    /// The configured end is some distance away: part of the RTT is missing.
    Between {
        /// Median RTT from the capture to the configured end.
        near_ns: u64,
        /// Median RTT to the other end: the learned RTT.
        far_ns: u64,
    },
    /// The other end is nearer: the capture was taken there.
    OtherEnd {
        /// As above.
        near_ns: u64,
        /// As above.
        far_ns: u64,
    },
}

/// The result of learning.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// Time of the first packet.
    pub from: Timestamp,
    /// Time of the last packet.
    pub to: Timestamp,
    /// Where the capture was taken.
    pub capture_point: CapturePoint,
    /// Unit of the distribution's values.
    pub by: By,
    /// Whether each value is its client's median.
    pub steady: bool,
    /// How the RTTs of connections were determined.
    pub tallies: Tallies,
    /// Number of client addresses (in IPv6, of /64 networks: one host has many addresses there); estimated, to within a
    /// few tenths of a percent, if there were too many to store.
    pub clients: u64,
    /// Whether the clients' figures (shares, variation, medians) are those of a sample.
    pub clients_sampled: bool,
    /// Effective sample size: (sum of shares)^2 / (sum of squared shares), after Kish. The connections of one client
    /// have similar RTTs, so this number, not theirs, determines the precision of a quantile.
    pub effective: f64,
    /// The quantiles as a curve: quantile and RTT in ns, both rising, between 1 and [`POINTS_MAX`] points. Value `k` of
    /// `n` is at `(k - 0.5) / n`, where `path` evaluates it.
    pub points: Vec<(f64, u64)>,
    /// The distribution, before its conversion to a curve.
    pub rtt_ns: schema::document::Quantiles,
    /// Some quantiles with their confidence intervals.
    pub estimates: Vec<Estimate>,
    /// Distribution of the connections over the clients.
    pub shares: Shares,
    /// Variation of the RTTs of one client; `None` if no client has enough connections.
    pub spread: Option<Spread>,
    /// Packet loss from clients to servers.
    pub up: Loss,
    /// Packet loss from servers to clients.
    pub down: Loss,
    /// Arrivals of connections and requests.
    pub arrivals: Arrivals,
    /// Whether the capture was taken at the configured capture point.
    pub place: CaptureLocation,
}

/// Why no profile can be learned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// No connection at all.
    #[error("no matching TCP connection was captured: there is nothing to learn from")]
    Nothing,
    /// Only SYNs.
    #[error(
        "{half_open} connections were attempted and none was established: either the server accepted none, or only one direction \
         was captured"
    )]
    HalfOpen {
        /// Number of SYNs.
        half_open: u64,
    },
    /// Connections without any known RTT.
    #[error(
        "the RTT of none of {connections} connections can be measured: they were open before the capture began, only \
         one direction was captured, or every packet was captured twice"
    )]
    Untold {
        /// Number of connections.
        connections: u64,
    },
    /// Too few RTTs for a distribution.
    #[error(
        "the RTT of {measured} connections can be measured (of {connections} captured), but {CONNECTIONS_MIN} are needed: \
         capture for longer"
    )]
    TooFew {
        /// Connections with an RTT.
        measured: u64,
        /// Connections.
        connections: u64,
    },
    /// Learning by requests without a readable request.
    #[error(
        "no HTTP request was readable on {connections} connections (encrypted, or the snaplen is too small): \
         learn by connection or by client instead"
    )]
    NoRequests {
        /// Number of connections.
        connections: u64,
    },
}

/// Minimum number of RTTs. With twenty, the sample median is within the middle half of the true distribution; below a
/// hundred a warning is appropriate.
pub const CONNECTIONS_MIN: u64 = 20;
/// A kernel responds to a SYN within this time, even when it is busy.
const KERNEL_RESPONSE_NS: u64 = 500_000;
/// Beyond this distance the capture was not taken at the configured end.
const NEAR_END_RTT_MAX_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
