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
use tap_protocol::{Hello, RefusalReason, Stored, Welcome};

/// A handle to the storing thread. Clones share it.
#[derive(Clone)]
pub struct Ingest {
    jobs: mpsc::Sender<Job>,
    /// Free space for bodies, in [`GRAIN`]s.
    free_bytes: Arc<Semaphore>,
    /// Requests in progress, by agent.
    busy: Arc<Mutex<HashMap<String, usize>>>,
}

/// Kind of a body.
pub(super) enum BodyKind {
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
    what: BodyKind,
    body: Bytes,
    is_gzip: bool,
    received_unix_ns: u64,
    reply: oneshot::Sender<Result<Outcome, Refused>>,
    /// Released when the request has been processed.
    _reservation: Reservation,
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
    pub(super) fn reserve(&self, agent: &str, bytes: usize) -> Result<Reservation, Refused> {
        let grains = u32::try_from(bytes.div_ceil(GRAIN).max(1)).unwrap_or(u32::MAX);
        let Ok(permit) = Arc::clone(&self.free_bytes).try_acquire_many_owned(grains) else {
            return Err(Refused::new(
                RefusalReason::TooManyRequests,
                "Too many requests are being processed. Try again later.",
            ));
        };
        let mut busy = self.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let count = busy.entry(agent.to_owned()).or_default();
        if *count >= JOBS_PER_AGENT_MAX {
            return Err(Refused::new(
                RefusalReason::TooManyRequests,
                "Another request of this agent is being processed: send one after \
             another.",
            ));
        }
        *count += 1;
        Ok(Reservation { agent: agent.to_owned(), busy: Arc::clone(&self.busy), _bytes: permit })
    }

    /// Queues a body, and waits until it is processed.
    #[expect(clippy::too_many_arguments, reason = "the parameters are the fields of a job, used in one place")]
    pub(super) async fn submit(
        &self,
        agent: String,
        address: Option<IpAddr>,
        what: BodyKind,
        body: Bytes,
        is_gzip: bool,
        received_unix_ns: u64,
        reservation: Reservation,
    ) -> Result<Outcome, Refused> {
        let (reply, response) = oneshot::channel();
        let job = Job { agent, address, what, body, is_gzip, received_unix_ns, reply, _reservation: reservation };
        let stopping =
            || Refused::new(RefusalReason::Unavailable, "The manager is stopping, or cannot store. Try again.");
        self.jobs.send(job).await.map_err(|_| stopping())?;
        response.await.map_err(|_| stopping())?
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
        let ingest =
            Ingest { jobs, free_bytes: Arc::new(Semaphore::new(BODY_BYTES_MAX / GRAIN)), busy: Arc::default() };
        let work = move || run(&data, &notes, queue, &stored);
        let thread = thread::Builder::new().name("ingest".into()).spawn(work).map_err(|_| Error::Thread("ingest"))?;
        Ok((ingest, IngestThread { thread: Some(thread) }))
    }

    /// Whether the thread runs.
    pub(crate) fn is_running(&self) -> bool {
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
        let rows = process_jobs(data, notes, &mut jobs);
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
fn process_jobs(data: &Data, notes: &Notes, jobs: &mut Vec<Job>) -> u64 {
    let mut ready = Vec::with_capacity(jobs.len());
    for job in jobs.drain(..) {
        match prepare(&job) {
            Ok(prepared) => ready.push((job, prepared)),
            // The client may have disconnected.
            Err(refused) => drop(job.reply.send(Err(refused))),
        }
    }
    if ready.is_empty() {
        return 0;
    }
    let mut rows = 0;
    let outcome = data.change(|index| {
        let mut responses = Vec::with_capacity(ready.len());
        for (job, prepared) in &ready {
            responses.push(match prepared {
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
        data.crash_at(CrashPoint::BatchesWritten)?;
        Ok::<_, Error>(responses)
    });
    match outcome.and_then(|responses| data.crash_at(CrashPoint::BatchesCommitted).map(|()| responses)) {
        Ok(responses) => {
            for ((job, _), response) in ready.into_iter().zip(responses) {
                let _ = job.reply.send(response);
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
                let _ = job.reply.send(Err(Refused::new(RefusalReason::Unavailable, words)));
            }
            0
        }
    }
}

fn prepare(job: &Job) -> Result<Prepared, Refused> {
    match job.what {
        BodyKind::Hello => check::hello(&job.body, job.is_gzip).map(Prepared::Hello),
        BodyKind::Batch { zero_ns, zero_error_ns } => {
            let zero = zero_ns.map(|zero_ns| (zero_ns, zero_error_ns));
            check::batch(&job.body, job.is_gzip, zero, job.received_unix_ns).map(Box::new).map(Prepared::Batch)
        }
    }
}

/// Maximum number of requests in one transaction.
const GROUP_MAX: usize = 256;
/// Maximum number of queued requests.
const JOBS_MAX: usize = 1024;
/// Maximum bytes of bodies being read or queued, of all agents together.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes of one permit of the semaphore.
const GRAIN: usize = 1024;
/// Concurrent requests of one agent: a second one may come over a new connection before the manager notices that the
/// first is closed.
const JOBS_PER_AGENT_MAX: usize = 4;
