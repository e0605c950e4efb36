//! The static server: files of one directory, over HTTP/1.0 to HTTP/3.
//!
//! ```text
//!   listener ──accept──▶ Connection ──bytes──▶ request::parse ──path──▶ Files (one directory, small files in memory)
//!                            ▲                                              │
//!                            └───────────── response head, body ◀───────────┘
//! ```
//!
//! Each worker is one thread with its own event loop; workers share only the listening socket. A worker has one read
//! buffer and one write buffer for all its connections; a connection buffers bytes only of an incomplete request or an
//! unsent response. So an idle connection costs its descriptor and some hundred bytes, and a request for a file in
//! memory allocates nothing.
//!
//! Read `connection.rs` first: it is one connection from accept to close.
#![forbid(unsafe_code)]

mod cache;
mod connection;
mod date;
mod dynamic;
mod engine;
mod figures;
mod file_response;
mod files;
#[doc(hidden)]
pub mod fuzzing;
mod http2;
mod http3;
mod journal;
mod link;
mod listen;
mod max;
mod media;
mod multiplexed;
mod origin;
mod parts;
mod phrase;
mod quic;
mod request;
mod response;
mod sniff;
mod spec;
mod status;
mod target;
mod tls;

#[cfg(test)]
#[path = "../../http1/tests/framing/table.rs"]
mod framing_table;
#[cfg(test)]
#[path = "tests/over_epoll.rs"]
mod over_epoll;
#[cfg(test)]
#[allow(clippy::duplicate_mod, reason = "the same tests over another engine")]
#[path = "tests/over_uring.rs"]
mod over_uring;

pub use cache::{CacheSpec, Outcome, Reason};
pub use dynamic::{
    DynamicLimits, DynamicSpec, DynamicUsage, FastCgiScript, ProgramSpec, ProgramUsage, Route, RouteCounters,
    RouteError, Transport, Upstream,
};
pub use engine::Engine;
pub use figures::{Figures, Kind, Refusal, Total};
pub use journal::{Log, LogError, LogFormat, LogSpec, LogSummary, LogTarget};
pub use max::{BODY_BYTES_MAX, Blind, Feature, MaxSpec, StepsSpec, serve_max, serve_steps};
pub use origin::{OriginCounts, OriginSpec};
pub use parts::{
    ExchangeBody, ExchangeSpec, HEAD_BYTES_MAX, HEAD_BYTES_MIN, LocalComponent, LocalRound, LocalSpec, WaitMode,
    measure_part, serve_exchange,
};
pub use spec::{FileRules, Limits, ServeError, ServeSpec};
pub use status::StatusSpec;
pub use tls::{Tls, TlsError};

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;

use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sys::clock::Clock;
use sys::file::Root;

use crate::connection::WorkerContext;
use crate::dynamic::{Relay, RelayHandle};
use crate::engine::address_counts::AddressCounts;
use crate::engine::{Competitor, WorkerEnv};
use crate::figures::Counters;
use crate::files::Files;
use crate::journal::{Journal, Recorder};
use crate::origin::Origin;
use crate::quic::QuicConfig;
use crate::spec::system;
use crate::status::StatusSources;

/// Serves until `stop` becomes readable (it is never read, so an eventfd, a signalfd or a pipe's end all work). Then it
/// stops accepting, closes idle connections, finishes responses in progress for at most [`Limits::stop_time`], and
/// returns. A second write to an eventfd ends it immediately.
///
/// `on_listening` is called once with the bound address (of interest for port 0), before the first accept. The soft
/// limit of descriptors of this process is raised to the hard limit.
///
/// # Errors
/// The root cannot be opened, the address cannot be bound, or an essential system call failed.
pub fn serve(spec: &ServeSpec, stop: BorrowedFd<'_>, on_listening: impl FnOnce(SocketAddr)) -> Result<(), ServeError> {
    // A worker has at least one connection, so there are no more workers than permitted connections.
    let threads = spec.threads.clamp(1, spec.limits.connections.unwrap_or(usize::MAX).max(1));
    // Descriptors for each upstream; otherwise many clients would leave the relay none.
    let upstreams = spec.dynamic.as_ref().map_or(0, |dynamic| dynamic.limits.concurrency * dynamic.routes.len());
    let (most, open_files) = descriptors_per_worker(threads, upstreams)?;
    let caps = shares(spec.limits.connections.unwrap_or(usize::MAX), threads, most);
    let each_max = spec.limits.connections_per_address.unwrap_or(caps.iter().sum::<usize>().div_ceil(4) * 3);
    let address_counts = AddressCounts::new(each_max.max(1));
    let listener = listen::bind(spec.listen, false)?;
    let bound = listener.local_addr().map_err(system("getsockname"))?;
    let http3 = Http3Sockets::bind(spec, bound, threads)?;
    let workers = threads + http3.as_ref().map_or(0, |http3| http3.sockets.len());
    let clock = Clock::start();
    // The program is forked, so before any thread starts. Dropped last: workers may still use the relay.
    let (relay, fronts) = match &spec.dynamic {
        None => (None, Vec::new()),
        Some(dynamic) => {
            let counters = spec.figures.relay();
            let (relay, fronts) = Relay::start(dynamic, &spec.root, workers, clock, move || counters.runs_here())?;
            (Some(relay), fronts)
        }
    };
    let writing = spec.log.as_ref().map(|log| log.start(clock)).transpose().map_err(system("clone"))?;
    let cache = relay.as_ref().and_then(Relay::cache);
    let status_sources = StatusSources {
        spec: spec.status,
        figures: spec.figures.clone(),
        cache: cache.clone(),
        log: spec.log.clone(),
        usage_reader: relay.as_ref().map(Relay::usage_reader),
    };
    let mut fronts = fronts.into_iter();
    let (alt_svc, quic_config) =
        http3.as_ref().map_or((None, None), |http3| (Some(&http3.alt_svc), Some(&http3.config)));
    // Workers of TCP, then those of UDP.
    let sockets = http3.iter().flat_map(|http3| &http3.sockets);
    let shares = caps.into_iter().map(|cap| (cap, None)).chain(sockets.map(|(socket, cap)| (*cap, Some(socket))));
    let mut parts = Vec::with_capacity(workers);
    for (worker, (cap, udp)) in shares.enumerate() {
        let udp = udp.map(|socket| socket.try_clone()).transpose().map_err(system("dup"))?;
        let origin = spec.origin.as_ref().map(|origin| Box::new(Origin::new(origin, worker, workers, clock)));
        parts.push(Part {
            root: spec::open_root(&spec.root)?,
            front: fronts.next(),
            origin,
            counters: spec.figures.worker(),
            journal: writing.as_ref().and_then(|writing| writing.journal()),
            cap,
            udp,
        });
    }
    let raises = engine::unsent::raises(threads);
    on_listening(bound);
    on_threads(parts, stop, |part, [stop, failed]| {
        part.counters.runs_here();
        let files = Files::new(part.root, spec.files.clone()).holding_open(open_files);
        let recorder = Recorder::new(part.counters, part.journal);
        let mut context = WorkerContext::new(files, spec.limits.clone(), clock.now(), recorder, status_sources.clone());
        (context.front, context.cache, context.origin) = (part.front, cache.clone(), part.origin);
        context.tls = spec.tls.clone();
        context.raises_left = raises;
        let env = WorkerEnv {
            listener: &listener,
            local: bound,
            stop,
            failed,
            tls: spec.tls.as_ref(),
            limits: &spec.limits,
            address_counts: &address_counts,
            cap: part.cap,
            thinks: spec.origin.as_ref().is_some_and(|origin| origin.thinks()),
            clock,
            competitor: match &spec.dynamic {
                None => Competitor::NoneWaiting,
                Some(dynamic) if dynamic.has_lower_priority() => Competitor::LowPriority,
                Some(_) => Competitor::EqualPriority,
            },
        };
        if let (Some(socket), Some(config)) = (part.udp, quic_config) {
            return engine::quic::Worker::new(socket, config, env, context)?.run();
        }
        if let Some(line) = alt_svc {
            context.date.append(line.as_bytes());
        }
        engine::run(spec.engine, env, context)
    })
}

/// What one worker gets.
struct Part {
    root: Root,
    front: Option<RelayHandle>,
    origin: Option<Box<Origin>>,
    counters: Arc<Counters>,
    journal: Option<Journal>,
    /// Most connections.
    cap: usize,
    /// Of a worker of HTTP/3.
    udp: Option<UdpSocket>,
}

/// The sockets of HTTP/3, one for each of its workers with their connection limits, and what they share.
struct Http3Sockets {
    sockets: Vec<(UdpSocket, usize)>,
    config: QuicConfig,
    /// The field line that tells clients of HTTP/1.1 and HTTP/2 (RFC 7838).
    alt_svc: String,
}

impl Http3Sockets {
    /// Binds as many sockets as there are workers over TCP, to the same port number; `None` without HTTP/3.
    fn bind(spec: &ServeSpec, bound: SocketAddr, threads: usize) -> Result<Option<Self>, ServeError> {
        if !spec.http3 {
            return Ok(None);
        }
        let tls = spec.tls.as_ref().ok_or(ServeError::Http3WithoutTls)?;
        let config = QuicConfig::new(tls, &spec.limits, threads)?;
        let caps = shares(spec.limits.connections.unwrap_or(HTTP3_CONNECTIONS_MAX), threads, HTTP3_CONNECTIONS_MAX);
        let bind = |cap| Ok((listen::bind_udp(bound, threads > 1)?, cap));
        let sockets = caps.into_iter().map(bind).collect::<Result<_, ServeError>>()?;
        let alt_svc = format!("Alt-Svc: h3=\":{}\"; ma={ALT_SVC_AGE_S}\r\n", bound.port());
        Ok(Some(Http3Sockets { sockets, config, alt_svc }))
    }
}

/// Runs `work` on one thread for each of `parts`, the last of them on the calling thread, until all have ended. `work`
/// must end when one of its two descriptors is readable: `stop`, or the failure signal of another worker. A failed
/// worker ends the others, instead of leaving a server at half strength.
fn on_threads<P: Send>(
    mut parts: Vec<P>,
    stop: BorrowedFd<'_>,
    work: impl Fn(P, [BorrowedFd<'_>; 2]) -> Result<(), ServeError> + Sync,
) -> Result<(), ServeError> {
    let failed = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(system("eventfd"))?;
    let run = |part| {
        let sign = FailureSignal(&failed);
        let outcome = work(part, [stop, failed.as_fd()]);
        if outcome.is_ok() {
            std::mem::forget(sign);
        }
        outcome
    };
    let own = parts.pop();
    thread::scope(|scope| {
        let run = &run;
        let others: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || run(part))).collect();
        let first = own.map_or(Ok(()), run);
        others.into_iter().fold(first, |outcome, other| {
            outcome.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    })
}

/// Signals the failure of a worker, by an error or a panic, to the others.
struct FailureSignal<'a>(&'a EventFd);

impl Drop for FailureSignal<'_> {
    fn drop(&mut self) {
        // The counter cannot overflow with one write a worker, so the write cannot fail.
        let _ = self.0.write(1);
    }
}

/// The connection limits of the workers: `all` together, and at most `most` each. `all` is at least `workers`.
fn shares(all: usize, workers: usize, most: usize) -> Vec<usize> {
    let (each, rest) = (all / workers, all % workers);
    (0..workers).map(|worker| (each + usize::from(worker < rest)).clamp(1, most)).collect()
}

/// Descriptors of one worker for connections and for open files, after all other uses.
fn descriptors_per_worker(threads: usize, upstreams: usize) -> Result<(usize, usize), ServeError> {
    let limit = raise_descriptors()?;
    let each = limit.saturating_sub(RESERVED + upstreams.min(limit / 4)) / threads;
    let files = (each / 4).clamp(1, files::OPEN_MAX);
    match each.saturating_sub(files + RESERVED_PER_WORKER) {
        0 => Err(ServeError::Descriptors { limit, threads }),
        cap => Ok((cap, files)),
    }
}

/// Raises the soft limit of descriptors to the hard limit and enlarges the descriptor table; returns the limit.
fn raise_descriptors() -> Result<usize, ServeError> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(system("getrlimit RLIMIT_NOFILE"))?;
    let limit = if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft };
    // Otherwise a worker stalls for it during its first burst of connections.
    sys::limits::widen_table_of_files(limit);
    Ok(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Connections of HTTP/3: they need no descriptors, but some tens of kilobytes each.
const HTTP3_CONNECTIONS_MAX: usize = 4096;
/// How long a client may remember that there is HTTP/3: a day, as RFC 7838 assumes by default.
const ALT_SVC_AGE_S: u32 = 86_400;
/// Descriptors for the rest of the program.
const RESERVED: usize = 32;
/// An epoll set, the root, and files that are being opened.
const RESERVED_PER_WORKER: usize = 8;

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    #[test]
    fn shares_of_workers_add_up_to_the_connection_limit() {
        assert_eq!(shares(7, 3, 100), [3, 2, 2]);
        assert_eq!(shares(2, 2, 100), [1, 1]);
        assert_eq!(shares(1000, 3, 100), [100, 100, 100]);
        for (all, workers) in (1..40).flat_map(|workers| (workers..100).map(move |all| (all, workers))) {
            assert_eq!(shares(all, workers, usize::MAX).iter().sum::<usize>(), all);
        }
    }

    /// A server at half strength, whose clients hang by chance, is worse than none.
    #[test]
    fn a_worker_that_panics_ends_the_other_workers() {
        for fails in 0..2 {
            let stop = EventFd::new().unwrap();
            let stopped = AtomicBool::new(false);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                on_threads(vec![0, 1], stop.as_fd(), |part, [_, failed]| {
                    assert_ne!(part, fails, "this test makes the worker panic");
                    let mut fds = [PollFd::new(failed, PollFlags::POLLIN)];
                    stopped.store(poll(&mut fds, PollTimeout::from(20_000u16)).unwrap() == 1, Ordering::Relaxed);
                    Ok(())
                })
            }));
            assert!(outcome.is_err() && stopped.into_inner(), "{fails}");
        }
    }
}
