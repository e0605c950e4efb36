//! A lane in a process of its own, from the inside.
//!
//! Three threads: the first is the loop, one relays its records, one hears what is asked. The relay may wait for the run;
//! the loop waits for the relay only when as much is waiting as may be kept.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;

use sys::sched::Urgency;
use sys::signal::Wake;

use super::LaneEnd;
use super::frame::{self, Said, Standing};
use crate::drive::progress::Progress;
use crate::recorder::{Batch, Handover, Outlet, Room, WhenFull};

/// Records that may wait in a process for the run to take them: some 40 MB.
const WAITING_MAX: usize = 256 << 10;
/// The run hears at least this often how the lane stands.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// What a lane's loop is given.
pub struct Setting {
    /// Where its records go.
    pub handover: Handover,
    /// What is asked of it, and where it says how it stands.
    pub progress: Arc<Progress>,
    /// Readable when something was asked.
    pub stop: Arc<Wake>,
}

/// Lives as lane `lane`: runs `loop_` and tells the run everything by `link`. Returns when all is told.
pub fn live(lane: usize, link: UnixStream, loop_: impl FnOnce(Setting) -> Result<LaneEnd, String>) {
    if let Err(error) = try_live(lane, &link, loop_) {
        // If the run is gone, so is this process in a moment.
        let _ = frame::say(&mut &link, &Said::Failed(error));
    }
}

fn try_live(
    lane: usize,
    link: &UnixStream,
    loop_: impl FnOnce(Setting) -> Result<LaneEnd, String>,
) -> Result<(), String> {
    let in_words = |doing: &'static str| move |error: std::io::Error| format!("{doing}: {error}");
    let progress = Arc::new(Progress::default());
    let stop = Arc::new(Wake::new().map_err(in_words("eventfd"))?);
    let (sender, receiver) = channel();
    let (give_back, spare) = sync_channel(8);
    let room = Arc::new(Room::new(WAITING_MAX));
    let outlet = Outlet::new(lane, sender, spare, Arc::clone(&room), WhenFull::Wait);

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

/// Passes on what is asked, until the run is gone.
fn hear(mut link: UnixStream, progress: &Progress, stop: &Wake) {
    while let Ok(Some(ask)) = frame::asked(&mut link) {
        progress.ask(ask.times, ask.at);
        stop.wake();
    }
    // The run is gone, and with it every use of this lane; or it spoke what nobody speaks.
    sys::worker::end_at_once();
}

/// Tells the run everything that comes, until nothing does.
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
