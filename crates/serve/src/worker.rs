//! One thread of the server: its epoll set, its connections, its clock.

use std::collections::VecDeque;
use std::net::{TcpListener, TcpStream};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use sys::clock::Clock;
use units::Timestamp;

use crate::connection::{Connection, Desk, Next};
use crate::files::Files;
use crate::spec::{Limits, ServeError, system};

/// A worker before and while it runs.
#[derive(Debug)]
pub(crate) struct Worker<'a> {
    epoll: Epoll,
    listener: &'a TcpListener,
    /// The listener is in the set. It is taken out while no connection can be accepted: it would be reported at once
    /// and for ever.
    accepting: bool,
    /// When to put it back, if no connection ends before.
    accept_again_at: Timestamp,
    clock: Clock,
    desk: Desk,
    slots: Vec<Slot>,
    /// Indices of empty slots.
    free: Vec<u32>,
    /// Most connections at once.
    cap: usize,
    /// Tokens of connections that have more to do without a report.
    again: VecDeque<u64>,
    tick: Duration,
    next_tick_at: Timestamp,
}

/// A place for a connection. The generation tells a report for an earlier tenant from one for this one.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
    /// In the set, and for what.
    watched: Watched,
    /// In `again`.
    queued: bool,
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

impl<'a> Worker<'a> {
    /// Prepares everything that can fail.
    pub(crate) fn new(
        files: Files,
        listener: &'a TcpListener,
        stops: [BorrowedFd<'_>; 2],
        limits: &Limits,
        cap: usize,
    ) -> Result<Self, ServeError> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(system("epoll_create1"))?;
        for stop in stops {
            epoll.add(stop, EpollEvent::new(EpollFlags::EPOLLIN, STOP)).map_err(system("epoll_ctl"))?;
        }
        let clock = Clock::start();
        let shortest = limits.head_time.min(limits.idle_time).min(limits.stall_time);
        let mut worker = Worker {
            epoll,
            listener,
            accepting: false,
            accept_again_at: Timestamp::MAX,
            clock,
            desk: Desk::new(files, limits.clone(), clock.now()),
            slots: Vec::new(),
            free: Vec::new(),
            cap,
            again: VecDeque::new(),
            tick: (shortest / 4).clamp(TICK_MIN, TICK_MAX),
            next_tick_at: Timestamp::ZERO,
        };
        worker.resume_accepting()?;
        Ok(worker)
    }

    /// Serves until a stop descriptor is readable.
    pub(crate) fn run(mut self) -> Result<(), ServeError> {
        let mut events = vec![EpollEvent::empty(); EVENTS];
        loop {
            let ready = match self.epoll.wait(&mut events, self.timeout()) {
                Ok(ready) => ready,
                Err(Errno::EINTR) => 0,
                Err(errno) => return Err(system("epoll_wait")(errno)),
            };
            self.desk.now = self.clock.now();
            self.desk.date.refresh(self.desk.now);
            for event in &events[..ready] {
                match event.data() {
                    STOP => return Ok(()),
                    LISTENER => self.accept()?,
                    token => {
                        let over = EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR;
                        self.advance(token, event.events().intersects(over))?;
                    }
                }
            }
            for _ in 0..self.again.len() {
                let Some(token) = self.again.pop_front() else { break };
                if let Some(slot) = self.tenant(token) {
                    slot.queued = false;
                    // Its report may be spent, so it has to read until nothing is left.
                    self.advance(token, true)?;
                }
            }
            if self.desk.now >= self.next_tick_at {
                self.next_tick_at = self.desk.now + self.tick;
                self.drop_late()?;
            }
            if !self.accepting && self.desk.now >= self.accept_again_at {
                self.resume_accepting()?;
            }
        }
    }

    /// How long nothing can fall due.
    fn timeout(&self) -> EpollTimeout {
        if !self.again.is_empty() {
            return EpollTimeout::ZERO;
        }
        let idle = self.slots.len() == self.free.len();
        let next_tick_at = if idle { Timestamp::MAX } else { self.next_tick_at };
        let due_at = next_tick_at.min(if self.accepting { Timestamp::MAX } else { self.accept_again_at });
        if due_at == Timestamp::MAX {
            return EpollTimeout::NONE;
        }
        // Rounded up, or the last millisecond would be spent in a busy loop.
        let wait_ms = due_at.since(self.desk.now).as_nanos().div_ceil(1_000_000);
        EpollTimeout::from(u16::try_from(wait_ms).unwrap_or(u16::MAX))
    }

    fn accept(&mut self) -> Result<(), ServeError> {
        for _ in 0..ACCEPTS {
            if self.slots.len() - self.free.len() >= self.cap {
                return self.pause_accepting();
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => return Ok(()),
                    // Descriptors or memory are short: those that wait stay in the backlog meanwhile.
                    Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                        return self.pause_accepting();
                    }
                    // accept(2): errors of the connection itself come this way; it is gone, the next may be fine.
                    Some(
                        Errno::EINTR
                        | Errno::ECONNABORTED
                        | Errno::EPERM
                        | Errno::EPROTO
                        | Errno::ENETDOWN
                        | Errno::ENETUNREACH
                        | Errno::EHOSTDOWN
                        | Errno::EHOSTUNREACH
                        | Errno::ENONET
                        | Errno::ENOPROTOOPT
                        | Errno::EOPNOTSUPP
                        | Errno::ETIMEDOUT,
                    ) => continue,
                    _ => return Err(system("accept4")(error)),
                },
            };
            stream.set_nonblocking(true).map_err(system("ioctl FIONBIO"))?;
            let token = self.settle(stream);
            // The request usually came with the handshake's last packet.
            self.advance(token, false)?;
        }
        Ok(())
    }

    /// Gives a new connection a slot.
    fn settle(&mut self, stream: TcpStream) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(Connection::new(stream, &self.desk));
        u64::from(slot.generation) << 32 | u64::from(index)
    }

    /// The slot of a token, unless its connection is gone.
    fn tenant(&mut self, token: u64) -> Option<&mut Slot> {
        let index = (token & u64::from(u32::MAX)) as usize;
        self.slots.get_mut(index).filter(|slot| u64::from(slot.generation) == token >> 32)
    }

    fn advance(&mut self, token: u64, hung_up: bool) -> Result<(), ServeError> {
        let index = (token & u64::from(u32::MAX)) as usize;
        let slot = &mut self.slots[index];
        let Some(connection) = slot.connection.as_mut().filter(|_| u64::from(slot.generation) == token >> 32) else {
            return Ok(());
        };
        let needed = match connection.advance(&mut self.desk, hung_up) {
            Next::Wait => Watched::Input,
            Next::Blocked => Watched::InputAndOutput,
            Next::Again => {
                if !slot.queued {
                    slot.queued = true;
                    self.again.push_back(token);
                }
                return Ok(());
            }
            Next::Close => return self.close(index),
        };
        if slot.watched >= needed {
            return Ok(());
        }
        let mut flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
        if needed == Watched::InputAndOutput {
            flags |= EpollFlags::EPOLLOUT;
        }
        let mut event = EpollEvent::new(flags, token);
        let outcome = match slot.watched {
            Watched::No => self.epoll.add(connection, event),
            _ => self.epoll.modify(connection, &mut event),
        };
        match outcome {
            Ok(()) => {
                slot.watched = needed;
                Ok(())
            }
            // Memory, or fs.epoll.max_user_watches: this one cannot be served, and more would fare no better.
            Err(Errno::ENOSPC | Errno::ENOMEM) => {
                self.close(index)?;
                self.pause_accepting()
            }
            Err(errno) => Err(system("epoll_ctl")(errno)),
        }
    }

    fn close(&mut self, index: usize) -> Result<(), ServeError> {
        let slot = &mut self.slots[index];
        *slot = Slot { generation: slot.generation.wrapping_add(1), ..Slot::default() };
        self.free.push(index as u32);
        if self.accepting { Ok(()) } else { self.resume_accepting() }
    }

    /// Drops connections whose time is up.
    fn drop_late(&mut self) -> Result<(), ServeError> {
        for index in 0..self.slots.len() {
            let late = self.slots[index].connection.as_ref().is_some_and(|one| one.deadline() <= self.desk.now);
            if late {
                self.close(index)?;
            }
        }
        Ok(())
    }

    fn pause_accepting(&mut self) -> Result<(), ServeError> {
        self.accept_again_at = self.desk.now + ACCEPT_PAUSE;
        if std::mem::take(&mut self.accepting) {
            self.epoll.delete(self.listener).map_err(system("epoll_ctl"))?;
        }
        Ok(())
    }

    fn resume_accepting(&mut self) -> Result<(), ServeError> {
        // EPOLLEXCLUSIVE: a new connection wakes one worker, not all.
        let wanted = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
        self.epoll.add(self.listener, EpollEvent::new(wanted, LISTENER)).map_err(system("epoll_ctl"))?;
        self.accepting = true;
        self.accept_again_at = Timestamp::MAX;
        Ok(())
    }
}

/// Tokens that no connection has: a slot's index stays below the number of descriptors.
const STOP: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
/// Reports fetched at once.
const EVENTS: usize = 512;
/// Connections accepted before those already open have their turn.
const ACCEPTS: usize = 64;
/// Descriptors may come free elsewhere in the system; asking more often would only burn time.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often deadlines are looked at.
const TICK_MIN: Duration = Duration::from_millis(10);
const TICK_MAX: Duration = Duration::from_secs(1);
