//! One exchange as an agent sends it and the manager stores it: [`TapExchange`] with addresses that may be hashed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::table::{Column, Columns, Field, Kind, Value};
use crate::{TapExchange, TapOutcome, TapSide, group};

group! {
    /// An exchange, a connection without one, or a lookup that failed, as an agent sends it: [`TapExchange`] with
    /// addresses that may be hashed and with names as text. Times are ns of the batch's clock. An absent field is not
    /// known.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    pub struct TapRow {
        /// Number of the connection at the agent, in the order of opening. Null for a lookup that failed.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub connection: Option<u64>,
        /// Place on its connection, from 0, a greeting included. Null where the connection had none.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub exchange: Option<u32>,
        /// Whether it is the connection's last row: count these to count connections.
        #[serde(skip_serializing_if = "is_false", default)]
        pub last: bool,
        /// Process that opened or accepted the connection.
        pub pid: u32,
        /// Name of its program. Null if it ended before the name was read.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub program: Option<String>,
        /// Which end the program is: client (it called connect) or server (it called accept).
        pub side: String,
        /// Address of the other end, or h: and 16 hexadecimal digits where the agent hashes
        /// addresses. Null where it is not known.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub peer: Option<TapPeer>,
        /// Address of the program's own end, or its hash. Null where it is not known.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub local: Option<TapPeer>,
        /// connect called, accept returned, or the lookup called.
        pub opened_at_ns: u64,
        /// Time in getaddrinfo before it. Null on all rows but the first, and where there was none.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub lookup_ns: Option<u64>,
        /// connect called to connection established. Null on all rows but the first, at a server, and if it was not
        /// established.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub setup_ns: Option<u64>,
        /// First call that sent was entered. Null if nothing was sent.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub sent_first_at_ns: Option<u64>,
        /// Last call that sent had returned. Null if nothing was sent.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub sent_last_at_ns: Option<u64>,
        /// First call that received had returned: first byte received. Null if nothing was received.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub received_first_at_ns: Option<u64>,
        /// Last call that received had returned: last byte received. Null if nothing was received.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub received_last_at_ns: Option<u64>,
        /// Bytes written to the kernel.
        pub sent_bytes: u64 [unit "bytes"],
        /// Bytes read from the kernel.
        pub received_bytes: u64 [unit "bytes"],
        /// Calls that sent or received, those without data included.
        pub calls: u64,
        /// Time for which the socket blocked the program: inside its calls, and from EAGAIN to the next call that
        /// succeeded.
        pub blocked_ns: u64,
        /// succeeded, failed, cut, greeting, farewell or unused: as in taps.
        pub outcome: String,
        /// Why it failed: the system's name of the error, no_response, or given_up. Null if it did not fail.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub error: Option<String>,
        /// close called, or the program found to have ended. Null on all rows but the last, and where the agent's
        /// machine went down first.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub closed_at_ns: Option<u64>,
        /// Bytes sent and received on the whole connection, by the program's calls. Null on all rows but the last.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub connection_bytes: Option<u64> [unit "bytes"],
        /// Segments that TCP at this end retransmitted. Null on all rows but the last, and where TCP_INFO was not read.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub retransmits: Option<u64> [unit "segments"],
        /// Bytes that TCP counted and no hook saw. Null on all rows but the last, and where TCP_INFO was not read.
        #[serde(skip_serializing_if = "Option::is_none", default)]
        pub unseen_bytes: Option<u64> [unit "bytes"],
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// An end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapPeer {
    /// The address.
    pub address: TapAddress,
    /// The port.
    pub port: u16,
}

/// An address, or its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum TapAddress {
    /// A plain address.
    Plain(IpAddr),
    /// The first 64 bits of its HMAC-SHA-256 under the agent's key: `h:` and 16 hexadecimal digits.
    Hashed(u64),
}

impl fmt::Display for TapAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TapAddress::Plain(ip) => ip.fmt(f),
            TapAddress::Hashed(hash) => write!(f, "h:{hash:016x}"),
        }
    }
}

impl FromStr for TapAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "an address is one of IPv4 or IPv6, or h: and 16 hexadecimal digits";
        match text.strip_prefix("h:") {
            None => text.parse().map(TapAddress::Plain).map_err(|_| WRONG),
            Some(digits) => {
                let is_plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                if digits.len() != 16 || !digits.bytes().all(is_plain) {
                    return Err(WRONG);
                }
                u64::from_str_radix(digits, 16).map(TapAddress::Hashed).map_err(|_| WRONG)
            }
        }
    }
}

impl From<TapAddress> for String {
    fn from(address: TapAddress) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for TapAddress {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// An address and its port: two columns. An invalid address, which only a foreign file has, counts as unknown.
impl Columns for Option<TapPeer> {
    const BLANK: Self = None;

    fn columns<R, G, M>(field: Field<G, M>, columns: &mut Vec<Column<R>>)
    where
        R: 'static,
        G: Fn(&R) -> Option<&Self> + Copy + Send + 'static,
        M: Fn(&mut R) -> &mut Self + Copy + Send + 'static,
    {
        let port = field.port();
        field.column(
            Kind::Text,
            true,
            |end: &Option<TapPeer>| end.as_ref().map_or(Value::Null, |end| Value::Text(end.address.to_string().into())),
            |end, value| {
                let Value::Text(text) = value else { return false };
                *end = text.parse().ok().map(|address| TapPeer { address, port: 0 });
                true
            },
            columns,
        );
        port.column(
            Kind::Integer,
            true,
            |end: &Option<TapPeer>| end.as_ref().map_or(Value::Null, |end| Value::Integer(end.port.into())),
            |end, value| {
                let Value::Integer(port) = value else { return false };
                if let Some(end) = end {
                    end.port = u16::try_from(port).unwrap_or(0);
                }
                true
            },
            columns,
        );
    }
}

impl TapRow {
    /// The row of an exchange whose times count from the batch's zero. `address` converts an address, which may hash
    /// it.
    pub fn of(exchange: &TapExchange, address: &dyn Fn(IpAddr) -> TapAddress) -> TapRow {
        let ns = |at: Option<units::Timestamp>| at.map(units::Timestamp::as_nanos);
        let end = |end: Option<std::net::SocketAddr>| end.map(|e| TapPeer { address: address(e.ip()), port: e.port() });
        TapRow {
            connection: exchange.connection,
            exchange: exchange.exchange,
            last: exchange.last,
            pid: exchange.pid,
            program: exchange.program.as_deref().map(str::to_owned),
            side: exchange.side.as_str().to_owned(),
            peer: end(exchange.peer),
            local: end(exchange.local),
            opened_at_ns: exchange.opened_at.as_nanos(),
            lookup_ns: exchange.lookup_ns,
            setup_ns: exchange.setup_ns,
            sent_first_at_ns: ns(exchange.sent_first_at),
            sent_last_at_ns: ns(exchange.sent_last_at),
            received_first_at_ns: ns(exchange.received_first_at),
            received_last_at_ns: ns(exchange.received_last_at),
            sent_bytes: exchange.sent_bytes,
            received_bytes: exchange.received_bytes,
            calls: exchange.calls,
            blocked_ns: exchange.blocked_ns,
            outcome: exchange.outcome.as_str().to_owned(),
            error: exchange.error.map(|error| error.name()),
            closed_at_ns: ns(exchange.closed_at),
            connection_bytes: exchange.connection_bytes,
            retransmits: exchange.retransmits,
            unseen_bytes: exchange.unseen_bytes,
        }
    }

    /// End of the exchange, as [`TapExchange::ended_at`].
    pub fn ended_at_ns(&self) -> u64 {
        if self.connection.is_none() {
            return self.opened_at_ns.saturating_add(self.lookup_ns.unwrap_or(0));
        }
        let setup = self.setup_ns.map(|setup| self.opened_at_ns.saturating_add(setup));
        let moved = [self.sent_last_at_ns, self.received_last_at_ns].into_iter().flatten().max();
        let succeeded = self.outcome == TapOutcome::Succeeded.as_str();
        let closed = if succeeded { None } else { self.closed_at_ns };
        moved.max(closed).or(setup).unwrap_or(self.opened_at_ns)
    }

    /// Whether the row is of a client.
    pub fn is_clients(&self) -> bool {
        self.side == TapSide::Client.as_str()
    }
}
