//! A shard in its own process: the parent's side.

use std::io::{BufReader, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use sys::namespace::NetNamespace;
use sys::worker::Worker;

use super::frame::{self, ShardMessage};
use super::{ShardEnd, child};
use crate::drive::progress::{Phase, Progress};
use crate::error::TestbedError;
use crate::recorder::Outlet;

/// Forks the process of shard `index`, which enters `net` if there is one and then runs `loop_`. Only while this
/// process has one thread.
///
/// # Errors
/// No process is available.
pub fn start(
    index: u32,
    net: Option<&NetNamespace>,
    loop_: impl FnOnce(child::Setting) -> Result<ShardEnd, String>,
) -> Result<Worker, TestbedError> {
    let keep: Vec<BorrowedFd<'_>> = net.iter().map(|net| net.as_fd()).collect();
    let work = |link: UnixStream| {
        child::run(index as usize, link, |setting| {
            if let Some(net) = net {
                net.enter().map_err(|error| error.to_string())?;
            }
            loop_(setting)
        });
    };
    Worker::start(c"yamabiko-shard", &keep, work).map_err(TestbedError::environment)
}

/// Receives a shard's frames until its end. The work of one thread.
///
/// # Errors
/// The process ended before its shard did, or failed: its records are incomplete, so there is no result.
pub fn read(
    link: &UnixStream,
    shard: u32,
    progress: &Progress,
    outlet: Outlet,
    lost: &AtomicBool,
) -> Result<ShardEnd, TestbedError> {
    let _done = Done(progress);
    read_all(link, shard, progress, outlet).inspect_err(|_| lost.store(true, Ordering::Release))
}

fn read_all(link: &UnixStream, shard: u32, progress: &Progress, mut outlet: Outlet) -> Result<ShardEnd, TestbedError> {
    let mut from = BufReader::with_capacity(READ_BYTES, link);
    let failed = |why: String| TestbedError::System {
        doing: format!("shard {shard} of the load, in its own process"),
        source: std::io::Error::other(why),
    };
    loop {
        match frame::read_message(&mut from) {
            Ok(Some(ShardMessage::Batch(mut batch))) => outlet.send_batch(&mut batch),
            Ok(Some(ShardMessage::Progress(of_shard))) => of_shard.store_in(progress),
            Ok(Some(ShardMessage::Ended(end))) => return Ok(*end),
            Ok(Some(ShardMessage::Failed(why))) => return Err(failed(why)),
            Ok(None) => return Err(failed("it was killed".into())),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Err(failed("it was killed".into())),
            Err(error) => return Err(failed(error.to_string())),
        }
    }
}

/// Size of a read from a shard's socket.
const READ_BYTES: usize = 256 << 10;

/// Reports on drop that the shard has ended, also after an error or a panic: the main thread waits for this.
struct Done<'a>(&'a Progress);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.enter(Phase::Done);
    }
}
