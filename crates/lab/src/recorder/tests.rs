use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, PoisonError};

use ledger::{CacheExchange, RequestRecord, SecondRecord};
use load::{Ending, Tally, TallySpec};

use super::*;

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
        intended_at: at(0),
        started_at: Some(at(10)),
        connected_at: None,
        secured_at: None,
        sent_at: Some(at(20)),
        first_byte_at: Some(at(400)),
        done_at: at(500 + sequence % 100),
        status: 200,
        bytes_received: 100,
        head_bytes: 50,
        keeps_connection: true,
        bytes_sent: 30,
        failure: None,
    }
}

fn recording(lanes: usize) -> Recording {
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
        lanes,
        counting: Arc::new(counting),
        levels: LevelMerger::new(1, Timestamp::ZERO, Timestamp::ZERO, lanes),
        measured_end: Some(END),
        judging: None,
        progress: Arc::default(),
        folder: None,
        wire: None,
        cores: None,
    }
}

/// A disk that takes its first part, and then nothing until it is let go.
struct SlowDisk {
    go: Mutex<Receiver<()>>,
    kept: Sequences,
}

/// Numbers of the requests on a disk.
type Sequences = Arc<Mutex<Vec<u64>>>;

/// The disk, what lets it go when dropped, and what it keeps.
fn slow_disk() -> (Box<dyn Sink>, Sender<()>, Sequences) {
    let (let_go, go) = channel();
    let disk = SlowDisk { go: Mutex::new(go), kept: Arc::default() };
    let kept = Arc::clone(&disk.kept);
    (Box::new(disk), let_go, kept)
}

impl Sink for SlowDisk {
    fn write(&mut self, requests: &[RequestRecord], _: &[SecondRecord], _: &[CacheExchange]) -> Result<(), String> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(requests.iter().map(|row| row.sequence));
        // Until the sender is dropped.
        let _ = self.go.get_mut().unwrap().recv();
        Ok(())
    }

    fn finish(self: Box<Self>, keeps: Option<&dyn Fn(&RequestRecord) -> bool>) -> Result<u64, String> {
        let mut kept = self.kept.lock().unwrap();
        kept.retain(|&sequence| keeps.is_none_or(|keeps| keeps(&request(sequence))));
        Ok(kept.len() as u64)
    }
}

/// Passes requests of two lanes on, each in its own batches.
fn offer(outlets: &mut [Outlet], requests: std::ops::Range<u64>, batch_of: usize) {
    let all: Vec<u64> = requests.collect();
    for chunk in all.chunks(batch_of) {
        for (lane, outlet) in outlets.iter_mut().enumerate() {
            let own = chunk.iter().filter(|&&sequence| sequence % 2 == lane as u64);
            let requests = own.map(|&sequence| request(sequence)).collect();
            outlet.pass(&mut Batch { requests, measured_end: Some(END), ..Batch::default() });
        }
    }
}

fn figures(recorded: Recorded) -> (u64, u64, u64, ledger::Quantiles) {
    let requests = recorded.counting.requests;
    let levels = recorded.levels.clone();
    let ending = Ending { measured_end: END, offered: requests, unfinished: 0, levels };
    let load = recorded.counting.tally.finish(ending).load;
    (requests, load.completed, load.bytes_received, load.response_time_ns)
}

#[test]
fn with_a_disk_that_stands_still_every_request_is_counted_and_the_share_in_the_table_told() {
    const REQUESTS: u64 = 300_000;
    let (disk, let_go, kept) = slow_disk();
    let (mut outlets, recorder) = Recorder::start_with(recording(2), Some(disk), 2_000, 5_000).unwrap();
    offer(&mut outlets, 0..REQUESTS, 700);
    for outlet in &mut outlets {
        outlet.pass(&mut Batch { last: true, measured_end: Some(END), ..Batch::default() });
    }
    drop(outlets);
    // The shelf was thinned while the disk stood still, so that its rows wait there still.
    drop(let_go);
    let recorded = recorder.join();
    let table = recorded.table.unwrap();
    assert!(table.one_in >= REQUESTS.next_power_of_two() / 16_384, "5,000 rows at most waited: {table:?}");
    let kept = kept.lock().unwrap();
    assert_eq!(kept.len() as u64, table.rows);
    let expected = REQUESTS as f64 / table.one_in as f64;
    assert!((table.rows as f64 - expected).abs() < 6.0 * expected.sqrt(), "{table:?} of {REQUESTS}");
    let mut sorted = kept.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), kept.len(), "each at most once");

    // The same records, by a recorder that keeps nothing and has all the room.
    let (mut outlets, recorder) = Recorder::start(recording(2)).unwrap();
    offer(&mut outlets, 0..REQUESTS, 700);
    drop(outlets);
    let whole = figures(recorder.join());
    assert_eq!(whole.0, REQUESTS);
    assert_eq!(figures(recorded), whole);
}

#[test]
fn a_disk_that_keeps_up_has_every_request() {
    let (disk, let_go, kept) = slow_disk();
    drop(let_go);
    let (mut outlets, recorder) = Recorder::start_with(recording(2), Some(disk), 100_000, 100_000).unwrap();
    offer(&mut outlets, 0..20_000, 1_000);
    drop(outlets);
    let recorded = recorder.join();
    assert_eq!(recorded.table, Some(Kept { rows: 20_000, one_in: 1 }));
    let mut kept = kept.lock().unwrap().clone();
    kept.sort_unstable();
    assert!(kept.into_iter().eq(0..20_000));
}

#[test]
fn lanes_that_find_no_room_count_by_themselves() {
    let (room, (sender, receiver)) = (Arc::new(Room::new(100)), channel());
    let counting: Arc<dyn Fn() -> Counting + Send + Sync> = recording(1).counting;
    let (_spare, mut outlet) = outlet(0, sender, &room, &counting);
    // Nobody takes anything out.
    for first in (0..100_000).step_by(50) {
        let requests = (first..first + 50).map(request).collect();
        outlet.pass(&mut Batch { requests, measured_end: Some(END), ..Batch::default() });
    }
    outlet.pass(&mut Batch { last: true, ..Batch::default() });
    drop(outlet);
    let (mut counted, mut passed, mut own) = (0, 0, 0);
    for (_, batch) in receiver {
        passed += batch.requests.len();
        own += batch.counted.len();
        assert_eq!(batch.unpaired, !batch.counted.is_empty());
        counted += batch.counts.map_or(0, |counts| counts.requests);
    }
    assert_eq!((passed, counted), (100, 99_900));
    assert_eq!(own, 99_900, "the table still has every one of them: they are within the quota");
}

#[test]
fn what_ends_after_one_lanes_phase_waits_until_that_of_the_run_is_known() {
    let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let done = |at_ms: u64| RequestRecord { done_at: at(at_ms), ..request(0) };
    // Without a duration nobody knows the end beforehand; with one it may come earlier.
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
        let mut tell = |lane: usize, requests: Vec<RequestRecord>, measured_end: Option<Timestamp>, last: bool| {
            outlets[lane].pass(&mut Batch { requests, measured_end, last, ..Batch::default() });
        };
        // The first knows the end, as by a number of requests, and has seen answers come after it; the second is behind.
        tell(0, vec![done(4_000), done(5_001)], Some(at(5_000)), false);
        tell(1, vec![done(4_500)], latest, false);
        tell(1, vec![done(5_002)], Some(at(5_000)), true);
        tell(0, vec![done(5_003)], Some(at(5_000)), true);
        drop(outlets);
        let recorded = recorder.join();
        let ending = Ending { measured_end: at(5_000), offered: 5, unfinished: 0, levels: recorded.levels };
        let outcome = recorded.counting.tally.finish(ending);
        assert_eq!((outcome.load.completed, outcome.load.carried_rate_per_s), (5, 2.0 / 5.0), "{latest:?}");
        // Each from 10 us on, to its end or that of the phase.
        let present_s = 4.0 + 4.5 + 3.0 * 5.0 - 5.0 * 10e-6;
        assert!((outcome.little.in_flight - present_s / 5.0).abs() < 1e-9, "{:?}", outcome.little);
    }
}

#[test]
fn the_phase_ends_with_the_last_lane_or_when_a_stop_says() {
    let at = |ms: u64| Some(Timestamp::from_nanos(ms * 1_000_000));
    assert_eq!(measured_end(&[at(10), None], None), None, "one may still have requests to make");
    assert_eq!(measured_end(&[at(10), at(12)], None), at(12));
    assert_eq!(measured_end(&[at(10), None], at(11)), at(11));
    assert_eq!(measured_end(&[at(10), at(12)], at(11)), at(11));
}
