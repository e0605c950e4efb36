//! A blocking HTTP client for one request, before, during or after a load.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use http1::RequestMethod;
use http1::whole::{IncompleteResponse, whole};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use rustls_pki_types::ServerName;
use sys::clock::Clock;

/// Time limit of the whole request, from connecting to the last byte: a loaded server is slow, but a server that sends
/// byte by byte is broken.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Largest accepted response.
const RESPONSE_BYTES_MAX: usize = 16 << 20;
/// Size of a read.
const READ_BYTES: usize = 16 << 10;

/// One request.
pub(crate) struct Request<'a> {
    /// Address and port of the server.
    pub server: SocketAddr,
    /// Value of the Host header.
    pub authority: &'a str,
    /// Path and query, beginning with `/`.
    pub path: &'a str,
    /// Settings of TLS and the name that the certificate must have; without TLS `None`.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// Requests a path; returns the response as received, with its head.
///
/// # Errors
/// The server cannot be reached, or its response is incomplete after ten seconds, or longer than 16 MiB.
pub fn get(server: SocketAddr, path: &str) -> Result<String> {
    let response = Request::plain(server, path).within(REQUEST_TIMEOUT, RESPONSE_BYTES_MAX)?;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

/// Requests a path; returns the body of a 200 response, however its end is stated.
///
/// # Errors
/// As [`get`]; another status, whose line is in the error; a truncated or malformed response.
pub fn body(server: SocketAddr, path: &str) -> Result<String> {
    Request::plain(server, path).body()
}

/// As [`body`], with a time limit and a largest response in bytes of its own.
pub(crate) fn body_within(server: SocketAddr, path: &str, timeout: Duration, most: usize) -> Result<String> {
    Request::plain(server, path).body_within(timeout, most)
}

impl<'a> Request<'a> {
    fn plain(server: SocketAddr, path: &'a str) -> Self {
        Request { server, authority: "server", path, tls: None }
    }

    /// Sends it; returns the body of a 200 response.
    ///
    /// # Errors
    /// As [`body`].
    pub fn body(self) -> Result<String> {
        self.body_within(REQUEST_TIMEOUT, RESPONSE_BYTES_MAX)
    }

    fn body_within(self, timeout: Duration, most: usize) -> Result<String> {
        let response = self.within(timeout, most)?;
        let response = match whole(&response, RequestMethod::Other) {
            Ok(response) => response,
            Err(IncompleteResponse::Nothing) => return Err(invalid("empty response".to_owned())),
            Err(why) => return Err(invalid(why.to_string())),
        };
        if response.status == 200 {
            return Ok(String::from_utf8_lossy(&response.body).into_owned());
        }
        let line = String::from_utf8_lossy(response.line);
        let line: String = line.chars().filter(|&c| !units::is_unprintable(c)).take(80).collect();
        Err(invalid(format!("responded {line}")))
    }

    fn within(self, timeout: Duration, most: usize) -> Result<Vec<u8>> {
        let time = TimeLeft { clock: Clock::start(), timeout };
        let head = format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.path, self.authority);
        let mut socket = TcpStream::connect_timeout(&self.server, time.left()?)?;
        let Some((config, name)) = self.tls else {
            return exchange(&mut socket, |socket| socket, &head, &time, most);
        };
        let session = ClientConnection::new(config, name).map_err(Error::other)?;
        exchange(&mut StreamOwned::new(session, socket), |stream| &stream.sock, &head, &time, most)
    }
}

/// Time of a request.
struct TimeLeft {
    clock: Clock,
    timeout: Duration,
}

impl TimeLeft {
    /// The rest, above zero: a timeout of zero would mean none.
    fn left(&self) -> Result<Duration> {
        let passed = Duration::from_nanos(self.clock.now().as_nanos());
        self.timeout.checked_sub(passed).filter(|left| !left.is_zero()).ok_or_else(|| self.late())
    }

    fn late(&self) -> Error {
        Error::new(ErrorKind::TimedOut, format!("the response was incomplete after {:?}", self.timeout))
    }
}

/// Sends a head, and reads until the end of the stream. `socket`: that of the stream.
fn exchange<S: Read + Write>(
    stream: &mut S,
    socket: impl Fn(&S) -> &TcpStream,
    head: &str,
    time: &TimeLeft,
    most: usize,
) -> Result<Vec<u8>> {
    let is_late = |kind| matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut);
    socket(stream).set_write_timeout(Some(time.left()?))?;
    // A TLS handshake reads, too.
    socket(stream).set_read_timeout(Some(time.left()?))?;
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.flush());
    sent.map_err(|error| if is_late(error.kind()) { time.late() } else { error })?;
    let mut bytes = Vec::new();
    let mut piece = [0; READ_BYTES];
    loop {
        socket(stream).set_read_timeout(Some(time.left()?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                // A TLS connection that ends without notice; the response states its own length.
                ErrorKind::UnexpectedEof => return Ok(bytes),
                kind if is_late(kind) => return Err(time.late()),
                _ => return Err(error),
            },
        }
        if bytes.len() > most {
            return Err(invalid(format!("the response is longer than {most} bytes")));
        }
    }
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Address of a server that sends this response to one request.
    fn answering(response: &'static str) -> SocketAddr {
        serving(move |mut stream| {
            let _ = stream.write_all(response.as_bytes());
        })
    }

    /// Address of a server that runs this for the connection of one request.
    fn serving(response: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // Unread data would turn the close into a reset.
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut piece = [0; 512];
                let length = stream.read(&mut piece).unwrap();
                assert!(length > 0, "the request ends");
                request.extend_from_slice(&piece[..length]);
            }
            response(stream);
        });
        address
    }

    #[test]
    fn body_requires_status_200() {
        let good = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(body(good, "/").unwrap(), "hi");
        let not_found = answering("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
        assert_eq!(body(not_found, "/").unwrap_err().to_string(), "responded HTTP/1.1 404 Not Found");
        let silent = answering("");
        assert_eq!(body(silent, "/").unwrap_err().to_string(), "empty response");
    }

    #[test]
    fn body_ends_by_length_chunks_or_close() {
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nh\r\n1;x\r\ni\r\n0\r\nA: b\r\n\r\n";
        assert_eq!(body(answering(chunked), "/").unwrap(), "hi");
        assert_eq!(body(answering("HTTP/1.1 200 OK\r\n\r\nto the end"), "/").unwrap(), "to the end");
        let interim = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\n\r\nhi";
        assert_eq!(body(answering(interim), "/").unwrap(), "hi");
        let short = answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhi");
        assert_eq!(body(short, "/").unwrap_err().to_string(), "the connection closed before the response was complete");
        let wrong = answering("HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello");
        assert_eq!(body(wrong, "/").unwrap_err().to_string(), "Content-Length `+5` is not a number");
    }

    #[test]
    fn get_times_out_on_slow_and_endless_responses() {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        // Each byte arrives well within the timeout; the server ends only when the client stops reading.
        let slow_server = serving(move |mut stream| {
            let mut bytes = head.iter().chain(std::iter::repeat(&b'.'));
            while bytes.next().is_some_and(|byte| stream.write_all(&[*byte]).is_ok()) {
                let mut nothing = [0; 1];
                stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                if stream.read(&mut nothing).is_ok() {
                    break;
                }
            }
        });
        let error =
            Request::plain(slow_server, "/").within(Duration::from_millis(300), RESPONSE_BYTES_MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let floods = serving(|mut stream| while stream.write_all(&[b'.'; 1 << 16]).is_ok() {});
        let error = Request::plain(floods, "/").within(REQUEST_TIMEOUT, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("longer than 1048576 bytes"), "{error}");
        let silent_listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = Request::plain(silent_listener.local_addr().unwrap(), "/")
            .within(Duration::from_millis(50), RESPONSE_BYTES_MAX)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
}
