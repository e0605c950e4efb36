//! Connections to an upstream over TCP or Unix sockets.

use std::fmt::Debug;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use nix::errno::Errno;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use super::spec::Transport;
use super::upstream::Failure;

/// Bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

/// A stream that ignores write errors of a closed peer, so that its response can still be read. An upstream may respond
/// and close before it has read a body; a broken pipe would hide that response.
#[derive(Debug)]
pub(super) struct IgnoreBrokenPipe<S> {
    stream: S,
    /// The peer reads no more.
    write_closed: bool,
}

impl<S> IgnoreBrokenPipe<S> {
    pub(super) fn new(stream: S) -> Self {
        IgnoreBrokenPipe { stream, write_closed: false }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for IgnoreBrokenPipe<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IgnoreBrokenPipe<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.write_closed {
            return Poll::Ready(Ok(bytes.len()));
        }
        match Pin::new(&mut self.stream).poll_write(cx, bytes) {
            Poll::Ready(Err(error))
                if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) =>
            {
                self.write_closed = true;
                Poll::Ready(Ok(bytes.len()))
            }
            outcome => outcome,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.write_closed { Poll::Ready(Ok(())) } else { Pin::new(&mut self.stream).poll_flush(cx) }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.write_closed { Poll::Ready(Ok(())) } else { Pin::new(&mut self.stream).poll_shutdown(cx) }
    }
}

/// # Errors
/// 502 when it is refused, 504 when it takes too long.
pub(super) async fn connect(to: &Transport, within: Duration) -> Result<Box<dyn Stream>, Failure> {
    match timeout(within, attempt(to)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(Failure::bad(format!("connect {to}: {error}"))),
        Err(_) => Err(Failure::late(format!("connect {to}: no connection within {} s", within.as_secs_f64()))),
    }
}

async fn attempt(to: &Transport) -> io::Result<Box<dyn Stream>> {
    match to {
        Transport::Tcp(authority) => {
            let stream = TcpStream::connect(authority).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream))
        }
        Transport::Unix(path) => loop {
            match UnixStream::connect(path).await {
                // A full backlog: with Unix sockets the kernel returns EAGAIN and the caller has to wait itself.
                Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => sleep(BACKLOG_PAUSE).await,
                other => return Ok(Box::new(other?)),
            }
        },
    }
}

const BACKLOG_PAUSE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn a_response_is_readable_after_a_broken_pipe() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            theirs.write_all(b"answer").await.unwrap();
            drop(theirs);
            let mut ours = IgnoreBrokenPipe::new(ours);
            for _ in 0..3 {
                ours.write_all(b"the rest of a body").await.unwrap();
            }
            ours.flush().await.unwrap();
            let mut answer = String::new();
            ours.read_to_string(&mut answer).await.unwrap();
            assert_eq!(answer, "answer");
        });
    }
}
