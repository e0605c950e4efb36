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
use super::frame::{self, Said, Standing};
use crate::drive::progress::Progress;
use crate::recorder::{Batch, Handover, Outlet, Room, WhenFull};

/// Most records that wait in a process for the parent: about 40 MB.
const WAITING_MAX: usize = 256 << 10;
/// Longest interval between two progress reports to the parent.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// Input of a shard's loop.
pub struct Setting {
    /// Where its records go.
    pub handover: Handover,
    /// Stop requests for it, and its progress.
    pub progress: Arc<Progress>,
    /// Readable when a stop was requested.
    pub stop: Arc<Wake>,
}

/// Runs the loop `loop_` of shard `shard` and reports everything by `link`. Returns when all is reported.
pub fn live(shard: usize, link: UnixStream, loop_: impl FnOnce(Setting) -> Result<ShardEnd, String>) {
    if let Err(error) = try_live(shard, &link, loop_) {
        // If the parent has ended, so will this process.
        let _ = frame::say(&mut &link, &Said::Failed(error));
    }
}

fn try_live(
    shard: usize,
    link: &UnixStream,
    loop_: impl FnOnce(Setting) -> Result<ShardEnd, String>,
) -> Result<(), String> {
    let in_words = |doing: &'static str| move |error: std::io::Error| format!("{doing}: {error}");
    let progress = Arc::new(Progress::default());
    let stop = Arc::new(Wake::new().map_err(in_words("eventfd"))?);
    let (sender, receiver) = channel();
    let (give_back, spare) = sync_channel(8);
    let room = Arc::new(Room::new(WAITING_MAX));
    let outlet = Outlet::new(shard, sender, spare, Arc::clone(&room), WhenFull::Wait);

    let ears = link.try_clone().map_err(in_words("dup"))?;
    let heard = (Arc::clone(&progress), Arc::clone(&stop));
    std::thread::Builder::new()
        .name("ears".into())
        .spawn(move || hear(ears, &heard.0, &heard.1))
        .map_err(in_words("start a thread"))?;
    let mouth = link.try_clone().map_err(in_words("dup"))?;
    let stands = Arc::clone(&progress);
    let relay = std::thread::Builder::new()
        .name("relay".into())
        .spawn(move || relay(mouth, &stands, &room, &receiver, &give_back))
        .map_err(in_words("start a thread"))?;

    let end = loop_(Setting { handover: Handover::new(outlet), progress, stop });
    relay.join().map_err(|_| "the relay panicked".to_owned())?.map_err(in_words("tell the run"))?;
    frame::say(&mut &*link, &Said::Ended(Box::new(end?))).map_err(in_words("tell the run"))?;
    (&*link).flush().map_err(in_words("tell the run"))
}

/// Forwards stop requests, until the parent has ended.
fn hear(mut link: UnixStream, progress: &Progress, stop: &Wake) {
    while let Ok(Some(ask)) = frame::asked(&mut link) {
        progress.ask(ask.times, ask.at);
        stop.wake();
    }
    // The parent has ended, and the shard is useless; or a frame is invalid.
    sys::worker::end_at_once();
}

/// Forwards all records to the parent, until the loop has ended.
fn relay(
    mut link: UnixStream,
    progress: &Progress,
    room: &Room,
    receiver: &Receiver<(usize, Batch)>,
    give_back: &SyncSender<Batch>,
) -> std::io::Result<()> {
    Urgency::Ordinary.apply_to_this_thread();
    loop {
        match receiver.recv_timeout(TELL_EVERY) {
            Ok((_, batch)) => {
                let takes = batch.takes();
                let said = Said::Batch(Box::new(batch));
                frame::say(&mut link, &said)?;
                room.took(takes);
                if let Said::Batch(mut batch) = said {
                    batch.clear();
                    let _ = give_back.try_send(*batch);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        frame::say(&mut link, &Said::Progress(Box::new(Standing::of(progress))))?;
    }
}
