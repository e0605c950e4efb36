//! The engine over epoll: edge-triggered, every connection worked at until the kernel has nothing more to give or takes
//! nothing more.
//!
//! ```text
//!   wait() ── reports ─┬─ of those who are known ──▶ worked at, at once ──▶ more to do: again, later in the turn or in the next
//!                      └─ of strangers, and of those who send much ──▶ strangers ──▶ worked at last, as the turn has time
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
    ACCEPT_PAUSE, ACCEPTS, ACCEPTS_AT_LEAST, Admitted, Ground, HEARD, INPUT_BYTES, Seat, Sent, TURNS, discard, flush,
    has_all,
};
use crate::connection::{Desk, Step};
use crate::dynamic::Front;
use crate::link::Link;
use crate::spec::{ServeError, system};

/// A worker before and while it runs.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    ground: Ground<'a>,
    epoll: Epoll,
    /// The listener is in the set. It is taken out while no connection can be accepted: it would be reported at once
    /// and for ever.
    accepting: bool,
    /// When to put it back, if no connection ends before.
    accept_again_at: Timestamp,
    /// The server ends, at the latest then.
    stop_at: Option<Timestamp>,
    desk: Desk,
    table: Table<Client>,
    /// Number of this turn of the loop; the first is 1.
    turn: u64,
    /// Tokens of known connections that have more to do without a report.
    again: VecDeque<u64>,
    /// The same of strangers and of those who send much, reported or not.
    strangers: VecDeque<u64>,
    /// Bytes as received.
    input: Box<[u8]>,
}

/// One connection.
#[derive(Debug)]
struct Client {
    stream: TcpStream,
    link: Link,
    /// In the set, and for what.
    watched: Watched,
    /// In `again` or among the strangers.
    queued: bool,
    /// Queued with its last report spent, or with one that said that the peer sent its last byte: see [`Worker::advance`].
    unsure: bool,
    /// The turn in which it was accepted.
    accepted_in: u64,
    /// A request of it was answered since, and it may send another.
    known: bool,
    /// It is known to send more at a time than is read at once.
    heavy: bool,
}

impl Seat for Client {
    fn link(&self) -> &Link {
        &self.link
    }

    fn parts(&mut self) -> (&TcpStream, &mut Link) {
        (&self.stream, &mut self.link)
    }
}

/// A connection enters the set when it first has to wait, and is watched for room to send when it first lacks it.
/// Most never get so far: a short one is answered at once and gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Watched {
    #[default]
    No,
    Input,
    InputAndOutput,
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// That the client sends something.
    Input,
    /// Also that the kernel takes more.
    Output,
    /// Nothing: it had its turn, and there is more.
    Turn,
    /// Nothing any more.
    Close,
}

impl<'a> Worker<'a> {
    /// Prepares everything that can fail.
    pub(crate) fn new(ground: Ground<'a>, desk: Desk) -> Result<Self, ServeError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
        // Each write to it is one report.
        let stop = EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, STOP);
        epoll.add(ground.stop, stop).map_err(system("epoll_ctl"))?;
        epoll.add(ground.failed, EpollEvent::new(EpollFlags::EPOLLIN, FAILED)).map_err(system("epoll_ctl"))?;
        if let Some(front) = &desk.front {
            epoll.add(front.wake_fd(), EpollEvent::new(EpollFlags::EPOLLIN, RELAY)).map_err(system("epoll_ctl"))?;
        }
        let mut worker = Worker {
            table: Table::new(ground.tick(), desk.now),
            ground,
            epoll,
            accepting: false,
            accept_again_at: Timestamp::MAX,
            stop_at: None,
            desk,
            turn: 1,
            again: VecDeque::new(),
            strangers: VecDeque::new(),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
        };
        worker.resume_accepting()?;
        Ok(worker)
    }

    /// Serves until it is told to stop, and has; what is not finished then is cut off.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let outcome = self.serve();
        for token in self.table.tokens() {
            self.ground.close(&mut self.table, token, &mut self.desk, |_, client| drop(client));
        }
        outcome
    }

    fn serve(&mut self) -> Result<(), ServeError> {
        let mut precedence = self.ground.beside.stand(self.desk.now);
        let mut events = vec![EpollEvent::empty(); EVENTS];
        loop {
            let timeout = self.timeout();
            if timeout == EpollTimeout::NONE {
                self.desk.books.tick(self.desk.now);
            }
            let ready = match self.epoll.wait(&mut events, timeout) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(system("epoll_wait")(errno)),
            };
            self.desk.now = self.ground.clock.now();
            self.desk.date.refresh(self.desk.now);
            precedence.review(self.desk.now);
            self.desk.turn = Turn::begun(self.ground.clock, self.desk.now);
            self.turn += 1;
            let mut knocked = false;
            for event in &events[..ready] {
                match event.data() {
                    FAILED => return Ok(()),
                    STOP if self.stop_at.is_some() => return Ok(()),
                    STOP => self.stop()?,
                    LISTENER => knocked = true,
                    RELAY => self.hear()?,
                    token => {
                        let over = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
                        match self.table.get(token) {
                            Some(client) if client.is_light() => {
                                self.advance(token, event.events().intersects(over))?;
                            }
                            Some(client) => {
                                client.unsure |= event.events().intersects(over);
                                if !std::mem::replace(&mut client.queued, true) {
                                    self.strangers.push_back(token);
                                }
                            }
                            None => {}
                        }
                    }
                }
            }
            if self.desk.now >= self.desk.books.due_at() {
                self.desk.books.tick(self.desk.now);
            }
            for done in 0..self.again.len() {
                if done > 0 && self.desk.turn.is_over() {
                    break;
                }
                let Some(token) = self.again.pop_front() else { break };
                self.go_on(token)?;
            }
            self.desk.turn.for_strangers();
            for done in 0..self.strangers.len() {
                if done > 0 && self.desk.turn.is_over() {
                    break;
                }
                let Some(token) = self.strangers.pop_front() else { break };
                self.go_on(token)?;
            }
            while let Some(token) = self.table.due(self.desk.now) {
                let Some(client) = self.table.get(token) else { continue };
                let deadline = client.link.deadline();
                if deadline > self.desk.now {
                    self.table.schedule(token, deadline);
                } else {
                    client.link.late(&mut self.desk);
                    self.advance(token, true)?;
                }
            }
            if knocked {
                self.accept()?;
            }
            if self.stop_at.is_some_and(|at| self.desk.now >= at || self.table.length() == 0) {
                return Ok(());
            }
            if !self.accepting && self.desk.now >= self.accept_again_at {
                self.resume_accepting()?;
            }
        }
    }

    /// How long nothing can fall due.
    fn timeout(&self) -> EpollTimeout {
        if !self.again.is_empty() || !self.strangers.is_empty() {
            return EpollTimeout::ZERO;
        }
        let accept_at = if self.accepting { Timestamp::MAX } else { self.accept_again_at };
        let due_at = self.table.due_at().min(accept_at).min(self.stop_at.unwrap_or(Timestamp::MAX));
        if due_at == Timestamp::MAX {
            return EpollTimeout::NONE;
        }
        let due_at = due_at.min(self.desk.books.due_at());
        // Rounded up, or the last millisecond would be spent in a busy loop.
        let wait_ms = due_at.since(self.desk.now).as_nanos().div_ceil(1_000_000);
        EpollTimeout::from(u16::try_from(wait_ms).unwrap_or(u16::MAX))
    }

    fn accept(&mut self) -> Result<(), ServeError> {
        for taken in 0..ACCEPTS {
            if taken >= ACCEPTS_AT_LEAST && self.desk.turn.is_over() {
                break;
            }
            if self.stop_at.is_some() {
                return Ok(());
            }
            let accepted_in = self.turn;
            let seat = |stream, link| Client {
                stream,
                link,
                watched: Watched::No,
                queued: false,
                unsure: false,
                accepted_in,
                known: false,
                heavy: false,
            };
            let token = match self.ground.admit(&mut self.table, &mut self.desk, seat, |_, client| drop(client))? {
                Admitted::New(token) => token,
                Admitted::Skipped | Admitted::MadeRoom => continue,
                Admitted::Nobody => return Ok(()),
                Admitted::Pause => return self.pause_accepting(),
            };
            // The request usually came with the handshake's last packet.
            self.advance(token, false)?;
        }
        Ok(())
    }

    /// Passes on what the relay has to say.
    fn hear(&mut self) -> Result<(), ServeError> {
        if let Some(front) = &mut self.desk.front {
            front.woken();
        }
        for _ in 0..HEARD {
            let Some((token, event)) = self.desk.front.as_mut().and_then(Front::next) else { return Ok(()) };
            if let Some(client) = self.table.get(token) {
                client.link.heard(&mut self.desk, event);
                self.advance(token, true)?;
            }
        }
        if let Some(front) = &self.desk.front {
            front.wake_again();
        }
        Ok(())
    }

    /// Does all that can be done about a connection that was queued for it.
    fn go_on(&mut self, token: u64) -> Result<(), ServeError> {
        let Some(client) = self.table.get(token) else { return Ok(()) };
        client.queued = false;
        let unsure = std::mem::take(&mut client.unsure);
        self.advance(token, unsure)
    }

    /// Does all that can be done about a connection now. `hung_up`: its report said that the peer sent its last byte, or
    /// reports may be spent, so a read that is shorter than its buffer does not mean that nothing more will be
    /// reported.
    fn advance(&mut self, token: u64, hung_up: bool) -> Result<(), ServeError> {
        let Some(client) = self.table.get(token) else { return Ok(()) };
        let next = client.work(&mut self.desk, &mut self.input, hung_up).unwrap_or(Next::Close);
        client.link.settle(&mut self.desk);
        let used = client.link.spare_since() == Some(self.desk.now);
        client.known |= used && next == Next::Input && client.accepted_in < self.turn;
        let needed = match next {
            Next::Input => Watched::Input,
            Next::Output => Watched::InputAndOutput,
            Next::Turn => {
                client.unsure = true;
                if !std::mem::replace(&mut client.queued, true) {
                    let queue = if client.is_light() { &mut self.again } else { &mut self.strangers };
                    queue.push_back(token);
                }
                client.watched
            }
            Next::Close => return self.close(token),
        };
        let deadline = client.link.deadline();
        if client.watched < needed {
            let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
            if needed == Watched::InputAndOutput {
                flags |= EpollFlags::EPOLLOUT;
            }
            let mut event = EpollEvent::new(flags, token);
            let outcome = match client.watched {
                Watched::No => self.epoll.add(&client.stream, event),
                _ => self.epoll.modify(&client.stream, &mut event),
            };
            match outcome {
                Ok(()) => client.watched = needed,
                // Memory, or fs.epoll.max_user_watches: this one cannot be served, and more would fare no better.
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
        self.ground.close(&mut self.table, token, &mut self.desk, |_, client| drop(client));
        if self.accepting || self.stop_at.is_some() { Ok(()) } else { self.resume_accepting() }
    }

    /// Takes no more connections, and ends those that are not busy.
    fn stop(&mut self) -> Result<(), ServeError> {
        self.pause_accepting()?;
        self.accept_again_at = Timestamp::MAX;
        self.stop_at = Some(self.desk.now + self.ground.limits.stop_time);
        self.desk.stopping = true;
        super::refuse_more(self.ground.listener);
        for token in self.table.tokens() {
            if let Some(client) = self.table.get(token) {
                client.link.stop();
                self.advance(token, true)?;
            }
        }
        Ok(())
    }

    fn pause_accepting(&mut self) -> Result<(), ServeError> {
        self.accept_again_at = self.desk.now + ACCEPT_PAUSE;
        if std::mem::take(&mut self.accepting) {
            self.epoll.delete(self.ground.listener).map_err(system("epoll_ctl"))?;
        }
        Ok(())
    }

    fn resume_accepting(&mut self) -> Result<(), ServeError> {
        // EPOLLEXCLUSIVE: a new connection wakes one worker, not all.
        let wanted = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        self.epoll.add(self.ground.listener, EpollEvent::new(wanted, LISTENER)).map_err(system("epoll_ctl"))?;
        self.accepting = true;
        self.accept_again_at = Timestamp::MAX;
        Ok(())
    }
}

impl Client {
    /// What it asks is done at once.
    fn is_light(&self) -> bool {
        self.known && !self.heavy
    }

    /// Sends, answers and receives in turn.
    fn work(&mut self, desk: &mut Desk, input: &mut [u8], hung_up: bool) -> io::Result<Next> {
        let (mut drained, mut much) = (false, false);
        for _ in 0..TURNS {
            match flush(&self.stream, &mut self.link, desk, false)? {
                Sent::All => {}
                Sent::Blocked => return Ok(Next::Output),
                Sent::Enough => return Ok(Next::Turn),
            }
            if self.link.has_more() {
                if desk.turn.is_over() {
                    return Ok(Next::Turn);
                }
                self.link.proceed(desk);
                continue;
            }
            match self.link.step() {
                Step::Close => return Ok(Next::Close),
                Step::Finish => {
                    self.stream.shutdown(Shutdown::Write)?;
                    self.link.finished(desk);
                    continue;
                }
                Step::Part if has_all(&self.stream) => return Ok(Next::Close),
                Step::Hold | Step::Part => return Ok(Next::Input),
                Step::Go | Step::Discard if drained => return Ok(Next::Input),
                // Each byte that is taken makes room for another, which the kernel carries at once.
                Step::Go | Step::Discard if much && desk.turn.is_over() => return Ok(Next::Turn),
                Step::Discard => {
                    much = true;
                    drained = !matches!(discard(&self.stream, &mut self.link, desk)?, Read::Bytes(_));
                    continue;
                }
                Step::Go => {}
            }
            match self.stream.read(input) {
                Ok(0) => {
                    drained = true;
                    self.link.ended();
                }
                Ok(got) => {
                    // A read shorter than its buffer has emptied the socket (epoll(7)), so one that would only say so
                    // is spared.
                    drained = !hung_up && got < input.len();
                    much |= got == input.len();
                    self.heavy |= much;
                    self.link.take(desk, &input[..got]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => drained = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Next::Turn)
    }
}

/// Tokens that no connection has.
const STOP: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
const FAILED: u64 = u64::MAX - 2;
const RELAY: u64 = u64::MAX - 3;
/// Reports fetched at once.
const EVENTS: usize = 512;
