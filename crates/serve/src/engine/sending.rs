//! Sends the output of a connection by system calls.

use std::io::{self, ErrorKind, IoSlice, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd as _, AsRawFd};

use nix::libc::MSG_MORE;
use nix::sys::socket::{MsgFlags, send};
use sys::file::send_file;
use units::Timestamp;

use crate::connection::{Outbound, WorkerContext};
use crate::link::Link;

/// Result of an attempt to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Everything was sent.
    All,
    /// The kernel's buffer is full.
    Blocked,
    /// The connection used its share of this turn.
    Enough,
}

/// Sends pending output by system calls, as far as the kernel accepts it and within the share of a turn. With
/// `short_is_full` a partial write is not repeated: a request for write readiness reports free space, so nothing is
/// lost.
///
/// # Errors
/// The connection is unusable.
pub(super) fn flush(
    stream: &TcpStream,
    link: &mut Link,
    context: &mut WorkerContext,
    short_is_full: bool,
) -> io::Result<Sent> {
    let mut allowance = TURN_BYTES;
    loop {
        let (turn, now) = (context.turn, context.now);
        let outbound = match link.outbound(context) {
            Outbound::Nothing => return Ok(Sent::All),
            Outbound::Both(..) | Outbound::File { .. } if turn.is_over() => return Ok(Sent::Enough),
            outbound => outbound,
        };
        // For the large pieces of a file a further system call costs less than an early request for write readiness.
        let short_is_full = short_is_full && !matches!(outbound, Outbound::File { .. });
        let (taken, offered) = (transmit(stream, &outbound, now)?, offered(&outbound));
        let Some(taken) = taken else {
            link.unsent_limit.blocked(now);
            return Ok(Sent::Blocked);
        };
        link.sent(context, taken);
        if taken < offered && !link.unsent_limit.raise(stream, context) && short_is_full {
            link.unsent_limit.blocked(now);
            return Ok(Sent::Blocked);
        }
        if taken >= allowance {
            return Ok(if link.has_sent_all(context) { Sent::All } else { Sent::Enough });
        }
        allowance -= taken;
    }
}

/// Bytes that [`transmit`] passes in one call.
fn offered(outbound: &Outbound<'_>) -> usize {
    match outbound {
        Outbound::Nothing => 0,
        Outbound::Bytes(bytes, _) => bytes.len(),
        Outbound::Both(front, rest) => front.len() + rest.len(),
        Outbound::File { front, .. } if !front.is_empty() => front.len(),
        Outbound::File { range, .. } => usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(PIECE_BYTES),
    }
}

/// One system call: the number of bytes accepted, `None` if the buffer is full.
fn transmit(stream: &TcpStream, outbound: &Outbound<'_>, now: Timestamp) -> io::Result<Option<usize>> {
    match outbound {
        Outbound::Nothing => Ok(Some(0)),
        Outbound::Bytes(bytes, more) => send_some(stream, bytes, *more),
        Outbound::Both(front, rest) => taken((&*stream).write_vectored(&[IoSlice::new(front), IoSlice::new(rest)])),
        // MSG_MORE: the head is sent with the first bytes of the file.
        Outbound::File { front, range, .. } if !front.is_empty() => send_some(stream, front, !range.is_empty()),
        Outbound::File { file, page, range, .. } => {
            let count = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(PIECE_BYTES);
            // The file was changed in place since its head was sent: the client would get a mixture of two versions.
            if count as u64 == range.end - range.start && !page.is_intact_at(now) {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            match send_file(stream.as_fd(), file.as_fd(), range.start, count)? {
                // The file was truncated after its length was announced: only a reset tells the client.
                Some(0) => Err(ErrorKind::UnexpectedEof.into()),
                other => Ok(other),
            }
        }
    }
}

/// Sends bytes, `more` if others follow immediately: the number of bytes accepted, `None` if the buffer is full.
pub(crate) fn send_some(stream: &impl AsRawFd, bytes: &[u8], more: bool) -> io::Result<Option<usize>> {
    let more = if more { MsgFlags::from_bits_retain(MSG_MORE) } else { MsgFlags::empty() };
    taken(send(stream.as_raw_fd(), bytes, MsgFlags::MSG_NOSIGNAL | more).map_err(io::Error::from))
}

/// `None` if the kernel's buffer is full.
fn taken(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Ok(0) => Err(ErrorKind::WriteZero.into()),
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(Some(0)),
        Err(error) => Err(error),
    }
}

/// Bytes of one connection per turn.
const TURN_BYTES: usize = 1 << 20;
/// Bytes of a file per system call, between checks of the clock.
const PIECE_BYTES: usize = 1 << 20;
