//! A tunnel through an HTTP proxy (CONNECT, RFC 9110, section 9.3.6), asked for before TLS begins.

use http1::{Asked, response};

/// How tunnels are asked for.
#[derive(Clone, Debug, Default)]
pub struct Tunnelling {
    /// Value of the Proxy-Authorization header.
    pub authorization: Option<String>,
}

/// One connection's tunnel, until the proxy has answered.
#[derive(Debug)]
pub(crate) struct Tunnel {
    /// What is left to write.
    asking: Vec<u8>,
    /// What the proxy has said.
    answer: Vec<u8>,
    /// Bytes of all that it has said, also on the way.
    said: usize,
}

/// What the proxy says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Nothing whole yet.
    Later,
    /// The tunnel stands.
    Open,
    /// There is none, and this is why.
    Refused(u16),
    /// Not an answer.
    Malformed,
}

/// More than any proxy has to say before a tunnel.
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
    /// What is to be written.
    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.asking
    }

    /// So much of it was.
    pub(crate) fn wrote(&mut self, bytes: usize) {
        self.asking.drain(..bytes);
    }

    /// Takes in what the proxy says next. In a tunnel the server speaks only after the client has: what comes behind the
    /// proxy's answer in one read is no answer.
    pub(crate) fn take_in(&mut self, bytes: &[u8]) -> Answer {
        self.answer.extend_from_slice(bytes);
        self.said += bytes.len();
        loop {
            let head = match response::parse(&self.answer, Asked::Connect) {
                Ok(Some(head)) => head,
                // A proxy that is on the way without end would keep the loop from everything else.
                Ok(None) if self.said <= ANSWER_MAX => return Answer::Later,
                Ok(None) | Err(_) => return Answer::Malformed,
            };
            match head.status {
                // Something on the way (RFC 9110, section 15.2).
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
    fn a_tunnel_is_asked_for() {
        let known = Tunnelling { authorization: Some("Basic eA==".into()) };
        let tunnel = known.begin("2001:db8::1", 8443);
        let asked = String::from_utf8(tunnel.unwritten().to_vec()).unwrap();
        assert!(asked.starts_with("CONNECT [2001:db8::1]:8443 HTTP/1.1\r\nHost: [2001:db8::1]:8443\r\n"), "{asked}");
        assert!(asked.ends_with("\r\nProxy-Authorization: Basic eA==\r\n\r\n"), "{asked}");
        assert!(!String::from_utf8_lossy(Tunnelling::default().begin("h", 1).unwritten()).contains("Authorization"));
    }

    #[test]
    fn answers_are_read_however_they_come() {
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
