use load::CacheCounters;

use super::*;
use validity::evidence::LoopHealth;

fn ended(busy: f64, cpu_ms: u64, core: usize, end_ms: u64) -> ShardEnd {
    let wall = Duration::from_secs(1);
    let health = LoopHealth {
        longest_stall: Duration::from_millis(end_ms),
        idle: wall.mul_f64(1.0 - busy),
        wall,
        cpu: Duration::from_millis(cpu_ms),
        run_queue_wait: Some(Duration::from_millis(cpu_ms)),
    };
    ShardEnd {
        measured: (Timestamp::ZERO, Some(Timestamp::from_nanos(end_ms * 1_000_000))),
        live: Live { offered: 10, in_flight: 1, ..Live::default() },
        mix: CacheCounters::default(),
        unfinished: 1,
        arrivals_of_all: None,
        first_request: b"GET".to_vec(),
        first_head: None,
        malformed_responses: Vec::new(),
        health,
        engine: Engine::Epoll,
        tls: None,
        quic: None,
        scheduling: "ordinary".into(),
        core: Some(core),
    }
}

#[test]
fn the_number_of_shards_follows_threads_and_descriptors() {
    let plan = |threads, connections, each| {
        let plan = ShardPlan::new(threads, connections, each);
        (plan.of, plan.processes(), plan.threads())
    };
    assert_eq!(plan(1, 64, 19_872), (1, 1, 1));
    assert_eq!(plan(4, 64, 19_872), (4, 1, 4));
    assert_eq!(plan(4, 3, 19_872), (3, 1, 3), "every shard has a connection");
    assert_eq!(plan(1, 19_872, 19_872), (1, 1, 1));
    assert_eq!(plan(1, 19_873, 19_872), (2, 2, 1));
    assert_eq!(plan(1, 100_000, 19_872), (6, 6, 1));
    assert_eq!(plan(8, 100_000, 19_872), (8, 8, 1));
    assert!((0..6).all(|index| ShardPlan::new(1, 100_000, 19_872).shard(index).share(100_000) <= 19_872));
}

#[test]
fn results_of_shards_merge_into_one() {
    let all = ShardEnd::merged(&[ended(0.5, 500, 3, 10), ended(0.7, 650, 2, 12), ended(0.2, 100, 1, 11)]);
    assert_eq!(all.measured.1, Some(Timestamp::from_nanos(12_000_000)), "the measured phase ends with the last shard");
    assert_eq!((all.live.offered, all.live.in_flight, all.unfinished), (30, 3, 3));
    assert_eq!(all.health.longest_stall, Duration::from_millis(12));
    assert!((all.health.busy_share() - 0.7).abs() < 1e-6, "the merged busy share is that of the busiest loop");
    // Two loops on one core keep it busy, although each is idle half of the time.
    let shared = ShardEnd::merged(&[ended(0.5, 500, 1, 10), ended(0.5, 480, 1, 10)]);
    assert!((shared.health.busy_share() - 0.98).abs() < 1e-6, "{}", shared.health.busy_share());
    // A loop that polls while it waits uses its core all the time, and works for a fifth of it.
    let polling = ended(0.2, 1_000, 1, 10);
    assert!((ShardEnd::merged(&[polling]).health.busy_share() - 0.2).abs() < 1e-6);
    let beside = ShardEnd::merged(&[ended(0.2, 1_000, 1, 10), ended(0.3, 250, 1, 10)]);
    assert!((beside.health.busy_share() - 0.45).abs() < 1e-6, "{}", beside.health.busy_share());
}

#[test]
fn the_end_of_a_shard_reads_back_as_it_was_written() {
    let end = ended(0.5, 500, 3, 10);
    let back: ShardEnd = serde_json::from_slice(&serde_json::to_vec(&end).unwrap()).unwrap();
    assert_eq!(format!("{back:?}"), format!("{end:?}"));
}

#[test]
fn a_stop_during_the_drain_does_not_move_the_end_of_the_phase() {
    let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let wakes = [Wake::new().unwrap(), Wake::new().unwrap()];
    let shards = wakes.iter().map(|wake| (Arc::default(), Line::Thread(wake))).collect();
    let running = Running::new(Arc::default(), shards);
    for ((progress, _), end) in running.shards.iter().zip([1_000, 1_200]) {
        progress.set_measured_end(at(end));
        progress.enter(Phase::Drain);
    }
    running.update();
    assert_eq!((running.run.measured_end(), running.run.phase()), (Some(at(1_200)), Phase::Drain));
    running.request_stop(1, at(5_000));
    assert_eq!(running.run.measured_end(), Some(at(1_200)));
    running.update();
    assert_eq!(running.run.measured_end(), Some(at(1_200)));

    // A stop before the end sets it, whatever the shards have reported.
    let shards = wakes.iter().map(|wake| (Arc::default(), Line::Thread(wake))).collect();
    let running = Running::new(Arc::default(), shards);
    running.shards.iter().for_each(|(progress, _)| progress.set_measured_end(at(1_000)));
    running.update();
    running.request_stop(1, at(500));
    assert_eq!(running.run.measured_end(), Some(at(500)));
    running.update();
    assert_eq!(running.run.measured_end(), Some(at(500)));
}
