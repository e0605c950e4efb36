//! A response body that a thread writes while it is being sent: for bodies too long for memory, such as exports.
//!
//! The writer blocks while the reader does not read, and detects a closed reader. Without [`PipeWriter::finish`] the
//! body breaks off: the reader sees an incomplete transfer, never a shorter one that looks complete.

use std::io::{self, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use hyper::body::Frame;
use tokio::sync::mpsc;

/// A body and its writer. Write on a thread that may block, not on the server's thread.
pub fn piped() -> (PipeWriter, axum::body::Body) {
    let (sender, pieces) = mpsc::channel(PIECES);
    let is_complete = Arc::new(AtomicBool::new(false));
    let is_reader_closed = Arc::new(AtomicBool::new(false));
    let writer = PipeWriter {
        sender,
        piece: Vec::with_capacity(PIECE_BYTES),
        is_complete: Arc::clone(&is_complete),
        is_reader_closed: Arc::clone(&is_reader_closed),
    };
    (writer, axum::body::Body::new(Pieces { pieces, is_complete, is_reported: false, is_reader_closed }))
}

/// The writing end.
#[derive(Debug)]
pub struct PipeWriter {
    sender: mpsc::Sender<Bytes>,
    piece: Vec<u8>,
    is_complete: Arc<AtomicBool>,
    is_reader_closed: Arc<AtomicBool>,
}

impl PipeWriter {
    /// Returns a check for a closed reader, for long work that writes rarely.
    pub fn is_reader_closed(&self) -> impl Fn() -> bool + Send + 'static {
        let is_reader_closed = Arc::clone(&self.is_reader_closed);
        move || is_reader_closed.load(Ordering::Acquire)
    }

    /// Marks the body as complete.
    ///
    /// # Errors
    /// The reader closed the stream.
    pub fn finish(mut self) -> io::Result<()> {
        self.send()?;
        // Stored before the sender is dropped, so that the reader sees a complete body.
        self.is_complete.store(true, Ordering::Release);
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        let reader_closed = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the reader closed the stream");
        self.sender.blocking_send(piece.into()).map_err(reader_closed)
    }
}

impl Write for PipeWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() >= PIECE_BYTES {
            self.send()?;
        }
        let accepted = bytes.len().min(PIECE_BYTES - self.piece.len());
        self.piece.extend_from_slice(&bytes[..accepted]);
        Ok(accepted)
    }

    /// Does nothing: pieces are sent when they are full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Pieces {
    pieces: mpsc::Receiver<Bytes>,
    is_complete: Arc<AtomicBool>,
    is_reported: bool,
    is_reader_closed: Arc<AtomicBool>,
}

impl Drop for Pieces {
    fn drop(&mut self) {
        self.is_reader_closed.store(true, Ordering::Release);
    }
}

impl hyper::body::Body for Pieces {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        match ready!(this.pieces.poll_recv(context)) {
            Some(piece) => Poll::Ready(Some(Ok(Frame::data(piece)))),
            None if this.is_reported || this.is_complete.load(Ordering::Acquire) => Poll::Ready(None),
            None => {
                this.is_reported = true;
                Poll::Ready(Some(Err(io::Error::other("the writer of the response stopped"))))
            }
        }
    }
}

/// Bytes of a piece.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces buffered for the reader.
const PIECES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes that a reader of the body gets, and whether the body was complete.
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
    fn a_finished_stream_is_complete_and_an_unfinished_one_breaks_off() {
        let text = vec![b'x'; 3 * PIECE_BYTES + 7];
        for finishes in [true, false] {
            let written = text.clone();
            let (bytes, is_complete) = read(move |mut writer| {
                writer.write_all(&written).unwrap();
                if finishes {
                    writer.finish().unwrap();
                }
            });
            assert_eq!(is_complete, finishes);
            assert!(if finishes { bytes == text } else { bytes.len() == 3 * PIECE_BYTES });
        }
        assert_eq!(read(|writer| writer.finish().unwrap()), (Vec::new(), true));
    }

    #[test]
    fn a_closed_reader_is_detected() {
        let (mut writer, body) = piped();
        let is_reader_closed = writer.is_reader_closed();
        assert!(!is_reader_closed());
        drop(body);
        assert!(is_reader_closed());
        assert!(writer.write_all(&vec![0; 2 * PIECE_BYTES + 1]).is_err());
    }
}
