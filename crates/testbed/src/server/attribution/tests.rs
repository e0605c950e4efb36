use super::*;

/// Ten seconds of one core, read exactly, in milliseconds.
#[derive(Clone, Copy, Default)]
struct Case {
    idle: [u64; 2],
    tasks: Option<u64>,
    server: u64,
    own: u64,
    receivers: u64,
    kernel: u64,
    stolen: u64,
    named: u64,
    ticked: u64,
    measured: Option<u64>,
    tasks_have_interrupts: bool,
    baseline_per_s: f64,
}

fn spent_of(case: Case) -> Spent {
    let ms = Duration::from_millis;
    let start = CoreTimes {
        at: ms(1_000),
        cores: 1,
        idle: [ms(500), ms(500)],
        tasks: case.tasks.map(|_| ms(700)),
        interrupts: case.measured.map(|_| ms(30)),
        tasks_have_interrupts: case.tasks_have_interrupts,
        ..CoreTimes::default()
    };
    let end = CoreTimes {
        at: ms(11_000),
        idle: [ms(500 + case.idle[0]), ms(500 + case.idle[1])],
        stolen: ms(case.stolen),
        ticked: ms(case.ticked),
        interrupts: case.measured.map(|measured| ms(30 + measured)),
        tasks: case.tasks.map(|tasks| ms(700 + tasks)),
        receivers: ms(case.receivers),
        kernel: ms(case.kernel),
        own: [ms(case.own), ms(case.own)],
        named: ms(case.named),
        ..start.clone()
    };
    attribute(&start, &end, case.server as f64 / 1e3, case.baseline_per_s)
}

#[track_caller]
fn assert_near(actual: Interval, expected: Interval) {
    assert!(
        actual.iter().zip(expected).all(|(actual, expected)| (actual - expected).abs() < 0.0005),
        "{actual:?}, expected {expected:?}"
    );
}

#[test]
fn a_quiet_core_is_attributed_precisely() {
    // 1 s of the server, 0.4 s of interrupts, 10 ms of other processes, 20 ms of the probe.
    let quiet = Case { idle: [8_570, 8_570], tasks: Some(1_030), server: 1_000, own: 20, ..Case::default() };
    let spent = spent_of(quiet);
    assert_near(spent.others, [0.010, 0.010]);
    assert_near(spent.interrupts, [0.4, 0.4]);
    assert!((spent.receive - 0.395).abs() < 1e-6, "{spent:?}");
    // The 10 ms of other processes caused at most 3 ms of interrupts; packets that arrived meanwhile are at most 1 ms
    // of their time.
    assert_near(spent.receive_interval, [0.4 - 0.003 - 0.010, 0.4009]);
    assert!(spent.not_attributable < 0.005, "{spent:?}");
    assert_near(spent.server, [1.0, 1.0]);
}

#[test]
fn a_busy_loop_on_the_core_is_not_the_servers_and_may_hide_receive_processing() {
    // nginx at 100 requests per second: 80 ms. There is no idle time, so every packet interrupts the loop.
    let spent = spent_of(Case { idle: [0, 0], tasks: Some(9_990), server: 80, ..Case::default() });
    assert_near(spent.others, [9.91, 9.91]);
    assert!(spent.receive < 0.011, "the loop's ten seconds are not the server's: {spent:?}");
    assert!(spent.receive_interval[0] == 0.0 && (9.9..9.95).contains(&spent.receive_interval[1]), "{spent:?}");
    assert!(spent.not_attributable > 9.0, "{spent:?}");
}

/// If the kernel's figures leave no time for interrupts, their absence is not certain.
#[test]
fn no_remaining_time_does_not_mean_no_interrupts() {
    let spent = spent_of(Case { idle: [0, 0], tasks: Some(10_003), server: 80, ..Case::default() });
    assert!(spent.receive_interval[1] > 9.9 && spent.not_attributable > 9.9, "{spent:?}");
    assert!(spent.receive < 0.02, "{spent:?}");
    // The result is the same if the figures are so far apart in time that they do not add up.
    let late = spent_of(Case { idle: [0, 0], tasks: Some(10_100), server: 80, ..Case::default() });
    assert!(late.receive_interval[1] > 9.9 && late.not_attributable > 9.9, "{late:?}");
}

#[test]
fn a_slow_reading_widens_the_interval() {
    let ms = Duration::from_millis;
    let of = |took_ms| {
        let times = |at, idle, tasks| CoreTimes {
            at: ms(at),
            read_duration: ms(took_ms),
            cores: 1,
            idle: [ms(idle); 2],
            tasks: Some(ms(tasks)),
            ..CoreTimes::default()
        };
        attribute(&times(1_000, 500, 100), &times(11_000, 10_000, 400), 0.3, 0.0)
    };
    assert_near(of(0).interrupts, [0.2, 0.2]);
    assert_near(of(5).interrupts, [0.19, 0.21]);
}

#[test]
fn a_loop_with_a_tenth_of_the_time_hides_at_most_two_tenths() {
    // 0.3 s of interrupts in 8.7 s without processes.
    let spent = spent_of(Case { idle: [8_400, 8_400], tasks: Some(1_300), server: 300, ..Case::default() });
    assert_near(spent.others, [1.0, 1.0]);
    // At either end the loop may have run since its last tick.
    assert_near(spent.interrupts, [0.298, 0.302]);
    let hidden = 2.0 * 0.302 / (8.4 + 0.302);
    assert_near(spent.receive_interval, [0.0, 0.302 + hidden]);
    assert!((spent.receive - 0.3).abs() < 1e-6);
    assert!((spent.not_attributable - (0.298 + hidden)).abs() < 0.001, "{spent:?}");
}

#[test]
fn coarse_clocks_widen_the_interval_without_unattributable_time() {
    let spent = spent_of(Case { idle: [9_650, 9_690], tasks: Some(200), server: 200, ..Case::default() });
    assert_near(spent.interrupts, [0.110, 0.150]);
    assert_near(spent.receive_interval, [0.110, 0.150]);
    assert!((spent.receive - 0.13).abs() < 1e-6 && spent.not_attributable < 1e-6, "{spent:?}");
}

#[test]
fn stolen_time_may_belong_to_any_process() {
    // 0.5 s were stolen, a tenth of the core's work in the server's time.
    let spent =
        spent_of(Case { idle: [5_000, 5_000], tasks: Some(4_000), server: 4_000, stolen: 500, ..Case::default() });
    assert_near(spent.interrupts, [0.5, 1.0]);
    assert_near(spent.server, [3.6, 4.0]);
    assert!(spent.not_attributable > 0.89, "{spent:?}");
}

#[test]
fn interrupts_before_the_load_are_not_the_servers() {
    let spent =
        spent_of(Case { idle: [9_000, 9_000], tasks: Some(500), server: 500, baseline_per_s: 0.02, ..Case::default() });
    assert!((spent.receive - 0.3).abs() < 1e-6, "{spent:?}");
    assert_near(spent.receive_interval, [0.3, 0.5]);
    assert!((spent.not_attributable - 0.2).abs() < 0.001, "{spent:?}");
}

#[test]
fn receiving_kernel_threads_are_receive_processing() {
    let spent =
        spent_of(Case { idle: [8_000, 8_000], tasks: Some(1_700), server: 1_500, receivers: 200, ..Case::default() });
    assert_near(spent.others, [0.0, 0.0]);
    assert!((spent.receive - 0.5).abs() < 1e-6, "0.3 in interrupts, 0.2 in ksoftirqd: {spent:?}");
}

/// Maintenance threads (kworker and others) run a few times a second, for milliseconds, on every machine.
#[test]
fn maintenance_kernel_threads_are_not_other_processes() {
    let spent = spent_of(Case { idle: [9_600, 9_600], tasks: Some(230), server: 100, kernel: 130, ..Case::default() });
    assert_near(spent.others, [0.0, 0.0]);
    assert!((spent.receive - 0.17).abs() < 1e-6 && spent.not_attributable < 0.006, "{spent:?}");
}

#[test]
fn interrupts_measured_by_the_kernel_are_exact() {
    // With cgroup version 1 the time of processes excludes interrupts; in /proc/schedstat it includes those that came
    // meanwhile, here 0.3 of 0.4 s.
    let exact = Case { idle: [4_600, 4_600], measured: Some(400), server: 1_000, ..Case::default() };
    for (tasks, tasks_have_interrupts) in [(5_000, false), (5_300, true)] {
        let spent = spent_of(Case { tasks: Some(tasks), tasks_have_interrupts, ..exact });
        assert!((spent.receive - 0.4).abs() < 1e-6, "{spent:?}");
        assert!(spent.others[0] <= 4.0 && 3.999 <= spent.others[1] && spent.others[1] < 4.1, "{spent:?}");
        assert!(spent.receive_interval[1] < 0.43, "{spent:?}");
    }
}

#[test]
fn without_exact_task_time_the_tick_bounds_unseen_processes() {
    // 0.5 s of a process that was read.
    let seen = Case { idle: [8_200, 8_200], server: 1_000, named: 500, ticked: 1_500, ..Case::default() };
    let actual = spent_of(seen);
    assert_near(actual.others, [0.5, 0.5]);
    assert_near(actual.interrupts, [0.299, 0.301]);
    assert!(actual.not_attributable < 0.2, "{actual:?}");
    // And 2 s of others that were not.
    let unseen = spent_of(Case { idle: [6_200, 6_200], ticked: 3_500, ..seen });
    assert!(unseen.others[1] > 1.9 && unseen.others[0] < 0.501, "{unseen:?}");
    assert!(unseen.receive_interval[0] < 0.8 && unseen.receive_interval[1] > 2.0, "{unseen:?}");
    assert!(unseen.not_attributable > 1.0, "{unseen:?}");
}

#[test]
fn attributed_time_is_never_negative() {
    let spent = spent_of(Case { idle: [10_000, 10_020], tasks: Some(0), ..Case::default() });
    assert_near(spent.others, [0.0, 0.0]);
    assert!(spent.receive >= 0.0 && spent.receive_interval[0] == 0.0, "{spent:?}");
}
