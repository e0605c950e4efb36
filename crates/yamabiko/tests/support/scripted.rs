//! A server in the test process that computes each response by a function and stores the requests.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A received request.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The method, such as GET.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The header lines.
    pub fields: Vec<String>,
    /// The body.
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// The value of a header field; `name` in lower case.
    pub fn field(&self, name: &str) -> Option<String> {
        let of = |line: &String| {
            line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        self.fields.iter().filter_map(of).find(|(field, _)| field == name).map(|(_, value)| value)
    }
}

type Script = dyn Fn(usize, &ReceivedRequest) -> Vec<u8> + Send + Sync;

/// The server. Its threads end with the test process.
pub struct Scripted {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Scripted {
    /// Starts a server whose response depends on the request only.
    pub fn start(script: impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static) -> Scripted {
        Scripted::numbered(move |_, request| script(request))
    }

    /// Starts a server whose response depends on the request and its number, from 0.
    pub fn numbered(script: impl Fn(usize, &ReceivedRequest) -> Vec<u8> + Send + Sync + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (requests, script): (_, Arc<Script>) = (Arc::new(Mutex::new(Vec::new())), Arc::new(script));
        let stored = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stored, script) = (Arc::clone(&stored), Arc::clone(&script));
                std::thread::spawn(move || serve(stream.unwrap(), &*script, &stored));
            }
        });
        Scripted { address, requests }
    }

    /// The URL of a page; `path` begins with `/`, or is empty.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests received so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

/// A complete response with these additional header lines.
pub fn response(status: &str, lines: &[&str], body: &[u8]) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn serve(mut stream: TcpStream, script: &Script, stored: &Mutex<Vec<ReceivedRequest>>) {
    let mut read = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let complete = read.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4).and_then(|end| {
            let head = String::from_utf8(read[..end].to_vec()).unwrap();
            let mut lines = head.lines().map(str::to_owned);
            let first = lines.next().unwrap();
            let mut words = first.split(' ').map(str::to_owned);
            let (method, target) = (words.next().unwrap(), words.next().unwrap());
            let mut request = ReceivedRequest { method, target, fields: lines.collect(), body: Vec::new() };
            let length: usize = request.field("content-length").map_or(0, |length| length.parse().unwrap());
            request.body = read.get(end..end + length)?.to_vec();
            Some((request, end + length))
        });
        let Some((request, length)) = complete else {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(length) => read.extend_from_slice(&buffer[..length]),
            }
            continue;
        };
        read.drain(..length);
        let number = {
            let mut stored = stored.lock().unwrap();
            stored.push(request.clone());
            stored.len() - 1
        };
        if stream.write_all(&script(number, &request)).is_err() {
            return;
        }
    }
}
