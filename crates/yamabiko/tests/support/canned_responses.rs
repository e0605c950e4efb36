//! An HTTP server in the test process that sends prepared responses.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A server whose response is a function of the request's number; for `None` it closes the connection. It stores the
/// heads of all requests. Its threads end with the test process.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

/// All bytes of a response, by the number of its request.
pub type ResponseFunction = fn(usize) -> Option<Vec<u8>>;

impl Server {
    /// Starts the server on a free loopback port.
    pub fn start(respond: ResponseFunction) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let stored = Arc::clone(&heads);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let stored = Arc::clone(&stored);
                std::thread::spawn(move || serve(stream.unwrap(), respond, &stored));
            }
        });
        Server { address, heads }
    }

    /// The URL of a page of the server.
    pub fn url(&self) -> String {
        format!("http://{}/page", self.address)
    }

    /// Heads of the requests received so far.
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, respond: ResponseFunction, stored: &Mutex<Vec<String>>) {
    let mut read = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let Some(end) = read.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4) else {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(length) => read.extend_from_slice(&buffer[..length]),
            }
            continue;
        };
        let head = String::from_utf8(read[..end].to_vec()).unwrap();
        let field =
            |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim).map(str::to_owned);
        let body: usize = field("Content-Length:").map_or(0, |length| length.parse().unwrap());
        if read.len() < end + body {
            let length = stream.read(&mut buffer).unwrap();
            read.extend_from_slice(&buffer[..length]);
            continue;
        }
        read.drain(..end + body);
        let keep = field("Connection:").is_some_and(|value| value.eq_ignore_ascii_case("keep-alive"));
        let number = {
            let mut stored = stored.lock().unwrap();
            stored.push(head);
            stored.len() - 1
        };
        let Some(bytes) = respond(number) else { return };
        if stream.write_all(&bytes).is_err() || !keep {
            return;
        }
    }
}

/// A complete HTTP/1.1 response on a persistent connection.
pub fn response(status: &str, body: usize) -> Option<Vec<u8>> {
    let head =
        format!("HTTP/1.1 {status}\r\nServer: test/1 (x)\r\nConnection: keep-alive\r\nContent-Length: {body}\r\n\r\n");
    Some([head.as_bytes(), &vec![b'a'; body]].concat())
}
