//! One question to a server on this host, before or beside a load.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// It may take this long to connect, and as long for each part of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longer answers are not asked for.
const ANSWER_MAX: u64 = 16 << 20;

/// What is at a path of a server: the response as it came, head and all.
///
/// # Errors
/// It cannot be reached, or is silent for five seconds.
pub fn get(server: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n")?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The body at a path, where the answer is 200 and not chunked.
///
/// # Errors
/// As [`get`]; and another status, whose line is in the error.
pub fn body(server: SocketAddr, path: &str) -> std::io::Result<String> {
    let answer = get(server, path)?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => {
            let line = answer.lines().next().unwrap_or("nothing");
            let line: String = line.chars().filter(|c| !c.is_control()).take(80).collect();
            Err(Error::new(ErrorKind::InvalidData, format!("answered {line}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The address of a server that answers one request so.
    fn answering(answer: &'static str) -> SocketAddr {
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
            let _ = stream.write_all(answer.as_bytes());
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
}
