use std::time::Duration;

use super::*;

fn at(seconds: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_secs(seconds)
}

#[test]
fn counters_are_summed_over_threads() {
    let figures = Figures::new();
    let (one, two) = (figures.worker(), figures.worker());
    let hit = Finding::new(Outcome::Hit, Reason::Fresh);
    for counters in [&one, &two] {
        counters.began();
        counters.answered(Kind::Static, 200, 10, Finding::NONE, true);
        counters.began();
        counters.answered(Kind::Dynamic, 503, 5, hit, true);
        counters.connection_opened();
        counters.received(100);
        counters.sent(200);
    }
    one.began();
    two.began();
    two.answered(Kind::Refused, 400, 1, Finding::NONE, true);
    two.connection_closed();
    two.connection_refused(Refusal::PerAddress);
    let total = figures.total();
    assert_eq!((total.requests(), total.errors(), total.in_flight(), total.open()), (5, 3, 1, 1));
    assert_eq!(total.answers[Kind::Static.index()][2], 2);
    assert_eq!(total.body_bytes, [20, 10, 0, 1, 0]);
    assert_eq!((total.received_bytes, total.sent_bytes), (200, 400));
    assert_eq!(total.refused[Refusal::PerAddress.index()], 1);
    assert_eq!(total.findings[Outcome::Hit.index()][Reason::Fresh.index()], 2);
    assert_eq!(total.findings.iter().flatten().sum::<u64>(), 2);
}

#[test]
fn a_request_without_a_response_is_not_in_flight() {
    let figures = Figures::new();
    let counters = figures.worker();
    counters.began();
    counters.answered(Kind::Dynamic, crate::journal::NO_RESPONSE, 0, Finding::NONE, false);
    counters.began();
    counters.answered(Kind::Static, 999, 0, Finding::NONE, false);
    let total = figures.total();
    assert_eq!((total.in_flight(), total.truncated), (0, 2));
    assert_eq!((total.answers[Kind::Dynamic.index()][4], total.answers[Kind::Static.index()][0]), (1, 1));
}

#[test]
fn last_minute_counts_requests_of_the_last_60_seconds() {
    let figures = Figures::new();
    let counters = figures.worker();
    for second in 0..200 {
        for _ in 0..3 {
            counters.answered(Kind::Static, 200, 0, Finding::NONE, true);
        }
        counters.tick(at(second));
        assert_eq!(figures.last_minute(at(second)), 3 * (second + 1).min(60));
    }
    // After a long idle time the earlier requests are outside of the minute.
    counters.answered(Kind::Static, 200, 0, Finding::NONE, true);
    assert_eq!(figures.last_minute(at(1000)), 0);
    counters.tick(at(1000));
    counters.tick(at(1001));
    assert_eq!(figures.last_minute(at(1001)), 1);
}

#[test]
fn kinds_and_refusals_are_listed_in_index_order() {
    assert!(Kind::ALL.iter().enumerate().all(|(at, kind)| kind.index() == at));
    assert!(Refusal::ALL.iter().enumerate().all(|(at, refusal)| refusal.index() == at));
}
