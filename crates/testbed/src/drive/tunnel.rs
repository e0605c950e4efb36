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
    /// Bytes of the CONNECT request left to write.
    outgoing: Vec<u8>,
    /// Received bytes of the proxy's response.
    response_bytes: Vec<u8>,
    /// Number of received bytes, including 1xx responses.
    received: usize,
}

/// The proxy's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyResponse {
    /// The response is incomplete.
    Incomplete,
    /// The tunnel is open.
    Open,
    /// The proxy refused, with this reason.
    Refused(u16),
    /// Not an HTTP response.
    Malformed,
}

/// More bytes than any proxy sends before a tunnel is open.
const RESPONSE_BYTES_MAX: usize = 64 << 10;

impl Tunnelling {
    /// A tunnel to `host` (an IPv6 address without its brackets) and `port`.
    pub(crate) fn begin(&self, host: &str, port: u16) -> Tunnel {
        let to = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        let authorization = self.authorization.as_ref().map(|value| format!("Proxy-Authorization: {value}\r\n"));
        let authorization = authorization.unwrap_or_default();
        let agent = concat!("yamabiko/", env!("CARGO_PKG_VERSION"));
        let outgoing =
            format!("CONNECT {to} HTTP/1.1\r\nHost: {to}\r\nUser-Agent: {agent}\r\n{authorization}\r\n").into_bytes();
        Tunnel { outgoing, response_bytes: Vec::new(), received: 0 }
    }
}

impl Tunnel {
    /// Bytes to write.
    pub(crate) fn unwritten(&self) -> &[u8] {
        &self.outgoing
    }

    /// Records that `bytes` of them were written.
    pub(crate) fn note_written(&mut self, bytes: usize) {
        self.outgoing.drain(..bytes);
    }

    /// Parses further bytes of the proxy. In a tunnel the server sends only after the client has: bytes after the
    /// proxy's response in the same read are an error.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> ProxyResponse {
        self.response_bytes.extend_from_slice(bytes);
        self.received += bytes.len();
        loop {
            let head = match response::parse(&self.response_bytes, RequestMethod::Connect) {
                Ok(Some(head)) => head,
                // A proxy that sends 1xx responses without end would block the loop.
                Ok(None) if self.received <= RESPONSE_BYTES_MAX => return ProxyResponse::Incomplete,
                Ok(None) | Err(_) => return ProxyResponse::Malformed,
            };
            match head.status {
                // A 1xx response (RFC 9110, section 15.2).
                100..=199 => drop(self.response_bytes.drain(..head.length)),
                200..=299 if self.response_bytes.len() == head.length => return ProxyResponse::Open,
                200..=299 => return ProxyResponse::Malformed,
                status => return ProxyResponse::Refused(status),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn responses(pieces: &[&str]) -> Vec<ProxyResponse> {
        let mut tunnel = Tunnelling::default().begin("h", 443);
        pieces.iter().map(|piece| tunnel.receive(piece.as_bytes())).collect()
    }

    #[test]
    fn a_tunnel_is_requested_with_connect() {
        let with_credentials = Tunnelling { authorization: Some("Basic eA==".into()) };
        let tunnel = with_credentials.begin("2001:db8::1", 8443);
        let request = String::from_utf8(tunnel.unwritten().to_vec()).unwrap();
        assert!(
            request.starts_with("CONNECT [2001:db8::1]:8443 HTTP/1.1\r\nHost: [2001:db8::1]:8443\r\n"),
            "{request}"
        );
        assert!(request.ends_with("\r\nProxy-Authorization: Basic eA==\r\n\r\n"), "{request}");
        assert!(!String::from_utf8_lossy(Tunnelling::default().begin("h", 1).unwritten()).contains("Authorization"));
    }

    #[test]
    fn proxy_responses_do_not_depend_on_how_bytes_are_split() {
        assert_eq!(responses(&["HTTP/1.1 200 Connection established\r\n\r\n"]), [ProxyResponse::Open]);
        assert_eq!(
            responses(&["HTTP/1.0 200\r", "\nX: y\r\n\r", "\n"]),
            [ProxyResponse::Incomplete, ProxyResponse::Incomplete, ProxyResponse::Open]
        );
        assert_eq!(responses(&["HTTP/1.1 100 Go\r\n\r\nHTTP/1.1 204 No\r\n\r\n"]), [ProxyResponse::Open]);
        assert_eq!(responses(&["HTTP/1.1 407 Who?\r\nContent-Length: 3\r\n\r\nwho"]), [ProxyResponse::Refused(407)]);
        for bad in [
            "SSH-2.0-x",
            "HTTP/1.1 20x \r\n\r\n",
            "HTTP/1.1 2000 \r\n\r\n",
            "HTTP/1.1 200 \r\n\r\nmore",
            "HTTP/1.1 099 \r\n\r\n",
        ] {
            assert_eq!(responses(&[bad]), [ProxyResponse::Malformed], "{bad}");
        }
        assert_eq!(
            responses(&["HTTP/1.1 200 ", &"x".repeat(RESPONSE_BYTES_MAX)]),
            [ProxyResponse::Incomplete, ProxyResponse::Malformed]
        );
        let interim = "HTTP/1.1 100 Go\r\n\r\n".repeat(RESPONSE_BYTES_MAX / 38);
        assert_eq!(
            responses(&[interim.as_str(); 3]),
            [ProxyResponse::Incomplete, ProxyResponse::Incomplete, ProxyResponse::Malformed]
        );
    }
}
