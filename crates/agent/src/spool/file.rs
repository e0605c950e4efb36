//! A file of the spool: one batch, with a layout that allows truncation, which needs no disk space.
//!
//! ```text
//!   magic 8 | length, CRC | meta (postcard) ║ length, CRC | head: the batch without rows ║ the batch
//!                                           ^ truncated: stored by the manager           ^ truncated: without rows
//! ```
//!
//! Head and batch are JSON in gzip.

use std::io::{self, Read, Write};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::bounds::clamped;
use crate::clock::ClockReading;
use tap_protocol::{Batch, PROGRAMS_MAX, Program, UNPACKED_MAX};

/// Index data of a file, also for a restarted agent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// The file's number, from 1; set when it is sealed.
    pub number: u64,
    /// The stream and the number in it that the batch contains; set when it is sealed.
    pub stream: String,
    /// See [`Meta::stream`].
    pub sequence: u64,
    /// Rows when it was sealed.
    pub rows: u64,
    /// Rows of all files before it; set when it is sealed.
    pub rows_before: u64,
    /// Entries of the journal whose rows are all sealed in this batch or one before.
    pub through: u64,
    /// Rows of the next entry that are sealed as well: that entry had more rows than fit.
    pub partial: u64,
    /// Boot whose zero the times count from.
    pub boot: String,
    /// When it was sealed.
    pub clock: ClockReading,
}

/// A file's bytes, and where it can be truncated.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub bytes: Vec<u8>,
    /// Position after the index data.
    pub meta_end: u64,
    /// Position after the head.
    pub head: u64,
}

/// A parsed file.
#[derive(Debug)]
pub(crate) struct SpoolFile {
    pub meta: Meta,
    head: Vec<u8>,
    /// The batch, JSON in gzip; empty if it was truncated.
    pub body: Vec<u8>,
}

/// The beginning of a file.
#[derive(Debug)]
pub(super) struct Beginning {
    pub meta: Meta,
    pub meta_end: u64,
    /// Absent if the file was truncated before it.
    pub head: Option<u64>,
}

impl Sealed {
    /// Encodes a batch; without its rows if they are dropped immediately.
    pub fn new(meta: &Meta, batch: &Batch, is_truncated: bool) -> Sealed {
        let body = if is_truncated { Vec::new() } else { compressed(batch) };
        let mut bytes = MAGIC.to_vec();
        push_part(&mut bytes, &postcard::to_stdvec(meta).expect("the index data serialises"));
        let meta_end = bytes.len() as u64;
        push_part(&mut bytes, &compressed(&without_rows(batch)));
        let head = bytes.len() as u64;
        bytes.extend_from_slice(&body);
        Sealed { bytes, meta_end, head }
    }
}

impl SpoolFile {
    /// `None` if another program changed the file, or truncated it before its head.
    pub fn read(bytes: Vec<u8>) -> Option<SpoolFile> {
        let (meta, rest) = read_part(bytes.strip_prefix(MAGIC)?)?;
        let (head, body) = read_part(rest)?;
        Some(SpoolFile { meta: postcard::from_bytes(meta).ok()?, head: head.to_vec(), body: body.to_vec() })
    }

    /// Decodes the batch; without rows if it was truncated.
    ///
    /// # Errors
    /// Another program changed the file.
    pub fn batch(&self) -> io::Result<Batch> {
        let compressed = if self.body.is_empty() { &self.head } else { &self.body };
        let mut json = Vec::new();
        GzDecoder::new(&**compressed).take(UNPACKED_MAX as u64).read_to_end(&mut json)?;
        Ok(serde_json::from_slice(&json)?)
    }
}

impl Beginning {
    /// Parses the first [`HEAD_MAX`] bytes of a file.
    pub fn read(bytes: &[u8]) -> Option<Beginning> {
        let (meta, rest) = read_part(bytes.strip_prefix(MAGIC)?)?;
        let meta_end = (bytes.len() - rest.len()) as u64;
        let head = if rest.is_empty() { None } else { Some((bytes.len() - read_part(rest)?.1.len()) as u64) };
        Some(Beginning { meta: postcard::from_bytes(meta).ok()?, meta_end, head })
    }
}

/// JSON in gzip.
pub(crate) fn compressed(batch: &Batch) -> Vec<u8> {
    // Rows are similar: fast compression reduces them to a tenth.
    let mut compressed = GzEncoder::new(Vec::new(), Compression::fast());
    let json = serde_json::to_vec(batch).expect("a batch serialises to JSON");
    compressed.write_all(&json).and_then(|()| compressed.finish()).expect("writing to memory does not fail")
}

/// A batch without its rows.
pub(super) fn without_rows(batch: &Batch) -> Batch {
    Batch {
        stream: batch.stream.clone(),
        sequence: batch.sequence,
        boot: batch.boot.clone(),
        zero_own_unix_ns: batch.zero_own_unix_ns,
        sealed_at_ns: batch.sealed_at_ns,
        settings: batch.settings,
        share: batch.share,
        gauges: batch.gauges,
        losses: batch.losses,
        programs: batch.programs.clone(),
        rows: Vec::new(),
    }
}

/// Adds the counts of an older batch to those of `batch`.
pub(super) fn add_counts(batch: &mut Batch, older: &Batch) {
    let (sum, more) = (&mut batch.losses, &older.losses);
    sum.records = clamped(sum.records + more.records);
    sum.rows_dropped = clamped(sum.rows_dropped + more.rows_dropped);
    sum.connections_left_out = clamped(sum.connections_left_out + more.connections_left_out);
    sum.rows_filtered = clamped(sum.rows_filtered + more.rows_filtered);
    sum.rows_not_drawn = clamped(sum.rows_not_drawn + more.rows_not_drawn);
    for program in &older.programs {
        if let Some(known) = batch.programs.iter_mut().find(|known| known.name == program.name) {
            add_program(known, program);
        } else if batch.programs.len() < PROGRAMS_MAX {
            batch.programs.push(program.clone());
        }
    }
}

fn add_program(sum: &mut Program, more: &Program) {
    sum.seen = clamped(sum.seen + more.seen);
    sum.unseen = clamped(sum.unseen + more.unseen);
    sum.connections = clamped(sum.connections + more.connections);
    sum.unseen_bytes = clamped(sum.unseen_bytes + more.unseen_bytes);
    if sum.why.is_empty() {
        sum.why.clone_from(&more.why);
    }
}

/// A batch's file.
pub(super) fn name(number: u64) -> String {
    format!("{number:020}{SUFFIX}")
}

/// The number of a batch's file.
pub(super) fn number(name: &str) -> Option<u64> {
    name.strip_suffix(SUFFIX)?.parse().ok()
}

fn push_part(bytes: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).expect("a head is some kilobytes");
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&crc32fast::hash(part).to_le_bytes());
    bytes.extend_from_slice(part);
}

/// A part that [`push_part`] wrote, and what follows.
fn read_part(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (sum, rest) = rest.split_first_chunk::<4>()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    (crc32fast::hash(part) == u32::from_le_bytes(*sum)).then_some((part, rest))
}

pub(super) const SUFFIX: &str = ".batch";
const MAGIC: &[u8] = b"ybkbatc1";
/// Maximum bytes of meta and head: 500 programs with their reasons.
pub(super) const HEAD_MAX: u64 = 1 << 20;
