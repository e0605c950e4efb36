//! The queue to the one thread that stores, and its turns.

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

/// The way to the thread that stores. Clones are the same.
#[derive(Clone)]
pub struct Ingest {
    jobs: mpsc::Sender<Job>,
    /// Reservation for bodies, in [`GRAIN`]s.
    room: Arc<Semaphore>,
    /// Requests under way, by agent.
    busy: Arc<Mutex<HashMap<String, usize>>>,
}

/// What a body is.
pub(super) enum What {
    Hello,
    Batch { zero_ns: Option<u64>, zero_error_ns: u64 },
}

/// What is answered when it is done.
#[derive(Debug)]
pub(super) enum Outcome {
    Welcome(Welcome),
    Stored(Stored),
}

/// A request that waits for its turn.
struct Job {
    agent: String,
    address: Option<IpAddr>,
    what: What,
    body: Bytes,
    is_packed: bool,
    received_unix_ns: u64,
    reply: oneshot::Sender<Result<Outcome, Refused>>,
    /// Given back when it is done.
    _room: Reservation,
}

/// A request's part of what all may use.
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
    /// Reservation for a body of so many bytes, before it is read.
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

    /// Asks for a body to be dealt with, and waits until it is.
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

/// The thread that stores. It ends when every [`Ingest`] is gone, with all that waited stored.
pub struct IngestThread {
    thread: Option<JoinHandle<()>>,
}

impl IngestThread {
    /// Begins. `stored` is called after each transaction that stored rows, with how many.
    ///
    /// # Errors
    /// No thread can be had.
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

    /// Whether the thread is there.
    pub(crate) fn works(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Waits until all that waited is stored. Every [`Ingest`] must be gone, or go.
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

/// Something that is good in itself; whether it is its turn is for [`store`] to say.
enum Prepared {
    Hello(Hello),
    Batch(Box<Checked>),
}

/// All that wait, in one transaction. Returns the rows that were stored.
fn turn(data: &Data, notes: &Notes, jobs: &mut Vec<Job>) -> u64 {
    let mut ready = Vec::with_capacity(jobs.len());
    for job in jobs.drain(..) {
        match meant(&job) {
            Ok(meant) => ready.push((job, meant)),
            // Nobody may be there any more to hear it.
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

/// Jobs in one transaction at most.
const GROUP_MAX: usize = 256;
/// Jobs that wait.
const JOBS_MAX: usize = 1024;
/// Bytes of bodies that are read or wait, of all agents together.
const BODY_BYTES_MAX: usize = 64 << 20;
const GRAIN: usize = 1024;
/// Requests of one agent at once: a second one may come over a new connection before the manager has noticed that the first is dead.
const JOBS_PER_AGENT_MAX: usize = 4;
