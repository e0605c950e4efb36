//! Where the shards meet: `nats://HOST:PORT/SESSION`.

use std::fmt;
use std::str::FromStr;

/// A NATS server, and the session of one load on it.
#[derive(Clone, PartialEq, Eq)]
pub struct Address {
    /// The server's URL, perhaps with user and password.
    pub server: String,
    /// The session: a part of every subject, so that two loads on one server do not mix.
    pub session: String,
}

impl Address {
    /// Session without one in the address.
    pub const DEFAULT_SESSION: &str = "load";
    /// Longest session.
    pub const SESSION_MAX: usize = 64;
}

impl FromStr for Address {
    type Err = String;

    fn from_str(typed: &str) -> Result<Self, String> {
        let expected = "expected nats://HOST[:PORT][/SESSION], or tls:// for TLS";
        let Some((scheme, rest)) = typed.split_once("://").filter(|(scheme, _)| matches!(*scheme, "nats" | "tls"))
        else {
            return Err(expected.into());
        };
        let (host, session) = rest.split_once('/').unwrap_or((rest, ""));
        let without_user = host.rsplit_once('@').map_or(host, |(_, host)| host);
        if without_user.is_empty() || without_user.starts_with(':') || host.contains(char::is_whitespace) {
            return Err(expected.into());
        }
        let session = if session.is_empty() { Self::DEFAULT_SESSION } else { session };
        let is_token = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if session.len() > Self::SESSION_MAX || !session.bytes().all(is_token) {
            return Err(format!(
                "session `{session}`: expected at most {} letters, digits, - and _",
                Self::SESSION_MAX
            ));
        }
        Ok(Address { server: format!("{scheme}://{host}"), session: session.into() })
    }
}

impl fmt::Display for Address {
    /// Without user and password.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, host) = self.server.split_once("://").unwrap_or(("nats", &self.server));
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        write!(formatter, "{scheme}://{host}/{}", self.session)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_server_and_a_session() {
        let parts = |typed: &str| typed.parse::<Address>().map(|address| (address.server, address.session));
        assert_eq!(parts("nats://h"), Ok(("nats://h".into(), "load".into())));
        assert_eq!(parts("nats://h:4222/"), Ok(("nats://h:4222".into(), "load".into())));
        assert_eq!(parts("tls://u:p@h:4222/a-1_B"), Ok(("tls://u:p@h:4222".into(), "a-1_B".into())));
        for wrong in [
            "",
            "h:4222",
            "http://h",
            "nats://",
            "nats://:4222",
            "nats://u@",
            "nats://h/a.b",
            "nats://h/*",
            "nats://h/a/b",
        ] {
            assert!(parts(wrong).is_err(), "{wrong}");
        }
        assert!(parts(&format!("nats://h/{}", "s".repeat(64))).is_ok());
        assert!(parts(&format!("nats://h/{}", "s".repeat(65))).is_err());
    }

    #[test]
    fn passwords_are_not_printed() {
        let address: Address = "nats://user:secret@h:4222/x".parse().unwrap();
        assert_eq!(address.to_string(), "nats://h:4222/x");
        assert_eq!(format!("{address:?}"), "nats://h:4222/x");
    }
}
