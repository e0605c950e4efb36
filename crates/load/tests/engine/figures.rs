//! Compares the tally's statistics with queueing theory and with independently computed sums.

use std::time::Duration;

use load::{Ending, Reuse, Tally, TallySpec};
use stats::Rng;
use units::Timestamp;

use crate::world::*;

/// One server with a queue: M/M/1 under Poisson arrivals.
fn single_queue(mean_service: Duration, seed: u64) -> impl Server {
    let mut rng = Rng::named(seed, "service");
    let mut free_at = Timestamp::ZERO;
    move |now: Timestamp, _: u32| {
        free_at = free_at.max(now) + Duration::from_secs_f64(mean_service.as_secs_f64() * rng.exponential());
        vec![(free_at.since(now), Reply::Bytes(OK_CLOSE.to_vec())), (free_at.since(now), Reply::Fin)]
    }
}

#[test]
fn littles_law_holds_for_an_m_m_1_queue() {
    let mut spec = spec(poisson(70.0));
    spec.reuse = Reuse::Close;
    spec.warmup = Duration::from_secs(20);
    spec.duration = Some(Duration::from_secs(1000));
    spec.response_timeout = Duration::from_secs(60);
    let mut world = World::new(spec, single_queue(ms(10), 8));
    world.one_way = Duration::from_micros(500);
    world.sampler.set_measured_end(at(Duration::from_secs(1020)));
    let world = world.run();
    let outcome = world.outcome(true, None, &["u"]);
    let levels = world.sampler.finish();
    let (load, little) = (&outcome.load, outcome.little);

    // Sampled gauges and sums of records measure the same quantity independently, and agree within the sampling error.
    let sampled = load.in_flight.mean;
    assert!((sampled / little.in_flight - 1.0).abs() < 0.01, "{sampled} sampled, {} summed", little.in_flight);
    assert!((load.connections.mean / little.connections - 1.0).abs() < 0.01);
    // Little's law: rate times mean time.
    let by_law = load.achieved_rate_per_s * load.service_time_ns.mean / 1e9;
    assert!((by_law / little.in_flight - 1.0).abs() < 0.005, "{by_law} against {}", little.in_flight);
    // M/M/1 at 70 % utilization: 33.3 ms in the server (standard error about 1.3 ms over 1000 s), and 2 ms of round
    // trips.
    let mean_ms = load.service_time_ns.mean / 1e6;
    assert!((mean_ms - 35.3).abs() < 5.0, "{mean_ms}");
    assert!((levels.in_flight.standard_error / sampled) < 0.1);
    assert_eq!(load.send_lag_ns.max, 0);
    assert!((load.offered_rate_per_s - 70.0).abs() < 5.0 * 0.265);
    assert_eq!(load.in_flight_at_end, 0);
}

#[test]
fn seconds_add_up_to_the_total() {
    let mut spec = spec(poisson(200.0));
    spec.warmup = Duration::from_millis(1500);
    let world = World::new(spec, single_queue(ms(3), 3)).run();
    let outcome = world.outcome(true, None, &["u"]);
    let sum = |field: fn(&schema::SecondRecord) -> u64| outcome.seconds.iter().map(field).sum::<u64>();
    let live = world.load.live();
    assert_eq!(sum(|second| second.offered), live.offered);
    assert_eq!(sum(|second| second.started), live.started);
    assert_eq!(sum(|second| second.completed), live.completed);
    assert_eq!(sum(|second| second.failed), live.failed);
    assert_eq!(sum(|second| second.connections_opened), live.connections_opened);
    assert_eq!(sum(|second| second.bytes_received), live.bytes_received);
    // The measured phase is [1.5 s, 11.5 s); its complete seconds are 2 to 10.
    let measured: Vec<u32> =
        outcome.seconds.iter().filter(|second| second.measured).map(|second| second.second).collect();
    assert_eq!(measured, (2..=10).collect::<Vec<_>>());
    let fifth = &outcome.seconds[5];
    assert!(fifth.response_p50_ns > 0 && fifth.response_p50_ns <= fifth.response_p99_ns);
    assert!(fifth.response_p99_ns <= fifth.response_max_ns);
    assert!(fifth.in_flight_mean > 0.0 && fifth.connections_mean > 0.0);
}

#[test]
fn results_are_grouped_by_distance() {
    let mut spec = spec(constant(100.0));
    spec.clients = 4;
    let world = World::new(spec, answering(ms(1))).run();
    let load = world.outcome(true, Some(vec![0, 48_000_000, 48_000_000, 120_000_000]), &["u"]).load;
    let brief: Vec<_> = load.by_distance.iter().map(|band| (band.rtt_ns_to, band.clients, band.completed)).collect();
    assert_eq!(brief, [(1_000, 1, 250), (50_000_000, 2, 500), (200_000_000, 1, 250)]);
    assert!(load.by_url.is_empty(), "one URL needs no breakdown");
    assert!(world.outcome(true, None, &["u"]).load.by_distance.is_empty());
}

#[test]
fn response_times_include_failed_requests() {
    let mut spec = spec(constant(10.0));
    spec.duration = Some(Duration::from_secs(10));
    let mut answered = 0;
    let server = move |_: Timestamp, _: u32| {
        answered += 1;
        if answered % 10 == 0 { Vec::new() } else { vec![(ms(1), Reply::Bytes(OK.to_vec()))] }
    };
    let load = World::new(spec, server).run().outcome(true, None, &["u"]).load;
    assert_eq!((load.completed, load.failed["response_timeout"]), (90, 10));
    assert_eq!(load.response_time_ns.count, 100);
    assert!(load.response_time_ns.p95 >= 5_000_000_000, "{:?}", load.response_time_ns);
    assert_eq!(load.status["200"], 90);
}

/// Requests that began before the phase or ended after it count with the part of their time inside.
#[test]
fn littles_law_is_corrected_at_the_edges_of_the_phase() {
    let mut spec = spec(constant(1.0));
    spec.warmup = ms(2500);
    spec.duration = Some(ms(5000));
    spec.clients = 100;
    // With 1.996 s in the server and 4 ms of round trips, two requests are in flight on average at 1/s.
    let world = World::new(spec, answering(ms(1996))).run();
    let outcome = world.outcome(true, None, &["u"]);
    assert!((outcome.little.in_flight - 2.0).abs() < 1e-9, "{:?}", outcome.little);
    assert_eq!(outcome.little.requests_seen, 7);
    // Of the completions at 2, 3 .. 9 s, five are in [2.5, 7.5).
    assert_eq!(outcome.load.achieved_rate_per_s, 1.0);
}

#[test]
fn a_phase_without_length_has_no_rate() {
    let mut spec = spec(constant(10.0));
    spec.warmup = Duration::from_secs(5);
    let mut world = World::new(spec, answering(ms(1)));
    world.run_until(at(Duration::from_secs(2)));
    world.load.stop(world.now);
    let world = world.run();
    let load = world.outcome(true, None, &["u"]).load;
    assert_eq!((load.offered_requests, load.offered_rate_per_s, load.achieved_rate_per_s), (0, 0.0, 0.0));
}

/// Records are added during the load, and the end of the phase is set when it becomes known, as in the real driver.
#[test]
fn a_phase_end_known_late_gives_the_same_figures() {
    let stop = at(ms(1234));
    let spec = || TallySpec {
        open_loop: true,
        measured: (Timestamp::ZERO, None),
        clients_rtt_ns: None,
        urls: load::Urls::default(),
        phases: Vec::new(),
    };
    let mut world = World::new(
        {
            let mut spec = crate::world::spec(poisson(300.0));
            spec.duration = None;
            spec
        },
        single_queue(ms(2), 5),
    );
    let mut tally = Tally::new(spec());
    world.run_until(stop);
    world.records.iter().for_each(|record| tally.add_request(record));
    world.ends.iter().for_each(|end| tally.add_connection(end));
    let (requests, connections) = (world.records.len(), world.ends.len());
    world.load.stop(stop);
    tally.set_measured_end(world.load.measured().1.unwrap());
    let world = world.run();
    world.records[requests..].iter().for_each(|record| tally.add_request(record));
    world.ends[connections..].iter().for_each(|end| tally.add_connection(end));
    let streamed = tally.finish(Ending {
        measured_end: stop,
        offered: world.load.live().offered_measured,
        unfinished: 0,
        levels: world.sampler.finish(),
    });
    let whole = world.outcome(true, None, &[]);
    assert!(world.records.len() > requests, "some requests were in flight at the stop");
    assert_eq!((streamed.load, streamed.little), (whole.load, whole.little));
    assert_eq!(streamed.seconds, whole.seconds);
}

/// Merging two tallies of parts of the records gives the result of one tally of all records.
#[test]
fn merged_tallies_equal_a_single_tally() {
    let (mut spec, ms) = (spec(poisson(200.0)), Duration::from_millis);
    spec.warmup = ms(700);
    spec.duration = Some(ms(3000));
    let mut answered = 0;
    let server = move |_: Timestamp, _: u32| {
        answered += 1;
        if answered % 7 == 0 { Vec::new() } else { vec![(ms(answered % 90), Reply::Bytes(OK.to_vec()))] }
    };
    let world = World::new(spec, server).run();
    let measured = world.load.measured();
    let tally = || {
        Tally::new(TallySpec {
            open_loop: true,
            measured,
            clients_rtt_ns: Some((0..world.load.live().offered).map(|client| client * 1_000_000).collect()),
            urls: load::Urls::named(["one", "another"]),
            phases: spans(&[("a", 1000), ("b", 5000)]),
        })
    };
    let ending = || Ending {
        measured_end: measured.1.unwrap(),
        offered: world.load.live().offered_measured,
        unfinished: 0,
        levels: world.sampler.finish(),
    };
    let (mut whole, mut left, mut right) = (tally(), tally(), tally());
    for (place, record) in world.records.iter().enumerate() {
        let record = &schema::RequestRecord { url: place as u32 % 2, ..*record };
        whole.add_request(record);
        if place % 3 == 0 { left.add_request(record) } else { right.add_request(record) }
    }
    for (place, end) in world.ends.iter().enumerate() {
        whole.add_connection(end);
        if place % 2 == 0 { left.add_connection(end) } else { right.add_connection(end) }
    }
    left.merge(right);
    let (merged, whole) = (left.finish(ending()), whole.finish(ending()));
    assert!(whole.load.failed["response_timeout"] > 10 && whole.load.by_url[1].completed > 100);
    assert_eq!((merged.load, merged.little, merged.seconds), (whole.load, whole.little, whole.seconds));
    assert_eq!(merged.histograms.connect.quantiles(), whole.histograms.connect.quantiles());
}

fn spans(phases: &[(&str, u64)]) -> Vec<load::PhaseSpan> {
    let span = |&(name, lasts): &(&str, u64)| load::PhaseSpan { name: name.into(), lasts: ms(lasts), is_steady: true };
    phases.iter().map(span).collect()
}

/// A request belongs to the phase of its scheduled time, its completion to the phase in which it occurred. The phases
/// add up to the total, and end with the run.
#[test]
fn phases_add_up_to_the_total() {
    let mut spec = spec(constant(100.0));
    spec.warmup = ms(500);
    spec.duration = Some(ms(2500));
    spec.clients = 100;
    // A response takes 300 ms, so 30 requests of each phase are completed in the next one.
    let mut world = World::new(spec, answering(ms(298)));
    world.phases = spans(&[("first", 1000), ("second", 1000), ("third", 1000), ("fourth", 1000)]);
    let load = world.run().outcome(true, None, &["u"]).load;
    let phases = &load.by_phase;
    let brief: Vec<_> = phases.iter().map(|phase| (&phase.name[..], phase.from_s, phase.to_s)).collect();
    assert_eq!(brief, [("first", 0.0, 1.0), ("second", 1.0, 2.0), ("third", 2.0, 2.5)]);
    let counts: Vec<_> = phases.iter().map(|phase| (phase.offered_requests, phase.completed)).collect();
    assert_eq!(counts, [(100, 100), (100, 100), (50, 50)]);
    assert_eq!(phases.iter().map(|phase| phase.offered_requests).sum::<u64>(), load.offered_requests);
    assert!(
        (phases[1].achieved_rate_per_s - 100.0).abs() < 1e-9 && (phases[2].offered_rate_per_s - 100.0).abs() < 1e-9
    );
    let achieved: f64 = phases.iter().map(|phase| phase.achieved_rate_per_s * (phase.to_s - phase.from_s)).sum();
    assert!((achieved - load.achieved_rate_per_s * 2.5).abs() < 1e-6, "{achieved}");
    assert_eq!(phases.iter().map(|phase| phase.response_time_ns.count).sum::<u64>(), load.response_time_ns.count);
    assert!(phases[0].response_time_ns.p50 >= 300_000_000 && phases[0].send_lag_ns.max == 0);
}
