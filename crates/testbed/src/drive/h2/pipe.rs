//! Memory in place of a socket: what `h2` reads from and writes to.
//!
//! It never waits for anything: a read takes what the loop has put there, a write stays until the loop has written it
//! to the socket. Nobody needs waking, because the loop polls h2 after everything it does here.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// So much may wait to be written before h2 is told to wait: a server that asks and never reads costs no more than
/// this.
const OUTGOING_MAX: usize = 256 << 10;
/// Memory that an end keeps when it is empty.
const KEPT_MAX: usize = 64 << 10;

/// One end for the loop, one for h2.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe(Arc<Mutex<Ends>>);

/// What lies in a pipe.
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
    /// The loop's end. One thread holds all of a connection, so the lock is always free.
    pub(super) fn ends(&self) -> MutexGuard<'_, Ends> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    /// Bytes from the socket.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        if self.read == self.incoming.len() {
            self.incoming.clear();
            self.incoming.shrink_to(KEPT_MAX);
            self.read = 0;
        }
        self.incoming.extend_from_slice(bytes);
    }

    /// Bytes from the socket that h2 has not read.
    pub(super) fn unread(&self) -> usize {
        self.incoming.len() - self.read
    }

    /// What is to be written to the socket.
    pub(super) fn unwritten(&self) -> &[u8] {
        &self.outgoing[self.written..]
    }

    /// So much of it was.
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written += bytes;
        if self.written == self.outgoing.len() {
            self.outgoing.clear();
            self.outgoing.shrink_to(KEPT_MAX);
            self.written = 0;
        }
    }

    /// Whether h2 was told to wait since the last call.
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
