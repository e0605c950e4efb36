//! The queue to the single thread that stores batches.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use axum::body::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::check::{self, Checked};
use super::store;
use crate::data::{CrashPoint, Data};
use crate::error::{Error, Result};
use crate::notes::Notes;
use crate::refused::Refused;
use tap_protocol::{Hello, Stored, Welcome, Why};

/// A handle to the storing thread. Clones share it.
#[derive(Clone)]
pub struct Ingest {
    jobs: mpsc::Sender<Job>,
    /// Free space for bodies, in [`GRAIN`]s.
    room: Arc<Semaphore>,
    /// Requests in progress, by agent.
    busy: Arc<Mutex<HashMap<String, usize>>>,
}

/// Kind of a body.
pub(super) enum What {
    Hello,
    Batch { zero_ns: Option<u64>, zero_error_ns: u64 },
}

/// The response to a processed request.
#[derive(Debug)]
pub(super) enum Outcome {
    Welcome(Welcome),
    Stored(Stored),
}

/// A queued request.
struct Job {
    agent: String,
    address: Option<IpAddr>,
    what: What,
    body: Bytes,
    is_packed: bool,
    received_unix_ns: u64,
    reply: oneshot::Sender<Result<Outcome, Refused>>,
    /// Released when the request is done.
    _room: Reservation,
}

/// A request's share of the limits.
pub(super) struct Reservation {
    agent: String,
    busy: Arc<Mutex<HashMap<String, usize>>>,
    _bytes: OwnedSemaphorePermit,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = busy.get_mut(&self.agent) {
            *count -= 1;
            if *count == 0 {
                busy.remove(&self.agent);
            }
        }
    }
}

impl Ingest {
    /// Reserves space for a body of this size, before it is read.
    pub(super) fn room(&self, agent: &str, bytes: usize) -> Result<Reservation, Refused> {
        let grains = u32::try_from(bytes.div_ceil(GRAIN).max(1)).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(grains) else {
            return Err(Refused::new(Why::TooManyRequests, "Too many requests are being processed. Try again later."));
        };
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let count = busy.entry(agent.to_owned()).or_default();
        if *count >= JOBS_PER_AGENT_MAX {
            return Err(Refused::new(
                Why::TooManyRequests,
                "Another request of this agent is being processed: send one after \
             another.",
            ));
        }
        *count += 1;
        Ok(Reservation { agent: agent.to_owned(), busy: Arc::clone(&self.busy), _bytes: permit })
    }

    /// Queues a body, and waits until it is processed.
    #[expect(clippy::too_many_arguments, reason = "it is what a job is made of, once")]
    pub(super) async fn ask(
        &self,
        agent: String,
        address: Option<IpAddr>,
        what: What,
        body: Bytes,
        is_packed: bool,
        received_unix_ns: u64,
        room: Reservation,
    ) -> Result<Outcome, Refused> {
        let (reply, answer) = oneshot::channel();
        let job = Job { agent, address, what, body, is_packed, received_unix_ns, reply, _room: room };
        let ends = || Refused::new(Why::Unavailable, "The manager is stopping, or cannot store. Try again.");
        self.jobs.send(job).await.map_err(|_| ends())?;
        answer.await.map_err(|_| ends())?
    }
}

/// The storing thread. It ends when every [`Ingest`] is dropped, after storing all queued requests.
pub struct IngestThread {
    thread: Option<JoinHandle<()>>,
}

impl IngestThread {
    /// Starts the thread. `stored` is called after each transaction with the number of stored rows.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(
        data: Arc<Data>,
        notes: Notes,
        stored: impl Fn(u64) + Send + 'static,
    ) -> Result<(Ingest, IngestThread)> {
        let (jobs, queue) = mpsc::channel(JOBS_MAX);
        let ingest = Ingest { jobs, room: Arc::new(Semaphore::new(BODY_BYTES_MAX / GRAIN)), busy: Arc::default() };
        let work = move || run(&data, &notes, queue, &stored);
        let thread = thread::Builder::new().name("ingest".into()).spawn(work).map_err(|_| Error::Thread("ingest"))?;
        Ok((ingest, IngestThread { thread: Some(thread) }))
    }

    /// Whether the thread runs.
    pub(crate) fn works(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Waits until all queued requests are stored. Every [`Ingest`] must be dropped.
    pub fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(data: &Data, notes: &Notes, mut queue: mpsc::Receiver<Job>, stored: &dyn Fn(u64)) {
    let mut jobs = Vec::new();
    while let Some(first) = queue.blocking_recv() {
        jobs.push(first);
        while jobs.len() < GROUP_MAX
            && let Ok(next) = queue.try_recv()
        {
            jobs.push(next);
        }
        let rows = turn(data, notes, &mut jobs);
        if rows > 0 {
            stored(rows);
        }
    }
}

/// A valid request; [`store`] checks its sequence number.
enum Prepared {
    Hello(Hello),
    Batch(Box<Checked>),
}

/// Stores all queued requests in one transaction. Returns the number of stored rows.
fn turn(data: &Data, notes: &Notes, jobs: &mut Vec<Job>) -> u64 {
    let mut ready = Vec::with_capacity(jobs.len());
    for job in jobs.drain(..) {
        match meant(&job) {
            Ok(meant) => ready.push((job, meant)),
            // The client may have disconnected.
            Err(refused) => drop(job.reply.send(Err(refused))),
        }
    }
    if ready.is_empty() {
        return 0;
    }
    let mut rows = 0;
    let outcome = data.change(|index| {
        let mut answers = Vec::with_capacity(ready.len());
        for (job, meant) in &ready {
            answers.push(match meant {
                Prepared::Hello(hello) => {
                    store::hello(index, &job.agent, hello, job.address, job.received_unix_ns)?.map(Outcome::Welcome)
                }
                Prepared::Batch(batch) => {
                    let stored = store::batch(index, &job.agent, batch, job.address, job.received_unix_ns)?;
                    if stored.is_ok() {
                        rows += batch.batch.rows.len() as u64;
                    }
                    stored.map(Outcome::Stored)
                }
            });
        }
        data.reaches(CrashPoint::BatchesWritten)?;
        Ok::<_, Error>(answers)
    });
    match outcome.and_then(|answers| data.reaches(CrashPoint::BatchesCommitted).map(|()| answers)) {
        Ok(answers) => {
            for ((job, _), answer) in ready.into_iter().zip(answers) {
                let _ = job.reply.send(answer);
            }
            rows
        }
        Err(error) => {
            notes.trouble(&format!("batches cannot be stored: {error}"));
            for (job, _) in ready {
                let words = if error.is_disk_full() {
                    "No space is left on the manager's disk. Nothing was stored; try again."
                } else {
                    "The manager cannot store now. Nothing was stored; try again."
                };
                let _ = job.reply.send(Err(Refused::new(Why::Unavailable, words)));
            }
            0
        }
    }
}

fn meant(job: &Job) -> Result<Prepared, Refused> {
    match job.what {
        What::Hello => check::hello(&job.body, job.is_packed).map(Prepared::Hello),
        What::Batch { zero_ns, zero_error_ns } => {
            let zero = zero_ns.map(|zero_ns| (zero_ns, zero_error_ns));
            check::batch(&job.body, job.is_packed, zero, job.received_unix_ns).map(Box::new).map(Prepared::Batch)
        }
    }
}

/// Maximum number of requests in one transaction.
const GROUP_MAX: usize = 256;
/// Maximum number of queued requests.
const JOBS_MAX: usize = 1024;
/// Maximum bytes of bodies being read or queued, of all agents together.
const BODY_BYTES_MAX: usize = 64 << 20;
const GRAIN: usize = 1024;
/// Concurrent requests of one agent: a second one may come over a new connection before the manager notices that the
/// first is dead.
const JOBS_PER_AGENT_MAX: usize = 4;
