//! A stream of NATS as a model: it stores a message only after the one that the sender knows, forgets repeated ones
//! after a while, discards old ones, and loses answers. And the managers that read it.

use std::collections::HashMap;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

use broker::{Failure, Header, Last, Subject};
use flate2::read::GzDecoder;
use stats::Rng;

use super::script::{Manager, World, entries};
use super::{run_agents, run_without_kills};
use crate::disk::crash_point::CrashPoint;
use crate::log_link::Log;
use tap_protocol::{Batch, log};

/// The messages of the model.
#[derive(Default)]
pub struct LogState {
    messages: Vec<Stored>,
    sequence: u64,
    /// Identifiers of recent messages.
    ids: Vec<(String, u64)>,
    late: Vec<Publishing>,
    failing: Option<Rng>,
    pub is_away: bool,
    lost_answers: u64,
    repeated: u64,
    overtaken: u64,
}

struct Stored {
    sequence: u64,
    subject: String,
    headers: Vec<(String, String)>,
    payload: Vec<u8>,
}

/// An agent's connection to the model.
pub struct ScriptLog {
    pub log: Arc<Mutex<LogState>>,
    pub crash_point: CrashPoint,
}

impl ScriptLog {
    fn request<T>(&self, answer: impl FnOnce(&mut LogState) -> Result<T, Failure>) -> Result<T, Failure> {
        let away = || Err(Failure::Away("gone".into()));
        let mut log = self.log.lock().unwrap();
        if self.crash_point.step().is_err() || log.is_away || log.fails() {
            return away();
        }
        let answer = answer(&mut log);
        if self.crash_point.step().is_err() || log.fails() {
            log.lost_answers += 1;
            return away();
        }
        answer
    }
}

impl LogState {
    fn fails(&mut self) -> bool {
        self.failing.as_mut().is_some_and(|random| random.below(8) == 0)
    }

    fn last(&self, subject: &str) -> Option<&Stored> {
        self.messages.iter().rfind(|message| message.subject == subject)
    }
}

/// A message on its way.
struct Publishing {
    after: Option<u64>,
    id: String,
    message: Stored,
}

impl LogState {
    fn store(&mut self, publishing: Publishing) -> Result<u64, Failure> {
        let Publishing { after, id, message } = publishing;
        if let Some((_, sequence)) = self.ids.iter().find(|(known, _)| *known == id) {
            self.repeated += 1;
            return Ok(*sequence);
        }
        if after.is_some_and(|after| after != self.last(&message.subject).map_or(0, |last| last.sequence)) {
            self.overtaken += 1;
            return Err(Failure::Overtaken);
        }
        self.sequence += 1;
        self.messages.push(Stored { sequence: self.sequence, ..message });
        self.ids.push((id, self.sequence));
        // A short window: many repeated batches come after it.
        while self.ids.len() as u64 > 1 + self.sequence % 2 {
            self.ids.remove(0);
        }
        Ok(self.sequence)
    }
}

impl Log for ScriptLog {
    fn open(&mut self, _: &str) -> Result<(), Failure> {
        self.request(|_| Ok(()))
    }

    fn last(&self, subject: &str) -> Result<Option<Last>, Failure> {
        self.request(|log| Ok(log.last(subject).map(|last| Last::new(last.sequence, last.headers.clone()))))
    }

    fn publish(
        &self,
        subject: &str,
        after: Option<u64>,
        id: &str,
        headers: &[Header<'_>],
        payload: &[u8],
    ) -> Result<u64, Failure> {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let message = Stored { sequence: 0, subject: subject.to_owned(), headers, payload: payload.to_vec() };
        let publishing = Publishing { after, id: id.to_owned(), message };
        self.request(|log| {
            // What was on the way while the sender looked at its position arrives now.
            for late in std::mem::take(&mut log.late) {
                let _ = log.store(late);
            }
            if log.fails() {
                log.late.push(publishing);
                return Err(Failure::Away("no answer".into()));
            }
            log.store(publishing)
        })
    }
}

/// What a manager has that reads the log, and the rows that its headers say are missing.
fn read(log: &LogState) -> (Manager, u64) {
    let mut manager = Manager::default();
    let mut known: HashMap<String, (u64, u64)> = HashMap::new();
    let mut missing = 0;
    for message in &log.messages {
        let subject = Subject::parse("T", &message.subject).unwrap();
        assert_eq!(subject.name, "web-1");
        let header = |name: &str| {
            let found = message.headers.iter().find(|(known, _)| known == name).unwrap();
            found.1.parse::<u64>().unwrap()
        };
        if !message.subject.contains(".tap.") {
            continue;
        }
        let mut json = Vec::new();
        GzDecoder::new(&*message.payload).read_to_end(&mut json).unwrap();
        let batch: Batch = serde_json::from_slice(&json).unwrap();
        assert_eq!((header(log::SEQUENCE), &batch.stream), (batch.sequence, &subject.id));
        let (through, rows) = known.get(&subject.id).copied().unwrap_or_default();
        if batch.sequence <= through {
            continue;
        }
        let (before, after) = (header(log::ROWS_BEFORE), header(log::ROWS_AFTER));
        assert!(before >= rows && (batch.sequence > through + 1 || before == rows), "{before} {rows}");
        assert_eq!(
            after - before,
            batch.rows.len() as u64 + batch.losses.rows_dropped,
            "of each batch, in these tests"
        );
        missing += before - rows;
        known.insert(subject.id.clone(), (batch.sequence, after));
        manager.streams.insert(batch.stream.clone(), batch.sequence - 1);
        manager.accept(batch).unwrap();
    }
    (manager, missing)
}

fn world(seed: u64) -> (World, Manager, Arc<Mutex<LogState>>) {
    let mut world = World::new(entries(seed, 300));
    let expected = run_without_kills(&world);
    let log = Arc::new(Mutex::new(LogState { failing: Some(Rng::new(seed, 7)), ..LogState::default() }));
    world.log = Some(log.clone());
    (world, expected, log)
}

#[test]
fn agents_killed_at_random_steps_publish_each_row_once() {
    let (mut lost, mut repeated, mut overtaken) = (0, 0, 0);
    for seed in 0..4 {
        let (world, expected, log) = world(seed);
        assert!(run_agents(&world, seed, 25) > 5);
        let log = log.lock().unwrap();
        let (manager, missing) = read(&log);
        assert_eq!(manager.sorted(), expected.sorted(), "seed {seed}");
        assert_eq!((manager.programs, manager.losses), (expected.programs, expected.losses), "seed {seed}");
        assert_eq!((manager.streams.len(), missing), (1, 0), "seed {seed}");
        // Nothing twice in the stream itself, although its window for repeated messages is short.
        let batches = log.messages.iter().filter(|message| message.subject.contains(".tap.")).count() as u64;
        assert_eq!(batches, *manager.streams.values().next().unwrap());
        (lost, repeated, overtaken) = (lost + log.lost_answers, repeated + log.repeated, overtaken + log.overtaken);
    }
    assert!(lost > 20 && repeated > 0 && overtaken > 0, "{lost} {repeated} {overtaken}");
}

#[test]
fn rows_discarded_by_the_streams_limits_are_counted_exactly() {
    for seed in 0..4 {
        let (world, expected, log) = world(seed);
        world.limit.store(150, std::sync::atomic::Ordering::SeqCst);
        run_agents(&world, seed, 8);
        {
            // All of a sender's messages may be gone, so that its position is unknown.
            let mut log = log.lock().unwrap();
            let keeps = if seed % 2 == 0 { 0 } else { log.messages.len() / 3 };
            let discarded = log.messages.len() - keeps;
            log.messages.drain(..discarded);
        }
        world.limit.store(300, std::sync::atomic::Ordering::SeqCst);
        run_agents(&world, seed + 9, 8);
        let (manager, missing) = read(&log.lock().unwrap());
        assert!(missing > 0);
        assert_eq!(manager.rows.len() as u64 + missing, expected.rows.len() as u64, "seed {seed}");
        assert!(manager.has_no_duplicates() && manager.streams.len() == 1, "the stream continues: seed {seed}");
    }
}

#[test]
fn while_the_stream_is_away_the_spool_drops_and_counts_as_with_a_manager() {
    for seed in 0..3 {
        let (mut world, expected, log) = world(seed);
        world.spool_bytes = 128 << 10;
        log.lock().unwrap().is_away = true;
        run_agents(&world, seed, 20);
        let (manager, missing) = read(&log.lock().unwrap());
        assert_eq!(manager.rows.len() as u64 + manager.losses.rows_dropped, expected.rows.len() as u64, "seed {seed}");
        assert!(manager.losses.rows_dropped > 0 && missing == 0 && manager.has_no_duplicates());
        assert_eq!(manager.programs, expected.programs, "seed {seed}");
    }
}

#[test]
fn copies_of_a_data_folder_publish_under_separate_numbers() {
    let (world, _, log) = world(1);
    world.limit.store(100, std::sync::atomic::Ordering::SeqCst);
    run_agents(&world, 1, 0);
    let mut copy = world.clone();
    copy.data = world.data.with_file_name("copy");
    let copied = std::process::Command::new("cp").arg("-r").args([&world.data, &copy.data]).status().unwrap();
    assert!(copied.success());
    let before = read(&log.lock().unwrap()).0.rows.len();
    world.replace_rings(200);
    run_agents(&world, 2, 0);
    let between = read(&log.lock().unwrap()).0.rows.len();
    copy.set_tail(100);
    run_agents(&copy, 3, 0);
    let (manager, missing) = read(&log.lock().unwrap());
    // The copy sends the same events: under a second stream, and none under the first.
    assert_eq!((manager.streams.len(), missing), (2, 0));
    assert_eq!(manager.rows.len() - between, between - before);
}
