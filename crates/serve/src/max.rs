//! MAX: the attainable maximum. One answer from memory to whatever is asked, and nothing else.
//!
//! A server cut down to accept, receive, answer, close shows what the kernel and the network allow; what a real server
//! reaches of it is what its features cost. It is also the server a load generator is measured against, since it is
//! not the limit.
//!
//! Requests are read properly (heads, `Connection`, bodies passed over, pipelining), so that any client may be used;
//! paths, fields and methods mean nothing, but that HEAD gets no body. Two drivers do the same: io_uring, and epoll where the
//! kernel has none.

mod poll;
mod reader;
mod steps;
mod uring;

pub use steps::{Feature, StepsSpec, serve_steps};

use std::net::{SocketAddr, TcpListener};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::engine::Engine;
use crate::spec::{ServeError, system};

/// What to answer, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxSpec {
    /// Where to listen; port 0 lets the kernel choose.
    pub listen: SocketAddr,
    /// Threads, each with a listening socket of its own (SO_REUSEPORT); 0 counts as 1.
    pub threads: usize,
    /// Other processes listen at the same address, and the kernel spreads connections over all (SO_REUSEPORT).
    pub shared: bool,
    /// Bytes of the body of every answer.
    pub body_bytes: usize,
    /// How to talk to the kernel.
    pub engine: Engine,
    /// Heads are not read: each end of one is a request. No server, but the part of one that is measured alone (`parts.rs`).
    pub blind: Option<Blind>,
}

/// How a connection goes on whose heads are not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blind {
    /// Its first answer is its last.
    pub close: bool,
}

/// The longest body: it is kept in memory three times, after the heads of the three kinds of answers.
pub const BODY_BYTES_MAX: usize = 1 << 30;

/// A client that asks for so many answers and takes none is shown the door.
const OWED_MAX: usize = 1 << 16;

/// Answers until `stop` becomes readable (it is never read), then closes every connection and returns.
///
/// `on_listening` is called once with the bound address and the engine in use, before the first accept.
///
/// # Errors
/// The address cannot be bound, the engine asked for is not to be had, or a system call that never should fail did.
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
    let answers = Responses { blind: spec.blind, ..Responses::new(spec.body_bytes) };
    on_listening(bound, engine);
    crate::on_threads(listeners, stop, |listener: TcpListener, stops| match engine {
        Engine::Epoll => poll::run(listener, stops, &answers),
        _ => uring::run(&listener, stops, &answers),
    })
}

/// The few answers there are.
#[derive(Debug)]
pub(crate) struct Responses {
    /// To HTTP/1.1, to HTTP/1.0 with keep-alive, and with `Connection: close`: head and body.
    whole: [Arc<[u8]>; 3],
    /// Bytes of each head alone.
    heads: [usize; 3],
    /// To what is no request: always closes.
    refusal: Arc<[u8]>,
    /// Heads are not read.
    blind: Option<Blind>,
}

/// One answer out of [`Responses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ResponseRef {
    /// Place in [`Responses::all`].
    pub index: usize,
    /// Bytes of it.
    pub length: usize,
    /// Close afterwards.
    pub last: bool,
}

impl Responses {
    fn new(body_bytes: usize) -> Self {
        let connection = ["", "Connection: keep-alive\r\n", "Connection: close\r\n"];
        let head = |field: &str| {
            format!(
                "HTTP/1.1 200 OK\r\nServer: yamabiko-max\r\nContent-Type: application/octet-stream\r\n\
                 Content-Length: {body_bytes}\r\n{field}\r\n"
            )
        };
        let heads = connection.map(head);
        let whole = heads.clone().map(|head| {
            let mut bytes = head.into_bytes();
            bytes.resize(bytes.len() + body_bytes, b'x');
            Arc::from(bytes)
        });
        let refusal =
            "HTTP/1.1 400 Bad Request\r\nServer: yamabiko-max\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        Responses { whole, heads: heads.map(|head| head.len()), refusal: refusal.as_bytes().into(), blind: None }
    }

    /// The bytes of all of them, by [`ResponseRef::index`].
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<[u8]>> {
        self.whole.iter().chain([&self.refusal])
    }

    /// To a request of HTTP/1.1 (or, `old`, 1.0).
    pub(crate) fn to(&self, keep_alive: bool, old: bool, head_only: bool) -> ResponseRef {
        let index = match (keep_alive, old) {
            (false, _) => 2,
            (true, true) => 1,
            (true, false) => 0,
        };
        let length = if head_only { self.heads[index] } else { self.whole[index].len() };
        ResponseRef { index, length, last: !keep_alive }
    }

    /// To what is no request.
    pub(crate) fn refusal(&self) -> ResponseRef {
        ResponseRef { index: self.whole.len(), length: self.refusal.len(), last: true }
    }
}
