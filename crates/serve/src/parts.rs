//! Components of a server, each measured alone: opening and reading a file, a log line, a TLS handshake, encryption.
//!
//! NTT DIRECTORY (P3) measures basic resources alone and adds them up to estimate a server. These are the components
//! that need no network; [`serve_exchange`] serves those that do, under load.
//!
//! ```text
//!   LocalComponent::{parse, files, logging, tls} ── one operation ──▶ rounds.rs: repeated, CPU time of this thread ──▶ LocalRound
//! ```
//!
//! Each is a loop that does nothing else, so caches and branch predictors are warmer than in a server: a component's
//! cost is a lower bound. Read `parts/rounds.rs` for the timing.

mod exchange;
mod files;
mod logging;
mod rounds;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

pub use self::exchange::{ExchangeBody, ExchangeSpec, WaitMode, serve_exchange};
pub use self::rounds::LocalRound;
use self::rounds::{Repetitions, rounds};
use crate::request::{Parsed, parse};
use crate::spec::{Limits, ServeError, system};
use crate::tls::Tls;

/// A component that needs no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalComponent {
    /// Parses a request head of `bytes` bytes.
    Parse,
    /// Opens a file of `bytes` bytes in a folder, reads size and content, and closes it; the file is in the page cache.
    OpenRead,
    /// The same without reading: the remaining work when the kernel sends the file.
    Open,
    /// As [`LocalComponent::OpenRead`], for files that are evicted from the page cache before.
    OpenReadCold,
    /// Formats a line and writes it to a file, one call per line.
    LogLine,
    /// Formats lines and writes them in blocks of 64 KiB.
    LogBuffered,
    /// The server's side of a full TLS handshake: no network, the client's side is not counted.
    HandshakeFull,
    /// The server's side of a resumed TLS handshake.
    HandshakeResumed,
    /// Decrypts a request of 128 bytes and encrypts a response of `bytes` bytes in an established session.
    Records,
}

impl LocalComponent {
    /// All components.
    pub const ALL: [LocalComponent; 9] = [
        LocalComponent::Parse,
        LocalComponent::OpenRead,
        LocalComponent::Open,
        LocalComponent::OpenReadCold,
        LocalComponent::LogLine,
        LocalComponent::LogBuffered,
        LocalComponent::HandshakeFull,
        LocalComponent::HandshakeResumed,
        LocalComponent::Records,
    ];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            LocalComponent::Parse => "parse",
            LocalComponent::OpenRead => "open-read",
            LocalComponent::Open => "open",
            LocalComponent::OpenReadCold => "open-read-cold",
            LocalComponent::LogLine => "log-line",
            LocalComponent::LogBuffered => "log-buffered",
            LocalComponent::HandshakeFull => "handshake-full",
            LocalComponent::HandshakeResumed => "handshake-resumed",
            LocalComponent::Records => "records",
        }
    }
}

/// Configuration of a measurement.
#[derive(Clone, Debug)]
pub struct LocalSpec {
    /// The component.
    pub part: LocalComponent,
    /// Bytes of one operation, where it has a size: of a head [`HEAD_BYTES_MIN`] to [`HEAD_BYTES_MAX`], of a file or
    /// response at most [`crate::BODY_BYTES_MAX`].
    pub bytes: usize,
    /// A folder for temporary files, which are removed at the end.
    pub folder: PathBuf,
    /// Number of rounds, at least 1.
    pub rounds: u32,
    /// CPU time of a round; at least one operation is done.
    pub each: Duration,
    /// The certificate of the TLS components.
    pub tls: Option<Tls>,
}

/// The shortest head with the fields that clients send.
pub const HEAD_BYTES_MIN: usize = 96;
/// The longest head that a server accepts.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// Runs the measurement, round by round.
///
/// # Errors
/// A file cannot be created, read or written; a handshake fails; bytes are out of range.
pub fn measure_part(spec: &LocalSpec) -> Result<Vec<LocalRound>, ServeError> {
    if spec.bytes > crate::BODY_BYTES_MAX {
        return Err(refused("a component of more than 1 GiB"));
    }
    let repetitions = Repetitions { rounds: spec.rounds.max(1), each: spec.each };
    match spec.part {
        LocalComponent::Parse => parsing(spec.bytes, repetitions),
        LocalComponent::OpenRead => files::hot(&spec.folder, spec.bytes, true, repetitions),
        LocalComponent::Open => files::hot(&spec.folder, spec.bytes, false, repetitions),
        LocalComponent::OpenReadCold => files::cold(&spec.folder, spec.bytes, repetitions),
        LocalComponent::LogLine => logging::lines(&spec.folder, 1, repetitions),
        LocalComponent::LogBuffered => logging::lines(&spec.folder, LOG_BYTES, repetitions),
        LocalComponent::HandshakeFull => tls::handshakes(certificate(spec)?, false, repetitions),
        LocalComponent::HandshakeResumed => tls::handshakes(certificate(spec)?, true, repetitions),
        LocalComponent::Records => tls::records(certificate(spec)?, spec.bytes, repetitions),
    }
}

/// Block size of a buffered log, as nginx's documentation proposes.
const LOG_BYTES: usize = 64 << 10;

fn certificate(spec: &LocalSpec) -> Result<&Tls, ServeError> {
    spec.tls.as_ref().ok_or_else(|| refused("a TLS component without a certificate"))
}

fn refused(why: &str) -> ServeError {
    system("measure a component")(std::io::Error::other(why.to_owned()))
}

/// A typical request head, filled up to `bytes`.
fn head(bytes: usize) -> Result<Vec<u8>, ServeError> {
    if !(HEAD_BYTES_MIN..=HEAD_BYTES_MAX).contains(&bytes) {
        return Err(refused(&format!("a head has from {HEAD_BYTES_MIN} to {HEAD_BYTES_MAX} bytes")));
    }
    let mut head =
        b"GET /10k.bin HTTP/1.1\r\nHost: server:8080\r\nUser-Agent: part\r\nAccept: */*\r\nCookie: ".to_vec();
    head.resize(bytes - 4, b'c');
    head.extend_from_slice(b"\r\n\r\n");
    Ok(head)
}

fn parsing(bytes: usize, repetitions: Repetitions) -> Result<Vec<LocalRound>, ServeError> {
    let (head, limits) = (head(bytes)?, Limits::default());
    rounds(repetitions, || match parse(std::hint::black_box(&head), &limits) {
        Parsed::Complete(request) => {
            std::hint::black_box(request.target);
            Ok(())
        }
        _ => Err(refused("the request head is not valid")),
    })
}

#[cfg(test)]
mod tests;
