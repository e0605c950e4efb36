//! A shard in its own process: the child's side.
//!
//! Three threads: the first is the loop, one relays its records, one receives requests. The relay may wait for the
//! parent; the loop waits for the relay only when the queue is full.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;

use sys::sched::Urgency;
use sys::signal::Wake;

use super::ShardEnd;
use super::frame::{self, ShardMessage, ShardProgress};
use crate::drive::progress::Progress;
use crate::recorder::{Batch, Handover, Outlet, QueueSpace, WhenFull};

/// Most records that wait in a process for the parent: about 40 MB.
const QUEUED_RECORDS_MAX: usize = 256 << 10;
/// Longest interval between two progress reports to the parent.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Input of a shard's loop.
pub struct Setting {
    /// Destination of the shard's records.
    pub handover: Handover,
    /// Stop requests for the shard, and its progress.
    pub progress: Arc<Progress>,
    /// Readable when a stop was requested.
    pub stop: Arc<Wake>,
}

/// Runs the loop `loop_` of shard `shard` and reports everything by `link`. Returns when all is reported.
pub fn run(shard: usize, link: UnixStream, loop_: impl FnOnce(Setting) -> Result<ShardEnd, String>) {
    if let Err(error) = try_run(shard, &link, loop_) {
        // If the parent has ended, so will this process.
        let _ = frame::write_message(&mut &link, &ShardMessage::Failed(error));
    }
}

fn try_run(
    shard: usize,
    link: &UnixStream,
    loop_: impl FnOnce(Setting) -> Result<ShardEnd, String>,
) -> Result<(), String> {
    let with_context = |doing: &'static str| move |error: std::io::Error| format!("{doing}: {error}");
    let progress = Arc::new(Progress::default());
    let stop = Arc::new(Wake::new().map_err(with_context("eventfd"))?);
    let (sender, receiver) = channel();
    let (give_back, spare) = sync_channel(8);
    let space = Arc::new(QueueSpace::new(QUEUED_RECORDS_MAX));
    let outlet = Outlet::new(shard, sender, spare, Arc::clone(&space), WhenFull::Wait);

    let requests = link.try_clone().map_err(with_context("dup"))?;
    let (for_requests, wake) = (Arc::clone(&progress), Arc::clone(&stop));
    std::thread::Builder::new()
        .name("requests".into())
        .spawn(move || forward_stop_requests(requests, &for_requests, &wake))
        .map_err(with_context("start a thread"))?;
    let relay_link = link.try_clone().map_err(with_context("dup"))?;
    let relayed_progress = Arc::clone(&progress);
    let relay = std::thread::Builder::new()
        .name("relay".into())
        .spawn(move || relay(relay_link, &relayed_progress, &space, &receiver, &give_back))
        .map_err(with_context("start a thread"))?;

    let end = loop_(Setting { handover: Handover::new(outlet), progress, stop });
    relay.join().map_err(|_| "the relay panicked".to_owned())?.map_err(with_context("report to the parent process"))?;
    frame::write_message(&mut &*link, &ShardMessage::Ended(Box::new(end?)))
        .map_err(with_context("report to the parent process"))?;
    (&*link).flush().map_err(with_context("report to the parent process"))
}

/// Forwards stop requests, until the parent has ended.
fn forward_stop_requests(mut link: UnixStream, progress: &Progress, stop: &Wake) {
    while let Ok(Some(request)) = frame::read_stop_request(&mut link) {
        progress.request_stop(request.times, request.at);
        stop.wake();
    }
    // The parent has ended, and the shard is useless; or a frame is invalid.
    sys::worker::exit_immediately();
}

/// Forwards all records to the parent, until the loop has ended.
fn relay(
    mut link: UnixStream,
    progress: &Progress,
    space: &QueueSpace,
    receiver: &Receiver<(usize, Batch)>,
    give_back: &SyncSender<Batch>,
) -> std::io::Result<()> {
    Urgency::Ordinary.apply_to_this_thread();
    loop {
        match receiver.recv_timeout(PROGRESS_INTERVAL) {
            Ok((_, batch)) => {
                let size = batch.size();
                let message = ShardMessage::Batch(Box::new(batch));
                frame::write_message(&mut link, &message)?;
                space.remove(size);
                if let ShardMessage::Batch(mut batch) = message {
                    batch.clear();
                    let _ = give_back.try_send(*batch);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        frame::write_message(&mut link, &ShardMessage::Progress(Box::new(ShardProgress::of(progress))))?;
    }
}
