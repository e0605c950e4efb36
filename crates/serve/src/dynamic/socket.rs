//! A connection to an upstream, of whichever kind.

use std::fmt::Debug;
use std::io;
use std::time::Duration;

use nix::errno::Errno;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

use super::spec::Transport;
use super::upstream::Failure;

/// Bytes in both directions.
pub(super) trait Stream: AsyncRead + AsyncWrite + Debug + Send + Unpin {}

impl Stream for TcpStream {}
impl Stream for UnixStream {}

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
                // A full backlog: unlike TCP, the kernel lets a non-blocking caller wait for itself.
                Err(error) if error.raw_os_error() == Some(Errno::EAGAIN as i32) => sleep(BACKLOG_PAUSE).await,
                other => return Ok(Box::new(other?)),
            }
        },
    }
}

const BACKLOG_PAUSE: Duration = Duration::from_millis(2);
