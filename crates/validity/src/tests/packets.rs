//! Checks of the packet capture.

use super::*;

#[test]
fn a_capture_just_past_a_limit_is_invalid() {
    let invalid = |name, spoil: fn(&mut Case)| assert_eq!(verdict_after(name, spoil), Verdict::Invalid, "{name}");
    invalid("vantage_points_agree_requests", |case| case.agreed().load_only = 1);
    invalid("vantage_points_agree_requests", |case| case.agreed().wire_only = 1);
    invalid("vantage_points_agree_requests", |case| case.agreed().status_differs = 1);
    // One of two failures has a response: it explains no other response.
    invalid("vantage_points_agree_requests", |case| {
        let agreed = case.agreed();
        (agreed.load_failed, agreed.failed_at_load, agreed.wire_only) = (2, 1, 2);
    });
    invalid("vantage_points_agree_sends", |case| case.agreed().wire_requests += 1);
    invalid("vantage_points_agree_sends", |case| case.agreed().wire_requests -= 4);
    invalid("vantage_points_agree_connections", |case| case.agreed().wire_opened = 1001);
    invalid("vantage_points_agree_connections", |case| case.agreed().wire_opened = 999);
    invalid("littles_law_wire_requests", |case| case.figures().in_flight_ns = 10_500_000_000);
    invalid("littles_law_wire_connections", |case| case.figures().connections_ns = 97_000_000_000);
}

#[test]
fn times_that_contradict_the_configured_rtt_are_invalid() {
    let differ =
        |case: &mut Case, count, difference| (0..count).for_each(|_| case.agreed().differences.add(difference));
    let handshakes = |case: &mut Case, count, error| case.figures().handshake_error.record_n(error, count);
    // Half of the requests and one more, by 1.2 and by 12 ms of 100, in either direction.
    for (difference, verdict) in
        [(1_200_000, Verdict::Suspect), (-1_200_000, Verdict::Suspect), (12_000_000, Verdict::Invalid)]
    {
        let mut case = Case::good();
        differ(&mut case, 1001, difference);
        assert_eq!(
            (case.state("vantage_points_agree_service_time"), case.judge().verdict),
            (CheckState::Failed, verdict)
        );
        let mut case = Case::good();
        handshakes(&mut case, 1001, difference.unsigned_abs() as u64);
        assert_eq!((case.state("rtt_at_server_as_configured"), case.judge().verdict), (CheckState::Failed, verdict));
    }
    // One in fifteen: the 95th percentile is the highest that is judged of a thousand.
    for (difference, verdict) in [(6_000_000, Verdict::Suspect), (120_000_000, Verdict::Invalid)] {
        assert_eq!(
            verdict_after("vantage_points_agree_service_time_tail", |case| differ(case, 70, difference)),
            verdict
        );
        assert_eq!(
            verdict_after("rtt_tail_at_server_as_configured", |case| handshakes(case, 70, difference as u64)),
            verdict
        );
    }
    let mut case = Case::good();
    differ(&mut case, 20, 120_000_000);
    assert_eq!(case.judge().verdict, Verdict::Valid, "one in fifty is above the highest judged percentile");
}

#[test]
fn a_late_or_lossy_capture_makes_the_run_suspect() {
    assert_eq!(
        verdict_after("wire_kept_up", |case| case.watched().lag = Duration::from_millis(1001)),
        Verdict::Suspect
    );
    let mut case = Case::good();
    case.watched().clock_deviation_ns = 100_001;
    assert_eq!((case.state("wire_clock"), case.judge().verdict), (CheckState::Failed, Verdict::Suspect));
}

#[test]
fn an_incomplete_capture_makes_the_run_suspect_and_is_not_compared() {
    let holes: [fn(&mut Case); 3] = [
        |case| case.watched().drops = 1,
        |case| case.figures().missing_bytes = 1,
        |case| case.watched().failure = Some("the device is gone".into()),
    ];
    for make in holes {
        let mut case = Case::good();
        make(&mut case);
        // A gap in the capture must not count against the load.
        case.agreed().load_only = 5;
        let validity = case.judge();
        assert_eq!(validity.verdict, Verdict::Suspect, "{validity:?}");
        assert_ne!(case.state("wire_capture_drops"), CheckState::Ok);
    }
    assert_eq!(
        verdict_after("wire_capture_drops", |case| case.watched().client_drops = 1),
        Verdict::Suspect,
        "the clients' end"
    );
    let mut case = Case::good();
    case.watched().drops = 1;
    for name in ["vantage_points_agree_requests", "vantage_points_agree_connections", "littles_law_wire_connections"] {
        assert_eq!(case.state(name), CheckState::CouldNotRun, "{name}");
    }
}

/// Requests that the capture does not read are no contradiction; its other figures are judged.
#[test]
fn requests_that_are_not_read_are_not_compared_and_connections_are() {
    let names = [
        "vantage_points_agree_requests",
        "vantage_points_agree_sends",
        "vantage_points_agree_service_time",
        "vantage_points_agree_service_time_tail",
        "littles_law_wire_requests",
    ];
    let mut case = Case::good();
    case.watched().unread = Some("packets are cut");
    (case.agreed().both, case.agreed().differences) = (0, Default::default());
    (case.figures().requests, case.figures().in_flight_ns) = (0, 0);
    for name in names {
        assert_eq!(case.state(name), CheckState::NotApplicable, "{name}");
    }
    for name in ["vantage_points_agree_connections", "rtt_at_server_as_configured", "littles_law_wire_connections"] {
        assert_eq!(case.state(name), CheckState::Ok, "{name}");
    }
    assert_eq!(case.judge().verdict, Verdict::Valid, "{:?}", case.judge());
    case.agreed().wire_opened = 1001;
    assert_eq!(case.judge().verdict, Verdict::Invalid);

    // Connections that should have been decrypted and were not: nothing is concluded of requests.
    let mut case = Case::good();
    (case.watched().undecrypted, case.watched().secrets_lost) = (1, 4);
    case.agreed().load_only = 5;
    for name in names {
        assert_eq!(case.state(name), CheckState::CouldNotRun, "{name}");
    }
    assert_eq!(
        (case.state("vantage_points_agree_connections"), case.judge().verdict),
        (CheckState::Ok, Verdict::Suspect)
    );
    let validity = case.judge();
    let why = &validity.checks.iter().find(|check| check.name == names[0]).unwrap().why;
    assert!(why.contains("1 connections were not decrypted") && why.contains("4 TLS secrets"), "{why}");
}

/// With HTTP/3 and TLS the vantage points are compared as in clear.
#[test]
fn decrypted_requests_that_disagree_are_invalid() {
    for load in ["https://server/", "https://server/\"\nhttp = \"2", "https://server/\"\nhttp = \"3"] {
        let plan = format!("[load]\nurl = \"{load}\"\nrate = \"100/s\"\nduration = \"10s\"\n[path]\nrtt = \"48ms\"\n");
        let case = || {
            let mut case = Case::good();
            let server = case.plan.server.take();
            case.plan = plan::Plan { server, ..plan::Plan::from_toml(&plan, "test").unwrap() };
            case
        };
        assert_eq!(case().judge().verdict, Verdict::Valid, "{load}: {:?}", case().judge());
        for spoil in [
            (|case| case.agreed().load_only = 1) as fn(&mut Case),
            |case| case.agreed().wire_only = 1,
            |case| case.agreed().status_differs = 1,
            |case| case.agreed().wire_opened = 1001,
            |case| case.agreed().wire_requests = 1004,
        ] {
            let mut case = case();
            spoil(&mut case);
            assert_eq!(case.judge().verdict, Verdict::Invalid, "{load}");
        }
    }
    let mut case = Case::good();
    case.plan.load.http = plan::HttpVersion::Http3;
    case.plan.load.http3 = Some(plan::Http3Plan { early_data: true, ..plan::Http3Plan::default() });
    assert_eq!(case.state("littles_law_wire_requests"), CheckState::NotApplicable);
}

/// A run in which every TLS handshake failed names the reason in one line.
#[test]
fn a_refused_certificate_is_named_by_server_answers() {
    let mut case = Case::good();
    (case.load().completed, case.load().failed) = (0, [("tls_certificate".to_owned(), 1000)].into());
    case.load().tls =
        Some(schema::document::Tls { first_failure: Some("unknown issuer".into()), ..Default::default() });
    let validity = case.judge();
    let check = validity.checks.iter().find(|check| check.name == "server_answers").unwrap();
    assert_eq!(check.state, CheckState::Failed);
    assert!(check.why.contains("tls certificate 1000 times") && check.why.ends_with("TLS failed: unknown issuer"));
}

#[test]
fn a_set_clock_and_dropped_records_are_no_contradiction() {
    let spoils: [fn(&mut Case); 4] = [
        |case| case.watched().records_lost = 1,
        |case| case.watched().clock_deviation_ns = 3_600_000_000_000,
        |case| case.agreed().overflowed = true,
        |case| case.watched().whole.evicted = 1,
    ];
    for spoil in spoils {
        let mut case = Case::good();
        spoil(&mut case);
        // With a clock an hour off, the requests of the two vantage points do not overlap.
        (case.agreed().load_only, case.agreed().wire_only) = (500, 500);
        assert_eq!(case.state("vantage_points_agree_requests"), CheckState::CouldNotRun);
        assert_eq!(case.judge().verdict, Verdict::Suspect, "{:?}", case.judge());
    }
}

#[test]
fn a_run_too_short_for_samples_is_suspect_only_if_it_had_requests() {
    let mut case = Case::good();
    case.watched().levels = WireGauges::default();
    assert_eq!(case.state("littles_law_wire_connections"), CheckState::CouldNotRun);
    (case.figures().connections_ns, case.figures().in_flight_ns) = (0, 0);
    assert_eq!(case.state("littles_law_wire_connections"), CheckState::NotApplicable);
    assert_eq!(case.state("littles_law_wire_requests"), CheckState::NotApplicable);
}

#[test]
fn requests_that_timed_out_at_the_load_may_have_a_response() {
    let mut case = Case::good();
    let agreed = case.agreed();
    (agreed.load_failed, agreed.failed_at_load, agreed.wire_only) = (3, 1, 2);
    assert_eq!(case.state("vantage_points_agree_requests"), CheckState::Ok);
    // A failed connect need not have reached the capture.
    let agreed = case.agreed();
    (agreed.load_called, agreed.load_established, agreed.wire_opened) = (1010, 1000, 1004);
    assert_eq!(case.state("vantage_points_agree_connections"), CheckState::Ok);
}

#[test]
fn capture_checks_that_do_not_apply_have_a_reason() {
    let state = |spoil: fn(&mut Case), name: &str| {
        let mut case = Case::good();
        spoil(&mut case);
        case.state(name)
    };
    for name in [
        "wire_capture_drops",
        "vantage_points_agree_requests",
        "littles_law_wire_requests",
        "rtt_at_server_as_configured",
    ] {
        assert_eq!(state(|case| case.wire = None, name), CheckState::NotApplicable, "{name}");
    }
    for name in ["vantage_points_agree_service_time", "vantage_points_agree_service_time_tail"] {
        assert_eq!(state(|case| case.only_delays = false, name), CheckState::NotApplicable, "{name}");
    }
    for name in ["rtt_at_server_as_configured", "rtt_tail_at_server_as_configured"] {
        assert_eq!(state(|case| case.rtt_varies = true, name), CheckState::NotApplicable, "{name}");
    }
    let few = |case: &mut Case| {
        case.figures().handshake_error = stats::Histogram::new();
        case.figures().handshake_error.record_n(2_500_000, 19);
    };
    assert_eq!(
        state(few, "rtt_at_server_as_configured"),
        CheckState::NotApplicable,
        "four simultaneous handshakes have no reliable median"
    );
    for spoil in [(|case| case.figures().ended_by_direction = 1) as fn(&mut Case), |case| case.figures().unended = 1] {
        assert_eq!(state(spoil, "littles_law_wire_requests"), CheckState::NotApplicable);
    }
    assert_eq!(state(|_| (), "path_on_time_in_capture"), CheckState::NotApplicable);
    assert_eq!(
        state(|case| case.agreed().overflowed = true, "vantage_points_agree_requests"),
        CheckState::CouldNotRun,
        "records dropped"
    );
    let unmeasured = |case: &mut Case| case.agreed().differences = crate::evidence::Differences::default();
    assert_eq!(state(unmeasured, "vantage_points_agree_service_time"), CheckState::CouldNotRun);
}
