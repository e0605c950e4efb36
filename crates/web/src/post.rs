//! HTTP client for pushing messages to one receiver over a persistent connection.
//!
//! The client follows no redirects and uses no proxy, so that headers reach only the named host. The receiver's
//! response is limited in length and printed as one line of printable characters ([`Reply::first_line`]). The client
//! never retries: whether a retry is correct depends on the protocol.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::header::{HeaderName, HeaderValue};
use rustls::CertificateError;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// Address, headers and trust settings of a receiver.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// URL, http:// or https://.
    pub url: String,
    /// Headers of every message. Mark secret values as sensitive: this struct can be printed.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Which certificates are trusted.
    pub roots: Roots,
    /// Timeout of one message and its response; connecting takes at most 10 s of it.
    pub timeout: Duration,
}

/// Which certificates are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// The certificates of the system.
    #[default]
    System,
    /// Only the certificates of this PEM file.
    File(PathBuf),
    /// Any certificate: the receiver's identity is not checked.
    Unchecked,
}

/// A client for one receiver.
#[derive(Clone, Debug)]
pub struct Post {
    agent: Agent,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// A receiver's response, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Status code.
    pub status: u16,
    /// `Retry-After`, if it is a number of seconds.
    pub retry_after: Option<Duration>,
    /// The body; empty if it is longer than 64 KB.
    pub body: Vec<u8>,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The receiver was not reached, or the connection ended before the response. A retry may succeed. Whether the
    /// receiver accepted the message is unknown.
    #[error("{0}")]
    Unreachable(String),
    /// The certificate is not trusted for this name. Nothing was sent.
    #[error("{text}")]
    Untrusted {
        /// What is wrong with the certificate.
        why: CertificateProblem,
        /// Error text.
        text: String,
    },
    /// The message cannot be sent, or the receiver violates the protocol. A retry fails again.
    #[error("{0}")]
    Permanent(String),
}

/// What is wrong with a receiver's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateProblem {
    /// No trusted issuer signed the certificate.
    Issuer,
    /// The certificate is for other names.
    Name,
    /// The certificate is expired or not valid yet.
    Time,
    /// Any other error.
    Other,
}

/// Result of a message, by the status of the response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Status 2xx, with the body.
    Accepted(Vec<u8>),
    /// A retry may succeed, not before this time from now, if the receiver gives one. With the reason.
    Retryable(String, Option<Duration>),
    /// A retry fails again. With the reason, and the status if a response arrived.
    Refused(String, Option<u16>),
}

/// Why a client cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// A certificate file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Error of the system call.
        source: std::io::Error,
    },
    /// The file contains an invalid certificate.
    #[error("{}: it contains an invalid certificate", .0.display())]
    Certificate(PathBuf),
    /// The file contains no certificate.
    #[error("{} contains no certificate", .0.display())]
    Empty(PathBuf),
    /// The system has no trusted certificates.
    #[error("this system has no trusted certificates; install ca-certificates, or name the receiver's certificate")]
    NoRoots,
}

/// Statuses after which OTLP over HTTP retries a message.
pub const OTLP_RETRYABLE: fn(u16) -> bool = |status| matches!(status, 429 | 502 | 503 | 504);

impl Post {
    /// Sets up the client. Makes no connection.
    ///
    /// # Errors
    /// The certificates cannot be read.
    pub fn new(receiver: Receiver) -> Result<Post, PostError> {
        let Receiver { url, headers, roots, timeout } = receiver;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // Credentials are for the named host only.
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT.min(timeout)))
            .timeout_global(Some(timeout))
            .user_agent(concat!("yamabiko/", env!("CARGO_PKG_VERSION")));
        let config = if url.starts_with("https:") { config.tls_config(tls(&roots)?) } else { config };
        Ok(Post { agent: config.build().into(), url, headers })
    }

    /// The receiver's URL for output: without the query, which may contain secrets.
    pub fn display_url(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// Sends `body` once to the receiver's URL plus `path`, with the receiver's headers and `extra_headers`.
    ///
    /// # Errors
    /// There is no response.
    pub fn exchange(&self, path: &str, body: &[u8], extra_headers: &[(&str, &str)]) -> Result<Reply, Failure> {
        let mut request =
            if path.is_empty() { self.agent.post(&self.url) } else { self.agent.post(format!("{}{path}", self.url)) };
        for (name, value) in extra_headers {
            request = request.header(*name, *value);
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let mut response = request.send(body).map_err(failure)?;
        let retry_after = response.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Reply {
            status: response.status().as_u16(),
            retry_after: retry_after.map(Duration::from_secs),
            body: response.body_mut().with_config().limit(RESPONSE_BYTES_MAX).read_to_vec().unwrap_or_default(),
        })
    }

    /// Sends `body` to the receiver's URL, for protocols that only evaluate the status.
    pub fn once(&self, body: &[u8], extra_headers: &[(&str, &str)], is_retryable: fn(u16) -> bool) -> Outcome {
        let reply = match self.exchange("", body, extra_headers) {
            Ok(reply) => reply,
            Err(Failure::Unreachable(why)) => return Outcome::Retryable(why, None),
            Err(failure) => return Outcome::Refused(failure.to_string(), None),
        };
        if reply.is_success() {
            return Outcome::Accepted(reply.body);
        }
        let why = format!("status {} {}", reply.status, reply.first_line()).trim_end().to_owned();
        if is_retryable(reply.status) {
            Outcome::Retryable(why, reply.retry_after)
        } else {
            Outcome::Refused(why, Some(reply.status))
        }
    }
}

impl Reply {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first line of the body: at most 300 characters, without control characters.
    pub fn first_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.body);
        let text = units::printable(text.trim().lines().next().unwrap_or_default());
        text.chars().take(SHOWN_CHARACTERS_MAX).collect()
    }
}

/// Whether the host of `url` is loopback, so that no host on a network can read the messages.
pub fn is_loopback(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn failure(error: ureq::Error) -> Failure {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::Tls(_) | ureq::Error::RedirectFailed => {
            Failure::Permanent(error.to_string())
        }
        ureq::Error::Rustls(error) => tls_failure(&error),
        ureq::Error::Io(error) => {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match inner {
                Some(inner) => tls_failure(inner),
                None if error.kind() == std::io::ErrorKind::InvalidData => Failure::Permanent(error.to_string()),
                None => Failure::Unreachable(error.to_string()),
            }
        }
        error => Failure::Unreachable(error.to_string()),
    }
}

/// Classifies a TLS error of a receiver.
fn tls_failure(error: &rustls::Error) -> Failure {
    use CertificateError as Wrong;
    let rustls::Error::InvalidCertificate(wrong) = error else { return Failure::Permanent(error.to_string()) };
    let why = match wrong {
        Wrong::UnknownIssuer | Wrong::BadSignature => CertificateProblem::Issuer,
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => CertificateProblem::Name,
        Wrong::Expired | Wrong::ExpiredContext { .. } | Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            CertificateProblem::Time
        }
        _ => CertificateProblem::Other,
    };
    Failure::Untrusted { why, text: error.to_string() }
}

fn tls(roots: &Roots) -> Result<TlsConfig, PostError> {
    let certificates: Vec<Certificate<'static>> = match roots {
        Roots::File(path) => {
            let pem = std::fs::read(path).map_err(|source| PostError::File { path: path.clone(), source })?;
            let items = parse_pem(&pem).collect::<Result<Vec<_>, _>>();
            let items = items.map_err(|_| PostError::Certificate(path.clone()))?;
            items
                .into_iter()
                .filter_map(|item| if let PemItem::Certificate(certificate) = item { Some(certificate) } else { None })
                .collect()
        }
        Roots::System => {
            let loaded = rustls_native_certs::load_native_certs();
            loaded.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
        }
        Roots::Unchecked => Vec::new(),
    };
    match roots {
        Roots::File(path) if certificates.is_empty() => return Err(PostError::Empty(path.clone())),
        Roots::System if certificates.is_empty() => return Err(PostError::NoRoots),
        _ => {}
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::from(certificates))
        .disable_verification(*roots == Roots::Unchecked)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}

/// Maximum time to establish a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum bytes read of a response's body.
const RESPONSE_BYTES_MAX: u64 = 64 * 1024;
/// Maximum characters printed of a response's body.
const SHOWN_CHARACTERS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Sends `response` to the first request of one connection. Returns the URL and the request.
    fn server(response: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            // The body of every test is one byte, the last.
            while !request.ends_with(b"\r\n\r\nx") {
                let mut part = [0; 512];
                let read = stream.read(&mut part).unwrap();
                assert!(read > 0, "the request ended early");
                request.extend_from_slice(&part[..read]);
            }
            stream.write_all(response.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        (url, thread)
    }

    fn post(url: &str) -> Post {
        let mut secret = HeaderValue::from_static("Bearer a.b");
        secret.set_sensitive(true);
        let headers = vec![(http::header::AUTHORIZATION, secret)];
        Post::new(Receiver { url: url.to_owned(), headers, roots: Roots::System, timeout: Duration::from_secs(30) })
            .unwrap()
    }

    #[test]
    fn headers_and_path_are_sent_and_the_response_is_made_printable() {
        let (url, server) =
            server("HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 11\r\n\r\n\u{1b}[31m a\r\nb\n");
        let post = post(&url);
        let reply = post.exchange("/p?q=1", b"x", &[("content-type", "text/plain")]).unwrap();
        assert_eq!((reply.status, reply.retry_after, reply.is_success()), (503, Some(Duration::from_secs(7)), false));
        assert_eq!(reply.first_line(), "\\u{1b}[31m a");
        let request = server.join().unwrap().to_lowercase();
        assert!(request.starts_with("post /p?q=1 http/1.1\r\n"), "{request}");
        assert!(request.contains("authorization: bearer a.b\r\n") && request.contains("content-type: text/plain\r\n"));
        assert!(!format!("{post:?}").contains("a.b"));
    }

    #[test]
    fn the_status_decides_between_success_retry_and_refusal() {
        type IsRight = fn(&Outcome) -> bool;
        let cases: [(&str, IsRight); 4] = [
            ("HTTP/1.1 204 Fine\r\n\r\n", |outcome| matches!(outcome, Outcome::Accepted(body) if body.is_empty())),
            ("HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n", |outcome| {
                *outcome == Outcome::Retryable("status 429".into(), Some(Duration::from_secs(3)))
            }),
            ("HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno", |outcome| {
                *outcome == Outcome::Refused("status 400 no".into(), Some(400))
            }),
            // The redirect is not followed, so its target gets no header.
            ("HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", |outcome| {
                matches!(outcome, Outcome::Refused(..))
            }),
        ];
        for (response, is_right) in cases {
            let (url, server) = server(response);
            let outcome = post(&url).once(b"x", &[], OTLP_RETRYABLE);
            assert!(is_right(&outcome), "{response}: {outcome:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn an_unreachable_receiver_is_retryable() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let outcome = post(&format!("http://{closed}")).once(b"x", &[], OTLP_RETRYABLE);
        assert!(matches!(outcome, Outcome::Retryable(_, None)), "{outcome:?}");
        let outcome = post("http://").once(b"x", &[], OTLP_RETRYABLE);
        assert!(matches!(outcome, Outcome::Refused(_, None)), "{outcome:?}");
    }

    #[test]
    fn loopback_addresses_and_localhost_are_loopback() {
        for loopback in ["http://127.0.0.1:80/", "http://[::1]:80", "https://localhost/x"] {
            assert!(is_loopback(loopback), "{loopback}");
        }
        for other in ["http://localhost.example/", "http://192.0.2.1/", "", "http://127.0.0.1.example/"] {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn a_certificate_file_without_certificates_is_refused() {
        let folder = std::env::temp_dir();
        let new = |path: PathBuf| {
            let url = "https://localhost".to_owned();
            let timeout = Duration::from_secs(1);
            Post::new(Receiver { url, headers: Vec::new(), roots: Roots::File(path), timeout }).unwrap_err()
        };
        assert!(matches!(new(folder.join("no-such-file-of-yamabiko")), PostError::File { .. }));
        assert!(matches!(new("/dev/null".into()), PostError::Empty(_)));
    }
}
