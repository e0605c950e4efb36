//! Checks of a body: decompressed size, structure and values.

use std::collections::BTreeSet;
use std::io::Read as _;

use axum::body::Bytes;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::read::GzEncoder;
use schema::{TapOutcome, TapSide};

use crate::day_files::day_of;
use crate::refused::Refused;
use crate::settings::SHARE_MIN;
use schema::TapRow;
use tap_protocol::{BODY_MAX, Batch, Hello, PROGRAMS_MAX, Program, ROWS_MAX, RefusalReason, UNPACKED_MAX};

/// A valid batch.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(crate) batch: Batch,
    /// The manager's clock at the zero of the batch's times, ns since 1970.
    pub(crate) zero_ns: u64,
    /// Maximum error of that time; `None`: it was taken from the agent's clock.
    pub(crate) zero_error_ns: Option<u64>,
    /// The agent's own clock less the manager's; `None`: not measured.
    pub(crate) clock_offset_ns: Option<i64>,
    /// End times of the first and last row on the manager's clock; without rows, when it was sealed.
    pub(crate) ends_ns: (u64, u64),
    /// JSON in gzip.
    pub(crate) packed: Vec<u8>,
    /// SHA-256 of the JSON.
    pub(crate) digest: [u8; 32],
}

impl Checked {
    /// When it was sealed, on the manager's clock.
    pub(crate) fn sealed_ns(&self) -> u64 {
        self.zero_ns + self.batch.sealed_at_ns
    }
}

/// Checks a [`Hello`].
pub(super) fn hello(body: &Bytes, is_gzip: bool) -> Result<Hello, Refused> {
    let text = plain(body, is_gzip)?;
    let hello: Hello = parse(&text)?;
    stream(&hello.stream)?;
    for (name, text, bytes_max) in [
        ("boot", &hello.boot, BOOT_MAX),
        ("host", &hello.host, 255),
        ("version", &hello.version, 64),
        ("kernel", &hello.kernel, 128),
    ] {
        printable(name, text, bytes_max)?;
    }
    let spool = hello.spool;
    let numbers = [spool.batches, spool.rows, spool.bytes, spool.bytes_max, spool.oldest, hello.settings, hello.now_ns];
    if numbers.iter().any(|number| *number > TIME_MAX_NS) || hello.zero_own_unix_ns > ZERO_MAX_NS {
        return Err(invalid_batch("a number is too large"));
    }
    Ok(hello)
}

/// Checks a [`Batch`]. `zero`: the manager's clock at the batch's zero from the headers, and its maximum error.
/// `now_ns`: the manager's clock.
pub(super) fn batch(body: &Bytes, is_gzip: bool, zero: Option<(u64, u64)>, now_ns: u64) -> Result<Checked, Refused> {
    let text = plain(body, is_gzip)?;
    let batch: Batch = parse(&text)?;
    if batch.rows.len() > ROWS_MAX || batch.programs.len() > PROGRAMS_MAX {
        let why =
            format!("Too many rows or programs: a batch has at most {ROWS_MAX} rows and {PROGRAMS_MAX} programs.");
        return Err(Refused::new(RefusalReason::TooLarge, why));
    }
    stream(&batch.stream)?;
    printable("boot", &batch.boot, BOOT_MAX)?;
    if batch.sequence == 0 || batch.sequence > COUNT_MAX {
        return Err(invalid_batch("batch numbers start at 1"));
    }
    if !(SHARE_MIN..=1.0).contains(&batch.share) {
        return Err(invalid_batch("a share must be from 0.000001 to 1"));
    }
    let (gauges, losses) = (batch.gauges, batch.losses);
    let counts = [
        gauges.processes,
        gauges.open,
        gauges.in_flight,
        losses.records,
        losses.rows_dropped,
        losses.connections_left_out,
        losses.rows_filtered,
        losses.rows_not_drawn,
        batch.settings,
    ];
    if counts.iter().any(|count| *count > COUNT_MAX) {
        return Err(invalid_batch("a count is too large"));
    }
    if batch.zero_own_unix_ns > ZERO_MAX_NS || batch.sealed_at_ns > TIME_MAX_NS {
        return Err(invalid_batch("a time is out of range"));
    }
    batch.programs.iter().try_for_each(program)?;
    let zero_ns = zero_of(&batch, zero, now_ns)?;
    let latest_ns = batch.sealed_at_ns + AFTER_SEALING_NS;
    let mut ends: Option<(u64, u64)> = None;
    let mut days = BTreeSet::new();
    for row in &batch.rows {
        check_row(row, latest_ns)?;
        let at = zero_ns + row.ended_at_ns();
        if at.saturating_add(OLDEST_NS) < now_ns {
            return Err(invalid_batch("a row ended more than ten years ago"));
        }
        ends = Some(ends.map_or((at, at), |(first, last)| (first.min(at), last.max(at))));
        days.insert(day_of(at));
    }
    if days.len() > DAYS_MAX {
        return Err(invalid_batch("its rows are of too many days"));
    }
    let clock_offset_ns = zero.map(|_| batch.zero_own_unix_ns.cast_signed() - zero_ns.cast_signed());
    let digest = ring::digest::digest(&ring::digest::SHA256, &text);
    let packed = if is_gzip { body.to_vec() } else { pack(&text)? };
    let sealed = zero_ns + batch.sealed_at_ns;
    Ok(Checked {
        zero_ns,
        zero_error_ns: zero.map(|(_, error)| error.min(COUNT_MAX)),
        clock_offset_ns,
        ends_ns: ends.unwrap_or((sealed, sealed)),
        packed,
        digest: digest.as_ref().try_into().expect("SHA-256 has 32 bytes"),
        batch,
    })
}

/// The manager's clock at the batch's zero.
///
/// A batch cannot be sealed after it arrives. A measured zero may be some minutes ahead, in case the manager's own
/// clock was set meanwhile. The agent's clock may be wrong by any amount: if it puts the batch in the future, or
/// years into the past as the clock of a machine without a battery does, the batch counts as sealed now, the latest
/// possible time.
fn zero_of(batch: &Batch, zero: Option<(u64, u64)>, now_ns: u64) -> Result<u64, Refused> {
    match zero {
        Some((zero_ns, _)) => {
            if zero_ns > ZERO_MAX_NS || zero_ns + batch.sealed_at_ns > now_ns.saturating_add(AHEAD_NS) {
                return Err(invalid_batch("it was sealed in the future: the clock zero in the header is not valid"));
            }
            if (zero_ns + batch.sealed_at_ns).saturating_add(OLDEST_NS) < now_ns {
                return Err(invalid_batch(
                    "it was sealed more than ten years ago: the clock zero in the header is not valid",
                ));
            }
            Ok(zero_ns)
        }
        None => {
            let sealed_now = now_ns.saturating_sub(batch.sealed_at_ns);
            let sealed_ns = batch.zero_own_unix_ns + batch.sealed_at_ns;
            let can_be = sealed_ns <= now_ns && sealed_ns.saturating_add(OLDEST_NS) >= now_ns;
            Ok(if can_be { batch.zero_own_unix_ns } else { sealed_now })
        }
    }
}

fn check_row(row: &TapRow, latest_ns: u64) -> Result<(), Refused> {
    if !TapSide::ALL.iter().any(|side| side.as_str() == row.side) {
        return Err(invalid_batch("a side must be `client` or `server`"));
    }
    if !TapOutcome::ALL.iter().any(|outcome| outcome.as_str() == row.outcome) {
        return Err(invalid_batch(
            "an outcome must be `succeeded`, `failed`, `cut`, `greeting`, `farewell` or `unused`",
        ));
    }
    if row.error.is_some() && row.outcome != TapOutcome::Failed.as_str() {
        return Err(invalid_batch("a row has an error and did not fail"));
    }
    if let Some(error) = &row.error {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if error.is_empty() || error.len() > ERROR_MAX || !error.bytes().all(plain) {
            return Err(invalid_batch("an error name may have letters, digits and `_` only"));
        }
    }
    if let Some(program) = &row.program {
        printable("program", program, PROGRAM_MAX)?;
    }
    let times = [
        Some(row.opened_at_ns),
        row.sent_first_at_ns,
        row.sent_last_at_ns,
        row.received_first_at_ns,
        row.received_last_at_ns,
        row.closed_at_ns,
        Some(row.ended_at_ns()),
    ];
    if times.iter().flatten().any(|time| *time > latest_ns) {
        return Err(invalid_batch("a time of a row is later than the batch was sealed"));
    }
    let in_order = |first: Option<u64>, last: Option<u64>| match (first, last) {
        (Some(first), Some(last)) => first <= last,
        (None, None) => true,
        _ => false,
    };
    if !in_order(row.sent_first_at_ns, row.sent_last_at_ns)
        || !in_order(row.received_first_at_ns, row.received_last_at_ns)
        || row.ended_at_ns().saturating_add(CALLS_APART_NS) < row.opened_at_ns
        || row.closed_at_ns.is_some_and(|closed| closed.saturating_add(CALLS_APART_NS) < row.opened_at_ns)
    {
        return Err(invalid_batch("a row ends before it begins"));
    }
    let durations = [row.lookup_ns, row.setup_ns, Some(row.blocked_ns)];
    let counts = [
        Some(row.sent_bytes),
        Some(row.received_bytes),
        Some(row.calls),
        row.connection_bytes,
        row.retransmits,
        row.unseen_bytes,
    ];
    let is_great = |number: &u64| *number > AMOUNT_MAX;
    if durations.iter().flatten().any(|ns| *ns > BLOCKED_MAX_NS)
        || counts.iter().flatten().any(is_great)
        || row.connection.is_some_and(|number| number > TIME_MAX_NS)
    {
        return Err(invalid_batch("a number of a row is too large"));
    }
    Ok(())
}

fn program(program: &Program) -> Result<(), Refused> {
    printable("program", &program.name, PROGRAM_MAX)?;
    printable("why", &program.why, WHY_MAX)?;
    if program.name.is_empty() {
        return Err(invalid_batch("a program without a name"));
    }
    let counts = [program.seen, program.unseen, program.connections, program.unseen_bytes];
    if counts.iter().any(|count| *count > COUNT_MAX) {
        return Err(invalid_batch("a count is too large"));
    }
    Ok(())
}

fn stream(text: &str) -> Result<(), Refused> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() == 32 && text.bytes().all(is_hex) {
        Ok(())
    } else {
        Err(invalid_batch("a stream name must be 32 hexadecimal digits"))
    }
}

fn printable(name: &str, text: &str, bytes_max: usize) -> Result<(), Refused> {
    if text.len() <= bytes_max && !text.contains(char::is_control) {
        return Ok(());
    }
    Err(invalid_batch(&format!("`{name}` must be at most {bytes_max} bytes of text without control characters")))
}

fn invalid_batch(why: &str) -> Refused {
    Refused::new(RefusalReason::InvalidValue, format!("Nothing was stored: {why}."))
}

fn parse<'a, T: serde::Deserialize<'a>>(text: &'a [u8]) -> Result<T, Refused> {
    // The message has the position of the error, not the contents.
    serde_json::from_slice(text).map_err(|error| {
        let kind = if error.is_data() { "JSON of another structure than expected" } else { "not JSON" };
        let (line, column) = (error.line(), error.column());
        Refused::new(
            RefusalReason::Malformed,
            format!("The body is {kind} (line {line}, column {column}). See the description of the API."),
        )
    })
}

fn plain(body: &Bytes, is_gzip: bool) -> Result<Bytes, Refused> {
    if !is_gzip {
        // The size was limited while reading.
        debug_assert!(body.len() <= BODY_MAX);
        return Ok(body.clone());
    }
    match unpacked(body) {
        Ok(Some(text)) => Ok(text.into()),
        Ok(None) => Err(Refused::new(
            RefusalReason::TooLarge,
            format!(
                "The body is too large: at most {UNPACKED_MAX} bytes after \
             decompression."
            ),
        )),
        Err(_) => Err(Refused::new(RefusalReason::Malformed, "The body is not valid gzip, or ended early.")),
    }
}

/// Decompresses a gzip body; `None` if it has more than [`UNPACKED_MAX`] bytes. One member, and nothing after it.
pub(crate) fn unpacked(packed: &[u8]) -> std::io::Result<Option<Vec<u8>>> {
    let mut text = Vec::new();
    let mut decoder = GzDecoder::new(packed);
    let read = decoder.by_ref().take(UNPACKED_MAX as u64 + 1).read_to_end(&mut text)?;
    if read > UNPACKED_MAX {
        return Ok(None);
    }
    if !decoder.get_ref().is_empty() {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "data after the end"));
    }
    Ok(Some(text))
}

pub(super) fn pack(text: &[u8]) -> Result<Vec<u8>, Refused> {
    let mut packed = Vec::new();
    let read = GzEncoder::new(text, Compression::fast()).read_to_end(&mut packed);
    read.map_err(|_| Refused::new(RefusalReason::Unavailable, "The body cannot be compressed."))?;
    Ok(packed)
}

/// Maximum time of a row: 36 years after the zero, since no machine runs longer. With [`ZERO_MAX_NS`] the sum stays
/// below 2^63.
const TIME_MAX_NS: u64 = 1 << 60;
/// Maximum clock zero: the year 2116.
const ZERO_MAX_NS: u64 = 1 << 62;
/// Maximum of counts that are summed per agent.
const COUNT_MAX: u64 = 1 << 48;
/// 17 TB in one exchange, or this many calls: half a million such rows can be summed.
const AMOUNT_MAX: u64 = 1 << 44;
/// 36 years, as for a time; sums of these saturate.
const BLOCKED_MAX_NS: u64 = 1 << 60;
/// How far the manager's clock may have been set back since the agent measured it.
const AHEAD_NS: u64 = 600_000_000_000;
/// No agent has rows older than ten years; this limits the days in file names.
const OLDEST_NS: u64 = 3653 * 86_400_000_000_000;
/// How long after the sealing of its batch a row may end: it was read from the rings meanwhile.
const AFTER_SEALING_NS: u64 = 60_000_000_000;
/// Calls of one connection in several threads may be reported slightly out of order.
const CALLS_APART_NS: u64 = 1_000_000_000;
/// Maximum number of days in one batch, each of which is a file: few connections rest for long.
const DAYS_MAX: usize = 100;
/// Maximum bytes of texts: boot identifier, error, program name, reason.
const BOOT_MAX: usize = 64;
const ERROR_MAX: usize = 40;
const PROGRAM_MAX: usize = 64;
const WHY_MAX: usize = 255;

#[cfg(test)]
mod tests;
