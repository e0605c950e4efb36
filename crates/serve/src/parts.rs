//! Parts of a server, each alone: what opening and reading a file costs, a line in a log, a handshake, sealing an answer.
//!
//! NTT's report on the parts of a directory system (P3) measures the basic resources alone and adds them up to estimate a server. These
//! are its parts that need no network; those that do are [`serve_exchange`], behind a load.
//!
//! ```text
//!   LocalPart::{parse, files, logging, tls} ── one operation ──▶ rounds.rs: over and over, processor time of this thread ──▶ LocalRound
//! ```
//!
//! Each is a loop that does nothing else, so caches and branch predictors are warm as in no server: a part alone is the least that it costs.
//! Read `parts/rounds.rs` for how it is timed.

mod exchange;
mod files;
mod logging;
mod rounds;
mod tls;

use std::path::PathBuf;
use std::time::Duration;

pub use self::exchange::{ExchangeBody, ExchangeSpec, ExchangeWaits, serve_exchange};
pub use self::rounds::LocalRound;
use self::rounds::{Repetitions, rounds};
use crate::request::{Parsed, parse};
use crate::spec::{Limits, ServeError, system};
use crate::tls::Tls;

/// A part that needs no network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocalPart {
    /// Reads the head of a request of so many bytes.
    Parse,
    /// Opens a file of so many bytes beneath a folder, asks for its size, reads it whole and closes it; it is in the page cache.
    OpenRead,
    /// The same without reading: what is left to do where the kernel sends the file.
    Open,
    /// As [`LocalPart::OpenRead`], of files that are taken out of the page cache before.
    OpenReadCold,
    /// Puts a line together and writes it to a file, each by a call of its own.
    LogLine,
    /// Puts lines together and writes them when 64 KiB are full.
    LogBuffered,
    /// The server's side of a TLS handshake in full: no network, the client's side is not counted.
    HandshakeFull,
    /// The same of one that takes up an earlier session.
    HandshakeResumed,
    /// Opens a request of 128 bytes and seals an answer of so many, in a session that is there.
    Records,
}

impl LocalPart {
    /// All of them.
    pub const ALL: [LocalPart; 9] = [
        LocalPart::Parse,
        LocalPart::OpenRead,
        LocalPart::Open,
        LocalPart::OpenReadCold,
        LocalPart::LogLine,
        LocalPart::LogBuffered,
        LocalPart::HandshakeFull,
        LocalPart::HandshakeResumed,
        LocalPart::Records,
    ];

    /// One word, as typed.
    pub const fn name(self) -> &'static str {
        match self {
            LocalPart::Parse => "parse",
            LocalPart::OpenRead => "open-read",
            LocalPart::Open => "open",
            LocalPart::OpenReadCold => "open-read-cold",
            LocalPart::LogLine => "log-line",
            LocalPart::LogBuffered => "log-buffered",
            LocalPart::HandshakeFull => "handshake-full",
            LocalPart::HandshakeResumed => "handshake-resumed",
            LocalPart::Records => "records",
        }
    }
}

/// What to do over and over.
#[derive(Clone, Debug)]
pub struct LocalSpec {
    /// The part.
    pub part: LocalPart,
    /// Bytes of one, where it has any: of a head at least [`HEAD_BYTES_MIN`] and at most [`HEAD_BYTES_MAX`], of a file or an answer at
    /// most [`crate::BODY_BYTES_MAX`].
    pub bytes: usize,
    /// A folder for the files that are read and written; what is made there is removed in the end.
    pub folder: PathBuf,
    /// How many rounds: 1 or more.
    pub rounds: u32,
    /// Processor time of a round; at least one operation is done.
    pub each: Duration,
    /// The certificate of the parts of TLS.
    pub tls: Option<Tls>,
}

/// The shortest head that has the fields that clients send.
pub const HEAD_BYTES_MIN: usize = 96;
/// The longest that a server takes.
pub const HEAD_BYTES_MAX: usize = 8 << 10;

/// Does it, round by round.
///
/// # Errors
/// A file cannot be made, read or written; a handshake fails; bytes out of range.
pub fn measure_part(spec: &LocalSpec) -> Result<Vec<LocalRound>, ServeError> {
    if spec.bytes > crate::BODY_BYTES_MAX {
        return Err(refused("a component of more than 1 GiB"));
    }
    let repetitions = Repetitions { rounds: spec.rounds.max(1), each: spec.each };
    match spec.part {
        LocalPart::Parse => parsing(spec.bytes, repetitions),
        LocalPart::OpenRead => files::hot(&spec.folder, spec.bytes, true, repetitions),
        LocalPart::Open => files::hot(&spec.folder, spec.bytes, false, repetitions),
        LocalPart::OpenReadCold => files::cold(&spec.folder, spec.bytes, repetitions),
        LocalPart::LogLine => logging::lines(&spec.folder, 1, repetitions),
        LocalPart::LogBuffered => logging::lines(&spec.folder, LOG_BYTES, repetitions),
        LocalPart::HandshakeFull => tls::handshakes(certificate(spec)?, false, repetitions),
        LocalPart::HandshakeResumed => tls::handshakes(certificate(spec)?, true, repetitions),
        LocalPart::Records => tls::records(certificate(spec)?, spec.bytes, repetitions),
    }
}

/// A buffered log is written when it holds so much: what nginx's documentation proposes.
const LOG_BYTES: usize = 64 << 10;

fn certificate(spec: &LocalSpec) -> Result<&Tls, ServeError> {
    spec.tls.as_ref().ok_or_else(|| refused("a TLS component without a certificate"))
}

fn refused(why: &str) -> ServeError {
    system("measure a component")(std::io::Error::other(why.to_owned()))
}

/// A head as clients send it, filled up to `bytes`.
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
