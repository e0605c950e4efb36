use load::MixLive;

use super::*;
use validity::evidence::LoopHealth;

fn ended(busy: f64, cpu_ms: u64, core: usize, end_ms: u64) -> LaneEnd {
    let wall = Duration::from_secs(1);
    let health = LoopHealth {
        standstill: Duration::from_millis(end_ms),
        idle: wall.mul_f64(1.0 - busy),
        wall,
        cpu: Duration::from_millis(cpu_ms),
    };
    LaneEnd {
        measured: (Timestamp::ZERO, Some(Timestamp::from_nanos(end_ms * 1_000_000))),
        live: Live { offered: 10, in_flight: 1, ..Live::default() },
        mix: MixLive::default(),
        unfinished: 1,
        first_request: b"GET".to_vec(),
        first_head: None,
        malformed_responses: Vec::new(),
        health,
        engine: Engine::Epoll,
        tls: None,
        scheduling: "ordinary".into(),
        core: Some(core),
    }
}

#[test]
fn lanes_are_as_many_as_threads_or_as_descriptors_ask_for() {
    let plan = |threads, connections, each| {
        let plan = LanePlan::new(threads, connections, each);
        (plan.of, plan.processes(), plan.threads())
    };
    assert_eq!(plan(1, 64, 19_872), (1, 1, 1));
    assert_eq!(plan(4, 64, 19_872), (4, 1, 4));
    assert_eq!(plan(4, 3, 19_872), (3, 1, 3), "a lane without a connection would have nothing to do");
    assert_eq!(plan(1, 19_872, 19_872), (1, 1, 1));
    assert_eq!(plan(1, 19_873, 19_872), (2, 2, 1));
    assert_eq!(plan(1, 100_000, 19_872), (6, 6, 1));
    assert_eq!(plan(8, 100_000, 19_872), (8, 8, 1));
    assert!((0..6).all(|index| LanePlan::new(1, 100_000, 19_872).lane(index).share(100_000) <= 19_872));
}

#[test]
fn lanes_merge_into_one() {
    let all = LaneEnd::merged(&[ended(0.5, 500, 3, 10), ended(0.7, 650, 2, 12), ended(0.2, 100, 1, 11)]);
    assert_eq!(all.measured.1, Some(Timestamp::from_nanos(12_000_000)), "the phase ends with the last");
    assert_eq!((all.live.offered, all.live.in_flight, all.unfinished), (30, 3, 3));
    assert_eq!(all.health.standstill, Duration::from_millis(12));
    assert!((all.health.busy_share() - 0.7).abs() < 1e-6, "as busy as the busiest");
    // Two on one core are busy together, though each saw half of the time go by idle.
    let shared = LaneEnd::merged(&[ended(0.5, 500, 1, 10), ended(0.5, 480, 1, 10)]);
    assert!((shared.health.busy_share() - 0.98).abs() < 1e-6, "{}", shared.health.busy_share());
}

#[test]
fn ends_travel_whole() {
    let end = ended(0.5, 500, 3, 10);
    let back: LaneEnd = serde_json::from_slice(&serde_json::to_vec(&end).unwrap()).unwrap();
    assert_eq!(format!("{back:?}"), format!("{end:?}"));
}

#[test]
fn a_stop_while_answers_are_awaited_does_not_move_the_end_of_the_phase() {
    let at = |ms: u64| Timestamp::from_nanos(ms * 1_000_000);
    let wakes = [Wake::new().unwrap(), Wake::new().unwrap()];
    let lanes = wakes.iter().map(|wake| (Arc::default(), Line::Thread(wake))).collect();
    let running = Running::new(Arc::default(), lanes);
    for ((progress, _), end) in running.lanes.iter().zip([1_000, 1_200]) {
        progress.set_measured_end(at(end));
        progress.enter(Phase::Drain);
    }
    running.look();
    assert_eq!((running.run.measured_end(), running.run.phase()), (Some(at(1_200)), Phase::Drain));
    running.ask(1, at(5_000));
    assert_eq!(running.run.measured_end(), Some(at(1_200)));
    running.look();
    assert_eq!(running.run.measured_end(), Some(at(1_200)));

    // One that is asked for before is the end, whatever the lanes have said so far.
    let lanes = wakes.iter().map(|wake| (Arc::default(), Line::Thread(wake))).collect();
    let running = Running::new(Arc::default(), lanes);
    running.lanes.iter().for_each(|(progress, _)| progress.set_measured_end(at(1_000)));
    running.look();
    running.ask(1, at(500));
    assert_eq!(running.run.measured_end(), Some(at(500)));
    running.look();
    assert_eq!(running.run.measured_end(), Some(at(500)));
}
