//! One question to a server on this host, before or beside a load.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use http1::Asked;
use http1::whole::{IncompleteResponse, whole};
use sys::clock::Clock;

/// The whole of it may take this long, from connecting to the last byte: a server under load is slow, one that drips is
/// broken.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longer answers are not asked for.
const ANSWER_MAX: usize = 16 << 20;
/// Read at once.
const PIECE: usize = 16 << 10;

/// What is at a path of a server: the response as it came, head and all.
///
/// # Errors
/// It cannot be reached, its answer is not whole within ten seconds, or longer than 16 MiB.
pub fn get(server: SocketAddr, path: &str) -> Result<String> {
    within(server, path, PATIENCE, ANSWER_MAX).map(|answer| String::from_utf8_lossy(&answer).into_owned())
}

fn within(server: SocketAddr, path: &str, patience: Duration, most: usize) -> Result<Vec<u8>> {
    let clock = Clock::start();
    let late = || Error::new(ErrorKind::TimedOut, format!("its answer was not whole within {patience:?}"));
    // A timeout of zero would mean none at all.
    let left = || {
        let passed = Duration::from_nanos(clock.now().as_nanos());
        patience.checked_sub(passed).filter(|left| !left.is_zero()).ok_or_else(late)
    };
    let mut stream = TcpStream::connect_timeout(&server, left()?)?;
    stream.set_write_timeout(Some(left()?))?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut bytes = Vec::new();
    let mut piece = [0; PIECE];
    loop {
        stream.set_read_timeout(Some(left()?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Ok(bytes),
            Ok(length) => bytes.extend_from_slice(&piece[..length]),
            Err(error) => match error.kind() {
                ErrorKind::Interrupted => {}
                ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(late()),
                _ => return Err(error),
            },
        }
        if bytes.len() > most {
            return Err(invalid(format!("its answer is longer than {most} bytes")));
        }
    }
}

/// The body at a path, where the answer is 200: to its end, however that is stated.
///
/// # Errors
/// As [`get`]; another status, whose line is in the error; an answer that breaks off or cannot be read.
pub fn body(server: SocketAddr, path: &str) -> Result<String> {
    let answer = within(server, path, PATIENCE, ANSWER_MAX)?;
    let response = match whole(&answer, Asked::Other) {
        Ok(response) => response,
        Err(IncompleteResponse::Nothing) => return Err(invalid("answered nothing".to_owned())),
        Err(why) => return Err(invalid(why.to_string())),
    };
    if response.status == 200 {
        return Ok(String::from_utf8_lossy(&response.body).into_owned());
    }
    let line = String::from_utf8_lossy(response.line);
    let line: String = line.chars().filter(|&c| !units::is_unprintable(c)).take(80).collect();
    Err(invalid(format!("answered {line}")))
}

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The address of a server that answers one request with this.
    fn answering(answer: &'static str) -> SocketAddr {
        serving(move |mut stream| {
            let _ = stream.write_all(answer.as_bytes());
        })
    }

    /// The address of a server that does this with the connection of one request.
    fn serving(answer: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // All of it: what is left unread when a socket is closed makes a reset of the close.
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut piece = [0; 512];
                let length = stream.read(&mut piece).unwrap();
                assert!(length > 0, "the request ends");
                request.extend_from_slice(&piece[..length]);
            }
            answer(stream);
        });
        address
    }

    #[test]
    fn a_body_is_taken_from_200_only() {
        let good = answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(body(good, "/").unwrap(), "hi");
        let bad = answering("HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno");
        assert_eq!(body(bad, "/").unwrap_err().to_string(), "answered HTTP/1.1 404 Not Found");
        let silent = answering("");
        assert_eq!(body(silent, "/").unwrap_err().to_string(), "answered nothing");
    }

    #[test]
    fn a_body_ends_where_its_head_says() {
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
    fn a_server_that_drips_or_never_ends_is_left() {
        let head = b"HTTP/1.1 200 OK\r\n\r\n";
        // A byte at a time, each well within the patience; it ends only when nobody reads any more.
        let drips = serving(move |mut stream| {
            let mut bytes = head.iter().chain(std::iter::repeat(&b'.'));
            while bytes.next().is_some_and(|byte| stream.write_all(&[*byte]).is_ok()) {
                let mut nothing = [0; 1];
                stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                if stream.read(&mut nothing).is_ok() {
                    break;
                }
            }
        });
        let error = within(drips, "/", Duration::from_millis(300), ANSWER_MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        let floods = serving(|mut stream| while stream.write_all(&[b'.'; 1 << 16]).is_ok() {});
        let error = within(floods, "/", PATIENCE, 1 << 20).unwrap_err();
        assert!(error.to_string().contains("longer than 1048576 bytes"), "{error}");
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = within(mute.local_addr().unwrap(), "/", Duration::from_millis(50), ANSWER_MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    }
}
