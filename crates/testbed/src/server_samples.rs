//! TCP_INFO of the server's sockets, and the times in which the server waited for a CPU, sampled during a run for
//! `yamabiko explain`.
//!
//! ```text
//!   capture thread --addresses of new connections--> thread: sock_diag --> changes --> tcp_samples.parquet
//!                          cpu.stat, schedstat of the server's threads --> waits   --> server_waits.parquet
//! ```
//!
//! The kernel is asked for each connection by its addresses, about 2 us a connection, since a dump of all takes 2 ms
//! even if there are none. At most [`SOCKETS_MAX`] connections are sampled concurrently, every 5 ms or less frequently,
//! so that sampling takes at most a hundredth of a core. Nothing is written while the load runs.

mod sockets;
mod waits;

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use schema::{ServerWaitRow, TcpSampleRow};
use store::RunFolder;
use sys::clock::Clock;
use sys::netlink::SockDiag;
use sys::sched::{Cores, Urgency};
use units::Timestamp;

use self::sockets::SocketSamples;
pub use self::waits::WaitReader;

/// Most connections that are sampled concurrently; while there are so many, new ones are not.
pub const SOCKETS_MAX: usize = 256;
/// Shortest interval between two samples of a connection.
const INTERVAL_MIN: Duration = Duration::from_millis(5);
/// Shortest interval as a multiple of the duration of sampling.
const INTERVAL_FACTOR: u32 = 100;
/// New connections that wait for the thread; of more, the rest is not sampled.
const QUEUE_MAX: usize = 4_096;

/// A connection that its client began to open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenedSocket {
    /// Index of the client.
    pub client: u32,
    /// The client's address and port.
    pub remote: SocketAddr,
    /// The server's.
    pub local: SocketAddr,
}

enum Message {
    Opened(OpenedSocket),
    Stop,
}

/// Tells the sampling thread of new connections, without waiting for it.
#[derive(Debug)]
pub struct SocketFeed(SyncSender<Message>);

impl SocketFeed {
    /// A new connection. If the queue is full, the connection is not sampled.
    pub fn opened(&self, socket: OpenedSocket) {
        let _ = self.0.try_send(Message::Opened(socket));
    }
}

/// The running thread. Dropping it without [`ServerSampler::end`] ends the thread and loses its results.
pub struct ServerSampler {
    sender: SyncSender<Message>,
    thread: Option<JoinHandle<ServerSamples>>,
}

/// What was sampled.
#[derive(Debug, Default)]
pub struct ServerSamples {
    /// States of connections.
    pub sockets: Vec<TcpSampleRow>,
    /// Times in which the server did not run, in order of their starts.
    pub waits: Vec<ServerWaitRow>,
}

impl ServerSampler {
    /// Starts the thread. `diag`: of the server's network namespace. `waits` reads the server's CPU accounting.
    ///
    /// # Errors
    /// No thread is available.
    pub fn start(
        clock: Clock,
        diag: SockDiag,
        waits: WaitReader,
        cores: Option<Cores>,
    ) -> std::io::Result<(ServerSampler, SocketFeed)> {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let thread = std::thread::Builder::new().name("samples".into()).spawn(move || {
            if let Some(cores) = cores {
                // Unpinned sampling disturbs other threads, but stays correct.
                let _ = cores.pin_this_thread();
            }
            Urgency::High.apply_to_this_thread();
            SamplingThread { clock, diag, sockets: SocketSamples::default(), waits }.run(&receiver)
        })?;
        Ok((ServerSampler { sender: sender.clone(), thread: Some(thread) }, SocketFeed(sender)))
    }

    /// Ends the thread; returns the samples.
    ///
    /// # Panics
    /// The thread itself panicked.
    pub fn end(mut self) -> ServerSamples {
        let thread = self.stop().expect("the thread is only taken here and in drop");
        thread.join().expect("the sampling thread does not panic")
    }

    fn stop(&mut self) -> Option<JoinHandle<ServerSamples>> {
        // An error means that the thread has ended.
        let _ = self.sender.send(Message::Stop);
        self.thread.take()
    }
}

impl Drop for ServerSampler {
    /// A failed run leaves no thread behind: the next one forks.
    fn drop(&mut self) {
        if let Some(thread) = self.stop() {
            let _ = thread.join();
        }
    }
}

impl ServerSamples {
    /// Writes the tables into a run's folder.
    ///
    /// # Errors
    /// A full disk or another failure of the file system.
    pub fn write(&self, folder: &RunFolder) -> store::Result<()> {
        folder.tcp_samples().finish_with_rows(&self.sockets)?;
        folder.server_waits().finish_with_rows(&self.waits).map(drop)
    }
}

struct SamplingThread {
    clock: Clock,
    diag: SockDiag,
    sockets: SocketSamples,
    waits: WaitReader,
}

impl SamplingThread {
    fn run(mut self, receiver: &Receiver<Message>) -> ServerSamples {
        let mut due = self.clock.now();
        loop {
            let pause = due.since(self.clock.now());
            match receiver.recv_timeout(pause) {
                Ok(Message::Opened(socket)) => {
                    self.sockets.add(socket, self.clock.now());
                    if self.clock.now() < due {
                        continue;
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => break,
            }
            let began = self.clock.now();
            self.sample(began);
            let took = self.clock.now().since(began);
            due = began + INTERVAL_MIN.max(took * INTERVAL_FACTOR);
        }
        let now = self.clock.now();
        self.sample(now);
        ServerSamples { sockets: self.sockets.finish(), waits: self.waits.finish() }
    }

    fn sample(&mut self, now: Timestamp) {
        self.waits.read(now);
        let (diag, clock) = (&mut self.diag, &self.clock);
        // A refusal, as of a kernel without tcp_diag, leaves the connection without samples.
        self.sockets.read(|socket| {
            let info = diag.tcp_info(socket.local, socket.remote).ok().flatten();
            (clock.now(), info)
        });
    }
}
