//! One request-response exchange as the socket calls of a program show it.
//!
//! ```text
//!   at a client:   connect ─setup─ sent first ─send─ sent last ─wait─ received first ─receive─ received last .. close
//!   at a server:   accept ── received first ─receive─ received last ─wait─ sent first ─send─ sent last .. close
//! ```
//!
//! Times are those of the program's own calls: what it had written to the kernel, what it had received. Read
//! [`TapExchange`] first, then [`TapError`].

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use units::Timestamp;

use crate::record;

/// Which end of the connection the program is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TapSide {
    /// It called connect.
    #[default]
    Client,
    /// It called accept.
    Server,
}

impl TapSide {
    /// Both.
    pub const ALL: [TapSide; 2] = [TapSide::Client, TapSide::Server];

    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            TapSide::Client => "client",
            TapSide::Server => "server",
        }
    }
}

/// What a row is, and how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TapOutcome {
    /// An exchange with a response and without an error. The content of the response does not count: HTTP status 500
    /// succeeds.
    #[default]
    Succeeded,
    /// An exchange, a connect or a lookup that ended in an error: [`TapExchange::error`] says which.
    Failed,
    /// An exchange that was under way when the program or the run ended, or whose connection was there before the
    /// run. Neither a success nor a failure.
    Cut,
    /// Bytes before the first request, such as the greeting of a mail server. Not an attempt.
    Greeting,
    /// The last bytes of the client: it closed immediately without waiting for a response, or the other end had closed
    /// before; such as close_notify of TLS. Not an attempt.
    Farewell,
    /// An established connection without a request. Not an attempt.
    Unused,
}

impl TapOutcome {
    /// All of them.
    pub const ALL: [TapOutcome; 6] = [
        TapOutcome::Succeeded,
        TapOutcome::Failed,
        TapOutcome::Cut,
        TapOutcome::Greeting,
        TapOutcome::Farewell,
        TapOutcome::Unused,
    ];

    /// As written into files.
    pub const fn as_str(self) -> &'static str {
        match self {
            TapOutcome::Succeeded => "succeeded",
            TapOutcome::Failed => "failed",
            TapOutcome::Cut => "cut",
            TapOutcome::Greeting => "greeting",
            TapOutcome::Farewell => "farewell",
            TapOutcome::Unused => "unused",
        }
    }

    /// Whether it counts in error ratio and availability: it ended in success or failure.
    pub const fn is_attempt(self) -> bool {
        matches!(self, TapOutcome::Succeeded | TapOutcome::Failed)
    }
}

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TapError {
    /// A call of the socket interface failed with this number of Linux.
    Errno(i32),
    /// The lookup of a name failed with this number of getaddrinfo (`EAI_..`, negative) or gethostbyname (positive).
    Lookup(i32),
    /// The server closed the connection in order, without a byte of a response.
    NoResponse,
    /// The client closed the connection before it was established, or before a byte of a response.
    GivenUp,
}

impl TapError {
    /// As written into files: the system's own names (`ECONNREFUSED`, `EAI_NONAME`), `no_response`, `given_up`.
    pub fn name(self) -> String {
        match self {
            TapError::NoResponse => NO_RESPONSE.to_owned(),
            TapError::GivenUp => GIVEN_UP.to_owned(),
            TapError::Errno(number) => {
                of_number(ERRNO, number).map_or_else(|| format!("errno_{number}"), str::to_owned)
            }
            TapError::Lookup(number) => of_number(EAI, number).map_or_else(|| format!("eai_{number}"), str::to_owned),
        }
    }

    /// What [`name`](Self::name) wrote.
    pub fn from_name(name: &str) -> Option<TapError> {
        let of_name = |table: &[(i32, &str)]| table.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
        let numbered = |prefix| name.strip_prefix(prefix).and_then(|number: &str| number.parse().ok());
        match name {
            NO_RESPONSE => Some(TapError::NoResponse),
            GIVEN_UP => Some(TapError::GivenUp),
            _ => of_name(ERRNO)
                .or_else(|| numbered("errno_"))
                .map(TapError::Errno)
                .or_else(|| of_name(EAI).or_else(|| numbered("eai_")).map(TapError::Lookup)),
        }
    }
}

record! {
    // Some 250 bytes a row. The rows of a connection follow one another by `exchange`.
    /// One request-response exchange as the socket calls of a program show it (tap), in the order of ending; a
    /// connection without an exchange has one row, and so has a lookup that failed. Figures of a whole
    /// connection stand on its first row (lookup_ns, setup_ns) or on its last (closed_at_ns, retransmits,
    /// unseen_bytes). Times are those of the program's calls, in nanoseconds since the run's zero.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub struct TapExchange in "taps", 65_536 rows a part {
        /// Number of the connection in the run, in the order of opening. Null for a lookup that failed.
        pub connection: Option<u64>,
        /// Place on its connection, from 0, a greeting included. Null where the connection had none.
        pub exchange: Option<u32>,
        /// Whether it is the connection's last row: count these to count connections.
        pub last: bool,
        // As the process sees itself: in its own PID namespace.
        /// Process that opened or accepted the connection.
        pub pid: u32,
        /// Name of its program; bytes other than text as \xNN. Null if it ended before the name was read.
        #[serde(with = "shared_text")]
        pub program: Option<Arc<str>>,
        /// Which end the program is: client (it called connect) or server (it called accept).
        pub side: TapSide,
        /// Address of the other end. Null where it is not known.
        pub peer: Option<SocketAddr>,
        /// Address of the program's own end. Null where it is not known.
        pub local: Option<SocketAddr>,
        /// connect called, accept returned, or the lookup called.
        pub opened_at: Timestamp,
        // The last lookup of the same thread since its last connect; where that made none, the last of the process that
        // no connect has followed.
        /// Time in getaddrinfo before it. Null on all rows but the first, and where there was none.
        pub lookup_ns: Option<u64>,
        /// connect called to connection established. Null on all rows but the first, at a server, and if it was not
        /// established.
        pub setup_ns: Option<u64>,
        /// First call that sent was entered. Null if nothing was sent.
        pub sent_first_at: Option<Timestamp>,
        /// Last call that sent had returned. Null if nothing was sent.
        pub sent_last_at: Option<Timestamp>,
        /// First call that received had returned: first byte received. Null if nothing was received.
        pub received_first_at: Option<Timestamp>,
        /// Last call that received had returned: last byte received. Null if nothing was received.
        pub received_last_at: Option<Timestamp>,
        // Ds at a client.
        /// Bytes written to the kernel.
        pub sent_bytes: u64 [unit "bytes"],
        // Dr at a client.
        /// Bytes read from the kernel.
        pub received_bytes: u64 [unit "bytes"],
        /// Calls that sent or received, those without data included.
        pub calls: u64,
        // Overlapping periods are counted once.
        /// Time for which the socket blocked the program: inside its calls, and from EAGAIN to the next call that
        /// succeeded.
        pub blocked_ns: u64,
        /// succeeded; failed; cut (under way when the program or the run ended); greeting (before the
        /// first request); farewell (last bytes, without a response); unused (no request).
        pub outcome: TapOutcome,
        /// Why it failed: the system's name of the error, no_response, or given_up. Null if it did not fail.
        pub error: Option<TapError>,
        /// close called, or the program found to have ended. Null on all rows but the last, and where the run ended
        /// first.
        pub closed_at: Option<Timestamp>,
        /// Bytes sent and received on the whole connection, by the program's calls. Null on all rows but the last.
        pub connection_bytes: Option<u64> [unit "bytes"],
        /// Segments that TCP at this end retransmitted. Null on all rows but the last, and where TCP_INFO was not read.
        pub retransmits: Option<u64> [unit "segments"],
        // Bytes that bypass the library.
        /// Bytes that TCP counted and no hook saw. Null on all rows but the last, and where TCP_INFO was not read.
        pub unseen_bytes: Option<u64> [unit "bytes"],
    }
}

impl TapExchange {
    /// Ts at a client: first call that sent entered, to the last one returned. `None` if nothing was sent.
    pub fn send_ns(&self) -> Option<u64> {
        between(self.sent_first_at, self.sent_last_at)
    }

    /// Tr at a client: first byte received to last byte received. `None` if nothing was received; 0 if one call
    /// received everything.
    pub fn receive_ns(&self) -> Option<u64> {
        between(self.received_first_at, self.received_last_at)
    }

    /// Waiting time. At a client: request sent to first byte of the response (for a greeting: connection established to
    /// first byte). At a server: last byte of the request received to the first call that sent the response, which is
    /// the server's own time. 0 if the response began before the request ended; `None` without a response, or without a
    /// request.
    pub fn wait_ns(&self) -> Option<u64> {
        match (self.side, self.outcome) {
            // A greeting is on the first row, which has the set-up time.
            (TapSide::Client, TapOutcome::Greeting) => {
                let made = self.opened_at.as_nanos().saturating_add(self.setup_ns?);
                Some(self.received_first_at?.as_nanos().saturating_sub(made))
            }
            (TapSide::Server, TapOutcome::Greeting) => between(Some(self.opened_at), self.sent_first_at),
            (TapSide::Client, _) => between(self.sent_last_at, self.received_first_at),
            (TapSide::Server, _) => between(self.received_last_at, self.sent_first_at),
        }
    }

    /// Response time: start of the request to end of the response, Ts + wait + Tr. `None` if one of these is absent,
    /// and for a greeting.
    pub fn response_ns(&self) -> Option<u64> {
        match (self.outcome, self.side) {
            (TapOutcome::Greeting, _) => None,
            (_, TapSide::Client) => between(self.sent_first_at, self.received_last_at),
            (_, TapSide::Server) => between(self.received_first_at, self.sent_last_at),
        }
    }

    /// Tc: connect called (or accept returned) to close. On the last row only.
    pub fn connection_ns(&self) -> Option<u64> {
        between(Some(self.opened_at), self.closed_at)
    }

    /// Ra: bytes both ways over Tc, in bytes a second. On the last row only; `None` if Tc is 0 or absent.
    pub fn overall_rate(&self) -> Option<f64> {
        per_second(self.connection_bytes?, self.connection_ns()?)
    }

    /// Rs = Ds / Ts, in bytes a second. `None` if Ts is 0 or absent.
    pub fn send_rate(&self) -> Option<f64> {
        per_second(self.sent_bytes, self.send_ns()?)
    }

    /// Rr = Dr / Tr, in bytes a second. `None` if Tr is 0 or absent. Bias: the bytes of the first call are in Dr, but
    /// their time of arrival is in the wait, so a response received by few calls has too high a rate.
    pub fn receive_rate(&self) -> Option<f64> {
        per_second(self.received_bytes, self.receive_ns()?)
    }

    /// End of the exchange: its last known time.
    pub fn ended_at(&self) -> Timestamp {
        if self.connection.is_none() {
            return Timestamp::from_nanos(self.opened_at.as_nanos().saturating_add(self.lookup_ns.unwrap_or(0)));
        }
        let setup = self.setup_ns.map(|setup| Timestamp::from_nanos(self.opened_at.as_nanos().saturating_add(setup)));
        let moved = [self.sent_last_at, self.received_last_at].into_iter().flatten().max();
        // After a successful exchange the close does not belong to the exchange; after a failure it does.
        let closed = if self.outcome == TapOutcome::Succeeded { None } else { self.closed_at };
        moved.max(closed).or(setup).unwrap_or(self.opened_at)
    }
}

/// Bytes over nanoseconds as bytes a second; `None` over a time of zero.
pub fn per_second(bytes: u64, nanos: u64) -> Option<f64> {
    (nanos > 0).then(|| bytes as f64 * 1e9 / nanos as f64)
}

fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<u64> {
    Some(to?.as_nanos().saturating_sub(from?.as_nanos()))
}

fn of_number(table: &'static [(i32, &'static str)], number: i32) -> Option<&'static str> {
    table.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

/// Serde adapter: text that rows share, written out with each.
pub mod shared_text {
    use std::sync::Arc;

    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    /// Writes the text.
    ///
    /// # Errors
    /// Only those of the serializer.
    pub fn serialize<S: Serializer>(text: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
        text.as_deref().serialize(serializer)
    }

    /// Reads the text, not shared yet.
    ///
    /// # Errors
    /// The value is not text.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Arc<str>>, D::Error> {
        Ok(Option::<String>::deserialize(deserializer)?.map(Arc::from))
    }
}

const NO_RESPONSE: &str = "no_response";
const GIVEN_UP: &str = "given_up";

/// Numbers of Linux that are the same on all its common architectures (asm-generic/errno.h): the errors of sockets.
const ERRNO: &[(i32, &str)] = &[
    (1, "EPERM"),
    (4, "EINTR"),
    (5, "EIO"),
    (9, "EBADF"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (32, "EPIPE"),
    (71, "EPROTO"),
    (88, "ENOTSOCK"),
    (90, "EMSGSIZE"),
    (95, "EOPNOTSUPP"),
    (97, "EAFNOSUPPORT"),
    (98, "EADDRINUSE"),
    (99, "EADDRNOTAVAIL"),
    (100, "ENETDOWN"),
    (101, "ENETUNREACH"),
    (102, "ENETRESET"),
    (103, "ECONNABORTED"),
    (104, "ECONNRESET"),
    (105, "ENOBUFS"),
    (106, "EISCONN"),
    (107, "ENOTCONN"),
    (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"),
    (112, "EHOSTDOWN"),
    (113, "EHOSTUNREACH"),
    (114, "EALREADY"),
    (115, "EINPROGRESS"),
];

/// Numbers of glibc's getaddrinfo, and of gethostbyname's h_errno (netdb.h).
const EAI: &[(i32, &str)] = &[
    (1, "HOST_NOT_FOUND"),
    (2, "TRY_AGAIN"),
    (3, "NO_RECOVERY"),
    (4, "NO_DATA"),
    (-1, "EAI_BADFLAGS"),
    (-2, "EAI_NONAME"),
    (-3, "EAI_AGAIN"),
    (-4, "EAI_FAIL"),
    (-5, "EAI_NODATA"),
    (-6, "EAI_FAMILY"),
    (-7, "EAI_SOCKTYPE"),
    (-8, "EAI_SERVICE"),
    (-9, "EAI_ADDRFAMILY"),
    (-10, "EAI_MEMORY"),
    (-11, "EAI_SYSTEM"),
    (-12, "EAI_OVERFLOW"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_parsed_from_its_name() {
        let all = [TapError::NoResponse, TapError::GivenUp, TapError::Errno(4000), TapError::Lookup(-200)];
        let errnos = ERRNO.iter().map(|(number, _)| TapError::Errno(*number));
        let lookups = EAI.iter().map(|(number, _)| TapError::Lookup(*number));
        for error in all.into_iter().chain(errnos).chain(lookups) {
            assert_eq!(TapError::from_name(&error.name()), Some(error));
        }
        assert_eq!(TapError::from_name("ENOSUCH"), None);
    }

    #[test]
    fn a_rate_over_zero_time_is_absent() {
        let at = |ns| Some(Timestamp::from_nanos(ns));
        let row = TapExchange {
            sent_first_at: at(10),
            sent_last_at: at(10),
            received_first_at: at(20),
            received_last_at: at(1_000_000_020),
            sent_bytes: 5,
            received_bytes: 7,
            ..TapExchange::BLANK
        };
        assert_eq!((row.send_ns(), row.send_rate()), (Some(0), None));
        assert_eq!((row.receive_ns(), row.receive_rate()), (Some(1_000_000_000), Some(7.0)));
        assert_eq!((row.wait_ns(), row.response_ns()), (Some(10), Some(1_000_000_010)));
        assert_eq!(row.connection_ns(), None);
    }
}
