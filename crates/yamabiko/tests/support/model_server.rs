//! A server of known capacity in the test process: a number of workers with a constant service time.
//! `examples/model-server` is the same server as a program, with optional faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// A server on the loopback. Dropping it closes the listener; open connections end when the client closes them.
pub struct ModelServer {
    address: SocketAddr,
    end: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

/// When each worker becomes idle. Times are absolute, so a late wake-up delays a response but does not reduce the
/// capacity.
type Workers = Arc<Mutex<BinaryHeap<Reverse<Instant>>>>;

impl ModelServer {
    /// Starts a server with a capacity of exactly `workers / service` responses per second.
    pub fn start(workers: usize, service: Duration) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let idle_at: Workers = Arc::new(Mutex::new((0..workers).map(|_| Reverse(Instant::now())).collect()));
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let accepting = spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::Acquire) {
                    break;
                }
                let idle_at = Arc::clone(&idle_at);
                // A connection error is not an error of the server.
                spawn(move || drop(serve(stream, &idle_at, service)));
            }
        });
        ModelServer { address, end, accepting: Some(accepting) }
    }

    /// The URL of the server's page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        // Wakes the accepting thread.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn serve(stream: TcpStream, idle_at: &Workers, service: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        let done = {
            let mut idle_at = idle_at.lock().unwrap_or_else(PoisonError::into_inner);
            let Reverse(at) = idle_at.pop().expect("there are workers");
            let done = at.max(Instant::now()) + service;
            idle_at.push(Reverse(done));
            done
        };
        sleep(done.saturating_duration_since(Instant::now()));
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmodel")?;
    }
}
