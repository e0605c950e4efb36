//! Cache exchanges are read back as they were written.

use crate::support::{document, fresh_run};
use schema::document::Document;
use schema::{
    CacheContent, CacheExchange, CacheFigures, CacheForm, CachePart, CachePoint, ClientsSupported, FailureCause,
    Method, OriginTraffic, Ratio, Wrong, WrongExample,
};
use store::{read_cache_exchanges, read_summary};
use units::Timestamp;

/// An exchange whose fields differ by its number; every second one has all optional fields.
pub fn exchange(number: u64) -> CacheExchange {
    let full = number % 2 == 1;
    let at = |offset: u64| Timestamp::from_nanos(number * 1_000 + offset);
    CacheExchange {
        // Numbers of follow-ups are sparse.
        sequence: number + ((number % 5) << 40),
        client: (number % 100) as u32,
        run: 0xdead_beef,
        world: u32::MAX,
        kind: (number % 4) as u8,
        object: number * 3,
        object_bytes: 13_000 + number,
        accepts_gzip: full,
        variant_gzip: number.is_multiple_of(3),
        form: CacheForm::ALL[(number % 4) as usize],
        method: [Method::Get, Method::Head, Method::Post][(number % 3) as usize],
        repeat: full,
        offered: number.is_multiple_of(3),
        cacheable: number.is_multiple_of(5),
        secure: number.is_multiple_of(7),
        aborted: number.is_multiple_of(11),
        scheduled_at: at(0),
        sent_at: full.then(|| at(5)),
        done_at: at(9),
        requested_unix_ms: 1_795_167_005_000 + number,
        status: if full { 200 } else { 0 },
        failure: causes_of_http1_and_2().nth((number % 40) as usize),
        from_sequence: full.then_some(number / 2),
        from_run: full.then_some(7),
        response_world: if full { 3 } else { 0 },
        response_object: full.then_some(number),
        response_kind: if full { 2 } else { 0 },
        response_version: if full { 17 } else { 0 },
        generated_unix_ms: if full { 1_795_167_004_000 + number } else { 0 },
        renewed: number.is_multiple_of(4),
        age_s: full.then_some(30),
        expected_version: 18,
        expires_unix_s: if full { 1_795_167_005 } else { i64::MAX },
        renewable: full,
        body_gzip: number.is_multiple_of(3),
        content: CacheContent::ALL[(number % 6) as usize],
        body_bytes: number,
        hit: full,
        wrong: Wrong::ALL.get((number % 20) as usize).copied(),
    }
}

#[test]
fn cache_exchanges_round_trip() {
    let (_dir, _book, run) = fresh_run();
    let rows: Vec<_> = (0..3_000).map(exchange).collect();
    let mut writer = run.cache_exchanges();
    rows.chunks(1_300).for_each(|some| {
        writer.push(some).unwrap();
        writer.close_part().unwrap();
    });
    assert_eq!(writer.finish().unwrap().rows, 3_000);
    assert!(read_cache_exchanges(run.path()).unwrap().map(Result::unwrap).eq(rows));
}

#[test]
fn a_run_without_a_cache_has_no_cache_exchanges() {
    let (_dir, _book, run) = fresh_run();
    assert_eq!(read_cache_exchanges(run.path()).unwrap().count(), 0);
}

#[test]
fn json_names_match_the_column_names() {
    for wrong in Wrong::ALL {
        assert_eq!(serde_json::to_value(wrong).unwrap(), wrong.name());
    }
    for form in CacheForm::ALL {
        assert_eq!(serde_json::to_value(form).unwrap(), form.name());
    }
    for content in CacheContent::ALL {
        assert_eq!(serde_json::to_value(content).unwrap(), content.name());
    }
}

#[test]
fn the_cache_part_round_trips_with_flattened_figures() {
    let (_dir, _book, run) = fresh_run();
    let figures = CacheFigures {
        requests: 100,
        hit_ratio: Ratio { offered: Some(0.55), ideal: Some(0.551), measured: Some(0.5), ideal_lru: None },
        wrong: [("stale".to_owned(), 2)].into(),
        examples: vec![WrongExample {
            kind: "stale".into(),
            request: "GET /y/1/h2".into(),
            sequence: 5,
            why: "old".into(),
        }],
        ..CacheFigures::default()
    };
    let point = CachePoint {
        run: "r".into(),
        offered_rate_per_s: 20.0,
        figures,
        origin: Some(OriginTraffic { requests: 50, bytes: 7, saved_requests: -3, saved_bytes: 1 }),
        ..CachePoint::default()
    };
    let cache = CachePart {
        workload: "polymix-1".into(),
        proxy: "none".into(),
        points: vec![CachePoint::default(), point],
        clients_supported: Some(ClientsSupported {
            clients: 40,
            rate_per_client_per_s: 1.0,
            ..ClientsSupported::default()
        }),
        ..CachePart::default()
    };
    let written = Document { cache: Some(cache), ..document(run.id()) };
    run.write_summary(&written).unwrap();
    assert_eq!(read_summary(run.path()).unwrap(), written);

    let json = serde_json::to_value(&written).unwrap();
    let point = &json["cache"]["points"][1];
    assert_eq!(point["offered_rate_per_s"], 20.0);
    assert_eq!(point["hit_ratio"], serde_json::json!({ "offered": 0.55, "ideal": 0.551, "measured": 0.5 }));
    assert_eq!(point["wrong"]["stale"], 2);
    assert_eq!(json["cache"]["points"][0].get("origin"), None, "an unknown figure is absent");
}

/// The causes that the stored files of 2026-11-26 have: later ones would move their rows.
fn causes_of_http1_and_2() -> impl Iterator<Item = FailureCause> {
    let of_quic = [
        FailureCause::QuicTransportError,
        FailureCause::Http3Error,
        FailureCause::VersionNegotiation,
        FailureCause::StatelessReset,
        FailureCause::QuicIdleTimeout,
    ];
    FailureCause::ALL.into_iter().filter(move |cause| !of_quic.contains(cause))
}
