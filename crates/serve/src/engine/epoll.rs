//! The engine over epoll: edge-triggered; a connection is processed until the kernel has no more input or space.
//!
//! ```text
//!   wait() ── events ─┬─ established ─────────▶ processed immediately ──▶ more work: later in this turn or in the next
//!                     └─ new, or sending much ─▶ queued ──▶ processed last, as the turn has time
//! ```

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _};
use std::net::{Shutdown, TcpStream};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sys::socket::Read;
use units::Timestamp;

use super::table::Table;
use super::turn::Turn;
use super::{
    ACCEPT_PAUSE, ACCEPTS_PER_TURN, ACCEPTS_PER_TURN_MIN, AcceptResult, HasLink, INPUT_BYTES, RELAY_EVENTS_MAX,
    ROUNDS_PER_TURN, Sent, WorkerEnv, discard, flush, has_all,
};
use crate::connection::{Step, WorkerContext};
use crate::dynamic::RelayHandle;
use crate::link::Link;
use crate::spec::{ServeError, system};

/// A worker and its event loop.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    env: WorkerEnv<'a>,
    epoll: Epoll,
    /// The listener is in the epoll set. It is removed while no connection can be accepted: it would be reported again
    /// and again.
    accepting: bool,
    /// When to add it again, if no connection ends before.
    accept_again_at: Timestamp,
    /// The latest time at which a stopping server ends.
    stop_at: Option<Timestamp>,
    context: WorkerContext,
    table: Table<Client>,
    /// Number of this turn; the first is 1.
    turn: u64,
    /// Tokens of established connections with more work and no event.
    again: VecDeque<u64>,
    /// Tokens of new connections and of those that send much, with or without an event.
    deferred: VecDeque<u64>,
    /// The receive buffer.
    input: Box<[u8]>,
}

/// One connection.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    link: Link,
    /// Registered in the epoll set, and for what.
    registration: Registration,
    /// Queued in `again` or `deferred`.
    queued: bool,
    /// Queued after its event was used, or after an event with the peer's FIN: see [`Worker::advance`].
    unsure: bool,
    /// The turn in which it was accepted.
    accepted_in: u64,
    /// It has had a response, and may send another request.
    known: bool,
    /// It sends more at a time than one read takes.
    heavy: bool,
}

impl HasLink for Client {
    fn link(&self) -> &Link {
        &self.link
    }

    fn parts(&mut self) -> (&TcpStream, &mut Link) {
        (&self.stream, &mut self.link)
    }
}

/// A connection is registered when it first has to wait, and for writing when its buffer is first full. Most
/// connections never get there: short ones are served and closed immediately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Registration {
    #[default]
    No,
    Input,
    InputAndOutput,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Input from the client.
    Input,
    /// Input, and space in the send buffer.
    Output,
    /// Nothing: its share of the turn is used, and it has more work.
    Turn,
    /// Nothing: it closes.
    Close,
}

impl<'a> Worker<'a> {
    /// Does all setup that can fail.
    pub(crate) fn new(env: WorkerEnv<'a>, context: WorkerContext) -> Result<Self, ServeError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
        // Each write to it causes one event.
        let stop = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, STOP);
        epoll.add(env.stop, stop).map_err(system("epoll_ctl"))?;
        epoll.add(env.failed, EpollEvent::new(EpollFlags::EPOLLIN, FAILED)).map_err(system("epoll_ctl"))?;
        if let Some(front) = &context.front {
            epoll.add(front.wake_fd(), EpollEvent::new(EpollFlags::EPOLLIN, RELAY)).map_err(system("epoll_ctl"))?;
        }
        let mut worker = Worker {
            table: Table::new(env.tick(), context.now),
            env,
            epoll,
            accepting: false,
            accept_again_at: Timestamp::MAX,
            stop_at: None,
            context,
            turn: 1,
            again: VecDeque::new(),
            deferred: VecDeque::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
        };
        worker.resume_accepting()?;
        Ok(worker)
    }

    /// Serves until stopped; unfinished responses are reset then.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let outcome = self.serve();
        for token in self.table.tokens() {
            self.env.close(&mut self.table, token, &mut self.context, |_, client| drop(client));
        }
        outcome
    }

    fn serve(&mut self) -> Result<(), ServeError> {
        let mut precedence = self.env.competitor.apply(self.context.now);
        let mut events = vec![EpollEvent::empty(); EVENTS];
        loop {
            let timeout = self.timeout();
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
            self.turn += 1;
            let mut knocked = false;
            for event in &events[..ready] {
                match event.data() {
                    FAILED => return Ok(()),
                    STOP if self.stop_at.is_some() => return Ok(()),
                    STOP => self.stop()?,
                    LISTENER => knocked = true,
                    RELAY => self.process_relay_events()?,
                    token => {
                        let over = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
                        match self.table.get(token) {
                            Some(client) if client.is_light() => {
                                self.advance(token, event.events().intersects(over))?;
                            }
                            Some(client) => {
                                client.unsure |= event.events().intersects(over);
                                if !std::mem::replace(&mut client.queued, true) {
                                    self.deferred.push_back(token);
                                }
                            }
                            None => {}
                        }
                    }
                }
            }
            if self.context.now >= self.context.recorder.due_at() {
                self.context.recorder.tick(self.context.now);
            }
            for done in 0..self.again.len() {
                if done > 0 && self.context.turn.is_over() {
                    break;
                }
                let Some(token) = self.again.pop_front() else { break };
                self.resume(token)?;
            }
            self.context.turn.for_new_connections();
            for done in 0..self.deferred.len() {
                if done > 0 && self.context.turn.is_over() {
                    break;
                }
                let Some(token) = self.deferred.pop_front() else { break };
                self.resume(token)?;
            }
            while let Some(token) = self.table.due(self.context.now) {
                let Some(client) = self.table.get(token) else { continue };
                let deadline = client.link.deadline();
                if deadline > self.context.now {
                    self.table.schedule(token, deadline);
                } else {
                    super::late(&client.stream, &mut client.link, &mut self.context);
                    self.advance(token, true)?;
                }
            }
            if knocked {
                self.accept()?;
            }
            if self.stop_at.is_some_and(|at| self.context.now >= at || self.table.length() == 0) {
                return Ok(());
            }
            if !self.accepting && self.context.now >= self.accept_again_at {
                self.resume_accepting()?;
            }
        }
    }

    /// Time until the next deadline.
    fn timeout(&self) -> EpollTimeout {
        if !self.again.is_empty() || !self.deferred.is_empty() {
            return EpollTimeout::ZERO;
        }
        let accept_at = if self.accepting { Timestamp::MAX } else { self.accept_again_at };
        let due_at = self.table.due_at().min(accept_at).min(self.stop_at.unwrap_or(Timestamp::MAX));
        if due_at == Timestamp::MAX {
            return EpollTimeout::NONE;
        }
        let due_at = due_at.min(self.context.recorder.due_at());
        // Rounded up; otherwise the last millisecond would be spent in a busy loop.
        let wait_ms = due_at.since(self.context.now).as_nanos().div_ceil(1_000_000);
        EpollTimeout::from(u16::try_from(wait_ms).unwrap_or(u16::MAX))
    }

    fn accept(&mut self) -> Result<(), ServeError> {
        for taken in 0..ACCEPTS_PER_TURN {
            if taken >= ACCEPTS_PER_TURN_MIN && self.context.turn.is_over() {
                break;
            }
            if self.stop_at.is_some() {
                return Ok(());
            }
            let accepted_in = self.turn;
            let new_client = |stream, link| Client {
                stream,
                link,
                registration: Registration::No,
                queued: false,
                unsure: false,
                accepted_in,
                known: false,
                heavy: false,
            };
            let token =
                match self.env.admit(&mut self.table, &mut self.context, new_client, |_, client| drop(client))? {
                    AcceptResult::New(token) => token,
                    AcceptResult::Skipped | AcceptResult::MadeRoom => continue,
                    AcceptResult::NoneWaiting => return Ok(()),
                    AcceptResult::Pause => return self.pause_accepting(),
                };
            // The request usually arrives with the last packet of the handshake.
            self.advance(token, false)?;
        }
        Ok(())
    }

    /// Processes the relay's events.
    fn process_relay_events(&mut self) -> Result<(), ServeError> {
        if let Some(front) = &mut self.context.front {
            front.woken();
        }
        for _ in 0..RELAY_EVENTS_MAX {
            let Some((ticket, event)) = self.context.front.as_mut().and_then(RelayHandle::next) else { return Ok(()) };
            if let Some(client) = self.table.get(ticket.connection) {
                client.link.relay_event(&mut self.context, ticket.stream, event);
                self.advance(ticket.connection, true)?;
            }
        }
        if let Some(front) = &self.context.front {
            front.wake_again();
        }
        Ok(())
    }

    /// Processes a queued connection.
    fn resume(&mut self, token: u64) -> Result<(), ServeError> {
        let Some(client) = self.table.get(token) else { return Ok(()) };
        client.queued = false;
        let unsure = std::mem::take(&mut client.unsure);
        self.advance(token, unsure)
    }

    /// Processes a connection. `hung_up`: the event reported the peer's FIN, or events may be used up, so a read
    /// shorter than its buffer does not imply a further event.
    fn advance(&mut self, token: u64, hung_up: bool) -> Result<(), ServeError> {
        let Some(client) = self.table.get(token) else { return Ok(()) };
        let next = client.work(&mut self.context, &mut self.input, hung_up).unwrap_or(Next::Close);
        client.link.settle(&mut self.context);
        super::begin_stall_timeout(&client.stream, &mut client.link);
        let used = client.link.idle_since() == Some(self.context.now);
        client.known |= used && next == Next::Input && client.accepted_in < self.turn;
        let needed = match next {
            Next::Input => Registration::Input,
            Next::Output => Registration::InputAndOutput,
            Next::Turn => {
                client.unsure = true;
                if !std::mem::replace(&mut client.queued, true) {
                    let queue = if client.is_light() { &mut self.again } else { &mut self.deferred };
                    queue.push_back(token);
                }
                client.registration
            }
            Next::Close => return self.close(token),
        };
        let deadline = client.link.deadline();
        if client.registration < needed {
            let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
            if needed == Registration::InputAndOutput {
                flags |= EpollFlags::EPOLLOUT;
            }
            let mut event = EpollEvent::new(flags, token);
            let outcome = match client.registration {
                Registration::No => self.epoll.add(&client.stream, event),
                _ => self.epoll.modify(&client.stream, &mut event),
            };
            match outcome {
                Ok(()) => client.registration = needed,
                // Out of memory or of fs.epoll.max_user_watches: this connection cannot be served, nor could others.
                Err(Errno::ENOSPC | Errno::ENOMEM) => {
                    self.close(token)?;
                    return self.pause_accepting();
                }
                Err(errno) => return Err(system("epoll_ctl")(errno)),
            }
        }
        self.table.schedule(token, deadline);
        if used {
            self.table.used(token);
        }
        Ok(())
    }

    fn close(&mut self, token: u64) -> Result<(), ServeError> {
        self.env.close(&mut self.table, token, &mut self.context, |_, client| drop(client));
        if self.accepting || self.stop_at.is_some() { Ok(()) } else { self.resume_accepting() }
    }

    /// Stops accepting, and closes idle connections.
    fn stop(&mut self) -> Result<(), ServeError> {
        self.pause_accepting()?;
        self.accept_again_at = Timestamp::MAX;
        self.stop_at = Some(self.context.now + self.env.limits.stop_time);
        self.context.stopping = true;
        super::refuse_more(self.env.listener);
        for token in self.table.tokens() {
            if let Some(client) = self.table.get(token) {
                client.link.stop();
                self.advance(token, true)?;
            }
        }
        Ok(())
    }

    fn pause_accepting(&mut self) -> Result<(), ServeError> {
        self.accept_again_at = self.context.now + ACCEPT_PAUSE;
        if std::mem::take(&mut self.accepting) {
            self.epoll.delete(self.env.listener).map_err(system("epoll_ctl"))?;
        }
        Ok(())
    }

    fn resume_accepting(&mut self) -> Result<(), ServeError> {
        // EPOLLEXCLUSIVE: a new connection wakes one worker, not all.
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        self.epoll.add(self.env.listener, EpollEvent::new(flags, LISTENER)).map_err(system("epoll_ctl"))?;
        self.accepting = true;
        self.accept_again_at = Timestamp::MAX;
        Ok(())
    }
}

impl Client {
    /// Whether its requests take little work.
    fn is_light(&self) -> bool {
        self.known && !self.heavy
    }

    /// Sends, responds and receives alternately.
    fn work(&mut self, context: &mut WorkerContext, input: &mut [u8], hung_up: bool) -> io::Result<Next> {
        let (mut drained, mut much) = (false, false);
        for _ in 0..ROUNDS_PER_TURN {
            match flush(&self.stream, &mut self.link, context, false)? {
                Sent::All => {}
                Sent::Blocked => return Ok(Next::Output),
                Sent::Enough => return Ok(Next::Turn),
            }
            if self.link.has_more() {
                if context.turn.is_over() {
                    return Ok(Next::Turn);
                }
                self.link.proceed(context);
                continue;
            }
            match self.link.step() {
                Step::Close => return Ok(Next::Close),
                Step::SendFin => {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.link.finished(context);
                    continue;
                }
                Step::CloseWhenAcknowledged if has_all(&self.stream) => return Ok(Next::Close),
                Step::Pause | Step::CloseWhenAcknowledged => return Ok(Next::Input),
                Step::Receive | Step::Discard if drained => return Ok(Next::Input),
                // Each byte read lets the client send another, which the kernel transfers on this core.
                Step::Receive | Step::Discard if much && context.turn.is_over() => return Ok(Next::Turn),
                Step::Discard => {
                    much = true;
                    drained = !matches!(discard(&self.stream, &mut self.link, context)?, Read::Bytes(_));
                    continue;
                }
                Step::Receive => {}
            }
            match self.stream.read(input) {
                Ok(0) => {
                    drained = true;
                    self.link.ended();
                }
                Ok(got) => {
                    // A read shorter than its buffer has emptied the socket (epoll(7)): a further read is unnecessary.
                    drained = !hung_up && got < input.len();
                    much |= got == input.len();
                    self.heavy |= much;
                    self.link.take(context, &input[..got]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => drained = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Next::Turn)
    }
}

/// Tokens of other descriptors.
const STOP: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const FAILED: u64 = u64::MAX - 2;
const RELAY: u64 = u64::MAX - 3;
/// Events per call.
const EVENTS: usize = 512;
