//! Messages between main and init, one datagram each.

use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send as send_bytes};

use super::Exit;
use crate::error::Error;

/// From main to init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Start the command.
    Exec,
    /// Send this signal to every process of the sandbox but init.
    Signal(i32),
}

/// From init to main.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Report {
    /// The sandbox is set up.
    Ready,
    /// A step of the setup, or of preparing the command, failed; with the remedy, or empty.
    Failed { call: String, errno: i32, remedy: String },
    /// The command is running.
    Started,
    /// The exec of the command failed.
    ExecFailed { errno: i32 },
    /// The command ended.
    Ended(Exit),
    /// No process but init is left.
    Empty,
}

impl Order {
    pub(super) fn encode(self) -> Vec<u8> {
        match self {
            Order::Exec => encode(EXEC, 0, ""),
            Order::Signal(signal) => encode(SIGNAL, signal, ""),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Order> {
        match split(bytes)? {
            (EXEC, _, _) => Some(Order::Exec),
            (SIGNAL, signal, _) => Some(Order::Signal(signal)),
            _ => None,
        }
    }
}

impl Report {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Report::Ready => encode(READY, 0, ""),
            Report::Failed { call, errno, remedy } => encode(FAILED, *errno, &format!("{call}\0{remedy}")),
            Report::Started => encode(STARTED, 0, ""),
            Report::ExecFailed { errno } => encode(EXEC_FAILED, *errno, ""),
            Report::Ended(Exit::Code(code)) => encode(ENDED_BY_CODE, *code, ""),
            Report::Ended(Exit::Signal(signal)) => encode(ENDED_BY_SIGNAL, *signal, ""),
            Report::Empty => encode(EMPTY, 0, ""),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Report> {
        match split(bytes)? {
            (READY, _, _) => Some(Report::Ready),
            (FAILED, errno, text) => {
                let text = String::from_utf8_lossy(text);
                // A call name so long that the remedy did not fit has no terminator.
                let (call, remedy) = text.split_once('\0').unwrap_or((&text, ""));
                Some(Report::Failed { call: call.to_owned(), errno, remedy: remedy.to_owned() })
            }
            (STARTED, _, _) => Some(Report::Started),
            (EXEC_FAILED, errno, _) => Some(Report::ExecFailed { errno }),
            (ENDED_BY_CODE, code, _) => Some(Report::Ended(Exit::Code(code))),
            (ENDED_BY_SIGNAL, signal, _) => Some(Report::Ended(Exit::Signal(signal))),
            (EMPTY, _, _) => Some(Report::Empty),
            _ => None,
        }
    }
}

impl Report {
    /// The report of a failed step.
    pub(super) fn failed(error: &Error) -> Report {
        let errno = error.errno().unwrap_or(libc::EIO);
        match error {
            Error::Call { call, .. } => Report::Failed { call: call.clone(), errno, remedy: String::new() },
            Error::Refused { call, remedy, .. } => Report::Failed { call: call.clone(), errno, remedy: remedy.clone() },
            other => Report::Failed { call: other.to_string(), errno, remedy: String::new() },
        }
    }
}

/// The error of a failed step in init, as an error of main.
pub(super) fn error(call: String, errno: i32, remedy: String) -> Error {
    let source = Errno::from_raw(errno).into();
    if remedy.is_empty() { Error::Call { call, source } } else { Error::Refused { call, source, remedy } }
}

/// Sends one message. The socket's buffer holds more messages than are ever in transit.
pub(super) fn send(socket: &impl AsFd, message: &[u8]) -> Result<(), Errno> {
    loop {
        match send_bytes(socket.as_fd().as_raw_fd(), message, MsgFlags::MSG_NOSIGNAL) {
            Err(Errno::EINTR) => continue,
            other => return other.map(drop),
        }
    }
}

/// Receives one message; `None` when the other side has closed, EAGAIN when there is none and `wait` is false.
pub(super) fn receive(socket: &impl AsFd, wait: bool) -> Result<Option<Vec<u8>>, Errno> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let flags = if wait { MsgFlags::empty() } else { MsgFlags::MSG_DONTWAIT };
    loop {
        match recv(socket.as_fd().as_raw_fd(), &mut buffer, flags) {
            Err(Errno::EINTR) => continue,
            // The peer ended with an unread message.
            Ok(0) | Err(Errno::ECONNRESET) => return Ok(None),
            Ok(length) => {
                buffer.truncate(length);
                return Ok(Some(buffer));
            }
            Err(errno) => return Err(errno),
        }
    }
}

/// Tag, one number, and text for the rest; text that is too long is truncated.
fn encode(tag: u8, number: i32, text: &str) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend(number.to_ne_bytes());
    bytes.extend(text.bytes().take(MESSAGE_BYTES_MAX - bytes.len()));
    bytes
}

fn split(bytes: &[u8]) -> Option<(u8, i32, &[u8])> {
    let (tag, rest) = bytes.split_first()?;
    let (number, text) = rest.split_first_chunk::<4>()?;
    Some((*tag, i32::from_ne_bytes(*number), text))
}

/// Longer than any path the kernel accepts.
const MESSAGE_BYTES_MAX: usize = 8192;

const EXEC: u8 = 1;
const SIGNAL: u8 = 2;
const READY: u8 = 11;
const FAILED: u8 = 12;
const STARTED: u8 = 13;
const EXEC_FAILED: u8 = 14;
const ENDED_BY_CODE: u8 = 15;
const ENDED_BY_SIGNAL: u8 = 16;
const EMPTY: u8 = 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_decode_to_the_encoded_value() {
        for order in [Order::Exec, Order::Signal(15)] {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        for report in [
            Report::Ready,
            Report::Failed { call: "mount /é".to_owned(), errno: 13, remedy: String::new() },
            Report::Failed { call: "mount /é".to_owned(), errno: 2, remedy: "make one".to_owned() },
            Report::Started,
            Report::ExecFailed { errno: 2 },
            Report::Ended(Exit::Code(255)),
            Report::Ended(Exit::Signal(9)),
            Report::Empty,
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
        let long =
            Report::Failed { call: "x".repeat(2 * MESSAGE_BYTES_MAX), errno: 1, remedy: "lost".to_owned() }.encode();
        let Some(Report::Failed { call, errno: 1, remedy }) = Report::decode(&long) else {
            panic!("{} bytes", long.len())
        };
        assert!(long.len() == MESSAGE_BYTES_MAX && call.len() < MESSAGE_BYTES_MAX && remedy.is_empty());
        assert_eq!(Report::decode(&[]), None);
        assert_eq!(Report::decode(&[READY, 0, 0, 0]), None);
        assert_eq!(Order::decode(&Report::Ready.encode()), None);
    }
}
