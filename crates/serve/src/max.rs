//! MAX, the attainable maximum: one prepared response to every request, and nothing else. A body above the limit of
//! files in memory is sent by sendfile(2) from an unlinked file, as that of a large file is: the kernel copies nothing.
//! The component of a server (`parts.rs`) sends every body from memory.
//!
//! A server reduced to accept, receive, respond and close shows what kernel and network permit; the difference to a
//! real server is the cost of its features. A load generator is also measured against it, since it is not the
//! bottleneck.
//!
//! Requests are parsed (heads, `Connection`, bodies skipped, pipelining), so that any client works; paths, fields and
//! methods are ignored, except that HEAD gets no body. Two drivers behave alike: io_uring, and epoll as a fallback.

mod poll;
mod reader;
mod steps;
mod uring;

pub use steps::{Feature, StepsSpec, serve_steps};

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;

use nix::libc::O_TMPFILE;
use nix::sys::memfd::{MFdFlags, memfd_create};
use sys::file::send_file;

use crate::engine::Engine;
use crate::engine::sending::send_some;
use crate::engine::unsent::RAISED_BYTES;
use crate::files::IN_MEMORY_BYTES_MAX;
use crate::spec::{ServeError, system};

/// Configuration of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxSpec {
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Threads, each with its own listening socket (SO_REUSEPORT); 0 counts as 1.
    pub threads: usize,
    /// Other processes listen at the same address, and the kernel distributes connections (SO_REUSEPORT).
    pub shared: bool,
    /// Bytes of every response body.
    pub body_bytes: usize,
    /// The engine.
    pub engine: Engine,
    /// Heads are not parsed: each end of a head is a request. For the measurement of a component (`parts.rs`).
    pub blind: Option<Blind>,
}

/// Connection handling without parsed heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blind {
    /// Close after the first response.
    pub close: bool,
}

/// Largest body. It is once in the page cache, or, of a component, in memory three times, after the heads of the three
/// kinds of responses.
pub const BODY_BYTES_MAX: usize = 1 << 30;

/// Pending responses of a client that does not read, beyond which it is disconnected.
const PENDING_RESPONSES_MAX: usize = 1 << 16;

/// Serves until `stop` becomes readable (it is never read), then closes every connection and returns.
///
/// `on_listening` is called once with the bound address and the engine in use, before the first accept.
///
/// # Errors
/// The address cannot be bound, the engine is unavailable, or an essential system call failed.
pub fn serve_max(
    spec: &MaxSpec,
    stop: BorrowedFd<'_>,
    on_listening: impl FnOnce(SocketAddr, Engine),
) -> Result<(), ServeError> {
    let threads = spec.threads.max(1);
    crate::raise_descriptors()?;
    let engine = spec.engine.chosen();
    let mut listeners = vec![crate::listen::bind(spec.listen, threads > 1 || spec.shared)?];
    let bound = listeners[0].local_addr().map_err(system("getsockname"))?;
    for _ in 1..threads {
        listeners.push(crate::listen::bind(bound, true)?);
    }
    // A component is a server that sends from memory, with the limit of unsent bytes of the other components.
    let is_component = spec.blind.is_some();
    if !is_component {
        for listener in &listeners {
            // Few and large sends are the cheapest. Accepted sockets inherit the limit.
            sys::datagrams::bound_unsent(listener, RAISED_BYTES).map_err(system("setsockopt TCP_NOTSENT_LOWAT"))?;
        }
    }
    let answers = Responses { blind: spec.blind, ..Responses::new(spec.body_bytes, is_component)? };
    on_listening(bound, engine);
    crate::on_threads(listeners, stop, |listener: TcpListener, stops| match engine {
        Engine::Epoll => poll::run(listener, stops, &answers),
        _ => uring::run(&listener, stops, &answers),
    })
}

/// The prepared responses.
#[derive(Debug)]
pub(crate) struct Responses {
    /// For HTTP/1.1, for HTTP/1.0 with keep-alive, and with `Connection: close`: head, followed by the body unless that
    /// is in `file`.
    whole: [Arc<[u8]>; 3],
    /// Bytes of each head alone.
    heads: [usize; 3],
    /// A large body, and its length.
    file: Option<(File, usize)>,
    /// For an invalid request: always closes.
    refusal: Arc<[u8]>,
    /// Heads are not parsed.
    blind: Option<Blind>,
}

/// One of the [`Responses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseRef {
    /// Index in [`Responses::all`].
    pub index: usize,
    /// Its bytes in memory.
    pub in_memory: usize,
    /// Its length in bytes: what is not in memory is in the file.
    pub length: usize,
    /// Close afterwards.
    pub last: bool,
}

impl Responses {
    /// With a body of this length, `in_memory` also if it is large.
    fn new(body_bytes: usize, in_memory: bool) -> Result<Self, ServeError> {
        let connection = ["", "Connection: keep-alive\r\n", "Connection: close\r\n"];
        let head = |field: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nServer: yamabiko-max\r\nContent-Type: application/octet-stream\r\n\
                 Content-Length: {body_bytes}\r\n{field}\r\n"
            )
        };
        let heads = connection.map(head);
        let file = if body_bytes as u64 > IN_MEMORY_BYTES_MAX && !in_memory {
            Some((body_file(body_bytes).map_err(system("write the body to a file"))?, body_bytes))
        } else {
            None
        };
        let whole = heads.clone().map(|head| {
            let mut bytes = head.into_bytes();
            if file.is_none() {
                bytes.resize(bytes.len() + body_bytes, BODY_BYTE);
            }
            Arc::from(bytes)
        });
        let refusal =
            "HTTP/1.1 400 Bad Request\r\nServer: yamabiko-max\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let heads = heads.map(|head| head.len());
        Ok(Responses { whole, heads, file, refusal: refusal.as_bytes().into(), blind: None })
    }

    /// The bytes in memory of all responses, by [`ResponseRef::index`].
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.whole.iter().chain([&self.refusal])
    }

    /// For a request of HTTP/1.1 (or, `old`, 1.0).
    pub(crate) fn to(&self, keep_alive: bool, old: bool, head_only: bool) -> ResponseRef {
        let index = match (keep_alive, old) {
            (false, _) => 2,
            (true, true) => 1,
            (true, false) => 0,
        };
        let in_memory = if head_only { self.heads[index] } else { self.whole[index].len() };
        let in_file = self.file.as_ref().filter(|_| !head_only).map_or(0, |(_, bytes)| *bytes);
        ResponseRef { index, in_memory, length: in_memory + in_file, last: !keep_alive }
    }

    /// For an invalid request.
    pub(crate) fn refusal(&self) -> ResponseRef {
        let length = self.refusal.len();
        ResponseRef { index: self.whole.len(), in_memory: length, length, last: true }
    }

    /// Sends what the socket accepts of a response, from byte `from` on: the number of bytes, `None` if the buffer is
    /// full.
    pub(crate) fn send(
        &self,
        socket: &(impl AsFd + AsRawFd),
        answer: ResponseRef,
        from: usize,
    ) -> io::Result<Option<usize>> {
        match &self.file {
            Some((file, _)) if from >= answer.in_memory && from < answer.length => {
                let (offset, count) = (from - answer.in_memory, answer.length - from);
                match send_file(socket.as_fd(), file.as_fd(), offset as u64, count)? {
                    Some(0) => Err(ErrorKind::UnexpectedEof.into()),
                    other => Ok(other),
                }
            }
            _ => {
                let bytes = self.whole.get(answer.index).unwrap_or(&self.refusal);
                send_some(socket, &bytes[from..answer.in_memory], answer.in_memory < answer.length)
            }
        }
    }
}

/// A file without a name that contains a body, and ends with the process: in the folder of temporary files, since a
/// disk's page cache is cheaper to send than a memfd, or in memory if that folder has no space or no such files.
fn body_file(bytes: usize) -> io::Result<File> {
    // In one piece: a file that is written in small pieces costs more to send.
    let filled = |mut file: File| file.write_all(&vec![BODY_BYTE; bytes]).map(|()| file);
    let temporary = OpenOptions::new().read(true).write(true).custom_flags(O_TMPFILE).open(std::env::temp_dir());
    temporary.and_then(filled).or_else(|_| filled(memfd_create(c"body", MFdFlags::MFD_CLOEXEC)?.into()))
}

/// The byte of which a body consists.
const BODY_BYTE: u8 = b'x';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_bodies_are_in_a_file_except_those_of_a_component() {
        let limit = IN_MEMORY_BYTES_MAX as usize;
        for (body_bytes, in_memory, in_file) in
            [(limit, false, 0), (limit + 1, false, limit + 1), (limit + 1, true, 0), (0, false, 0)]
        {
            let answers = Responses::new(body_bytes, in_memory).unwrap();
            let answer = answers.to(true, false, false);
            assert_eq!(answer.length - answer.in_memory, in_file, "{body_bytes}, {in_memory}");
            assert_eq!(answer.length - answers.to(true, false, true).length, body_bytes);
        }
    }
}
