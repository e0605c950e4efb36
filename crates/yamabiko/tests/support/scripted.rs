//! A server that responds by a function and stores the requests, in the test process.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// GET, POST ..
    pub method: String,
    /// Path and query.
    pub target: String,
    /// The head's lines after the first.
    pub fields: Vec<String>,
    /// The body, by its Content-Length.
    pub body: Vec<u8>,
}

impl Asked {
    /// A field's value, its name in lower case.
    pub fn field(&self, name: &str) -> Option<String> {
        let of = |line: &String| {
            line.split_once(':').map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        };
        self.fields.iter().filter_map(of).find(|(field, _)| field == name).map(|(_, value)| value)
    }
}

type Script = dyn Fn(usize, &Asked) -> Vec<u8> + Send + Sync;

/// The server. Its threads end with the process of the test.
pub struct Scripted {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Scripted {
    /// Responds by the request only.
    pub fn start(script: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Scripted {
        Scripted::numbered(move |_, asked| script(asked))
    }

    /// Responds by the request and its number.
    pub fn numbered(script: impl Fn(usize, &Asked) -> Vec<u8> + Send + Sync + 'static) -> Scripted {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (asked, script): (_, Arc<Script>) = (Arc::new(Mutex::new(Vec::new())), Arc::new(script));
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (kept, script) = (Arc::clone(&kept), Arc::clone(&script));
                std::thread::spawn(move || serve(stream.unwrap(), &*script, &kept));
            }
        });
        Scripted { address, asked }
    }

    /// A page of it; `path` begins with `/`, or is empty.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

/// A complete response with these additional lines.
pub fn answer(status: &str, lines: &[&str], body: &[u8]) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("HTTP/1.1 {status}\r\n{lines}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn serve(mut stream: TcpStream, script: &Script, kept: &Mutex<Vec<Asked>>) {
    let mut read = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        let whole = read.windows(4).position(|window| window == b"\r\n\r\n").map(|at| at + 4).and_then(|end| {
            let head = String::from_utf8(read[..end].to_vec()).unwrap();
            let mut lines = head.lines().map(str::to_owned);
            let first = lines.next().unwrap();
            let mut words = first.split(' ').map(str::to_owned);
            let (method, target) = (words.next().unwrap(), words.next().unwrap());
            let mut asked = Asked { method, target, fields: lines.collect(), body: Vec::new() };
            let length: usize = asked.field("content-length").map_or(0, |length| length.parse().unwrap());
            asked.body = read.get(end..end + length)?.to_vec();
            Some((asked, end + length))
        });
        let Some((asked, length)) = whole else {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(length) => read.extend_from_slice(&buffer[..length]),
            }
            continue;
        };
        read.drain(..length);
        let number = {
            let mut kept = kept.lock().unwrap();
            kept.push(asked.clone());
            kept.len() - 1
        };
        if stream.write_all(&script(number, &asked)).is_err() {
            return;
        }
    }
}
