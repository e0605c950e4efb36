//! The state of a part of a load (`--shard`), from which `yamabiko merge` makes the figures of the whole: every count
//! as it was, so that merging loses nothing.
//!
//! ```text
//!   "yamabiko shard 1\n" | length (8 bytes) | Facts, JSON | counts, postcard | SHA-256 of all before
//! ```

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;
use std::time::Duration;

use load::{DelayBounds, SampleLog};
use path::TimingErrors;
use plan::LoadPlan;
use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use schema::document;
use serde::{Deserialize, Serialize};
use stats::Histogram;
use store::RunFolder;
use units::Timestamp;
use validity::evidence::{StoredRows, UnintendedDrops};

pub use crate::recorder::Counting;
pub use crate::shards::ShardEnd;

/// Name of the file in the run's folder.
pub const FILE: &str = "shard.state";
/// First bytes of the file, with the version of its form.
const MAGIC: &[u8] = b"yamabiko shard 1\n";
/// Largest file that is read: a day of gauges and seconds takes about 600 MB.
const BYTES_MAX: u64 = 2 << 30;

/// Facts of a part that its document does not have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Facts {
    /// All loops of the machine as one.
    pub end: ShardEnd,
    /// Start of the load, on the run's clock.
    pub start: Timestamp,
    /// The measured phase, on the run's clock.
    pub measured: (Timestamp, Timestamp),
    /// The destination as text.
    pub target: String,
    /// Whether any link has a rate or jitter.
    pub rtt_varies: bool,
    /// Whether the server is on another host.
    pub beyond: bool,
    /// Whether links have delay only.
    pub only_delays: bool,
    /// Packets that the testbed lost; absent if unknown or without a path.
    pub unintended_drops: Option<UnintendedDrops>,
    /// Rows of the table of requests.
    pub table: Option<StoredRows>,
    /// First error of writing the run.
    pub store_error: Option<String>,
    /// Whether the run ended early because too many arrivals were waiting.
    pub gave_up: bool,
    /// Number of refused connections, if all were refused and the run ended early.
    pub all_refused: Option<u64>,
    /// Whether the run was interrupted.
    pub interrupted: bool,
}

/// Timing errors of a path's packets: the fields of [`document::Path`](schema::document::Path) of the same names.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PathHistograms {
    /// All packets.
    pub all: Histogram,
    /// Packets outside of bursts.
    pub isolated: Histogram,
    /// Packets in a burst.
    pub bursts: Histogram,
    /// Packets outside of bursts, less the machine's part.
    pub own: Histogram,
}

/// The state of a part.
#[derive(Debug)]
pub struct ShardState {
    /// Facts that the document does not have.
    pub facts: Facts,
    /// The counts.
    pub counting: Counting,
    /// Samples of the gauges.
    pub samples: SampleLog,
    /// Timing errors of the path; absent without one.
    pub path: Option<PathHistograms>,
}

impl PathHistograms {
    pub(crate) fn of(errors: &TimingErrors) -> Self {
        let TimingErrors { all, isolated, bursts, own, .. } = errors;
        PathHistograms { all: all.clone(), isolated: isolated.clone(), bursts: bursts.clone(), own: own.clone() }
    }

    /// Adds the timing errors of another machine's path.
    pub fn merge(&mut self, other: &PathHistograms) {
        self.all.merge(&other.all);
        self.isolated.merge(&other.isolated);
        self.bursts.merge(&other.bursts);
        self.own.merge(&other.own);
    }
}

/// Adds what the records do not have to the load's part of a document: the loops' counters and connections. `phase`:
/// length of the measured phase.
pub fn complete_load(
    load: &mut document::Load,
    end: &ShardEnd,
    plan: &LoadPlan,
    phase: Duration,
    delays: &DelayBounds,
) {
    let live = end.live;
    load.statuses_expected = plan.expects_statuses();
    let run_queue_wait_ns = end.health.run_queue_wait.map(units::time::saturating_nanos);
    load.generator_delay = Some(document::GeneratorDelay { run_queue_wait_ns, ..validity::generator_delay(delays) });
    load.tls.clone_from(&end.tls);
    load.quic.clone_from(&end.quic);
    load.malformed_responses.clone_from(&end.malformed_responses);
    load.unsolicited = live.unsolicited();
    load.stray_lines = live.stray_lines;
    let seconds = phase.as_secs_f64();
    load.sessions = (live.sessions_begun > 0).then(|| document::Sessions {
        begun: live.sessions_begun,
        begun_measured: live.sessions_begun_measured,
        rate_per_s: if seconds > 0.0 { live.sessions_begun_measured as f64 / seconds } else { 0.0 },
        ended: live.sessions_ended,
        failed: live.sessions_failed,
        cut: live.sessions_cut,
    });
}

/// The counts as stored.
///
/// # Errors
/// They cannot be encoded.
pub(crate) fn encode_counts(
    counting: &Counting,
    samples: &SampleLog,
    path: Option<&PathHistograms>,
) -> io::Result<Vec<u8>> {
    postcard::to_stdvec(&(counting, samples, path)).map_err(io::Error::other)
}

/// Writes the state atomically.
///
/// # Errors
/// A full disk or another failure of the file system.
pub(crate) fn write(folder: &RunFolder, facts: &Facts, counts: &[u8]) -> store::Result<()> {
    folder.write_file(FILE, |file| {
        let facts = serde_json::to_vec(facts)?;
        let mut bytes = [MAGIC, &(facts.len() as u64).to_le_bytes()[..], &facts, counts].concat();
        let sum = digest(&SHA256, &bytes);
        bytes.extend_from_slice(sum.as_ref());
        file.write_all(&bytes)
    })
}

/// Reads the state of the run in `dir`.
///
/// # Errors
/// There is none, or the file is damaged or of another version.
pub fn read(dir: &Path) -> io::Result<ShardState> {
    let mut bytes = Vec::new();
    File::open(dir.join(FILE))?.take(BYTES_MAX).read_to_end(&mut bytes)?;
    decode(&bytes)
}

fn decode(bytes: &[u8]) -> io::Result<ShardState> {
    let damaged = |what: &str| io::Error::new(ErrorKind::InvalidData, format!("{FILE}: {what}"));
    if !bytes.starts_with(MAGIC) {
        return Err(damaged("not the state of a shard, or of another version of yamabiko"));
    }
    let split = bytes.len().checked_sub(SHA256_OUTPUT_LEN).filter(|&at| at >= MAGIC.len() + 8);
    let (body, sum) = bytes.split_at(split.ok_or_else(|| damaged("it is truncated"))?);
    if digest(&SHA256, body).as_ref() != sum {
        return Err(damaged("its checksum is wrong: it is truncated or was changed"));
    }
    let (length, rest) = body[MAGIC.len()..].split_at(8);
    let length = u64::from_le_bytes(length.try_into().expect("eight bytes"));
    let length = usize::try_from(length).ok().filter(|&length| length <= rest.len());
    let (facts, counts) = rest.split_at(length.ok_or_else(|| damaged("a length is wrong"))?);
    let facts = serde_json::from_slice(facts)?;
    let (counting, samples, path) =
        postcard::from_bytes(counts).map_err(|error| damaged(&format!("its counts cannot be read: {error}")))?;
    Ok(ShardState { facts, counting, samples, path })
}

#[cfg(test)]
mod tests {
    use load::{GaugeSample, Tally, TallySpec, Urls};

    use super::*;

    fn stored() -> Vec<u8> {
        let spec = TallySpec {
            open_loop: true,
            measured: (Timestamp::ZERO, None),
            clients_rtt_ns: Some(vec![1_000_000, 50_000_000]),
            urls: Urls::named(["/a", "/b"]),
            phases: Vec::new(),
        };
        let mut samples = SampleLog::default();
        samples.push(GaugeSample { in_flight: 3, connections: 2, backlog: 1 });
        let counting = Counting::new(Tally::new(spec), None);
        let counts = encode_counts(&counting, &samples, Some(&PathHistograms::default())).unwrap();
        let facts = serde_json::json!({"not": "facts"}).to_string().into_bytes();
        let mut bytes = [MAGIC, &(facts.len() as u64).to_le_bytes()[..], &facts, &counts].concat();
        let sum = digest(&SHA256, &bytes);
        bytes.extend_from_slice(sum.as_ref());
        bytes
    }

    /// Every truncation and every changed byte is noticed; nothing panics.
    #[test]
    fn damaged_states_are_refused() {
        let whole = stored();
        for length in 0..whole.len() {
            let error = decode(&whole[..length]).expect_err("truncated");
            assert!(error.to_string().starts_with("shard.state: "), "{error}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] ^= 0x10;
            assert!(decode(&changed).is_err(), "byte {at}");
        }
        // The checksum is right, the facts are not.
        assert!(decode(&whole).unwrap_err().to_string().contains("missing field"));
    }

    #[test]
    fn counts_are_read_back_and_merge_with_counts_of_the_same_load_only() {
        let tally = |rtt_ns: u64, urls: Urls| {
            Counting::new(
                Tally::new(TallySpec {
                    open_loop: true,
                    measured: (Timestamp::ZERO, None),
                    clients_rtt_ns: Some(vec![rtt_ns]),
                    urls,
                    phases: Vec::new(),
                }),
                None,
            )
        };
        let one = tally(7, Urls::named(["/a", "/b"]));
        let bytes = encode_counts(&one, &SampleLog::default(), None).unwrap();
        let (read, _, _): (Counting, SampleLog, Option<PathHistograms>) = postcard::from_bytes(&bytes).unwrap();
        assert!(one.is_of_same_load(&read));
        assert!(!one.is_of_same_load(&tally(5_000_000, Urls::named(["/a", "/b"]))));
        assert!(!one.is_of_same_load(&tally(7, Urls::named(["/a", "/c"]))));
    }
}
