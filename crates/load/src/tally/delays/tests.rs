//! Compares the bound with the delay that a stalled generator actually adds, in virtual time.

use stats::Rng;

use super::*;

const WHOLE_RUN: (Timestamp, Option<Timestamp>) = (Timestamp::ZERO, None);

fn us(us: u64) -> Timestamp {
    Timestamp::from_nanos(us * 1000)
}

fn stall(from_us: u64, to_us: u64) -> Stall {
    Stall { from: us(from_us), to: us(to_us) }
}

fn record(scheduled_us: u64, started_us: u64, done_us: u64) -> RequestRecord {
    RequestRecord {
        sequence: 0,
        client: 0,
        connection: None,
        session: None,
        url: 0,
        stream: None,
        scheduled_at: us(scheduled_us),
        started_at: Some(us(started_us)),
        connected_at: None,
        secured_at: None,
        sent_at: None,
        first_byte_at: None,
        done_at: us(done_us),
        status: 200,
        bytes_received: 0,
        head_bytes: 0,
        keep_alive: true,
        bytes_sent: 0,
        attempts: 1,
        early_response: false,
        queued: false,
        failure: None,
    }
}

fn times(records: &[RequestRecord]) -> Histogram {
    let mut times = Histogram::new();
    records.iter().for_each(|record| times.record(record.response_time_ns()));
    times
}

fn bounds(open_loop: bool, stalls: &[Stall], records: &[RequestRecord]) -> DelayBounds {
    let mut delays = Delays::new(open_loop, WHOLE_RUN, false);
    delays.add(0, stalls, Timestamp::MAX, records);
    delays.finish(&times(records))
}

#[test]
fn a_punctual_generator_has_no_delay() {
    let records: Vec<_> = (0..1000).map(|at| record(at * 1000, at * 1000 + 5, at * 1000 + 48_000)).collect();
    let punctual = bounds(true, &[], &records);
    assert_eq!((punctual.own_send_lag.count, punctual.own_send_lag.max), (1000, 5_000));
    assert_eq!(DelayBounds { own_send_lag: Quantiles::default(), ..punctual }, DelayBounds::default());
    // A stall before the first request and its burst, and one after the last.
    let stalls = [stall(2_000_000, 2_100_000)];
    assert_eq!(bounds(true, &stalls, &records).all, Quantiles::default());
}

#[test]
fn late_wake_ups_within_the_send_lag_are_the_machines_part_of_it() {
    let end = us(1_000_000);
    let mut delays = Delays::new(true, (us(100), Some(end)), false);
    // The first is before the measured phase; the last reaches beyond it.
    delays.add_late_wakeups(0, &[stall(0, 60), stall(1_000, 1_400), stall(5_000, 5_100), stall(999_900, 1_000_300)]);
    let started = [(1_200, 1_420), (1_390, 1_450), (3_000, 3_040), (4_990, 5_110)];
    let records = started.map(|(scheduled, started)| record(scheduled, started, started + 50));
    delays.add(0, &[], Timestamp::MAX, &records);
    let found = delays.finish(&times(&records));
    // 20, 50, 40 and 20 us are the generator's own.
    assert_eq!((found.own_send_lag.count, found.own_send_lag.max), (4, 50_000));
    assert!((found.own_send_lag.mean - 32_500.0).abs() < 1.0, "{}", found.own_send_lag.mean);
    assert_eq!(found.late_wakeups, Duration::from_micros(400 + 100 + 100));
}

#[test]
fn a_late_start_is_generator_delay_unless_it_waited_for_a_connection() {
    let mut records: Vec<_> =
        (0..1000).map(|at| record(at * 1000, at * 1000 + 2_000, at * 1000 + 50_000 - at)).collect();
    let late = bounds(true, &[], &records);
    assert_eq!((late.all.count, late.all.max, late.by_stalls.count), (1000, 2_000_000, 0));
    assert!(late.all.p50.abs_diff(2_000_000) < 100_000 && late.all.p99.abs_diff(2_000_000) < 100_000, "{late:?}");
    records.iter_mut().for_each(|record| record.queued = true);
    assert_eq!(bounds(true, &[], &records).all.count, 0);
    // A stall during the wait for a connection is counted nevertheless.
    assert_eq!(bounds(false, &[stall(5_000, 6_000)], &records).by_stalls.max, 1_000_000);
}

#[test]
fn generator_delay_of_a_request_counts_exactly_the_stalls_within_it() {
    let of = |stalls: &[Stall], record: RequestRecord| bounds(false, stalls, &[record]).by_stalls.max / 1000;
    let stalls = [stall(1_000, 4_000), stall(10_000, 15_000), stall(40_000, 70_000)];
    assert_eq!(of(&stalls, record(5_000, 5_000, 9_000)), 0);
    assert_eq!(of(&stalls, record(0, 0, 20_000)), 8_000);
    assert_eq!(of(&stalls, record(12_000, 15_001, 16_000)), 3_000, "scheduled during a stall");
    assert_eq!(of(&stalls, record(30_000, 30_000, 70_050)), 30_000);
    assert_eq!(of(&stalls, record(71_000, 71_000, 72_000)), 0);
}

#[test]
fn requests_after_a_stall_count_as_delayed_in_an_open_loop() {
    // 3 ms after a stall of 5 ms in an open loop, the bound is the rest of the burst, but at most the response time
    // minus the shortest service time of 200 us.
    let of = |open, from: u64, takes: u64| {
        let short = (0..SHORTEST_SERVICE_TIME_SAMPLES).map(|at| record(at, at, at + 200));
        let records: Vec<_> = short.chain([record(from, from, from + takes)]).collect();
        bounds(open, &[stall(1_000, 6_000)], &records).all.max / 1000
    };
    assert_eq!((of(true, 9_000, 20_000), of(true, 9_000, 300), of(false, 9_000, 20_000)), (4_000, 100, 0));
    assert_eq!((of(true, 20_700, 20_000), of(true, 21_001, 20_000)), (100, 0));
}

/// Shard 0 carries the path: its stalls delay the requests of shard 1 too, even if they are reported after the
/// requests.
#[test]
fn a_path_stall_delays_the_requests_of_all_shards() {
    let records = [record(1_000, 1_000, 9_000), record(10_000, 10_000, 10_100)];
    for (has_path, expected) in [(true, 4_000_000), (false, 1_000_000)] {
        let mut delays = Delays::new(false, WHOLE_RUN, has_path);
        delays.add(0, &[], us(0), &[]);
        // The stall of shard 1 lies within that of the path.
        delays.add(1, &[stall(3_000, 4_000)], us(20_000), &records);
        delays.add(0, &[stall(2_000, 6_000)], us(30_000), &[]);
        let bounds = delays.finish(&times(&records));
        assert_eq!(bounds.by_stalls.max, expected, "{has_path}");
        assert_eq!(
            (bounds.stalls, bounds.longest, bounds.stalled),
            (2, Duration::from_millis(4), Duration::from_millis(4))
        );
    }
}

#[test]
fn only_stalls_of_the_measured_phase_are_counted() {
    let mut delays = Delays::new(true, (us(10_000), Some(us(20_000))), false);
    delays.add(0, &[stall(1_000, 2_000), stall(9_000, 11_000), stall(19_500, 25_000)], us(30_000), &[]);
    let bounds = delays.finish(&Histogram::new());
    assert_eq!(
        (bounds.stalls, bounds.longest, bounds.stalled),
        (2, Duration::from_millis(1), Duration::from_micros(1500))
    );
}

/// A simulated server that serves requests one by one, behind a path in the generator's loop.
struct SimulatedServer {
    one_way: Duration,
    service: Duration,
    /// Times in which the loop forwards and reads nothing.
    stalls: Vec<Stall>,
}

impl SimulatedServer {
    /// When the loop handles an event of the time `at`.
    fn handled(&self, at: Timestamp) -> Timestamp {
        let held = self.stalls.iter().find(|stall| (stall.from..stall.to).contains(&at));
        held.map_or(at, |stall| stall.to)
    }

    /// The time of the last byte of a request started at `started`. `free` is the time at which the server is idle.
    fn answered(&self, started: Timestamp, free: &mut Timestamp) -> Timestamp {
        let at_server = self.handled(started + self.one_way);
        *free = at_server.max(*free) + self.service;
        let read = self.handled(*free);
        self.handled(read + self.one_way)
    }

    fn open(&self, schedule: &[Timestamp]) -> Vec<RequestRecord> {
        let mut free = Timestamp::ZERO;
        let each = schedule.iter().map(|&scheduled| {
            let started = self.handled(scheduled);
            let done = self.answered(started, &mut free);
            RequestRecord { scheduled_at: scheduled, started_at: Some(started), done_at: done, ..record(0, 0, 0) }
        });
        each.collect()
    }

    fn closed(&self, requests: usize) -> Vec<RequestRecord> {
        let (mut free, mut at) = (Timestamp::ZERO, Timestamp::ZERO);
        let mut next = || {
            let started = self.handled(at);
            at = self.answered(started, &mut free);
            RequestRecord { scheduled_at: started, started_at: Some(started), done_at: at, ..record(0, 0, 0) }
        };
        (0..requests).map(|_| next()).collect()
    }
}

fn assert_bounds(bounds: &DelayBounds, without: &Histogram, with: &Histogram, what: &str) {
    let (is, was) = (with.quantiles(), without.quantiles());
    type Figure = (&'static str, fn(&Quantiles) -> f64);
    let figures: [Figure; 7] = [
        ("mean", |q| q.mean),
        ("p50", |q| q.p50 as f64),
        ("p75", |q| q.p75 as f64),
        ("p90", |q| q.p90 as f64),
        ("p95", |q| q.p95 as f64),
        ("p99", |q| q.p99 as f64),
        ("p99.9", |q| q.p99_9 as f64),
    ];
    for (name, of) in figures {
        // Both percentiles are exact only to a bucket.
        let bucket = 0.002 * of(&is);
        let moved = of(&is) - of(&was);
        assert!(moved <= of(&bounds.all) + bucket, "{what}: {name} moved by {moved}, bound {}", of(&bounds.all));
    }
}

/// For every pattern of stalls, percentiles differ from those of an undisturbed run by at most the bound, up to a
/// server utilization of two fifths.
#[test]
fn percentile_shift_stays_within_the_generator_delay_bound() {
    let mut rng = Rng::named(11, "stalls");
    for one_way_us in [0, 250, 24_000] {
        for (lasts_us, every_us) in [
            (500, 3_000),
            (3_000, 20_000),
            (3_000, 500_000),
            (5_000, 50_000),
            (8_000, 30_000),
            (15_000, 330_000),
            (30_000, 100_000),
        ] {
            let service = Duration::from_micros(400);
            let mut at = 0;
            let stalls: Vec<Stall> = std::iter::from_fn(|| {
                at += every_us / 2 + rng.below(every_us);
                let begun = at;
                at += lasts_us;
                Some(stall(begun, at))
            })
            .take_while(|stall| stall.to < us(20_000_000))
            .collect();
            let one_way = Duration::from_micros(one_way_us);
            let stalled = SimulatedServer { one_way, service, stalls };
            let quiet = SimulatedServer { one_way, service, stalls: Vec::new() };
            let what = format!("{lasts_us} us every {every_us} us, {one_way_us} us away");
            for gap_us in [1_000.0, 5_000.0, 50_000.0] {
                let mut at = 0.0;
                let schedule: Vec<Timestamp> = std::iter::from_fn(|| {
                    at += gap_us * rng.exponential();
                    Some(us(at as u64))
                })
                .take_while(|at| *at < us(20_000_000))
                .collect();
                let records = stalled.open(&schedule);
                let (without, with) = (times(&quiet.open(&schedule)), times(&records));
                assert_bounds(&bounds(true, &stalled.stalls, &records), &without, &with, &format!("open, {what}"));
            }
            let records = stalled.closed(2000);
            let (without, with) = (times(&quiet.closed(2000)), times(&records));
            assert_bounds(&bounds(false, &stalled.stalls, &records), &without, &with, &format!("closed, {what}"));
        }
    }
}
