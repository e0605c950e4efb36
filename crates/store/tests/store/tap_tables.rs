//! Tap exchanges are read back as they were written.

use std::sync::Arc;

use crate::support::fresh_run;
use schema::{TapError, TapExchange, TapOutcome, TapSide};
use store::read_taps;
use units::Timestamp;

/// An exchange whose fields differ by its number; every second one has all optional fields.
pub fn row(number: u64) -> TapExchange {
    let full = number % 2 == 1;
    let at = |offset: u64| Timestamp::from_nanos(number * 1_000 + offset);
    let if_full = |offset: u64| full.then(|| at(offset));
    let errors = [TapError::Errno(111), TapError::Lookup(-2), TapError::NoResponse, TapError::GivenUp];
    TapExchange {
        connection: full.then_some(number / 3),
        exchange: full.then_some((number % 3) as u32),
        last: full,
        pid: 4_000_000,
        program: full.then(|| Arc::from("a\\b\u{1b}[31m/山彦")),
        side: TapSide::ALL[number as usize % 2],
        peer: full.then(|| "[2001:2:0:1::1]:443".parse().unwrap()),
        local: full.then(|| "198.19.0.7:50000".parse().unwrap()),
        opened_at: at(0),
        lookup_ns: full.then_some(1),
        setup_ns: full.then_some(2),
        sent_first_at: if_full(3),
        sent_last_at: if_full(4),
        received_first_at: if_full(5),
        received_last_at: if_full(6),
        sent_bytes: 80,
        received_bytes: number,
        calls: 3,
        blocked_ns: 12,
        outcome: TapOutcome::ALL[number as usize % TapOutcome::ALL.len()],
        error: full.then_some(errors[number as usize % 4]),
        closed_at: if_full(9),
        connection_bytes: full.then_some(number + 80),
        retransmits: full.then_some(0),
        unseen_bytes: full.then_some(7),
    }
}

#[test]
fn tap_exchanges_round_trip_over_several_parts_and_row_groups() {
    let (_dir, _book, run) = fresh_run();
    let rows: Vec<_> = (0..100_000).map(row).collect();
    let mut writer = run.taps();
    rows.chunks(30_000).for_each(|some| {
        writer.push(some).unwrap();
        writer.close_part().unwrap();
    });
    assert_eq!(writer.finish().unwrap().rows, 100_000);
    assert!(read_taps(run.path()).unwrap().map(Result::unwrap).eq(rows));
}
