//! Learning a path from what a real server's packets showed: how far away its clients are, how they share the load,
//! what is lost on the way, how connections and requests arrive.
//!
//! ```text
//!   ConnectionRecord --> distance: handshake, else data --> three histograms: by connection, by request, by client
//!                   \--> clients: connections, requests, some RTTs of each (a bounded sample of clients)
//!                   \--> loss: what was sent again, what came late          \--> curve: points of the quantiles
//!   WireRequest -------> arrivals: a count for each second
//! ```
//!
//! Memory is bounded, however long the capture and however many its clients: histograms have a fixed size, at most
//! [`LearnSpec::clients_max`] clients are kept (then they are a sample of all, each client with the same chance), and
//! at most [`BINS_MAX`] counts over time.
//!
//! **Whose quantiles?** `bench` gives client `i` of `n` the quantile `(i + 0.5) / n` and spreads arrivals evenly over
//! clients. So what its server sees has the distribution of the profile *over arrivals*, and a profile that is to put
//! the same load on a server must be learned over connections ([`By::Connection`], for one request a connection) or
//! over requests ([`By::Request`]). Over clients ([`By::Client`]) one who came once counts as much as one who came a
//! thousand times: that is where the clients are, not where the load comes from.
//!
//! Read [`Learn`] first, then [`Learned`] for what comes out, `distance` for what is a connection's RTT.

mod arrivals;
mod clients;
mod curve;
mod distance;
mod loss;

use std::net::IpAddr;

use schema::{ConnectionRecord, WireRequest};
use stats::Histogram;
use units::Timestamp;

pub use arrivals::{Arrivals, BINS_MAX, BINS_MIN, Bin, Pace};
pub use clients::{Heavy, Shares, Spread};
pub use curve::{Estimate, POINTS_MAX, points};
pub use loss::Loss;

use crate::CapturePoint;
use arrivals::Counts;
use clients::Clients;
use distance::Told;
use loss::LossSums;

/// What to learn from, and how much to hold.
#[derive(Clone, Debug)]
pub struct LearnSpec {
    /// Where the packets were captured.
    pub capture_point: CapturePoint,
    /// Only connections to these addresses; empty for any.
    pub servers: Vec<IpAddr>,
    /// Only connections to these ports; empty for any.
    pub ports: Vec<u16>,
    /// No connections from these clients: monitors, load balancers' health checks. Of IPv6 each means its /64 network.
    pub except: Vec<IpAddr>,
    /// Clients held at once, at least 1. About 220 bytes each.
    pub clients_max: usize,
    /// Seed of the samples: which clients are kept when there are too many, and which RTTs of each.
    pub seed: u64,
}

impl Default for LearnSpec {
    /// At the server, everything, 131,072 clients: their quantiles are then within 0.3 % of rank of those of all.
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

/// What each value of the distribution stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// A connection: reproduces the load of connections, by each connection's own RTT.
    #[default]
    Connection,
    /// A request, by the RTT of its connection. Needs requests in clear.
    Request,
    /// A client address, by the median of its connections' RTTs.
    Client,
}

impl By {
    /// As on the command line and in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            By::Connection => "connection",
            By::Request => "request",
            By::Client => "client",
        }
    }
}

/// Takes in the records of a capture, in any order.
#[derive(Debug)]
pub struct Learn {
    spec: LearnSpec,
    clients: Clients,
    by_connection: Histogram,
    by_request: Histogram,
    /// Handshakes' parts towards the client and towards the server: they tell where the capture was taken.
    parts: [Histogram; 2],
    tallies: Tallies,
    loss: LossSums,
    arrivals: Counts,
}

/// How connections were told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tallies {
    /// Connections that were established, or open when the capture began.
    pub connections: u64,
    /// SYNs that led to no connection: refused, unanswered, given up, scans. They are in no other figure.
    pub half_open: u64,
    /// Connections whose RTT is that of their handshake.
    pub by_handshake: u64,
    /// Connections without a handshake of use whose RTT is the smallest one of their data.
    pub by_data: u64,
    /// Connections of which no RTT can be told; in every figure but the distances.
    pub untold: u64,
    /// Requests on the connections.
    pub requests: u64,
    /// Established connections whose SYN-ACK was sent more than once: lost, or answered later than the server waits
    /// (a second on Linux).
    pub handshakes_repeated: u64,
}

impl Learn {
    /// Nothing learned yet.
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

    /// Takes closed connections in.
    pub fn add_connections(&mut self, records: &[ConnectionRecord]) {
        for record in records {
            if self.wants(record.client.ip(), record.server) {
                self.add_connection(record);
            }
        }
    }

    /// Takes ended requests in.
    pub fn add_requests(&mut self, requests: &[WireRequest]) {
        for request in requests {
            if let (true, Some(at)) = (self.wants(request.client.ip(), request.server), request.request_first_at) {
                self.arrivals.request(at);
            }
        }
    }

    /// How connections were told apart so far.
    pub fn tallies(&self) -> Tallies {
        self.tallies
    }

    /// What was learned from a capture that lasted from `from` to `to`. With `steady` every connection counts with its
    /// client's median RTT instead of its own, for a profile that varies each packet's delay besides
    /// ([`Learned::spread`]): with its own the jitter would be in twice.
    ///
    /// # Errors
    /// What was seen does not make a distribution: see [`LearnError`].
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
        let told = self.tallies.by_handshake + self.tallies.by_data;
        if told == 0 {
            return Err(LearnError::Untold { connections });
        }
        if told < CONNECTIONS_MIN {
            return Err(LearnError::TooFew { told, connections });
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

    fn wants(&self, client: IpAddr, server: std::net::SocketAddr) -> bool {
        let among = |wanted: &[IpAddr]| wanted.is_empty() || wanted.contains(&server.ip());
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
        let told = distance::told(record, self.spec.capture_point);
        let rtt_ns = match told {
            Told::Handshake(rtt_ns) => {
                self.tallies.by_handshake += 1;
                Some(rtt_ns)
            }
            Told::Data(rtt_ns) => {
                self.tallies.by_data += 1;
                Some(rtt_ns)
            }
            Told::Nothing => {
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

    /// What handshakes say about where the capture was taken: beside an end, the part towards that end is next to
    /// nothing.
    fn place(&self) -> Place {
        let [towards_client, towards_server] =
            self.parts.each_ref().map(|part| (!part.is_empty()).then(|| part.value_at(0.5)));
        let (Some(client_ns), Some(server_ns)) = (towards_client, towards_server) else { return Place::AsTold };
        let (near, far) = match self.spec.capture_point {
            CapturePoint::AtServer => (server_ns, client_ns),
            CapturePoint::AtClient => (client_ns, server_ns),
            CapturePoint::Between => return Place::AsTold,
        };
        if near > WRONG_END_NS && near > far.saturating_mul(2) {
            Place::OtherEnd { near_ns: near, far_ns: far }
        } else if near > BESIDE_NS && near > far / 10 {
            Place::Between { near_ns: near, far_ns: far }
        } else {
            Place::AsTold
        }
    }
}

/// Whether the capture was taken where it is said to have been.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Nothing speaks against it.
    #[default]
    AsTold,
    /// The end it is said to be beside is some way off: part of the distance is missing.
    Between {
        /// Median from the capture to the end it should be beside, and back.
        near_ns: u64,
        /// Median to the other end and back: what was learned.
        far_ns: u64,
    },
    /// The other end is nearer: it was taken there.
    OtherEnd {
        /// As above.
        near_ns: u64,
        /// As above.
        far_ns: u64,
    },
}

/// What a capture told.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// First moment of the capture.
    pub from: Timestamp,
    /// Last moment of the capture.
    pub to: Timestamp,
    /// Where it was taken.
    pub capture_point: CapturePoint,
    /// What each value of the distribution stands for.
    pub by: By,
    /// Whether each stands with its client's median.
    pub steady: bool,
    /// How connections were told apart.
    pub tallies: Tallies,
    /// Number of client addresses (of IPv6, of /64 networks: one host takes many addresses there); estimated, to
    /// within a few parts in a thousand, where they were too many to hold.
    pub clients: u64,
    /// Whether the clients' own figures (shares, spread, medians) are of a sample of them.
    pub clients_sampled: bool,
    /// How many clients with equal shares would tell as much: (sum of shares)^2 / (sum of squared shares), after
    /// Kish. One client's connections all have about one RTT, so this and not their number says how sure a quantile is.
    pub effective: f64,
    /// The quantiles as a curve: quantile and RTT in ns, both rising, between 1 and [`POINTS_MAX`] points.
    /// Value `k` of `n` stands at `(k - 0.5) / n`, where `path` asks for it.
    pub points: Vec<(f64, u64)>,
    /// The distribution, before it was made a curve.
    pub rtt_ns: schema::document::Quantiles,
    /// Some quantiles, and how far off they may be.
    pub estimates: Vec<Estimate>,
    /// How the connections are shared among the clients.
    pub shares: Shares,
    /// How much the RTTs of one client differ; `None` where none has enough connections.
    pub spread: Option<Spread>,
    /// Loss on the way up.
    pub up: Loss,
    /// Loss on the way down.
    pub down: Loss,
    /// How connections and requests came.
    pub arrivals: Arrivals,
    /// Whether the capture was taken where it is said to have been.
    pub place: Place,
}

/// Why nothing can be learned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LearnError {
    /// No connection at all.
    #[error("no TCP connection that is asked for was seen: there is nothing to learn from")]
    Nothing,
    /// Only SYNs.
    #[error(
        "{half_open} connections were begun and none was established: either nobody was served, or only one direction \
         was captured"
    )]
    HalfOpen {
        /// Their number.
        half_open: u64,
    },
    /// Connections, and not one distance.
    #[error(
        "the distance of none of {connections} connections can be told: they were open before the capture began, only \
         one direction was captured, or every packet was captured twice"
    )]
    Untold {
        /// Connections.
        connections: u64,
    },
    /// Too few distances for a distribution.
    #[error(
        "the distance of {told} connections can be told ({connections} were seen), and {CONNECTIONS_MIN} are needed: \
         capture for longer"
    )]
    TooFew {
        /// Connections with an RTT.
        told: u64,
        /// Connections.
        connections: u64,
    },
    /// Requests were asked for, and none was readable.
    #[error(
        "no HTTP request was readable on {connections} connections (encrypted, or too little kept of each packet): \
         learn by connection or by client instead"
    )]
    NoRequests {
        /// Connections.
        connections: u64,
    },
}

/// Fewer distances than this are refused. Twenty place a median within the middle half of the truth; under a hundred
/// is worth a warning.
pub const CONNECTIONS_MIN: u64 = 20;
/// A kernel answers a SYN within this, also when it is busy.
const BESIDE_NS: u64 = 500_000;
/// Nobody is that far from the end he is beside.
const WRONG_END_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests;
