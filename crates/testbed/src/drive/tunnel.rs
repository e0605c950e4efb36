//! A tunnel through an HTTP proxy (CONNECT, RFC 9110, section 9.3.6), created before TLS begins.

use http1::{RequestMethod, response};

/// Settings of tunnels.
#[derive(Clone, Debug, Default)]
pub struct Tunnelling {
    /// Value of the Proxy-Authorization header.
    pub authorization: Option<String>,
}

/// The tunnel of one connection, until the proxy has responded.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// Bytes left to write.
    asking: Vec<u8>,
    /// Received bytes of the proxy's response.
    answer: Vec<u8>,
    /// Number of received bytes, including 1xx responses.
    said: usize,
}

/// The proxy's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Incomplete.
    Later,
    /// The tunnel is open.
    Open,
    /// The proxy refused, with this reason.
    Refused(u16),
    /// Not an HTTP response.
    Malformed,
}

/// More bytes than any proxy sends before a tunnel is open.
const ANSWER_MAX: usize = 64 << 10;

impl Tunnelling {
    /// A tunnel to `host` (an IPv6 address without its brackets) and `port`.
    pub(crate) fn begin(&self, host: &str, port: u16) -> Tunnel {
        let to = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let who = self.authorization.as_ref().map(|value| format!("Proxy-Authorization: {value}\r\n"));
        let who = who.unwrap_or_default();
        let agent = concat!("yamabiko/", env!("CARGO_PKG_VERSION"));
        let asking = format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: {agent}\r\n{who}\r\n").into_bytes();
        Tunnel { asking, answer: Vec::new(), said: 0 }
    }
}

impl Tunnel {
    /// Bytes to write.
    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.asking
    }

    /// This many of them were written.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.asking.drain(..bytes);
    }

    /// Parses further bytes of the proxy. In a tunnel the server sends only after the client has: bytes after the
    /// proxy's response in the same read are an error.
    pub(crate) fn take_in(&mut self, bytes: &[u8]) -> Answer {
        self.answer.extend_from_slice(bytes);
        self.said += bytes.len();
        loop {
            let head = match response::parse(&self.answer, RequestMethod::Connect) {
                Ok(Some(head)) => head,
                // A proxy that sends 1xx responses without end would block the loop.
                Ok(None) if self.said <= ANSWER_MAX => return Answer::Later,
                Ok(None) | Err(_) => return Answer::Malformed,
            };
            match head.status {
                // A 1xx response (RFC 9110, section 15.2).
                100..=199 => drop(self.answer.drain(..head.length)),
                200..=299 if self.answer.len() == head.length => return Answer::Open,
                200..=299 => return Answer::Malformed,
                status => return Answer::Refused(status),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(pieces: &[&str]) -> Vec<Answer> {
        let mut tunnel = Tunnelling::default().begin("h", 443);
        pieces.iter().map(|piece| tunnel.take_in(piece.as_bytes())).collect()
    }

    #[test]
    fn a_tunnel_is_requested_with_connect() {
        let known = Tunnelling { authorization: Some("Basic eA==".into()) };
        let tunnel = known.begin("2001:db8::1", 8443);
        let asked = String::from_utf8(tunnel.unwritten().to_vec()).unwrap();
        assert!(asked.starts_with("CONNECT [2001:db8::1]:8443 HTTP/1.1\r\nHost: [2001:db8::1]:8443\r\n"), "{asked}");
        assert!(asked.ends_with("\r\nProxy-Authorization: Basic eA==\r\n\r\n"), "{asked}");
        assert!(!String::from_utf8_lossy(Tunnelling::default().begin("h", 1).unwritten()).contains("Authorization"));
    }

    #[test]
    fn proxy_responses_do_not_depend_on_how_bytes_are_split() {
        assert_eq!(answered(&["HTTP/1.1 200 Connection established\r\n\r\n"]), [Answer::Open]);
        assert_eq!(answered(&["HTTP/1.0 200\r", "\nX: y\r\n\r", "\n"]), [Answer::Later, Answer::Later, Answer::Open]);
        assert_eq!(answered(&["HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 204 No\r\n\r\n"]), [Answer::Open]);
        assert_eq!(answered(&["HTTP/1.1 407 Who?\r\nContent-Length: 3\r\n\r\nwho"]), [Answer::Refused(407)]);
        for bad in [
            "SSH-2.0-x",
            "HTTP/1.1 20x \r\n\r\n",
            "HTTP/1.1 2000 \r\n\r\n",
            "HTTP/1.1 200 \r\n\r\nmore",
            "HTTP/1.1 099 \r\n\r\n",
        ] {
            assert_eq!(answered(&[bad]), [Answer::Malformed], "{bad}");
        }
        assert_eq!(answered(&["HTTP/1.1 200 ", &"x".repeat(ANSWER_MAX)]), [Answer::Later, Answer::Malformed]);
        let on_the_way = "HTTP/1.1 100 Go\r\n\r\n".repeat(ANSWER_MAX / 38);
        assert_eq!(answered(&[on_the_way.as_str(); 3]), [Answer::Later, Answer::Later, Answer::Malformed]);
    }
}
