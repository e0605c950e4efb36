//! A row on its way: one exchange, as [`schema::TapExchange`] has it, with addresses that may be hashed.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use schema::{TapExchange, TapOutcome, TapSide};
use serde::{Deserialize, Serialize};

/// An exchange, a connection without one, or a lookup that failed. Fields are those of [`TapExchange`]; moments are ns of the
/// batch's clock. An absent field is not known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "said at TapExchange")]
pub struct Row {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connection: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub exchange: Option<u32>,
    #[serde(skip_serializing_if = "is_false", default)]
    pub last: bool,
    pub pid: u32,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub program: Option<String>,
    pub side: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub peer: Option<Peer>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub own: Option<Peer>,
    pub opened_at_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lookup_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub setup_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_first_at_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub sent_last_at_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_first_at_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub received_last_at_ns: Option<u64>,
    pub sent_bytes: u64,
    pub received_bytes: u64,
    pub calls: u64,
    pub blocked_ns: u64,
    pub outcome: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub closed_at_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub connection_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retransmits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unseen_bytes: Option<u64>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// An end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// The address.
    pub address: Address,
    /// The port.
    pub port: u16,
}

/// An address, or what stands for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Address {
    /// As it is.
    Plain(IpAddr),
    /// The first 64 bits of its HMAC-SHA-256 under the agent's key: `h:` and 16 hexadecimal digits.
    Hashed(u64),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Plain(ip) => ip.fmt(f),
            Address::Hashed(hash) => write!(f, "h:{hash:016x}"),
        }
    }
}

impl FromStr for Address {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "an address is one of IPv4 or IPv6, or h: and 16 hexadecimal digits";
        match text.strip_prefix("h:") {
            None => text.parse().map(Address::Plain).map_err(|_| WRONG),
            Some(digits) => {
                let is_plain = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
                if digits.len() != 16 || !digits.bytes().all(is_plain) {
                    return Err(WRONG);
                }
                u64::from_str_radix(digits, 16).map(Address::Hashed).map_err(|_| WRONG)
            }
        }
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl TryFrom<String> for Address {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl Row {
    /// Of an exchange whose moments count from the batch's zero. `address` says what stands for an address.
    pub fn of(exchange: &TapExchange, address: &dyn Fn(IpAddr) -> Address) -> Row {
        let ns = |at: Option<units::Timestamp>| at.map(units::Timestamp::as_nanos);
        let end = |end: Option<std::net::SocketAddr>| end.map(|e| Peer { address: address(e.ip()), port: e.port() });
        Row {
            connection: exchange.connection,
            exchange: exchange.exchange,
            last: exchange.last,
            pid: exchange.pid,
            program: exchange.program.as_deref().map(str::to_owned),
            side: exchange.side.as_str().to_owned(),
            peer: end(exchange.peer),
            own: end(exchange.own),
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

    /// When it ended, as [`TapExchange::ended_at`] has it.
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

    /// Whether it is a client's.
    pub fn is_clients(&self) -> bool {
        self.side == TapSide::Client.as_str()
    }
}
