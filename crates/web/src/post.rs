//! Messages to a receiver over HTTP, one after another on one connection: what this program says to others.
//!
//! Redirects are not followed and no proxy is asked, so that no header goes to another host than the one named. What a receiver
//! says is bounded, and shown as one line of harmless characters ([`Reply::words`]). Nothing is tried again here: whether
//! that is right depends on the protocol.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::header::{HeaderName, HeaderValue};
use rustls::CertificateError;
use ureq::Agent;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};

/// How a receiver is reached.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Where: http:// or https://.
    pub url: String,
    /// In every message. Values that are secret should be marked as sensitive: this can be printed.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Which certificates are trusted.
    pub roots: Roots,
    /// Longest time for one message and its answer; for the connection at most 10 s of it.
    pub timeout: Duration,
}

/// Which certificates are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Roots {
    /// The system's.
    #[default]
    System,
    /// Those in this PEM file alone.
    File(PathBuf),
    /// Any: it is not looked who answers.
    Unchecked,
}

/// A receiver that messages can be sent to.
#[derive(Clone, Debug)]
pub struct Post {
    agent: Agent,
    url: String,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// What a receiver answered, whatever its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// `Retry-After`, where it is a number of seconds.
    pub retry_after: Option<Duration>,
    /// The body, at most 64 KB of it: nothing of one that is longer.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Not reached, or the connection ended before the answer: another time it may go. It is not known whether the
    /// message was taken.
    #[error("{0}")]
    Away(String),
    /// It has another certificate than one that is trusted for this name. Nothing was sent.
    #[error("{words}")]
    Untrusted {
        /// In which way.
        why: Distrust,
        /// In words.
        words: String,
    },
    /// Such a message cannot be sent, or what answers does not speak the protocol: it will not go another time either.
    #[error("{0}")]
    Hopeless(String),
}

/// What is wrong with a receiver's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distrust {
    /// None of those that are trusted signed it.
    Issuer,
    /// It is for other names.
    Name,
    /// It has expired or is not valid yet.
    Time,
    /// Anything else.
    Other,
}

/// What a receiver made of a message, by its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A status of 2xx, and the body.
    Taken(Vec<u8>),
    /// Worth another try; not before this time has passed, if it says one.
    Later(String, Option<Duration>),
    /// Not worth one. With the status, where there is one.
    Refused(String, Option<u16>),
}

/// Why a receiver cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostError {
    /// A file of certificates cannot be read.
    #[error("reading {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// It holds something that is none.
    #[error("{}: a certificate in it cannot be read", .0.display())]
    Certificate(PathBuf),
    /// It holds none.
    #[error("{} holds no certificate", .0.display())]
    Empty(PathBuf),
    /// The system has none.
    #[error("this system has no trusted certificates: install ca-certificates, or name the receiver's own")]
    NoRoots,
}

/// Statuses after which a message of OTLP over HTTP is sent again.
pub const TRIED_AGAIN_BY_OTLP: fn(u16) -> bool = |status| matches!(status, 429 | 502 | 503 | 504);

impl Post {
    /// Sets up what is needed to send. Nothing is sent and no connection made.
    ///
    /// # Errors
    /// The certificates cannot be had.
    pub fn new(receiver: Receiver) -> Result<Post, PostError> {
        let Receiver { url, headers, roots, timeout } = receiver;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            // Credentials are for the host that was named and for none in between.
            .proxy(None)
            .timeout_connect(Some(CONNECT.min(timeout)))
            .timeout_global(Some(timeout))
            .user_agent(concat!("yamabiko/", env!("CARGO_PKG_VERSION")));
        let config = if url.starts_with("https:") { config.tls_config(tls(&roots)?) } else { config };
        Ok(Post { agent: config.build().into(), url, headers })
    }

    /// The receiver as it is printed: without what may be secret in a query.
    pub fn shown(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// Sends `body` once, to the receiver's URL followed by `path`, with the receiver's headers and `own` ones.
    ///
    /// # Errors
    /// There is no answer.
    pub fn exchange(&self, path: &str, body: &[u8], own: &[(&str, &str)]) -> Result<Reply, Failure> {
        let mut request =
            if path.is_empty() { self.agent.post(&self.url) } else { self.agent.post(format!("{}{path}", self.url)) };
        for (name, value) in own {
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
            body: response.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().unwrap_or_default(),
        })
    }

    /// The same to the receiver's URL, for protocols that go by the status alone.
    pub fn once(&self, body: &[u8], own: &[(&str, &str)], is_tried_again: fn(u16) -> bool) -> Answer {
        let reply = match self.exchange("", body, own) {
            Ok(reply) => reply,
            Err(Failure::Away(why)) => return Answer::Later(why, None),
            Err(failure) => return Answer::Refused(failure.to_string(), None),
        };
        if reply.is_success() {
            return Answer::Taken(reply.body);
        }
        let why = format!("status {} {}", reply.status, reply.words()).trim_end().to_owned();
        if is_tried_again(reply.status) {
            Answer::Later(why, reply.retry_after)
        } else {
            Answer::Refused(why, Some(reply.status))
        }
    }
}

impl Reply {
    /// Whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The first line of the body, at most 300 characters, without any that steer a terminal.
    pub fn words(&self) -> String {
        let words = String::from_utf8_lossy(&self.body);
        let words = units::printable(words.trim().lines().next().unwrap_or_default());
        words.chars().take(WORDS_MAX).collect()
    }
}

/// Whether a URL's host is this machine's loopback: what is sent there, nobody on the way can read.
pub fn is_loopback(url: &str) -> bool {
    let uri: Option<Uri> = url.parse().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn failure(error: ureq::Error) -> Failure {
    match error {
        ureq::Error::BadUri(_) | ureq::Error::Http(_) | ureq::Error::Tls(_) | ureq::Error::RedirectFailed => {
            Failure::Hopeless(error.to_string())
        }
        ureq::Error::Rustls(error) => of_tls(&error),
        ureq::Error::Io(error) => {
            let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
            match inner {
                Some(inner) => of_tls(inner),
                None if error.kind() == std::io::ErrorKind::InvalidData => Failure::Hopeless(error.to_string()),
                None => Failure::Away(error.to_string()),
            }
        }
        error => Failure::Away(error.to_string()),
    }
}

/// What TLS has against a receiver.
fn of_tls(error: &rustls::Error) -> Failure {
    use CertificateError as Wrong;
    let rustls::Error::InvalidCertificate(wrong) = error else { return Failure::Hopeless(error.to_string()) };
    let why = match wrong {
        Wrong::UnknownIssuer | Wrong::BadSignature => Distrust::Issuer,
        Wrong::NotValidForName | Wrong::NotValidForNameContext { .. } => Distrust::Name,
        Wrong::Expired | Wrong::ExpiredContext { .. } | Wrong::NotValidYet | Wrong::NotValidYetContext { .. } => {
            Distrust::Time
        }
        _ => Distrust::Other,
    };
    Failure::Untrusted { why, words: error.to_string() }
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
            let found = rustls_native_certs::load_native_certs();
            found.certs.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect()
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

/// For a connection.
const CONNECT: Duration = Duration::from_secs(10);
/// Bytes read of an answer, and characters shown of it.
const ANSWER_MAX: u64 = 64 * 1024;
const WORDS_MAX: usize = 300;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;

    use super::*;

    /// Answers one connection's first request with `answer`; gives the URL and what was asked.
    fn server(answer: &'static str) -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            // The body of every test is one byte, the last.
            while !asked.ends_with(b"\r\n\r\nx") {
                let mut part = [0; 512];
                let read = stream.read(&mut part).unwrap();
                assert!(read > 0, "the request ended early");
                asked.extend_from_slice(&part[..read]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(asked).unwrap()
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
    fn headers_and_path_arrive_and_the_answer_is_harmless() {
        let (url, server) =
            server("HTTP/1.1 503 No\r\nRetry-After: 7\r\nContent-Length: 11\r\n\r\n\u{1b}[31m a\r\nb\n");
        let post = post(&url);
        let reply = post.exchange("/p?q=1", b"x", &[("content-type", "text/plain")]).unwrap();
        assert_eq!((reply.status, reply.retry_after, reply.is_success()), (503, Some(Duration::from_secs(7)), false));
        assert_eq!(reply.words(), "\\u{1b}[31m a");
        let asked = server.join().unwrap().to_lowercase();
        assert!(asked.starts_with("post /p?q=1 http/1.1\r\n"), "{asked}");
        assert!(asked.contains("authorization: bearer a.b\r\n") && asked.contains("content-type: text/plain\r\n"));
        assert!(!format!("{post:?}").contains("a.b"));
    }

    #[test]
    fn an_answer_is_taken_tried_again_or_refused_by_its_status() {
        type IsRight = fn(&Answer) -> bool;
        let cases: [(&str, IsRight); 4] = [
            ("HTTP/1.1 204 Fine\r\n\r\n", |answer| matches!(answer, Answer::Taken(body) if body.is_empty())),
            ("HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n", |answer| {
                *answer == Answer::Later("status 429".into(), Some(Duration::from_secs(3)))
            }),
            ("HTTP/1.1 400 Bad\r\nContent-Length: 2\r\n\r\nno", |answer| {
                *answer == Answer::Refused("status 400 no".into(), Some(400))
            }),
            // Not followed: whoever is named there gets no header.
            ("HTTP/1.1 307 Go\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n", |answer| {
                matches!(answer, Answer::Refused(..))
            }),
        ];
        for (answer, is_right) in cases {
            let (url, server) = server(answer);
            let told = post(&url).once(b"x", &[], TRIED_AGAIN_BY_OTLP);
            assert!(is_right(&told), "{answer}: {told:?}");
            server.join().unwrap();
        }
    }

    #[test]
    fn who_is_not_there_may_be_there_later() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let told = post(&format!("http://{closed}")).once(b"x", &[], TRIED_AGAIN_BY_OTLP);
        assert!(matches!(told, Answer::Later(_, None)), "{told:?}");
        let told = post("http://").once(b"x", &[], TRIED_AGAIN_BY_OTLP);
        assert!(matches!(told, Answer::Refused(_, None)), "{told:?}");
    }

    #[test]
    fn loopback_is_an_address_or_its_name() {
        for loopback in ["http://127.0.0.1:80/", "http://[::1]:80", "https://localhost/x"] {
            assert!(is_loopback(loopback), "{loopback}");
        }
        for other in ["http://localhost.example/", "http://192.0.2.1/", "", "http://127.0.0.1.example/"] {
            assert!(!is_loopback(other), "{other}");
        }
    }

    #[test]
    fn a_file_of_certificates_has_some() {
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
