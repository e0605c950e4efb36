//! The components that need a network: receiving requests and sending responses, on connections that are accepted and
//! closed.
//!
//! A server that does nothing else. It looks for the end of each head and sends prepared bytes, without parsing the
//! request. Its cost per request under load, with persistent and closed connections, and over sizes of requests and
//! responses, gives the components `connection`, `receive` and `send`.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sys::file::send_file;

use super::refused;
use crate::engine::Engine;
use crate::max::{Blind, MaxSpec, serve_max};
use crate::spec::{ServeError, system};

/// Configuration of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExchangeSpec {
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// How it waits for clients.
    pub waits: WaitMode,
    /// Source of response bodies.
    pub body: ExchangeBody,
    /// Bytes of every response body: at most [`crate::BODY_BYTES_MAX`].
    pub body_bytes: usize,
    /// Close each connection after its first response.
    pub close: bool,
}

/// How the server waits for clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitMode {
    /// One event loop over epoll.
    Epoll,
    /// One event loop over io_uring: with [`ExchangeBody::Memory`] only.
    Uring,
    /// One thread per connection.
    Threads,
}

/// Source of a response's body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExchangeBody {
    /// Memory.
    Memory,
    /// An open file in this folder, sent by the kernel.
    Sendfile(PathBuf),
}

/// Serves with one event loop, or one thread per connection, until `stop` becomes readable (it is never read).
/// `on_listening` is called once with the bound address, before the first accept.
///
/// # Errors
/// The address cannot be bound, the file cannot be created, or an essential system call failed.
pub fn serve_exchange(
    spec: &ExchangeSpec,
    stop: BorrowedFd<'_>,
    on_listening: impl FnOnce(SocketAddr),
) -> Result<(), ServeError> {
    if spec.body_bytes > crate::BODY_BYTES_MAX {
        return Err(refused("a response of more than 1 GiB"));
    }
    if spec.waits == WaitMode::Uring {
        if spec.body != ExchangeBody::Memory {
            return Err(refused("io_uring sends from memory only"));
        }
        let max = MaxSpec {
            listen: spec.listen,
            threads: 1,
            shared: false,
            body_bytes: spec.body_bytes,
            engine: Engine::Uring,
            blind: Some(Blind { close: spec.close }),
        };
        return serve_max(&max, stop, |address, _| on_listening(address));
    }
    crate::raise_descriptors()?;
    let listener = crate::listen::bind(spec.listen, false)?;
    let answer = Arc::new(PreparedResponse::new(spec)?);
    on_listening(listener.local_addr().map_err(system("getsockname"))?);
    match spec.waits {
        WaitMode::Threads => threads(&listener, stop, &answer),
        _ => readiness(&listener, stop, &answer),
    }
}

/// The response to every request.
struct PreparedResponse {
    /// Head and body, or the head alone.
    bytes: Box<[u8]>,
    /// The body, if the kernel sends it; the file is unlinked.
    file: Option<File>,
    file_bytes: usize,
    /// The connection closes after it.
    last: bool,
}

impl PreparedResponse {
    fn new(spec: &ExchangeSpec) -> Result<Self, ServeError> {
        let connection = if spec.close { "Connection: close\r\n" } else { "" };
        let mut bytes = format!(
            "HTTP/1.1 200 OK\r\nServer: yamabiko-part\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\n{connection}\r\n",
            spec.body_bytes
        )
        .into_bytes();
        let (mut file, mut file_bytes) = (None, 0);
        match &spec.body {
            ExchangeBody::Memory => bytes.resize(bytes.len() + spec.body_bytes, b'x'),
            ExchangeBody::Sendfile(folder) if spec.body_bytes > 0 => {
                (file, file_bytes) = (Some(body_file(folder, spec.body_bytes)?), spec.body_bytes);
            }
            ExchangeBody::Sendfile(_) => {}
        }
        Ok(PreparedResponse { bytes: bytes.into(), file, file_bytes, last: spec.close })
    }

    fn length(&self) -> usize {
        self.bytes.len() + self.file_bytes
    }

    /// Sends from offset `sent` on; returns the number of bytes accepted.
    fn send(&self, mut stream: &TcpStream, sent: usize) -> std::io::Result<usize> {
        if sent < self.bytes.len() {
            return stream.write(&self.bytes[sent..]);
        }
        let file = self.file.as_ref().ok_or(ErrorKind::InvalidInput)?;
        let offset = (sent - self.bytes.len()) as u64;
        let taken = send_file(stream.as_fd(), file.as_fd(), offset, self.length() - sent)?;
        let taken = taken.ok_or(ErrorKind::WouldBlock)?;
        // A truncated file would be read again forever.
        if taken == 0 { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(taken) }
    }
}

/// A file without a name.
fn body_file(folder: &Path, bytes: usize) -> Result<File, ServeError> {
    let path = folder.join(format!("yamabiko-part-body-{}", std::process::id()));
    let file = File::options().read(true).write(true).create_new(true).open(&path);
    let mut file = file.map_err(system("create the file of a component"))?;
    let _ = std::fs::remove_file(&path);
    file.write_all(&vec![b'x'; bytes]).map_err(system("write the file of a component"))?;
    Ok(file)
}

/// One connection.
struct Connection {
    stream: TcpStream,
    /// Number of matched bytes of a head's end.
    seen: u8,
    /// Pending responses.
    owed: usize,
    /// Bytes sent of the first pending response.
    sent: usize,
}

impl Connection {
    fn new(stream: TcpStream) -> Self {
        Connection { stream, seen: 0, owed: 0, sent: 0 }
    }

    /// Counts the ends of heads in the input. Between them it searches for line ends only, so that a long field costs
    /// little.
    fn take(&mut self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            self.seen = match (self.seen, bytes[at]) {
                (0, _) => match memchr::memchr(b'\r', &bytes[at..]) {
                    None => return,
                    Some(offset) => {
                        at += offset;
                        1
                    }
                },
                (1, b'\n') => 2,
                (2, b'\r') => 3,
                (3, b'\n') => {
                    self.owed += 1;
                    0
                }
                (_, b'\r') => 1,
                _ => 0,
            };
            at += 1;
        }
    }

    /// Reads all input and sends all possible output; false when the connection is finished. A blocking socket is read
    /// once.
    fn advance(&mut self, input: &mut [u8], answer: &PreparedResponse) -> bool {
        loop {
            while self.owed > 0 {
                match answer.send(&self.stream, self.sent) {
                    Ok(taken) => self.sent += taken,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return false,
                }
                if self.sent == answer.length() {
                    if answer.last {
                        // Closing sends FIN, as servers do without further input.
                        return false;
                    }
                    (self.owed, self.sent) = (self.owed - 1, 0);
                }
            }
            match self.stream.read(input) {
                Ok(0) => return false,
                Ok(length) => self.take(&input[..length]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

fn readiness(listener: &TcpListener, stop: BorrowedFd<'_>, answer: &PreparedResponse) -> Result<(), ServeError> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
    for (fd, token) in [(stop, STOP), (listener.as_fd(), LISTENER)] {
        epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, token)).map_err(system("epoll_ctl"))?;
    }
    let mut connections: Vec<Option<Connection>> = Vec::new();
    let mut free: Vec<usize> = Vec::new();
    let (mut input, mut events) = (vec![0; INPUT_BYTES], vec![EpollEvent::empty(); EVENTS]);
    loop {
        let ready = match epoll.wait(&mut events, EpollTimeout::NONE) {
            Ok(ready) => ready,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(errno) => return Err(system("epoll_wait")(errno)),
        };
        for event in &events[..ready] {
            match event.data() {
                STOP => return Ok(()),
                LISTENER => {
                    // Waiting connections stay in the backlog for the next attempt.
                    let Ok((stream, _)) = listener.accept() else { continue };
                    let index = free.pop().unwrap_or_else(|| {
                        connections.push(None);
                        connections.len() - 1
                    });
                    let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
                    let watched = stream.set_nonblocking(true).is_ok()
                        && epoll.add(&stream, EpollEvent::new(flags, index as u64)).is_ok();
                    match watched {
                        true => connections[index] = Some(Connection::new(stream)),
                        false => free.push(index),
                    }
                }
                token => {
                    let index = token as usize;
                    let Some(Some(connection)) = connections.get_mut(index) else { continue };
                    if !connection.advance(&mut input, answer) {
                        connections[index] = None;
                        free.push(index);
                    }
                }
            }
        }
    }
}

/// One thread per connection, blocked in its read. The threads are not joined: the process is about to end.
fn threads(listener: &TcpListener, stop: BorrowedFd<'_>, answer: &Arc<PreparedResponse>) -> Result<(), ServeError> {
    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    loop {
        let mut fds = [PollFd::new(stop, PollFlags::POLLIN), PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return Err(system("poll")(errno)),
        }
        if fds[0].any().unwrap_or(false) {
            return Ok(());
        }
        // An accepted socket does not inherit O_NONBLOCK, so that it blocks.
        let Ok((stream, _)) = listener.accept() else { continue };
        let answer = Arc::clone(answer);
        let talk = move || {
            let mut input = vec![0; THREAD_INPUT_BYTES];
            Connection::new(stream).advance(&mut input, &answer);
        };
        thread::Builder::new().stack_size(STACK_BYTES).spawn(talk).map_err(system("clone"))?;
    }
}

/// Tokens of other descriptors.
const LISTENER: u64 = u64::MAX;
const STOP: u64 = u64::MAX - 1;
const EVENTS: usize = 512;
const INPUT_BYTES: usize = 64 << 10;
/// Receive buffer of each thread.
const THREAD_INPUT_BYTES: usize = 8 << 10;
const STACK_BYTES: usize = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn connection() -> (TcpStream, Connection) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, Connection::new(listener.accept().unwrap().0))
    }

    #[test]
    fn request_heads_are_counted_in_any_fragmentation() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        for step in 1..=text.len() {
            let (_client, mut connection) = connection();
            for part in text.chunks(step) {
                connection.take(part);
            }
            assert_eq!(connection.owed, 3, "in pieces of {step}");
        }
    }
}
