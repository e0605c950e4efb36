//! The event loop: one thread that moves packets through the path and requests through the load engine.
//!
//! ```text
//!              +----------------------- one iteration -----------------------+
//!   due packets -> TUN      due arrivals, timeouts -> connect, send     sample gauges
//!              |                                                             |
//!              +-- wait: epoll, with a timer for the earliest due time ------+
//!   TUN readable -> path    socket readable -> load    stop, interrupt
//! ```
//!
//! The path and load cores have no clock; this loop reads it and passes the time. Both cores are optional: `net` has a
//! path and no load, `--path none` a load and no path. See [`path_io`] and [`load_io`] for the two sides.

pub mod endpoints;
mod h2;
mod health;
pub mod load_io;
pub mod packet_queue;
pub mod path_io;
pub mod path_live;
pub mod poller;
pub mod progress;
pub(crate) mod quic;
pub mod stalls;
pub mod tls;
pub mod tunnel;
pub mod waiting;

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use sys::clock::Clock;
use sys::sched::{Precedence, Urgency};
use units::Timestamp;

use self::health::Health;
use self::load_io::LoadIo;
use self::path_io::PathIo;
use self::poller::{Poller, Ready};
use self::progress::{Phase, Progress};
use self::waiting::Alarm;
use plan::{Engine, Wait};
use validity::evidence::LoopHealth;

/// Tokens below this belong to the load's connections.
const TOKEN_OWN: u64 = u64::MAX - 8;
const TOKEN_TIMER: u64 = TOKEN_OWN;
const TOKEN_STOP: u64 = TOKEN_OWN + 1;
const TOKEN_CLIENT_TUN: u64 = TOKEN_OWN + 2;
const TOKEN_SERVER_TUN: u64 = TOKEN_OWN + 3;

/// A loop that shares its core with the recorder leaves it the core in sleeps, as long as the recorder's work for the
/// loop's records needs them. Without them the kernel would preempt the loop, for several milliseconds. They are short:
/// a server that is as fast as the loop idles in them.
const RECORDER_SLEEP_MIN: Duration = Duration::from_micros(50);
const RECORDER_SLEEP_MAX: Duration = Duration::from_micros(80);
/// Shortest time between two sleeps.
const RECORDER_SLEEP_INTERVAL: Duration = Duration::from_micros(250);
/// An open loop that is idle and polls sleeps this often in any case, so that it never counts as one that fills its core.
const IDLE_SLEEP_INTERVAL: Duration = Duration::from_micros(400);
/// A closed loop sleeps this often: it is not real-time, so that the kernel gives the recorder what it needs beyond that.
const CLOSED_LOOP_SLEEP_INTERVAL: Duration = Duration::from_millis(1);

/// While all connections are busy, arrivals within this time join the backlog together: a turn of the loop for each would
/// take a noticeable part of a saturated core.
const ARRIVALS_TOGETHER: Duration = Duration::from_micros(20);

/// Longest interval between two transfers of finished records.
const FLUSH_INTERVAL: Duration = Duration::from_millis(100);

/// With this many waiting arrivals the rate is too high for any useful result: the run ends early with a reason, before
/// it uses all memory.
const BACKLOG_MAX: u64 = 2_000_000;

/// The path is idle if it had no packet for this time, which is much longer than either end takes to acknowledge a FIN.
const PATH_IDLE_AFTER: Duration = Duration::from_millis(30);

/// Input of the event loop.
pub struct Drive<'a> {
    /// The run's clock.
    pub clock: Clock,
    /// Timer strategy: sleep, spin, or both.
    pub wait: Wait,
    /// How to receive events.
    pub engine: Engine,
    /// The path, if there is one.
    pub path: Option<PathIo>,
    /// The load, if there is one.
    pub load: Option<LoadIo>,
    /// Counters for the main thread.
    pub progress: Arc<Progress>,
    /// Becomes readable when the loop must read [`Progress::stops_requested`].
    pub stop: BorrowedFd<'a>,
    /// Longest drain: the time that requests in flight may take after the measured phase.
    pub drain: Duration,
    /// After the run the path continues for at most this time, until it is idle: both ends then see the last
    /// connections closed.
    pub grace: Duration,
    /// Other shards of the same load: the path carries their packets until they have ended.
    pub others: Vec<Arc<Progress>>,
    /// Whether this loop has its own core, except for the recorder: the server runs elsewhere.
    pub own_core: bool,
    /// Whether the recorder shares this loop's core.
    pub shares_core: bool,
    /// Scheduling class of the thread.
    pub urgency: Urgency,
}

/// Results of the event loop.
pub struct Driven {
    /// The path, with its counters.
    pub path: Option<PathIo>,
    /// The load, with its counters.
    pub load: Option<LoadIo>,
    /// The loop's own health.
    pub loop_health: LoopHealth,
    /// The engine that was used.
    pub engine: Engine,
}

impl Drive<'_> {
    /// Runs until the load is finished, or, without a load, until a stop is requested.
    ///
    /// # Errors
    /// Fatal errors only: epoll or io_uring, the timer, or a TUN device failed.
    pub fn run(mut self) -> io::Result<Driven> {
        // Without a load epoll is used: a packet needs one system call with either engine.
        let engine = if self.load.is_some() { self.engine } else { Engine::Epoll };
        let mut poller = Poller::new(engine, self.load.as_ref().is_some_and(LoadIo::is_plain))?;
        let mut alarm = Alarm::new()?;
        poller.watch_own(alarm.as_fd(), TOKEN_TIMER)?;
        poller.watch_own(self.stop, TOKEN_STOP)?;
        if let Some(path) = &self.path {
            poller.watch_own(path.client_tun(), TOKEN_CLIENT_TUN)?;
            poller.watch_own(path.server_tun(), TOKEN_SERVER_TUN)?;
        }
        let mut health = Health::default();
        let mut flush_at = Timestamp::ZERO;

        let mut precedence = Precedence::after(self.urgency, self.clock.now());

        loop {
            let now = self.clock.now();
            if let Some(load) = &mut self.load {
                load.working(now);
            }
            precedence.review(now);
            if let Some(path) = &mut self.path {
                path.release(&self.clock)?;
            }
            if let Some(io) = &mut self.load {
                io.process_due(&mut poller, &self.clock);
                if now >= flush_at || io.has_full_batch() {
                    io.flush(self.clock.now());
                    self.progress.store(io.live());
                    self.progress.store_mix(io.mix());
                    self.progress.store_health(health.so_far(now));
                    self.progress.store_time(now);
                    if let Some(path) = &self.path {
                        path.publish();
                    }
                    flush_at = now + FLUSH_INTERVAL;
                }
            }
            if self.advance(now, &mut health) {
                break;
            }

            let next = self.next_wake(flush_at);
            self.sleep_for_recorder(next, &mut health);
            let ready = self.wait_until(next, &mut poller, &mut alarm, &mut health)?;
            self.read_path()?;
            for index in 0..ready {
                match (poller.take_event(index, is_own), &mut self.load) {
                    (Some(Ready::Own(TOKEN_TIMER)), _) => alarm.fired(),
                    (Some(Ready::Own(token)), _) => self.note_readable(token)?,
                    (Some(event), Some(io)) => {
                        match event {
                            Ready::Socket(event) => io.ready(&event, &mut poller, &self.clock),
                            Ready::Completed(completion) => io.completed(completion, &mut poller, &self.clock),
                            Ready::Own(_) => {}
                        }
                        // Reading one response may take microseconds; work that becomes due must not wait for the whole
                        // batch.
                        if let Some(path) = &mut self.path {
                            path.release(&self.clock)?;
                        }
                    }
                    _ => {}
                }
            }
        }

        if let Some(load) = &mut self.load {
            load.abort(self.clock.now());
            load.process_due(&mut poller, &self.clock);
            while load.unfinished() {
                load.process_due(&mut poller, &self.clock);
            }
            self.progress.store(load.live());
            self.progress.store_mix(load.mix());
            self.progress.store_time(self.clock.now());
            // Closes sockets that wait for the ring.
            poller.flush()?;
        }
        let loop_health = health.finish(self.clock.now());
        self.drain_path(&mut poller, &mut alarm)?;
        if let Some(path) = &mut self.path {
            path.note_run_queue_wait(loop_health.run_queue_wait);
            path.shut_down();
        }
        self.progress.enter(Phase::Done);
        let engine = poller.engine();
        // The ring closes its sockets while the path still carries their FINs.
        drop(poller);
        Ok(Driven { path: self.path, load: self.load, loop_health, engine })
    }

    /// Continues the path until it has carried the remaining packets: the last FINs and their acknowledgements.
    fn drain_path(&mut self, poller: &mut Poller, alarm: &mut Alarm) -> io::Result<()> {
        let mut deadline = None;
        let (mut last_packet, mut health) = (self.clock.now(), Health::default());
        loop {
            let Some(path) = &mut self.path else { return Ok(()) };
            if path.next_due().is_some() {
                // Packets that arrive now are acknowledged immediately, but the acknowledgement is not read yet.
                last_packet = self.clock.now();
            }
            path.release(&self.clock)?;
            let (now, due) = (self.clock.now(), path.next_due());
            if deadline.is_none() && self.others.iter().all(|other| other.phase() == Phase::Done) {
                (last_packet, deadline) = (now, Some(now + self.grace));
            }
            let is_idle = due.is_none() && now.since(last_packet) >= PATH_IDLE_AFTER;
            if deadline.is_some_and(|deadline| is_idle || now >= deadline || self.progress.stops_requested() >= 2) {
                return Ok(());
            }
            let latest = deadline.unwrap_or(now + PATH_IDLE_AFTER);
            let next = if path.has_unread() { now } else { due.unwrap_or(latest).min(latest) };
            let next = if deadline.is_some() { next.min(last_packet + PATH_IDLE_AFTER).max(now) } else { next };
            let ready = self.wait_until(next, poller, alarm, &mut health)?;
            if self.read_path()? {
                last_packet = self.clock.now();
            }
            for index in 0..ready {
                match poller.take_event(index, is_own) {
                    Some(Ready::Own(TOKEN_TIMER)) => alarm.fired(),
                    Some(Ready::Own(token)) => {
                        self.note_readable(token)?;
                        last_packet = self.clock.now();
                    }
                    _ => {}
                }
            }
        }
    }

    /// Advances the phases; true when the run is over.
    fn advance(&mut self, now: Timestamp, health: &mut Health) -> bool {
        let stops_requested = self.progress.stops_requested();
        let Some(load) = &mut self.load else {
            if let Some(path) = self.path.as_mut().filter(|_| !health.measuring()) {
                path.begin_measured();
            }
            health.measure(now);
            return stops_requested > 0;
        };
        if load.live().backlog > BACKLOG_MAX && !self.progress.gave_up() {
            self.progress.give_up(true);
            self.progress.request_stop(1, now);
        }
        // The phase ends at the requested time, which is the same for every shard and may be in the future.
        if let Some(at) = self.progress.stop_at().filter(|_| !health.stopped) {
            load.end_at(at);
            if now >= at {
                health.stopped = true;
                load.stop(now);
            }
        }
        // A single stop waits for requests in flight, also during the warm-up; a second one does not.
        if stops_requested >= 2 {
            load.abort(now);
        }
        let (from, to) = load.measured();
        if now >= from && !health.measuring() {
            health.measure(now);
            self.progress.enter(Phase::Measured);
            if let Some(path) = &mut self.path {
                path.begin_measured();
            }
        }
        if let Some(to) = to {
            self.progress.set_measured_end(to);
        }
        if let Some(to) = to
            && now >= to
        {
            if !health.ended() {
                health.end(now);
                if let Some(path) = &mut self.path {
                    path.end_measured();
                }
                self.progress.enter(Phase::Drain);
            }
            if now >= to + self.drain {
                load.abort(now);
            }
        }
        load.finished()
    }

    fn next_wake(&self, flush_at: Timestamp) -> Timestamp {
        let mut next = Timestamp::MAX;
        if let Some(path) = &self.path {
            if path.has_unread() {
                return self.clock.now();
            }
            next = path.next_due().unwrap_or(next);
        }
        if let Some(load) = &self.load {
            if load.unfinished() {
                // The loop itself postponed this work, so the delay is not a stall.
                return self.clock.now();
            }
            let mut wake = load.next_wake().unwrap_or(Timestamp::MAX);
            if load.waits_for_connection() {
                // Until a response frees a connection, an arrival can only join those that wait.
                wake = wake.max(self.clock.now() + ARRIVALS_TOGETHER);
            }
            next = next.min(wake).min(flush_at);
            if let (_, Some(to)) = load.measured() {
                next = next.min(if self.clock.now() < to { to } else { to + self.drain });
            }
        }
        next
    }

    /// Reads packets that the last batch left in a device; true if there were any.
    fn read_path(&mut self) -> io::Result<bool> {
        match &mut self.path {
            Some(path) if path.has_unread() => path.read_rest(&self.clock).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Handles a descriptor of the loop that became readable.
    fn note_readable(&mut self, token: u64) -> io::Result<()> {
        match (token, &mut self.path) {
            (TOKEN_CLIENT_TUN | TOKEN_SERVER_TUN, Some(path)) => path.read(token == TOKEN_CLIENT_TUN, &self.clock),
            _ => Ok(()),
        }
    }

    /// Lets the recorder run, if the loop has not slept for long and owes it time, or has nothing to do before `next`.
    /// With a path this would delay packets: there the kernel decides.
    fn sleep_for_recorder(&mut self, next: Timestamp, health: &mut Health) {
        let Some(load) = self.load.as_mut().filter(|_| self.shares_core && self.path.is_none()) else { return };
        let now = self.clock.now();
        let awake_for = now.since(health.slept_at);
        if awake_for < RECORDER_SLEEP_INTERVAL {
            return;
        }
        let owed = if load.is_closed() { Duration::ZERO } else { load.owed_to_recorder() };
        let interval = if load.is_closed() {
            CLOSED_LOOP_SLEEP_INTERVAL
        } else if owed >= RECORDER_SLEEP_MAX {
            RECORDER_SLEEP_INTERVAL
        } else if next > now {
            IDLE_SLEEP_INTERVAL
        } else {
            return;
        };
        if awake_for >= interval {
            let sleep = owed.clamp(RECORDER_SLEEP_MIN, RECORDER_SLEEP_MAX);
            std::thread::sleep(sleep);
            health.slept_at = self.clock.now();
            load.left_core_for(health.slept_at.since(now));
            load.woke(now + sleep, health.slept_at);
        }
    }

    /// Whether the load only waits for responses.
    fn is_closed(&self) -> bool {
        self.load.as_ref().is_some_and(LoadIo::is_closed)
    }
}

/// Whether a token belongs to a descriptor of the loop.
fn is_own(token: u64) -> bool {
    token >= TOKEN_OWN
}
