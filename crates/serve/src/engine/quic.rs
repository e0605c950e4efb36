//! The worker of HTTP/3: one UDP socket, one event loop, on a thread of its own.
//!
//! ```text
//!   socket ──recvmmsg, joined by the kernel (UDP_GRO)──▶ Host ──sendmsg, divided by the kernel (UDP_SEGMENT)──▶ socket
//! ```
//!
//! The workers over TCP share a listener with the same port number. Everything but the socket is in `quic.rs`.

use std::io::{self, ErrorKind, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use http3::TimeBase;
use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use quinn_proto::{EcnCodepoint, Transmit};
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSocketState};
use sys::timer::Timer;
use units::Timestamp;

use super::turn::Turn;
use super::{RELAY_EVENTS_MAX, WorkerEnv};
use crate::connection::WorkerContext;
use crate::dynamic::RelayHandle;
use crate::quic::{Host, Origin, Outlet, QuicConfig};
use crate::spec::{ServeError, system};

/// The worker of HTTP/3.
pub(crate) struct Worker<'a> {
    env: WorkerEnv<'a>,
    context: WorkerContext,
    epoll: Epoll,
    /// Ends waits that are too short for the milliseconds of epoll.
    timer: Timer,
    host: Host<'a>,
    socket: Socket,
    /// Buffers of received datagrams.
    input: Box<[u8]>,
    /// The latest time at which a stopping server ends.
    stop_at: Option<Timestamp>,
}

/// A UDP socket, and what it has not taken.
struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Datagrams that the kernel has no space for.
    kept: Option<(Transmit, Vec<u8>)>,
}

impl<'a> Worker<'a> {
    /// A worker on a bound, non-blocking socket. Does all setup that can fail.
    pub(crate) fn new(
        socket: UdpSocket,
        config: &QuicConfig,
        env: WorkerEnv<'a>,
        context: WorkerContext,
    ) -> Result<Self, ServeError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
        let add = |fd, flags, token| epoll.add(fd, EpollEvent::new(flags, token)).map_err(system("epoll_ctl"));
        // Each write to it causes one event.
        add(env.stop, EpollFlags::EPOLLIN | EpollFlags::EPOLLET, STOP)?;
        add(env.failed, EpollFlags::EPOLLIN, FAILED)?;
        add(socket.as_fd(), EpollFlags::EPOLLIN, SOCKET)?;
        let timer = Timer::new().map_err(system("timerfd_create"))?;
        add(timer.as_fd(), EpollFlags::EPOLLIN | EpollFlags::EPOLLET, TIMER)?;
        if let Some(front) = &context.front {
            add(front.wake_fd(), EpollFlags::EPOLLIN, RELAY)?;
        }
        let state = UdpSocketState::new((&socket).into()).map_err(system("setsockopt of a UDP socket"))?;
        let base = time_base(env.clock.now());
        let host = Host::new(config, base, env.local, env.address_counts, env.cap, &context);
        let input = vec![0; BATCH_SIZE * MESSAGE_BYTES].into_boxed_slice();
        let socket = Socket { socket, state, kept: None };
        Ok(Worker { env, context, epoll, timer, host, socket, input, stop_at: None })
    }

    /// Serves until stopped; unfinished responses are reset then.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let outcome = self.serve();
        self.host.end(&mut self.context, &mut self.socket);
        outcome
    }

    fn serve(&mut self) -> Result<(), ServeError> {
        let mut precedence = self.env.competitor.apply(self.context.now);
        let mut events = [EpollEvent::empty(); EVENTS];
        loop {
            let timeout = self.timeout()?;
            if timeout == EpollTimeout::NONE {
                self.context.recorder.tick(self.context.now);
            }
            let ready = match self.epoll.wait(&mut events, timeout) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(system("epoll_wait")(errno)),
            };
            self.context.now = self.env.clock.now();
            self.context.date.refresh(self.context.now);
            precedence.review(self.context.now);
            self.context.turn = Turn::begun(self.env.clock, self.context.now);
            for event in &events[..ready] {
                match event.data() {
                    FAILED => return Ok(()),
                    STOP if self.stop_at.is_some() => return Ok(()),
                    STOP => self.stop(),
                    RELAY => self.process_relay_events(),
                    TIMER => self.timer.fired(),
                    _ => {
                        if event.events().contains(EpollFlags::EPOLLOUT) {
                            self.retry();
                        }
                        self.receive()?;
                    }
                }
            }
            if self.context.now >= self.context.recorder.due_at() {
                self.context.recorder.tick(self.context.now);
            }
            self.host.expire(&mut self.context);
            let was_blocked = self.socket.is_blocked();
            self.host.work(&mut self.context, &mut self.socket);
            if self.socket.is_blocked() && !was_blocked {
                self.watch(EpollFlags::EPOLLIN | EpollFlags::EPOLLOUT);
            }
            if self.stop_at.is_some_and(|at| self.context.now >= at || self.host.is_over()) {
                return Ok(());
            }
        }
    }

    /// Time until the next deadline.
    ///
    /// Packets are paced in bursts at intervals of 1.6 ms. A worker that is woken 1 ms late cannot make up for it: the
    /// burst has a largest size, and the rate falls.
    fn timeout(&mut self) -> Result<EpollTimeout, ServeError> {
        if self.host.has_work() && !self.socket.is_blocked() {
            return Ok(EpollTimeout::ZERO);
        }
        let due_at = self.host.due_at().min(self.stop_at.unwrap_or(Timestamp::MAX));
        if due_at == Timestamp::MAX {
            return Ok(EpollTimeout::NONE);
        }
        let due_at = due_at.min(self.context.recorder.due_at());
        let wait = due_at.since(self.context.now);
        if wait < PRECISE_BELOW {
            self.timer.arm(self.env.clock.absolute(due_at)).map_err(system("timerfd_settime"))?;
        }
        // Rounded up; otherwise the last millisecond would be spent in a busy loop.
        let wait_ms = wait.as_nanos().div_ceil(1_000_000);
        Ok(EpollTimeout::from(u16::try_from(wait_ms).unwrap_or(u16::MAX)))
    }

    /// Receives datagrams until there are none, or enough for a turn.
    fn receive(&mut self) -> Result<(), ServeError> {
        for _ in 0..RECEIVES_PER_TURN {
            let mut metas = [RecvMeta::default(); BATCH_SIZE];
            let mut buffers = self.input.chunks_exact_mut(MESSAGE_BYTES);
            let mut slices: [IoSliceMut<'_>; BATCH_SIZE] =
                std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
            let received = self.socket.state.recv((&self.socket.socket).into(), &mut slices, &mut metas);
            let count = match received {
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // EINTR, or an ICMP message about an earlier datagram of this server.
                Err(error) if is_of_peer(&error) => continue,
                Err(error) => return Err(system("recvmmsg")(error)),
            };
            for (meta, buffer) in metas[..count].iter().zip(self.input.chunks_exact(MESSAGE_BYTES)) {
                let ecn = meta.ecn.and_then(|ecn| EcnCodepoint::from_bits(ecn as u8));
                let origin = Origin { peer: meta.addr, local: meta.dst_ip, ecn };
                let mut bytes = BytesMut::from(&buffer[..meta.len]);
                while !bytes.is_empty() {
                    let datagram = bytes.split_to(meta.stride.clamp(1, bytes.len()));
                    self.host.receive(&mut self.context, &origin, datagram, &mut self.socket);
                }
            }
            if count < BATCH_SIZE {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The socket has space.
    fn retry(&mut self) {
        if let Some((transmit, bytes)) = self.socket.kept.take() {
            self.socket.transmit(transmit, &bytes);
        }
        if !self.socket.is_blocked() {
            self.watch(EpollFlags::EPOLLIN);
        }
    }

    fn watch(&self, flags: EpollFlags) {
        // The socket is in the set, so this cannot fail.
        let _ = self.epoll.modify(&self.socket.socket, &mut EpollEvent::new(flags, SOCKET));
    }

    fn process_relay_events(&mut self) {
        if let Some(front) = &mut self.context.front {
            front.woken();
        }
        for _ in 0..RELAY_EVENTS_MAX {
            let Some((ticket, event)) = self.context.front.as_mut().and_then(RelayHandle::next) else { return };
            self.host.relay_event(&mut self.context, ticket, event);
        }
        if let Some(front) = &self.context.front {
            front.wake_again();
        }
    }

    fn stop(&mut self) {
        self.stop_at = Some(self.context.now + self.env.limits.stop_time);
        self.context.stopping = true;
        self.host.stop();
    }
}

impl Outlet for Socket {
    fn transmit(&mut self, transmit: Transmit, bytes: &[u8]) {
        let bytes = &bytes[..transmit.size];
        let message = quinn_udp::Transmit {
            destination: transmit.destination,
            ecn: transmit.ecn.and_then(|ecn| quinn_udp::EcnCodepoint::from_bits(ecn as u8)),
            contents: bytes,
            segment_size: transmit.segment_size,
            src_ip: transmit.src_ip,
        };
        match self.state.try_send((&self.socket).into(), &message) {
            // One is kept; an answer of the endpoint itself that comes meanwhile is lost, as on the way.
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.kept.get_or_insert_with(|| (transmit, bytes.to_vec()));
            }
            // Other errors are those of the path, or of a device that cannot divide, which is not asked to again: QUIC
            // repeats what is lost.
            Ok(()) | Err(_) => {}
        }
    }

    fn is_blocked(&self) -> bool {
        self.kept.is_some()
    }

    fn segments_max(&self) -> usize {
        self.state.max_gso_segments().min(SEGMENTS_MAX)
    }
}

/// Whether an error of a receive is about one peer, or no error.
fn is_of_peer(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::ConnectionRefused,
        ErrorKind::ConnectionReset,
        ErrorKind::HostUnreachable,
        ErrorKind::NetworkUnreachable,
        ErrorKind::Interrupted,
    ];
    kinds.contains(&error.kind())
}

/// quinn-proto takes `Instant`s.
#[allow(clippy::disallowed_methods, reason = "an Instant has no other origin; read once, as the base of the clock")]
fn time_base(now: Timestamp) -> TimeBase {
    TimeBase::new(Instant::now(), now)
}

const STOP: u64 = u64::MAX;
const FAILED: u64 = u64::MAX - 1;
const RELAY: u64 = u64::MAX - 2;
const SOCKET: u64 = u64::MAX - 3;
const TIMER: u64 = u64::MAX - 4;
/// Descriptors in the set.
const EVENTS: usize = 5;
/// Shorter waits end by the timer: pacing, above all.
const PRECISE_BELOW: Duration = Duration::from_millis(10);
/// Datagrams that the kernel divides in one message, which has at most 65,507 bytes: a longer one fails as a whole
/// (EMSGSIZE). The longest datagram that quinn-proto tries has 1,452 bytes.
const SEGMENTS_MAX: usize = 65_507 / 1_472;
/// Longest message: datagrams that the kernel joined.
const MESSAGE_BYTES: usize = 64 << 10;
/// Calls of recvmmsg per turn.
const RECEIVES_PER_TURN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a message that is too long nothing would be sent, and no error seen.
    #[test]
    fn most_datagrams_of_a_message_all_arrive() {
        let (sender, receiver) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        receiver.set_nonblocking(true).unwrap();
        let state = UdpSocketState::new((&sender).into()).unwrap();
        let mut socket = Socket { socket: sender, state, kept: None };
        let longest = 1_452;
        let size = socket.segments_max() * longest;
        let destination = receiver.local_addr().unwrap();
        let transmit = Transmit { destination, size, ecn: None, segment_size: Some(longest), src_ip: None };
        socket.transmit(transmit, &vec![7; size]);
        let mut buffer = [0; 2_000];
        let received = std::iter::from_fn(|| receiver.recv(&mut buffer).ok()).collect::<Vec<_>>();
        assert_eq!(received, vec![longest; socket.segments_max()]);
        assert!(socket.segments_max() > 1 && !socket.is_blocked());
    }
}
