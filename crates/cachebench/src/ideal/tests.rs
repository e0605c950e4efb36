//! Tests of the simulation against a brute-force simulation, and with streams whose result is known.

use proptest::prelude::*;

use super::*;

/// A basic cacheable request at a time.
fn fetch(url: u8, at_unix_s: i64) -> Fetch<u8> {
    Fetch {
        url,
        bytes: 100,
        cacheable: true,
        fills: true,
        may_hit: true,
        counts: true,
        version: 0,
        renewable: false,
        expires_unix_s: i64::MAX,
        at_unix_s,
    }
}

fn hits(stream: &[Fetch<u8>], size: Limit<Bytes>) -> u64 {
    ideal(stream.iter().copied(), size).hits
}

const INFINITE: Limit<Bytes> = Limit::Unlimited;

#[test]
fn simulation_does_not_use_the_generator() {
    let source = include_str!("../ideal.rs");
    assert!(!source.contains("polymix"), "the simulation shares no code with the generator");
}

#[test]
fn repeated_request_is_a_hit_and_the_first_is_not() {
    let stream = [fetch(1, 0), fetch(1, 1), fetch(2, 2), fetch(1, 3)];
    let ratios = ideal(stream, INFINITE);
    assert_eq!((ratios.requests, ratios.hits, ratios.bytes, ratios.hit_bytes), (4, 2, 400, 200));
    assert_eq!((ratios.documents(), ratios.byte_share()), (Some(0.5), Some(0.5)));
    assert_eq!(IdealRatios::default().documents(), None);
}

#[test]
fn requests_that_cannot_fill_leave_no_copy() {
    let passing = Fetch { fills: false, ..fetch(1, 0) };
    assert_eq!(hits(&[passing, fetch(1, 1), fetch(1, 2)], INFINITE), 1);
    let uncacheable = Fetch { cacheable: false, ..fetch(1, 0) };
    assert_eq!(hits(&[uncacheable, uncacheable], INFINITE), 0);
    // A reload is not a hit, and stores a new copy.
    let reload = Fetch { may_hit: false, ..fetch(1, 1) };
    assert_eq!(hits(&[fetch(1, 0), reload, fetch(1, 2)], INFINITE), 1);
    assert_eq!(hits(&[reload, fetch(1, 2)], INFINITE), 1);
}

#[test]
fn copy_is_usable_until_its_expiry_and_renewable_after() {
    let first = Fetch { expires_unix_s: 10, ..fetch(1, 0) };
    let at = |at_unix_s| Fetch { version: 1, expires_unix_s: 20, ..fetch(1, at_unix_s) };
    assert_eq!(hits(&[first, at(9)], INFINITE), 1);
    assert_eq!(hits(&[first, at(10)], INFINITE), 0);
    assert_eq!(hits(&[first, at(10), at(19)], INFINITE), 1, "the new version is stored");
    // An unchanged copy is renewed if it has a validator.
    let same = |renewable| Fetch { version: 0, renewable, expires_unix_s: 20, ..fetch(1, 10) };
    assert_eq!(hits(&[first, same(true)], INFINITE), 1);
    assert_eq!(hits(&[first, same(false)], INFINITE), 0);
    assert_eq!(
        hits(&[first, same(true), Fetch { expires_unix_s: 30, ..fetch(1, 19) }], INFINITE),
        2,
        "the renewal extends the lifetime"
    );
    let changed = Fetch { renewable: true, version: 1, ..fetch(1, 10) };
    assert_eq!(hits(&[first, changed], INFINITE), 0);
}

#[test]
fn least_recently_used_copy_is_evicted_first() {
    let two = Limit::At(Bytes(200));
    let stream = [fetch(1, 0), fetch(2, 1), fetch(1, 2), fetch(3, 3), fetch(1, 4), fetch(2, 5)];
    let ratios = ideal(stream, two);
    assert_eq!(ratios.hits, 2, "object 3 evicts object 2, since object 1 was used more recently");
    assert_eq!((ratios.evicted, ratios.stored_bytes_max), (2, 200));
    let too_large = Fetch { bytes: 201, ..fetch(4, 6) };
    assert_eq!(
        ideal([fetch(1, 0), too_large, too_large, fetch(1, 7)], two).evicted,
        0,
        "an object larger than the cache is not stored"
    );
    assert_eq!(hits(&[too_large, too_large], Limit::At(Bytes(201))), 1);
}

/// A recorded exchange.
fn exchange(sequence: u64, object: u64, sent_ns: u64) -> CacheExchange {
    CacheExchange {
        sequence,
        object,
        object_bytes: 10,
        cacheable: true,
        scheduled_at: Timestamp::from_nanos(sent_ns),
        sent_at: Some(Timestamp::from_nanos(sent_ns)),
        done_at: Timestamp::from_nanos(sent_ns),
        expires_unix_s: i64::MAX,
        ..CacheExchange::default()
    }
}

#[test]
fn run_is_simulated_in_sending_order_and_counted_by_scheduled_time() {
    let measured = Timestamp::from_nanos(10)..Timestamp::from_nanos(20);
    // The rows are in order of completion; their numbers are in sending order.
    let rows = [exchange(1, 7, 12), exchange(0, 7, 5), exchange(2, 8, 13), exchange(3, 8, 20)];
    let ideals = ideals_of(&rows, measured.clone(), Some(Bytes(10)));
    assert_eq!(
        (ideals.infinite.requests, ideals.infinite.hits),
        (2, 1),
        "the warm-up fills the cache and is not counted"
    );
    assert_eq!(ideals.lru.map(|lru| (lru.hits, lru.evicted)), Some((1, 1)));

    let forms = |spoil: fn(&mut CacheExchange)| {
        let mut rows = [exchange(0, 7, 5), exchange(1, 7, 12)];
        spoil(&mut rows[0]);
        ideals_of(&rows, measured.clone(), None).infinite.hits
    };
    assert_eq!(forms(|_| ()), 1);
    assert_eq!(forms(|row| row.form = CacheForm::Ims200), 1, "a 200 fills the cache");
    assert_eq!(forms(|row| row.form = CacheForm::Ims304), 0, "a 304 has no body to store");
    assert_eq!(forms(|row| row.form = CacheForm::Reload), 1);
    assert_eq!(forms(|row| row.method = Method::Head), 0);
    assert_eq!(forms(|row| row.method = Method::Post), 0);
    assert_eq!(forms(|row| row.secure = true), 0, "a proxy cannot store responses in a tunnel");
    assert_eq!(forms(|row| row.aborted = true), 0);
    assert_eq!(forms(|row| row.variant_gzip = true), 0, "another variant");
    assert_eq!(forms(|row| row.world = 1), 0);
    assert_eq!(forms(|row| row.sent_at = None), 1, "a request that was never sent is simulated at its scheduled time");
}

#[test]
fn incomplete_requests_give_no_ideal_ratio() {
    let ideals = ideals_of(&[exchange(0, 7, 5), exchange(1, 7, 6)], Timestamp::ZERO..Timestamp::MAX, Some(Bytes(9)));
    let mut figures = CacheFigures { basic_requests: 2, ..CacheFigures::default() };
    assert!(ideals.fill(&mut figures));
    assert_eq!((figures.hit_ratio.ideal, figures.hit_ratio.ideal_lru), (Some(0.5), Some(0.0)));
    assert_eq!((figures.byte_hit_ratio.ideal, figures.byte_hit_ratio.ideal_lru), (Some(0.5), Some(0.0)));
    let mut figures = CacheFigures { basic_requests: 3, ..CacheFigures::default() };
    assert!(!ideals.fill(&mut figures));
    assert_eq!(figures.hit_ratio.ideal, None);
}

/// A brute-force simulation: a vector from the least to the most recently used copy.
fn brute_force(stream: &[Fetch<u8>], size: u64) -> IdealRatios {
    let mut copies: Vec<Fetch<u8>> = Vec::new();
    let mut ratios = IdealRatios::default();
    for fetch in stream {
        let mut hit = false;
        if fetch.cacheable {
            let index = copies.iter().position(|copy| copy.url == fetch.url);
            if let Some(index) = index.filter(|_| fetch.may_hit) {
                let copy = &mut copies[index];
                if fetch.at_unix_s < copy.expires_unix_s {
                    hit = true;
                } else if fetch.renewable && copy.version == fetch.version {
                    hit = true;
                    copy.expires_unix_s = fetch.expires_unix_s;
                }
            }
            if hit {
                let copy = copies.remove(index.unwrap());
                copies.push(copy);
            } else if fetch.fills {
                copies.retain(|copy| copy.url != fetch.url);
                if fetch.bytes <= size {
                    while copies.iter().map(|copy| copy.bytes).sum::<u64>() + fetch.bytes > size {
                        copies.remove(0);
                        ratios.evicted += 1;
                    }
                    copies.push(*fetch);
                }
            }
        }
        ratios.stored_bytes_max = ratios.stored_bytes_max.max(copies.iter().map(|copy| copy.bytes).sum());
        if fetch.counts {
            ratios.requests += 1;
            ratios.bytes += fetch.bytes;
            ratios.hits += u64::from(hit);
            ratios.hit_bytes += u64::from(hit) * fetch.bytes;
        }
    }
    ratios
}

/// Requests for few objects, so that every branch is covered. Sizes differ between requests, like those of versions.
fn streams() -> impl Strategy<Value = Vec<Fetch<u8>>> {
    let one = (0u8..12, 0u64..50, prop::array::uniform5(prop::bool::weighted(0.85)), 0u32..3, 0i64..30);
    prop::collection::vec(one, 0..200).prop_map(|drawn| {
        let fetches = drawn.into_iter().enumerate().map(|(at, (url, bytes, flags, version, lifetime))| Fetch {
            url,
            bytes,
            cacheable: flags[0],
            fills: flags[1],
            may_hit: flags[2],
            counts: flags[3],
            version,
            renewable: flags[4],
            expires_unix_s: at as i64 + lifetime,
            at_unix_s: at as i64,
        });
        fetches.collect()
    })
}

proptest! {
    #[test]
    fn simulation_matches_a_brute_force_cache(stream in streams(), size in 0u64..400) {
        prop_assert_eq!(ideal(stream.iter().copied(), Limit::At(Bytes(size))), brute_force(&stream, size));
    }

    #[test]
    fn cache_large_enough_for_all_objects_equals_an_unlimited_one(stream in streams()) {
        let all: u64 = stream.iter().map(|fetch| fetch.bytes).sum();
        let ratios = ideal(stream.iter().copied(), INFINITE);
        prop_assert_eq!(ideal(stream.iter().copied(), Limit::At(Bytes(all))), ratios);
        prop_assert_eq!(ratios.evicted, 0);
    }

    /// LRU has the inclusion property for copies of constant size: a larger cache never has fewer hits.
    #[test]
    fn larger_cache_never_has_fewer_hits(mut stream in streams(), size in 0u64..300, more in 0u64..300) {
        // Equal sizes: otherwise a body that is too large for the smaller cache may evict others from the larger one.
        for fetch in &mut stream {
            *fetch = Fetch { bytes: 10, fills: true, expires_unix_s: i64::MAX, ..*fetch };
        }
        let with = |size| ideal(stream.iter().copied(), Limit::At(Bytes(size))).hits;
        prop_assert!(with(size) <= with(size + more));
        prop_assert!(with(size + more) <= ideal(stream.iter().copied(), INFINITE).hits);
    }
}
