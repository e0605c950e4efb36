//! In-memory replacement of a socket for `h2`.
//!
//! The pipe never blocks: a read takes data that the loop has put there, and written data stays until the loop has
//! written it to the socket. No waker is needed, because the loop polls h2 after every change.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Most bytes that may wait to be written before h2 has to wait: a server that requests and never reads costs no more
/// memory than this.
const OUTGOING_MAX: usize = 256 << 10;
/// Capacity that an empty buffer keeps.
const IDLE_CAPACITY_MAX: usize = 64 << 10;

/// One end for the loop, one for h2.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe(Arc<Mutex<Ends>>);

/// Content of a pipe.
#[derive(Debug, Default)]
pub(super) struct Ends {
    incoming: Vec<u8>,
    read: usize,
    /// Bytes for the socket, from `written` on.
    outgoing: Vec<u8>,
    written: usize,
    refused: bool,
}

impl Pipe {
    /// The loop's end. One thread uses a whole connection, so the lock is always free.
    pub(super) fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    /// Adds bytes from the socket.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.read == self.incoming.len() {
            self.incoming.clear();
            self.incoming.shrink_to(IDLE_CAPACITY_MAX);
            self.read = 0;
        }
        self.incoming.extend_from_slice(bytes);
    }

    /// Bytes from the socket that h2 has not read.
    pub(super) fn unread(&self) -> usize {
        self.incoming.len() - self.read
    }

    /// Bytes to write to the socket.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.outgoing[self.written..]
    }

    /// Records that `bytes` of the output were written to the socket.
    pub(super) fn note_written(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            self.outgoing.shrink_to(IDLE_CAPACITY_MAX);
            self.written = 0;
        }
    }

    /// Whether h2 had to wait for space since the last call.
    pub(super) fn take_refused(&mut self) -> bool {
        std::mem::take(&mut self.refused)
    }
}

impl AsyncRead for Pipe {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut ends = self.ends();
        let length = ends.unread().min(into.remaining());
        if length == 0 {
            return Poll::Pending;
        }
        into.put_slice(&ends.incoming[ends.read..ends.read + length]);
        ends.read += length;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut ends = self.ends();
        if ends.unwritten().len() >= OUTGOING_MAX {
            ends.refused = true;
            return Poll::Pending;
        }
        pieces.iter().for_each(|piece| ends.outgoing.extend_from_slice(piece));
        Poll::Ready(Ok(pieces.iter().map(|piece| piece.len()).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
