//! An answer whose bytes a thread writes while they are being sent: for what is too long to be held, such as an export.
//!
//! The thread waits while the reader does not read, and is told when they have left. What is not [`PipeWriter::finish`]ed breaks off:
//! the reader sees a transfer that was not completed, never a shorter one that looks whole.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc;

/// A body, and what writes it. Writing is for a thread that may wait: not for one that serves a door.
pub fn piped() -> (PipeWriter, axum::body::Body) {
    let (sends, pieces) = mpsc::channel(PIECES);
    let is_whole = Arc::new(AtomicBool::new(false));
    let is_left = Arc::new(AtomicBool::new(false));
    let writer = PipeWriter {
        sends,
        piece: Vec::with_capacity(PIECE_BYTES),
        is_whole: Arc::clone(&is_whole),
        is_left: Arc::clone(&is_left),
    };
    (writer, axum::body::Body::new(Pieces { pieces, is_whole, is_told: false, is_left }))
}

/// The end that is written to.
#[derive(Debug)]
pub struct PipeWriter {
    sends: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
    is_whole: Arc<AtomicBool>,
    is_left: Arc<AtomicBool>,
}

impl PipeWriter {
    /// Says whether the reader has left: for work that is long and writes seldom.
    pub fn is_left(&self) -> impl Fn() -> bool + Send + 'static {
        let is_left = Arc::clone(&self.is_left);
        move || is_left.load(Ordering::Acquire)
    }

    /// The answer is whole.
    ///
    /// # Errors
    /// The reader has left.
    pub fn finish(mut self) -> io::Result<()> {
        self.send()?;
        // Before the channel ends with this, so that its end is read as such.
        self.is_whole.store(true, Ordering::Release);
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader has left");
        self.sends.blocking_send(piece.into()).map_err(gone)
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() >= PIECE_BYTES {
            self.send()?;
        }
        let taken = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    /// Does nothing: pieces leave when they are full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    is_whole: Arc<AtomicBool>,
    is_told: bool,
    is_left: Arc<AtomicBool>,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.is_left.store(true, Ordering::Release);
    }
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        match ready!(this.pieces.poll_recv(context)) {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if this.is_told || this.is_whole.load(Ordering::Acquire) => Poll::Ready(None),
            None => {
                this.is_told = true;
                Poll::Ready(Some(Err(io::Error::other("what wrote the answer broke off"))))
            }
        }
    }
}

/// Bytes that are sent at once.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait for the reader.
const PIECES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader of the body gets, and whether it was whole.
    fn read(write: impl FnOnce(PipeWriter) + Send + 'static) -> (Vec<u8>, bool) {
        let (writer, mut body) = piped();
        let writing = std::thread::spawn(move || write(writer));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let outcome = runtime.block_on(async {
            let mut bytes = Vec::new();
            loop {
                let frame = std::future::poll_fn(|context| hyper::body::Body::poll_frame(Pin::new(&mut body), context));
                match frame.await {
                    Some(Ok(frame)) => bytes.extend_from_slice(frame.data_ref().unwrap()),
                    Some(Err(_)) => return (bytes, false),
                    None => return (bytes, true),
                }
            }
        });
        writing.join().unwrap();
        outcome
    }

    #[test]
    fn what_was_finished_is_whole_and_what_was_not_breaks_off() {
        let text = vec![b'x'; 3 * PIECE_BYTES + 7];
        for finishes in [true, false] {
            let written = text.clone();
            let (bytes, is_whole) = read(move |mut writer| {
                writer.write_all(&written).unwrap();
                if finishes {
                    writer.finish().unwrap();
                }
            });
            assert_eq!(is_whole, finishes);
            assert!(if finishes { bytes == text } else { bytes.len() == 3 * PIECE_BYTES });
        }
        assert_eq!(read(|writer| writer.finish().unwrap()), (Vec::new(), true));
    }

    #[test]
    fn who_left_is_noticed() {
        let (mut writer, body) = piped();
        let is_left = writer.is_left();
        assert!(!is_left());
        drop(body);
        assert!(is_left());
        assert!(writer.write_all(&vec![0; 2 * PIECE_BYTES + 1]).is_err());
    }
}
