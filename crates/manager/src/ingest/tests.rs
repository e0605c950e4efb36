use std::sync::Arc;

use super::queue::{BodyKind, Ingest, IngestThread, Outcome};
use crate::data::{CrashPoint, Data};
use crate::notes::Notes;
use crate::refused::Refused;
use crate::testing::{NOW_NS, SECOND_NS, ZERO_NS, batch, data, found, number, stream};
use tap_protocol::{Batch, Hello, Program, RefusalReason, SpoolUsage};

const DAYS_NS: u64 = 2 * 86_400 * SECOND_NS;

/// The storing thread, and a way to send to it without a server.
struct Trial {
    ingest: Option<Ingest>,
    taking: IngestThread,
    runtime: tokio::runtime::Runtime,
    _writing: crate::notes::NotesWriter,
}

impl Trial {
    fn new(data: &Arc<Data>) -> Trial {
        let (notes, writing) = Notes::start(Arc::clone(data), Arc::new(|_| {})).unwrap();
        let (ingest, taking) = IngestThread::start(Arc::clone(data), notes, |_| {}).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        Trial { ingest: Some(ingest), taking, runtime, _writing: writing }
    }

    fn submit(&self, agent: &str, what: BodyKind, body: Vec<u8>) -> Result<Outcome, Refused> {
        let ingest = self.ingest.as_ref().unwrap();
        let reservation = ingest.reserve(agent, body.len())?;
        self.runtime.block_on(ingest.submit(agent.to_owned(), None, what, body.into(), false, NOW_NS, reservation))
    }

    fn send(&self, agent: &str, batch: &Batch) -> Result<u64, Refused> {
        let what = BodyKind::Batch { zero_ns: Some(ZERO_NS), zero_error_ns: 1 };
        match self.submit(agent, what, serde_json::to_vec(batch).unwrap())? {
            Outcome::Stored(stored) => Ok(stored.stored_through),
            Outcome::Welcome(_) => panic!("a batch was welcomed"),
        }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        self.ingest = None;
        self.taking.join();
    }
}

fn numbered(sequence: u64) -> Batch {
    batch(&stream('a'), sequence, &[DAYS_NS - 10 * SECOND_NS, DAYS_NS - 9 * SECOND_NS])
}

#[test]
fn batches_are_accepted_once_and_in_sequence() {
    let (_folder, data) = data();
    let trial = Trial::new(&data);
    assert_eq!(trial.send("a", &numbered(2)).unwrap_err().stored_through, Some(0));
    assert_eq!(trial.send("a", &numbered(1)), Ok(1));
    let again = trial.send("a", &numbered(1)).unwrap_err();
    assert_eq!((again.why, again.stored_through), (RefusalReason::AlreadyStored, Some(1)));
    let mut other = numbered(1);
    other.rows.pop();
    let other = trial.send("a", &other).unwrap_err();
    assert!(other.why == RefusalReason::Conflict && other.message.contains("other contents"), "{}", other.message);
    assert_eq!(other.stored_through, Some(1));
    assert_eq!(trial.send("a", &numbered(3)).unwrap_err().why, RefusalReason::SequenceGap);
    assert_eq!(
        trial.send("b", &numbered(2)).unwrap_err().why,
        RefusalReason::Forbidden,
        "the stream belongs to agent a"
    );
    // A batch without rows has a number as well.
    assert_eq!(trial.send("a", &batch(&stream('a'), 2, &[])), Ok(2));
    assert_eq!(trial.send("a", &numbered(3)), Ok(3));
    assert_eq!(trial.send("b", &batch(&stream('b'), 1, &[])), Ok(1));
    assert_eq!(number(&data, "SELECT count(*) FROM pending"), 2);
    assert_eq!(number(&data, "SELECT rows FROM agents WHERE name = 'a'"), 4);
    assert!(found(&data).len() == 4 && found(&data).values().all(|count| *count == 1));
}

#[test]
fn streams_are_limited_and_an_idle_one_is_replaced() {
    let (_folder, data) = data();
    let trial = Trial::new(&data);
    data.change(|index| {
        crate::settings::entered(index, "a", 1)?;
        let mut enter =
            index.prepare("INSERT INTO streams (stream, agent, through, touched_at) VALUES (?1, 'a', 1, ?2)")?;
        for at in 0..1000 {
            enter.execute(rusqlite::params![format!("{at:032x}"), (NOW_NS + at).cast_signed()])?;
        }
        Ok::<_, crate::error::Error>(())
    })
    .unwrap();
    assert_eq!(trial.send("a", &numbered(1)).unwrap_err().why, RefusalReason::TooManyRequests);
    data.change(|index| index.execute("UPDATE streams SET touched_at = 1 WHERE stream LIKE '%7'", [])).unwrap();
    assert_eq!(trial.send("a", &numbered(1)), Ok(1));
    assert_eq!(number(&data, "SELECT count(*) FROM streams"), 1000);
}

#[test]
fn a_kill_before_the_commit_stores_nothing_and_after_it_everything() {
    for (point, stored) in [(CrashPoint::BatchesWritten, 0), (CrashPoint::BatchesCommitted, 1)] {
        let (folder, data) = data();
        let trial = Trial::new(&data);
        data.crash_points.set(point);
        assert_eq!(trial.send("a", &numbered(1)).unwrap_err().why, RefusalReason::Unavailable);
        drop((trial, data));
        let data = Data::open(folder.path()).unwrap();
        assert_eq!(number(&data, "SELECT count(*) FROM streams"), stored);
        // The agent has no response and sends it again.
        let trial = Trial::new(&data);
        match trial.send("a", &numbered(1)) {
            Ok(through) => assert_eq!((stored, through), (0, 1)),
            Err(refused) => {
                assert_eq!((stored, refused.why, refused.stored_through), (1, RefusalReason::AlreadyStored, Some(1)))
            }
        }
        assert_eq!(number(&data, "SELECT rows FROM agents"), 2);
        assert!(found(&data).len() == 2 && found(&data).values().all(|count| *count == 1));
    }
}

#[test]
fn on_a_full_disk_nothing_is_stored_and_agents_retry() {
    let (_folder, data) = data();
    let trial = Trial::new(&data);
    assert_eq!(trial.send("a", &numbered(1)), Ok(1));
    let bound = |pages: &str| {
        data.change(|index| {
            index.query_row(&format!("PRAGMA max_page_count = {pages}"), [], |row| row.get::<_, i64>(0))
        })
    };
    // SQLite reports "disk full" beyond this size, as on a full disk.
    bound("1").unwrap();
    let mut sequence = 2;
    let refused = loop {
        match trial.send("a", &numbered(sequence)) {
            Ok(_) => sequence += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!((refused.why, refused.retry_after_s), (RefusalReason::Unavailable, Some(5)));
    assert!(refused.message.contains("No space"), "{}", refused.message);
    assert_eq!(number(&data, "SELECT through FROM streams") as u64, sequence - 1);
    bound("1000000").unwrap();
    assert_eq!(trial.send("a", &numbered(sequence)), Ok(sequence));
    assert!(found(&data).len() as u64 == 2 * sequence && found(&data).values().all(|count| *count == 1));
}

#[test]
fn too_many_concurrent_requests_of_an_agent_are_rejected() {
    let (_folder, data) = data();
    let trial = Trial::new(&data);
    let ingest = trial.ingest.as_ref().unwrap();
    let held: Vec<_> = (0..4).map(|_| ingest.reserve("a", 10).unwrap()).collect();
    assert_eq!(ingest.reserve("a", 10).err().unwrap().why, RefusalReason::TooManyRequests);
    assert!(ingest.reserve("b", 10).is_ok());
    drop(held);
    assert!(ingest.reserve("a", 10).is_ok());
    // 64 MB of all agents are read concurrently.
    let held: Vec<_> = (0..32).map(|at| ingest.reserve(&format!("c{at}"), 2 << 20).unwrap()).collect();
    assert_eq!(ingest.reserve("b", 10).err().unwrap().why, RefusalReason::TooManyRequests);
    drop(held);
    assert!(ingest.reserve("b", 10).is_ok());
}

#[test]
fn a_hello_response_has_the_stored_sequence_and_the_settings() {
    let (_folder, data) = data();
    let trial = Trial::new(&data);
    let hello = Hello {
        stream: stream('a'),
        boot: "b".into(),
        host: "shop".into(),
        version: "1".into(),
        kernel: "6".into(),
        spool: SpoolUsage { rows: 9, ..SpoolUsage::default() },
        now_ns: 1,
        zero_own_unix_ns: 1,
        settings: 0,
    };
    let send_hello = || match trial.submit("a", BodyKind::Hello, serde_json::to_vec(&hello).unwrap()) {
        Ok(Outcome::Welcome(welcome)) => (welcome.stored_through, welcome.settings.version),
        _ => panic!("it is not welcome"),
    };
    assert_eq!(send_hello(), (0, 1));
    trial.send("a", &numbered(1)).unwrap();
    assert_eq!(send_hello(), (1, 1));
    let settings = crate::settings::UnversionedSettings { only: vec!["443".into()], programs: vec![], share: 0.5 };
    data.change(|index| crate::settings::change(index, "a", &settings, 1)).unwrap();
    assert_eq!(send_hello(), (1, 2));
    let mut sum = numbered(2);
    sum.losses.records = 5;
    sum.programs = vec![Program { name: "go".into(), unseen: 2, why: "static".into(), ..Program::default() }; 2];
    trial.send("a", &sum).unwrap();
    assert_eq!(number(&data, "SELECT records_lost FROM agents"), 5);
    assert_eq!(number(&data, "SELECT unseen FROM programs WHERE name = 'go'"), 4);
    assert_eq!(number(&data, "SELECT told_at FROM agents") as u64, ZERO_NS + sum.sealed_at_ns);
}
