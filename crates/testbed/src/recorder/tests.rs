use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use load::{Ending, Live, ShardSampler, Tally, TallySpec};
use schema::{CacheExchange, DistributionRecord, RequestRecord, SecondRecord};

use super::batch::BatchSize;
use super::*;
use validity::evidence::StoredRows;

const END: Timestamp = Timestamp::from_nanos(10_000_000_000);

fn request(sequence: u64) -> RequestRecord {
    let at = |us: u64| Timestamp::from_nanos((sequence % 9_000_000 + us) * 1_000);
    RequestRecord {
        sequence,
        client: 0,
        connection: Some(sequence),
        session: None,
        url: 0,
        stream: None,
        scheduled_at: at(0),
        started_at: Some(at(10)),
        connected_at: None,
        secured_at: None,
        sent_at: Some(at(20)),
        first_byte_at: Some(at(400)),
        done_at: at(500 + sequence % 100),
        status: 200,
        bytes_received: 100,
        head_bytes: 50,
        keep_alive: true,
        bytes_sent: 30,
        attempts: 1,
        early_response: false,
        queued: false,
        failure: None,
    }
}

fn recording(shards: usize) -> Recording {
    let counting = || {
        Counting::new(
            Tally::new(TallySpec {
                open_loop: true,
                measured: (Timestamp::ZERO, Some(END)),
                clients_rtt_ns: None,
                urls: load::Urls::named(["http://server/"]),
                phases: Vec::new(),
            }),
            None,
        )
    };
    Recording {
        shards,
        counting: Arc::new(counting),
        levels: GaugeMerger::new(1, Timestamp::ZERO, Timestamp::ZERO, shards),
        measured_end: Some(END),
        judging: None,
        progress: Arc::default(),
        folder: None,
        wire: None,
        cores: None,
        snapshot: None,
    }
}

/// A disk that stores its first part, and then blocks until it is released.
struct SlowDisk {
    released: Mutex<Receiver<()>>,
    stored: Sequences,
}

/// A disk that stores exchanges.
#[derive(Default)]
struct Exchanges(Arc<Mutex<Vec<CacheExchange>>>);

impl Sink for Exchanges {
    fn write(&mut self, part: &Part) -> Result<(), String> {
        self.0.lock().unwrap().extend_from_slice(&part.exchanges);
        Ok(())
    }

    fn finish(self: Box<Self>, _: Option<&dyn Fn(&RequestRecord) -> bool>) -> Result<u64, String> {
        Ok(0)
    }
}

/// A plain GET of object `number` of kind 0, whose response was generated for request id `made_for`.
fn exchange(sequence: u64, number: u64, made_for: u64, done_us: u64) -> CacheExchange {
    let at = |us: u64| Timestamp::from_nanos(us * 1_000);
    CacheExchange {
        sequence,
        client: 0,
        run: 1,
        world: 1,
        kind: 0,
        object: number,
        object_bytes: 100,
        accepts_gzip: false,
        variant_gzip: false,
        form: schema::CacheForm::Basic,
        method: schema::Method::Get,
        repeat: made_for != sequence,
        offered: made_for != sequence,
        cacheable: true,
        renewable: true,
        secure: false,
        aborted: false,
        scheduled_at: at(done_us - 10),
        sent_at: Some(at(done_us - 5)),
        done_at: at(done_us),
        requested_unix_ms: 1_700_000_000_000,
        status: 200,
        failure: None,
        from_sequence: Some(made_for),
        from_run: Some(1),
        response_world: 1,
        response_object: Some(number),
        response_kind: 0,
        response_version: 0,
        generated_unix_ms: 1_700_000_000_000,
        renewed: false,
        age_s: None,
        expected_version: 0,
        expires_unix_s: i64::MAX,
        body_gzip: false,
        content: schema::CacheContent::Right,
        body_bytes: 100,
        hit: false,
        wrong: None,
    }
}

/// Numbers of the requests on a disk.
type Sequences = Arc<Mutex<Vec<u64>>>;

/// The disk, a guard that releases it when dropped, and its stored data.
fn slow_disk() -> (Box<dyn Sink>, Sender<()>, Sequences) {
    let (release, released) = channel();
    let disk = SlowDisk { released: Mutex::new(released), stored: Arc::default() };
    let stored = Arc::clone(&disk.stored);
    (Box::new(disk), release, stored)
}

impl Sink for SlowDisk {
    fn write(&mut self, part: &Part) -> Result<(), String> {
        let mut stored = self.stored.lock().unwrap_or_else(PoisonError::into_inner);
        stored.extend(part.requests.iter().map(|row| row.sequence));
        // Blocks until the sender is dropped.
        let _ = self.released.get_mut().unwrap().recv();
        Ok(())
    }

    fn finish(self: Box<Self>, keeps: Option<&dyn Fn(&RequestRecord) -> bool>) -> Result<u64, String> {
        let mut stored = self.stored.lock().unwrap();
        stored.retain(|&sequence| keeps.is_none_or(|keeps| keeps(&request(sequence))));
        Ok(stored.len() as u64)
    }
}

/// Sends requests of two shards, each in its own batches.
fn offer(outlets: &mut [Outlet], requests: std::ops::Range<u64>, batch_of: usize) {
    let all: Vec<u64> = requests.collect();
    for chunk in all.chunks(batch_of) {
        for (shard, outlet) in outlets.iter_mut().enumerate() {
            let own = chunk.iter().filter(|&&sequence| sequence % 2 == shard as u64);
            let requests = own.map(|&sequence| request(sequence)).collect();
            outlet.send_batch(&mut Batch { requests, measured_end: Some(END), ..Batch::default() });
        }
    }
}

fn figures(recorded: Recorded) -> (u64, u64, u64, schema::Quantiles) {
    let requests = recorded.counting.requests;
    let levels = recorded.levels.clone();
    let ending = Ending { measured_end: END, offered: requests, unfinished: 0, levels };
    let load = recorded.counting.tally.finish(ending).load;
    (requests, load.completed, load.bytes_received, load.response_time_ns)
}

#[test]
fn with_a_blocked_disk_every_request_is_counted_and_the_stored_share_reported() {
    const REQUESTS: u64 = 300_000;
    let (disk, release, stored) = slow_disk();
    let (mut outlets, recorder) = Recorder::start_with(recording(2), Some(disk), 2_000, 5_000).unwrap();
    offer(&mut outlets, 0..REQUESTS, 700);
    for outlet in &mut outlets {
        outlet.send_batch(&mut Batch { last: true, measured_end: Some(END), ..Batch::default() });
    }
    drop(outlets);
    // The queue was thinned while the disk was blocked, so its rows are still there.
    drop(release);
    let recorded = recorder.join();
    let table = recorded.table.unwrap();
    assert!(table.one_in >= REQUESTS.next_power_of_two() / 16_384, "5,000 rows at most waited: {table:?}");
    let stored = stored.lock().unwrap();
    assert_eq!(stored.len() as u64, table.rows);
    let expected = REQUESTS as f64 / table.one_in as f64;
    assert!((table.rows as f64 - expected).abs() < 6.0 * expected.sqrt(), "{table:?} of {REQUESTS}");
    let mut sorted = stored.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), stored.len(), "no request is stored twice");

    // The same records are processed by a recorder without tables and with unlimited space.
    let (mut outlets, recorder) = Recorder::start(recording(2)).unwrap();
    offer(&mut outlets, 0..REQUESTS, 700);
    drop(outlets);
    let whole = figures(recorder.join());
    assert_eq!(whole.0, REQUESTS);
    assert_eq!(figures(recorded), whole);
}

#[test]
fn a_fast_disk_stores_every_request() {
    let (disk, release, stored) = slow_disk();
    drop(release);
    let (mut outlets, recorder) = Recorder::start_with(recording(2), Some(disk), 100_000, 100_000).unwrap();
    offer(&mut outlets, 0..20_000, 1_000);
    drop(outlets);
    let recorded = recorder.join();
    assert_eq!(recorded.table, Some(StoredRows { rows: 20_000, one_in: 1 }));
    let mut stored = stored.lock().unwrap().clone();
    stored.sort_unstable();
    assert!(stored.into_iter().eq(0..20_000));
}

#[test]
fn shards_count_batches_that_do_not_fit_themselves() {
    let (space, (sender, receiver)) = (Arc::new(QueueSpace::new(100)), channel());
    let counting: Arc<dyn Fn() -> Counting + Send + Sync> = recording(1).counting;
    let (_spare, mut outlet) = outlet(0, sender, &space, &counting);
    // Nothing empties the queue.
    for first in (0..100_000).step_by(50) {
        let requests = (first..first + 50).map(request).collect();
        outlet.send_batch(&mut Batch { requests, measured_end: Some(END), ..Batch::default() });
    }
    outlet.send_batch(&mut Batch { last: true, ..Batch::default() });
    drop(outlet);
    let (mut counted, mut passed, mut own) = (0, 0, 0);
    for (_, batch) in receiver {
        passed += batch.requests.len();
        own += batch.counted.len();
        assert_eq!(batch.unpaired, !batch.counted.is_empty());
        counted += batch.counts.map_or(0, |counts| counts.requests);
    }
    assert_eq!((passed, counted), (100, 99_900));
    assert_eq!(own, 99_900, "the table has every request: their number is within the quota");
}

#[test]
fn a_loop_owes_the_recorder_time_for_its_records_and_more_if_a_queue_is_long() {
    let space = Arc::new(QueueSpace::new(1000));
    let (sender, _receiver) = channel();
    let counting: Arc<dyn Fn() -> Counting + Send + Sync> = recording(1).counting;
    let (_spare, mut outlet) = outlet(0, sender, &space, &counting);
    outlet.send_batch(&mut Batch { requests: (0..300).map(request).collect(), ..Batch::default() });
    let handover = Handover::new(outlet);
    assert_eq!(handover.owed(), Duration::ZERO);
    space.note_waiting_rows(0.5);
    assert!(handover.owed() >= Duration::from_millis(10), "many rows wait for the writer");
    space.note_waiting_rows(0.1);
    assert_eq!(handover.owed(), Duration::ZERO);
    space.add(BatchSize { records: 200, exchanges: 0 });
    assert!(handover.owed() >= Duration::from_millis(10), "many records wait for the recorder");
}

#[test]
fn records_after_one_shards_phase_wait_for_the_end_of_the_runs_phase() {
    let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let done = |at_ms: u64| RequestRecord { done_at: at(at_ms), ..request(0) };
    // Without a duration the end is unknown in advance; with one it may come earlier.
    for latest in [None, Some(END)] {
        let spec = TallySpec {
            open_loop: true,
            measured: (Timestamp::ZERO, latest),
            clients_rtt_ns: None,
            urls: load::Urls::named(["http://server/"]),
            phases: Vec::new(),
        };
        let counting = move || Counting::new(Tally::new(spec.clone()), None);
        let recording = Recording { counting: Arc::new(counting), measured_end: latest, ..recording(2) };
        let (mut outlets, recorder) = Recorder::start(recording).unwrap();
        let mut pass = |shard: usize, requests: Vec<RequestRecord>, measured_end: Option<Timestamp>, last: bool| {
            outlets[shard].send_batch(&mut Batch { requests, measured_end, last, ..Batch::default() });
        };
        // The first shard reports its end, as with a number of requests, and has later responses; the second is behind.
        pass(0, vec![done(4_000), done(5_001)], Some(at(5_000)), false);
        pass(1, vec![done(4_500)], latest, false);
        pass(1, vec![done(5_002)], Some(at(5_000)), true);
        pass(0, vec![done(5_003)], Some(at(5_000)), true);
        drop(outlets);
        let recorded = recorder.join();
        let ending = Ending { measured_end: at(5_000), offered: 5, unfinished: 0, levels: recorded.levels };
        let outcome = recorded.counting.tally.finish(ending);
        assert_eq!((outcome.load.completed, outcome.load.achieved_rate_per_s), (5, 2.0 / 5.0), "{latest:?}");
        // Each from 10 us on, to its end or that of the phase.
        let present_s = 4.0 + 4.5 + 3.0 * 5.0 - 5.0 * 10e-6;
        assert!((outcome.little.in_flight - present_s / 5.0).abs() < 1e-9, "{:?}", outcome.little);
    }
}

#[test]
fn the_phase_ends_with_the_last_shard_or_at_a_requested_stop() {
    let at = |ms: u64| Some(Timestamp::from_nanos(ms * 1_000_000));
    assert_eq!(measured_end(&[at(10), None], None), None, "a shard without an end may still have requests to send");
    assert_eq!(measured_end(&[at(10), at(12)], None), at(12));
    assert_eq!(measured_end(&[at(10), None], at(11)), at(11));
    assert_eq!(measured_end(&[at(10), at(12)], at(11)), at(11));
}

/// Nothing empties the queue: records that a shard cannot count must not accumulate either.
#[test]
fn exchanges_that_do_not_fit_between_shard_and_recorder_are_left_out() {
    let (space, (sender, receiver)) = (Arc::new(QueueSpace::new(100)), channel());
    let counting: Arc<dyn Fn() -> Counting + Send + Sync> = recording(1).counting;
    let (_spare, mut outlet) = outlet(0, sender, &space, &counting);
    for first in (0..10_000u64).step_by(30) {
        let each = first..(first + 30).min(10_000);
        let exchanges = each.clone().map(|n| exchange(n, n, n, 1_000 * (n + 1))).collect();
        let requests = each.map(request).collect();
        outlet.send_batch(&mut Batch { requests, exchanges, measured_end: Some(END), ..Batch::default() });
    }
    outlet.send_batch(&mut Batch { last: true, ..Batch::default() });
    drop(outlet);
    let (mut passed, mut unverified, mut requests) = (0, 0, 0);
    for (_, batch) in receiver {
        passed += batch.exchanges.len() as u64;
        unverified += batch.unverified;
        requests += batch.requests.len() as u64 + batch.counts.map_or(0, |counts| counts.requests);
    }
    assert_eq!(passed + unverified, 10_000, "every exchange is verified or counted as unverified");
    assert!((30..=100).contains(&passed), "{passed}");
    assert_eq!(requests, 10_000, "every request is counted");
}

/// A stalled shard delays verification, whose queue must stay bounded.
#[test]
fn exchanges_that_wait_for_the_slowest_shard_are_bounded() {
    let world = polymix::World::new(Arc::new(polymix::CacheWorkload::polymix(1)), 1, 1);
    let judge = polymix::Verifier::new(Arc::new(world), (Timestamp::ZERO, Some(END)));
    let mut judging = Judging::with_space(judge, 100);
    for first in (0..1_000u64).step_by(30) {
        let mut exchanges: Vec<_> = (first..first + 30).map(|n| exchange(n, n, n, 1_000 * (n + 1))).collect();
        judging.add_exchanges(&mut exchanges);
        assert!(exchanges.is_empty());
        judging.judge_before(Timestamp::ZERO, |_| panic!("no shard has reported that time"));
    }
    let mut stored = 0;
    let figures = judging.finish(|judged| stored += judged.len() as u64);
    assert_eq!((figures.requests, stored, figures.unverified), (100, 100, 1_020 - 100));
}

/// A disk that stores one part and then fails.
struct FullDisk(bool);

impl Sink for FullDisk {
    fn write(&mut self, _: &Part) -> Result<(), String> {
        if std::mem::replace(&mut self.0, true) { Err("no space left".into()) } else { Ok(()) }
    }

    fn finish(self: Box<Self>, _: Option<&dyn Fn(&RequestRecord) -> bool>) -> Result<u64, String> {
        Err("no space left".into())
    }
}

#[test]
fn exchanges_that_a_full_disk_did_not_store_are_left_out() {
    let disk = Box::new(FullDisk(false));
    let world = polymix::World::new(Arc::new(polymix::CacheWorkload::polymix(1)), 1, 1);
    let judge = polymix::Verifier::new(Arc::new(world), (Timestamp::ZERO, Some(END)));
    let recording = Recording { judging: Some(Judging::new(judge)), ..recording(1) };
    let (mut outlets, recorder) = Recorder::start_with(recording, Some(disk), 10_000, 10_000).unwrap();
    for first in (0..1_000u64).step_by(100) {
        let exchanges = (first..first + 100).map(|n| exchange(n, n, n, 1_000 * (n + 1))).collect();
        outlets[0].send_batch(&mut Batch { exchanges, measured_end: Some(END), ..Batch::default() });
    }
    outlets[0].send_batch(&mut Batch { last: true, measured_end: Some(END), ..Batch::default() });
    drop(outlets);
    let recorded = recorder.join();
    let figures = recorded.cache.unwrap();
    assert_eq!((figures.requests, figures.unverified), (1_000, 0), "every exchange is verified");
    assert_eq!(recorded.exchanges_left_out, 1_000, "a table that was not completed has no exchanges");
    assert!(recorded.store_error.is_some());
}

/// Shard 1 reports the fetches, late; shard 0 the hits that depend on them.
#[test]
fn exchanges_of_all_shards_are_verified_in_the_order_of_their_ends() {
    let world = polymix::World::new(Arc::new(polymix::CacheWorkload::polymix(1)), 1, 1);
    let current = |exchange: CacheExchange| {
        let object = polymix::Object { kind: 0, number: exchange.object };
        let version = world.version(object, 1_700_000_000).number;
        CacheExchange { response_version: version, expected_version: version, ..exchange }
    };
    let judge = polymix::Verifier::new(Arc::new(world.clone()), (Timestamp::ZERO, Some(END)));
    let recording = Recording { judging: Some(Judging::new(judge)), ..recording(2) };
    let disk = Exchanges::default();
    let stored = Arc::clone(&disk.0);
    let (mut outlets, recorder) = Recorder::start_with(recording, Some(Box::new(disk)), 1_000, 1_000).unwrap();
    for n in 0..50u64 {
        let hit = current(exchange(2 * n + 1, n, 2 * n, 1_000 * n + 500));
        outlets[0].send_batch(&mut Batch { exchanges: vec![hit], measured_end: Some(END), ..Batch::default() });
    }
    for n in 0..50u64 {
        let fetch = current(exchange(2 * n, n, 2 * n, 1_000 * n + 100));
        outlets[1].send_batch(&mut Batch { exchanges: vec![fetch], measured_end: Some(END), ..Batch::default() });
    }
    for outlet in &mut outlets {
        outlet.send_batch(&mut Batch { last: true, measured_end: Some(END), ..Batch::default() });
    }
    drop(outlets);
    let recorded = recorder.join();
    let figures = recorded.cache.unwrap();
    assert_eq!((figures.requests, figures.hits, figures.offered), (100, 50, 50));
    assert!(figures.wrong.is_empty(), "{:?}", figures.wrong);
    assert_eq!(recorded.exchanges_left_out, 0);
    let stored = stored.lock().unwrap();
    let order: Vec<u64> = stored.iter().map(|row| row.sequence).collect();
    assert_eq!(order, (0..100).collect::<Vec<_>>(), "every exchange is stored once, in order");
    assert!(stored.iter().all(|row| row.hit == (row.sequence % 2 == 1)));
}

#[test]
fn exchanges_that_do_not_fit_are_counted() {
    let (disk, release, _) = slow_disk();
    let world = polymix::World::new(Arc::new(polymix::CacheWorkload::polymix(1)), 1, 1);
    let judge = polymix::Verifier::new(Arc::new(world), (Timestamp::ZERO, Some(END)));
    let recording = Recording { judging: Some(Judging::new(judge)), ..recording(1) };
    let (mut outlets, recorder) = Recorder::start_with(recording, Some(disk), 10_000, 100).unwrap();
    let exchanges = (0..1_000).map(|n| exchange(n, n, n, 1_000 * (n + 1))).collect();
    outlets[0].send_batch(&mut Batch { exchanges, last: true, measured_end: Some(END), ..Batch::default() });
    drop(outlets);
    drop(release);
    let recorded = recorder.join();
    assert_eq!(recorded.cache.unwrap().requests, 1_000, "every exchange is verified");
    assert!(recorded.exchanges_left_out >= 800, "{}", recorded.exchanges_left_out);
}

/// A disk that stores the data of seconds.
#[derive(Clone, Default)]
struct SecondsDisk(Arc<Mutex<(Vec<SecondRecord>, Vec<DistributionRecord>)>>);

impl Sink for SecondsDisk {
    fn write(&mut self, part: &Part) -> Result<(), String> {
        let mut disk = self.0.lock().unwrap();
        disk.0.extend_from_slice(&part.seconds);
        disk.1.extend_from_slice(&part.distributions);
        Ok(())
    }

    fn finish(self: Box<Self>, _: Option<&dyn Fn(&RequestRecord) -> bool>) -> Result<u64, String> {
        Ok(0)
    }
}

/// In virtual time: two shards, each with ten responses in every tenth of a second.
#[test]
fn provisional_seconds_equal_the_exact_ones_of_all_shards() {
    let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let disk = SecondsDisk::default();
    let (mut outlets, recorder) =
        Recorder::start_with(recording(2), Some(Box::new(disk.clone())), 100_000, 100_000).unwrap();
    let mut samplers = [ShardSampler::new(1, Timestamp::ZERO), ShardSampler::new(1, Timestamp::ZERO)];
    for ms in (100..=3_500).step_by(100) {
        for (shard, outlet) in outlets.iter_mut().enumerate() {
            let one = |number: u64| {
                let response_us = 1_000 * (shard as u64 + 1) + 137 * number;
                let scheduled_at = Timestamp::from_nanos((ms * 1_000 - 50_000 - response_us) * 1_000);
                RequestRecord { scheduled_at, started_at: Some(scheduled_at), done_at: at(ms - 50), ..request(number) }
            };
            let mut batch = Batch { requests: (0..10).map(one).collect(), measured_end: Some(END), ..Batch::default() };
            samplers[shard].sample(at(ms), Live::default());
            samplers[shard].take_samples(&mut batch.samples);
            outlet.send_batch(&mut batch);
        }
    }
    drop(outlets);
    let Recorded { counting, levels, .. } = recorder.join();
    let exact = counting.tally.finish(Ending { measured_end: END, offered: 700, unfinished: 0, levels });
    let disk = disk.0.lock().unwrap();
    assert_eq!(
        disk.0.iter().map(|row| (row.second, row.completed)).collect::<Vec<_>>(),
        [(0, 200), (1, 200), (2, 200)]
    );
    let of = |rows: &[DistributionRecord]| -> Vec<DistributionRecord> {
        rows.iter().copied().filter(|row| row.second < 3).collect()
    };
    assert_eq!(of(&disk.1), of(&exact.distributions), "no later record belongs to these seconds");
    let all: u64 = exact.distributions.iter().map(|row| row.count).sum();
    assert_eq!(all, 700);
    // 1 to 3.2 ms, in buckets of an eighth of a doubling.
    let buckets = exact.distributions.iter().filter(|row| row.second == 1).count();
    assert!((8..=16).contains(&buckets), "{buckets}");
}
