//! Packet I/O of the path: packets between the two TUN devices and the path core.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use path::{Network, Rewrite, TimingErrors};
use schema::Direction;
use sys::clock::Clock;
use sys::tun::Tun;
use units::Timestamp;

use super::packet_queue::PacketQueue;
use super::path_live::{PathLive, TimingErrorCounts};
use super::stalls::LATE_WAKEUP_MIN;

/// Packets read from one device before the loop checks what is due.
const READS_PER_VISIT: usize = 8;
/// Packets written before the loop checks what has arrived.
const WRITES_PER_VISIT: usize = 32;

/// A write this much after its due time counts as late in live figures.
const LATE_WRITE_THRESHOLD: Duration = Duration::from_millis(1);

/// An end of a path: a device that is read, and that is written unless there is a queue. Another process writes the
/// queue's packets to the device, in its own time.
pub struct End {
    tun: Tun,
    queue: Option<PacketQueue>,
}

impl End {
    /// An end whose packets are added to `queue`.
    pub fn with_queue(tun: Tun, queue: PacketQueue) -> Self {
        End { tun, queue: Some(queue) }
    }

    fn write(&mut self, packet: &[u8]) -> io::Result<()> {
        match &mut self.queue {
            None => self.tun.write(packet).map(drop),
            Some(queue) => queue.put(packet),
        }
    }

    fn overflowed(&self) -> u64 {
        self.queue.as_ref().map_or(0, PacketQueue::overflowed)
    }
}

impl From<Tun> for End {
    fn from(tun: Tun) -> Self {
        End { tun, queue: None }
    }
}

/// The path between two TUN devices.
pub struct PathIo {
    network: Network,
    client: End,
    server: End,
    rewrite: Rewrite,
    refused_writes: u64,
    late_writes: u64,
    /// Published live counters.
    live: Option<Arc<PathLive>>,
    /// Whether the counters are published after every batch.
    publishes_each_batch: bool,
    /// Timing errors to publish, if they are published.
    timing_error_counts: Option<TimingErrorCounts>,
    /// Whether the last read of a device may have left packets in it, by direction.
    unread: [bool; 2],
    measured_timing_errors: Option<TimingErrors>,
    run_queue_wait: Option<Duration>,
}

impl PathIo {
    /// The path `network` between the clients' end and the server's end. `rewrite` changes every packet before the path
    /// reads it.
    pub fn new(network: Network, client: impl Into<End>, server: impl Into<End>, rewrite: Rewrite) -> Self {
        PathIo {
            network,
            client: client.into(),
            server: server.into(),
            rewrite,
            refused_writes: 0,
            late_writes: 0,
            live: None,
            publishes_each_batch: false,
            timing_error_counts: None,
            unread: [false; 2],
            measured_timing_errors: None,
            run_queue_wait: None,
        }
    }

    /// Publishes the path's counters in `live` after every batch.
    pub fn publish_each_batch(&mut self, live: Arc<PathLive>) {
        (self.live, self.publishes_each_batch) = (Some(live), true);
    }

    /// Publishes the path's counters and timing errors in `live` when [`Self::publish`] is called, which costs the path
    /// very little.
    pub fn publish_live(&mut self, live: Arc<PathLive>) {
        (self.live, self.publishes_each_batch) = (Some(live), false);
        self.timing_error_counts = Some(TimingErrorCounts::default());
    }

    /// Publishes the counters.
    pub fn publish(&self) {
        if let Some(live) = &self.live {
            let overflowed = self.client.overflowed() + self.server.overflowed();
            live.store(&self.network, self.late_writes, self.refused_writes, overflowed);
            if let Some(counts) = &self.timing_error_counts {
                live.store_timing_errors(counts);
            }
        }
    }

    /// The device at the clients' end.
    pub fn client_tun(&self) -> BorrowedFd<'_> {
        self.client.tun.as_fd()
    }

    /// The device at the server's end.
    pub fn server_tun(&self) -> BorrowedFd<'_> {
        self.server.tun.as_fd()
    }

    /// Reads waiting packets at one end, at most a batch.
    ///
    /// # Errors
    /// The errors of reading a TUN device other than EAGAIN.
    pub fn read(&mut self, from_clients: bool, clock: &Clock) -> io::Result<()> {
        let (tun, direction) =
            if from_clients { (&self.client.tun, Direction::Up) } else { (&self.server.tun, Direction::Down) };
        for _ in 0..READS_PER_VISIT {
            match tun.read(self.network.read_buffer()) {
                Ok(length) => {
                    if !self.rewrite.is_empty() {
                        self.rewrite.apply(direction, &mut self.network.read_buffer()[..length]);
                    }
                    self.network.handle_read(clock.now(), direction, length);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.unread[direction.index()] = false;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        // Edge-triggered readiness is not reported again.
        self.unread[direction.index()] = true;
        Ok(())
    }

    /// Whether the last read of a device may have left packets in it.
    pub fn has_unread(&self) -> bool {
        self.unread != [false; 2]
    }

    /// Reads waiting packets where the last read may have left some, at most a batch each.
    ///
    /// # Errors
    /// The errors of [`Self::read`].
    pub fn read_rest(&mut self, clock: &Clock) -> io::Result<()> {
        for direction in Direction::BOTH {
            if self.unread[direction.index()] {
                self.read(direction == Direction::Up, clock)?;
            }
        }
        Ok(())
    }

    /// Writes due packets, at most a batch.
    ///
    /// # Errors
    /// None today: a packet that the kernel refuses is counted, and a validity check makes the run invalid.
    pub fn release(&mut self, clock: &Clock) -> io::Result<()> {
        if self.network.next_due().is_none() {
            return Ok(());
        }
        for _ in 0..WRITES_PER_VISIT {
            let now = clock.now();
            let Some(departure) = self.network.poll_due(now) else { break };
            let end = match departure.direction {
                Direction::Up => &mut self.server,
                Direction::Down => &mut self.client,
            };
            let late = now.since(departure.due);
            self.late_writes += u64::from(late > LATE_WRITE_THRESHOLD);
            if let Some(counts) = &mut self.timing_error_counts {
                counts.add(late);
            }
            match end.write(departure.frame) {
                Ok(()) => self.network.handle_written(now),
                // The core counts a departure that was not written as dropped.
                Err(_) => self.refused_writes += 1,
            }
        }
        if self.publishes_each_batch {
            self.publish();
        }
        Ok(())
    }

    /// When the next packet is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.network.next_due()
    }

    /// The loop waited until `woken` although a packet was due at `due`. Shorter delays are those of a poll.
    pub fn note_late_wakeup(&mut self, due: Timestamp, woken: Timestamp) {
        if woken.since(due) > LATE_WAKEUP_MIN {
            self.network.handle_late_wakeup(due, woken);
        }
    }

    /// Begins the measured phase: timing errors count from here.
    pub fn begin_measured(&mut self) {
        self.network.reset_timing_errors();
        if let Some(counts) = &mut self.timing_error_counts {
            *counts = TimingErrorCounts::default();
        }
    }

    /// Ends the measured phase: stores its timing errors.
    pub fn end_measured(&mut self) {
        self.measured_timing_errors = Some(self.network.timing_errors().clone());
        self.publish();
        // Packets after the measured phase are not published.
        self.timing_error_counts = None;
    }

    /// Timing errors of the measured phase; of the whole run, if the measured phase has not ended.
    pub fn timing_errors(&self) -> &TimingErrors {
        self.measured_timing_errors.as_ref().unwrap_or_else(|| self.network.timing_errors())
    }

    /// Stores [`Self::run_queue_wait`], as the loop measured it.
    pub fn note_run_queue_wait(&mut self, waited: Option<Duration>) {
        self.run_queue_wait = waited;
    }

    /// Time for which the loop's thread was ready to run and had no core in the measured phase. `None` before the
    /// loop's end, or if the kernel does not measure it.
    pub fn run_queue_wait(&self) -> Option<Duration> {
        self.run_queue_wait
    }

    /// Ends the path: packets in transit become drops of cause shutdown.
    pub fn shut_down(&mut self) {
        self.network.shut_down();
    }

    /// Sets the time from which changes and traces count ([`Network::set_start`]).
    pub fn set_start(&mut self, start: Timestamp) {
        self.network.set_start(start);
    }

    /// The core, for its counters.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Packets that the kernel refused to take.
    pub fn refused_writes(&self) -> u64 {
        self.refused_writes
    }
}
