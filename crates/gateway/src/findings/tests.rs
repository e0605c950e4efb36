use crate::tester::{EndReport, Test};
use stats::arrivals::{Arrivals, LOSSES_MIN};

use super::*;
use crate::trials::SizeResult;

const GAP_NS: u64 = 500_000;

/// Report of a row of packets up. Packets whose number is `lost` do not arrive. Packets sent during `stall` (from, to,
/// in ns) arrive at its end, or not at all with `stall_loses`.
fn row(sent: u64, lost: impl Fn(u64) -> bool, stall: Option<(u64, u64)>, stall_loses: bool) -> TrialReport {
    let mut arrivals = Arrivals::new(GAP_NS as f64);
    for number in (0..sent).filter(|&number| !lost(number)) {
        let at_ns = number * GAP_NS;
        match stall {
            Some((from, to)) if (from..to).contains(&at_ns) => {
                if !stall_loses {
                    arrivals.add(number, to);
                }
            }
            _ => arrivals.add(number, at_ns),
        }
    }
    let lag_ns = schema::Quantiles { count: sent, p99: 100_000, max: 300_000, ..schema::Quantiles::default() };
    let of_sender = SentReport { planned: sent, sent, to_ns: sent * GAP_NS, lag_ns, ..SentReport::default() };
    TrialReport {
        test: Test::Packets { up: true, ip_bytes: 512, per_second: 2000.0, lasts_ms: 3000, settle_ms: 0, probes: true },
        client: EndReport { sent: Some(of_sender), ..EndReport::default() },
        server: EndReport { arrivals: Some(arrivals.finish(sent)), ..EndReport::default() },
        rtt: None,
        exchanges: None,
        cut_short: false,
    }
}

fn surveyed(seen: TrialReport) -> SurveyResult {
    SurveyResult { up: true, gap_ns: GAP_NS as f64, seen, longer_survey: None }
}

fn names(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.name.as_str()).collect()
}

#[test]
fn gateway_without_loss_has_no_findings() {
    assert!(of_survey(&surveyed(row(6000, |_| false, None, false)), 0.0).is_empty());
}

#[test]
fn periodic_loss_needs_twenty_losses() {
    let of = |losses: u64| {
        let seen = row(60_000, |number| number % 1000 == 999 && number / 1000 < losses, None, false);
        of_survey(&surveyed(seen), 0.0)
    };
    let found = of(LOSSES_MIN);
    assert_eq!(names(&found), [name::LOSS_PERIODIC]);
    assert_eq!(found[0].figures["period_packets"], 1000.0);
    assert!(found[0].words.starts_with("every 1000th packet is lost: 20 of 60000"), "{}", found[0].words);
    assert_eq!(found[0].test, "survey_up");
    assert_eq!(names(&of(LOSSES_MIN - 1)), [name::LOSS_RANDOM]);
}

/// Alternating distances of 1000 - d and 1000 + d have a coefficient of variation of d / 1000.
#[test]
fn distances_that_vary_by_five_percent_are_not_periodic() {
    let of = |off: u64| {
        let (mut at, mut lost) = (0, Vec::new());
        for turn in 0..41 {
            lost.push(at);
            at += if turn % 2 == 0 { 1000 - off } else { 1000 + off };
        }
        of_survey(&surveyed(row(50_000, |number| lost.contains(&number), None, false)), 0.0)
    };
    assert_eq!(names(&of(49)), [name::LOSS_PERIODIC]);
    assert_eq!(names(&of(51)), [name::LOSS_RANDOM]);
}

#[test]
fn loss_bursts_are_distinguished_from_random_loss() {
    // Ten bursts of ten losses at varying distances.
    let starts: Vec<u64> = (1..11).map(|n| n * 500 + n * n * 7).collect();
    let in_burst = |number: u64| starts.iter().any(|&start| (start..start + 10).contains(&number));
    let found = of_survey(&surveyed(row(10_000, in_burst, None, false)), 0.0);
    assert_eq!(names(&found), [name::LOSS_BURSTS]);
    assert_eq!((found[0].figures["burst_packets"], found[0].figures["longest_burst_packets"]), (10.0, 10.0));
    let mut rng = stats::Rng::new(1, 1);
    let isolated: Vec<bool> = (0..10_000).map(|_| rng.uniform() < 0.01).collect();
    let found = of_survey(&surveyed(row(10_000, |number| isolated[number as usize], None, false)), 0.0199);
    assert_eq!(names(&found), [name::LOSS_RANDOM]);
    let figures = &found[0].figures;
    assert!(figures["loss_share_low"] < 0.01 && figures["loss_share_high"] > 0.01, "{figures:?}");
    assert!(found[0].words.contains("configured loss of the links: 1.99 %"), "{}", found[0].words);
}

#[test]
fn stalls_over_100_ms_are_findings() {
    let of = |ms: u64, stall_loses| {
        let stall = Some((1_000_000_000, 1_000_000_000 + ms * 1_000_000));
        of_survey(&surveyed(row(6000, |_| false, stall, stall_loses)), 0.0)
    };
    let found = of(1000, false);
    assert_eq!(names(&found), [name::STALL]);
    assert!((found[0].figures["lasted_ns"] - 1e9).abs() < 2e6, "{:?}", found[0].figures);
    assert_eq!(found[0].figures["lost_packets"], 0.0);
    assert!(found[0].words.starts_with("stall of 1.00 s at 1.0 s"), "{}", found[0].words);
    // Losses in a stall are part of its finding, and not a finding of their own.
    let found = of(1000, true);
    assert_eq!(names(&found), [name::STALL]);
    assert!((1999.0..=2001.0).contains(&found[0].figures["lost_packets"]), "{:?}", found[0].figures);
    assert_eq!(names(&of(101, false)), [name::STALL]);
    assert!(of(99, false).is_empty());
}

#[test]
fn stall_of_the_sender_is_not_a_finding() {
    let mut seen = row(6000, |_| false, Some((1_000_000_000, 1_500_000_000)), false);
    let sent = seen.client.sent.as_mut().unwrap();
    sent.lag_ns.max = 240_000_000;
    assert_eq!(names(&of_survey(&surveyed(seen.clone()), 0.0)), [name::STALL]);
    seen.client.sent.as_mut().unwrap().lag_ns.max = 260_000_000;
    assert!(of_survey(&surveyed(seen), 0.0).is_empty());
}

#[test]
fn losses_in_the_tester_are_not_findings() {
    let mut seen = row(6000, |number| number % 1000 == 5, None, false);
    seen.server.overflowed = 5;
    assert_eq!(floor_of(&seen, GAP_NS as f64), Some((1, 6000)));
    seen.server.overflowed = 6;
    assert!(of_survey(&surveyed(seen), 0.0).is_empty());
}

#[test]
fn longer_survey_determines_the_pattern_of_loss() {
    let few = row(6000, |number| number % 1000 == 999, None, false);
    let more = row(25_000, |number| number % 1000 == 999, None, false);
    let survey = SurveyResult { longer_survey: Some((GAP_NS as f64, more)), ..surveyed(few.clone()) };
    assert_eq!(names(&of_survey(&survey, 0.0)), [name::LOSS_PERIODIC]);
    assert_eq!(floor(&survey), Some((31, 31_000)));
    let clean =
        SurveyResult { longer_survey: Some((GAP_NS as f64, row(100, |_| false, None, false))), ..surveyed(few) };
    assert_eq!(names(&of_survey(&clean, 0.0)), [name::LOSS_RANDOM]);
}

#[test]
fn one_way_finding_names_the_blocked_direction() {
    let up = |received: bool| surveyed(row(if received { 100 } else { 10 }, |_| !received, None, false));
    let down = |received: bool| {
        let mut one = up(received);
        one.up = false;
        one.seen.test =
            Test::Packets { up: false, ip_bytes: 512, per_second: 2000.0, lasts_ms: 3000, settle_ms: 0, probes: true };
        std::mem::swap(&mut one.seen.client, &mut one.seen.server);
        one
    };
    let found = one_way(&[up(true), down(false)]).unwrap();
    assert_eq!((found.name.as_str(), found.test.as_str()), (name::ONE_WAY, "survey_down"));
    assert_eq!(one_way(&[up(false), down(true)]).unwrap().test, "survey_up");
    assert_eq!(one_way(&[up(true), down(true)]), None);
    assert_eq!(one_way(&[up(false), down(false)]), None, "no packets in either direction is another finding");
    assert_eq!(one_way(&[up(true)]), None, "the other direction was not measured");
}

#[test]
fn mtu_finding_names_the_largest_size_that_passes() {
    let size = |ip_bytes, received| SizeResult { up: true, ip_bytes, sent: 50, received, too_long: false };
    let found = mtu(&[size(64, 50), size(1400, 50), size(1450, 0), size(1500, 0)]).unwrap();
    assert_eq!((found.figures["passes_bytes"], found.figures["blocked_bytes"]), (1400.0, 1450.0));
    assert_eq!(mtu(&[size(64, 50), size(1500, 1)]), None, "a single packet that passes is enough");
    assert_eq!(mtu(&[size(64, 0), size(1500, 0)]), None);
    assert_eq!(mtu(&[size(64, 0), size(1500, 50)]), None, "shorter packets are blocked, not longer ones");
    let too_long = SizeResult { sent: 0, too_long: true, ..size(1500, 0) };
    let words = |one| mtu(&[size(64, 50), one]).unwrap().words;
    assert!(words(too_long).ends_with(": the MTU of the sender's device is smaller"), "{}", words(too_long));
    // An error of a later send was caused by an ICMP message. Its absence proves nothing.
    assert!(words(SizeResult { sent: 50, ..too_long }).ends_with("; reported by the gateway (ICMP)"));
    assert_eq!(words(size(1500, 0)), "IP packets of 64 bytes arrive, none of 1500 does");
    assert_eq!(
        mtu(&[size(64, 50), SizeResult { too_long: false, ..too_long }]),
        None,
        "packets that were never sent prove nothing"
    );
}

#[test]
fn full_connection_table_is_distinguished_from_a_declining_rate() {
    let of = |slices: &[u32]| {
        let per_second = slices.iter().sum::<u32>().into();
        table_full(&ExchangesReport { by_slice: slices.to_vec(), per_second, ..ExchangesReport::default() })
    };
    let falls = |rest: u32| [vec![1000; 10], vec![rest; 20]].concat();
    let found = of(&falls(99)).unwrap();
    assert_eq!(found.name, name::TABLE_FULL);
    assert_eq!((found.figures["connections"], found.figures["before_per_s"]), (10_000.0, 10_000.0));
    assert_eq!(of(&falls(101)), None);
    assert_eq!(of(&[1000; 30]), None);
    assert_eq!(of(&[vec![4; 10], vec![0; 20]].concat()), None, "too few connections for a finding");
    assert_eq!(of(&falls(0)[..8]), None, "too few time slices for a finding");
}

#[test]
fn failed_new_connections_are_a_finding_with_causes() {
    let trial = |done, failed: &[(&str, u64)]| {
        let failed = failed.iter().map(|&(cause, count)| (cause.to_owned(), count)).collect();
        ExchangesReport { done, failed, ..ExchangesReport::default() }
    };
    assert_eq!(connections_failed(&[trial(100, &[]), trial(90, &[])]), None);
    let found = connections_failed(&[trial(70, &[("timed out", 29)]), trial(100, &[("reset", 1), ("timed out", 1)])]);
    let found = found.unwrap();
    assert_eq!((found.figures["failed"], found.figures["done"]), (31.0, 170.0));
    assert_eq!(found.words, "31 of 201 new connections failed (reset 1, timed out 30)");
}

#[test]
fn stalls_that_the_cpu_share_explains_are_attributed_to_it() {
    let stall = Some((1_000_000_000, 1_200_000_000));
    let of = |more_ns: f64| {
        let mut found = of_survey(&surveyed(row(6000, |_| false, stall, false)), 0.0);
        let lasted_ns = found[0].figures["lasted_ns"];
        attribute_stalls_to_share(&mut found, lasted_ns + more_ns);
        found.remove(0).words.contains("a used-up CPU share can cause stalls of this length")
    };
    assert_eq!((of(0.0), of(-1.0)), (true, false));
}

#[test]
fn missing_route_is_found_with_and_without_icmp() {
    let server: SocketAddr = "198.18.0.1:7021".parse().unwrap();
    let unreachable_by =
        |code: i32| TesterError::Unreachable { address: server, source: std::io::Error::from_raw_os_error(code) };
    const EHOSTUNREACH: i32 = 113;
    const ENETUNREACH: i32 = 101;
    const ECONNREFUSED: i32 = 111;
    let found = unreachable(&unreachable_by(EHOSTUNREACH), server, None).unwrap();
    assert_eq!(found.name, name::NO_ROUTE);
    assert!(found.words.contains("198.18.0.1") && found.words.ends_with("no route to host"), "{}", found.words);
    assert_eq!(unreachable(&unreachable_by(ENETUNREACH), server, None).unwrap().name, name::NO_ROUTE);
    assert_eq!(
        unreachable(&unreachable_by(ECONNREFUSED), server, None),
        None,
        "a refused connection shows that there is a route"
    );
    let silent = TesterError::NoAnswer { address: server };
    let of = |diagnosis: ForwardingDiagnosis| unreachable(&silent, server, Some(&diagnosis)).map(|found| found.name);
    let nothing_forwarded = ForwardingDiagnosis { answers: true, ..ForwardingDiagnosis::default() };
    assert_eq!(of(nothing_forwarded).as_deref(), Some(name::NO_ROUTE));
    assert_eq!(
        of(ForwardingDiagnosis { answers: false, ..nothing_forwarded }),
        None,
        "without a response of the gateway the cause is unknown"
    );
    let forwards = ForwardingDiagnosis { forwarded: 5, towards_server: 5, ..nothing_forwarded };
    assert_eq!(of(ForwardingDiagnosis { nat: true, ..forwards }).as_deref(), Some(name::NAT_MISSING));
    assert_eq!(of(forwards).as_deref(), Some(name::ONE_WAY));
    assert_eq!(of(ForwardingDiagnosis { nat: true, came_back: 1, ..forwards }).as_deref(), Some(name::ONE_WAY));
    assert_eq!(unreachable(&silent, server, None), None);
    assert_eq!(unreachable(&TesterError::WrongSecret { address: server }, server, Some(&nothing_forwarded)), None);
}

#[test]
fn wilson_intervals_stay_within_0_and_1() {
    // Published values for 10 of 100 at 95 %.
    let [low, high] = wilson(10, 100, 0.95);
    assert!((low - 0.0552).abs() < 1e-4 && (high - 0.1744).abs() < 1e-4, "{low} {high}");
    assert_eq!(wilson(0, 0, 0.95), [0.0, 1.0]);
    assert_eq!(wilson(0, 10, 0.95)[0], 0.0);
    assert_eq!(wilson(10, 10, 0.95)[1], 1.0);
}
