//! A server of known capacity in the test process: a number of workers with a constant service time.
//! `examples/model-server` is the same as a program, with faults.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// A server on the loopback. It stops listening with the test; a connection that is open ends with the client.
pub struct ModelServer {
    address: SocketAddr,
    end: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

/// When each worker becomes free. Absolute times: a late wake-up delays a response and loses no work.
type Workers = Arc<Mutex<BinaryHeap<Reverse<Instant>>>>;

impl ModelServer {
    /// Begins to listen: it carries `workers / service` a second, exactly.
    pub fn start(workers: usize, service: Duration) -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let free: Workers = Arc::new(Mutex::new((0..workers).map(|_| Reverse(Instant::now())).collect()));
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let accepting = spawn(move || {
            for stream in listener.incoming().flatten() {
                if ended.load(Ordering::Acquire) {
                    break;
                }
                let free = Arc::clone(&free);
                // A connection that breaks is the client's affair.
                spawn(move || drop(serve(stream, &free, service)));
            }
        });
        ModelServer { address, end, accepting: Some(accepting) }
    }

    /// Its page.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

fn serve(stream: TcpStream, free: &Workers, service: Duration) -> std::io::Result<()> {
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
            let mut free = free.lock().unwrap_or_else(PoisonError::into_inner);
            let Reverse(at) = free.pop().expect("there are workers");
            let done = at.max(Instant::now()) + service;
            free.push(Reverse(done));
            done
        };
        sleep(done.saturating_duration_since(Instant::now()));
        writer.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nmodel")?;
    }
}
