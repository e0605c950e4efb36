//! Compares the hit ratio offered by the generator with an independent simulation, and tests the verifier with caches
//! whose faults are known. Requests are drawn and answered in memory, without a network.

#[path = "support/model_cache.rs"]
mod model_cache;

use std::sync::Arc;

use cachebench::ideal::{Ideals, ideals_of};
use model_cache::{Fault, ModelCache, RATE_PER_S, exchanges};
use polymix::{CacheWorkload, Distribution, Expires, World};
use schema::{CacheExchange, CacheFigures, Wrong};
use units::{Bytes, Timestamp};

/// Requests of a workload: enough that the random part of the difference is a fifth of the limit.
const REQUESTS: usize = 50_000;
/// Largest difference of two ratios: half a percentage point.
const LIMIT: f64 = 0.005;

fn world(spec: CacheWorkload) -> Arc<World> {
    spec.check().expect("a valid workload");
    Arc::new(World::new(Arc::new(spec), 7, 0x1f3a))
}

/// Verified exchanges of a workload with a cache.
fn run(spec: CacheWorkload, requests: usize, fault: Option<Fault>) -> (Vec<CacheExchange>, CacheFigures) {
    let world = world(spec);
    let mut cache = ModelCache::new(Arc::clone(&world), fault);
    let mut verifier = polymix::Verifier::new(Arc::clone(&world), (Timestamp::ZERO, None));
    let answered = exchanges(&world).take(requests).map(|request| {
        let mut exchange = cache.respond(request);
        verifier.add(&mut exchange);
        exchange
    });
    let rows: Vec<_> = answered.collect();
    (rows, verifier.finish())
}

fn simulated(rows: &[CacheExchange], size: Option<Bytes>) -> Ideals {
    ideals_of(rows, Timestamp::ZERO..Timestamp::MAX, size)
}

#[test]
fn offered_hit_ratio_matches_the_simulated_ideal() {
    for name in CacheWorkload::NAMES {
        let spec = CacheWorkload::named(name).expect("a workload of this name");
        let (rows, mut figures) = run(spec, REQUESTS, None);
        assert!(simulated(&rows, None).fill(&mut figures), "{name}: the simulation counted every request");
        for (what, ratio) in [("documents", figures.hit_ratio), ("bytes", figures.byte_hit_ratio)] {
            let (offered, ideal) = (ratio.offered.unwrap(), ratio.ideal.unwrap());
            assert!((offered - ideal).abs() < LIMIT, "{name}: {what}: offered {offered:.4}, ideal {ideal:.4}");
        }
    }
}

/// `cargo test -p cachebench --test ideal -- --nocapture published` prints the ratios.
#[test]
fn offered_hit_ratios_match_the_published_ones() {
    // Ratios of basic requests; the cache is empty at the start of a run.
    for (name, from, to) in [("polymix-1", 0.54, 0.555), ("gateway-prepared", 0.89, 0.905), ("gateway-new", 0.0, 0.0)] {
        let (rows, figures) = run(CacheWorkload::named(name).unwrap(), REQUESTS, None);
        let offered = figures.hit_ratio.offered.unwrap();
        println!("{name}: offered {offered:.4}, repeats {:.4}", figures.repeats as f64 / figures.basic_requests as f64);
        assert!((from..=to).contains(&offered), "{name}: {offered}");
        assert_eq!(rows.len(), REQUESTS);
    }
}

#[test]
fn faultless_cache_has_the_offered_hit_ratio() {
    for name in ["polymix-1", "polymix-3", "polymix-4", "gateway-prepared"] {
        let (_, figures) = run(CacheWorkload::named(name).unwrap(), REQUESTS / 2, None);
        assert_eq!(figures.incorrect(), 0, "{name}: {:?}", figures.examples);
        assert_eq!((figures.hits_not_offered, figures.wrong.get("false_miss")), (0, None), "{name}");
        // The generator ignores that copies expire and that the origin aborts responses: a few in a thousand.
        let missing_hits = figures.offered - figures.hits;
        assert!(missing_hits <= figures.offered_expired + figures.offered_while_fetching, "{name}: {missing_hits}");
        assert!(missing_hits <= figures.offered / 500, "{name}: {missing_hits}");
    }
    let (_, figures) = run(CacheWorkload::named("polymix-1").unwrap(), REQUESTS / 2, None);
    assert_eq!(figures.hit_ratio.measured, figures.hit_ratio.offered);
    assert_eq!(figures.byte_hit_ratio.measured, figures.byte_hit_ratio.offered);
}

/// PolyMix-4 with gzip, and objects that change every few seconds, so that every fault occurs.
fn frequently_changing() -> CacheWorkload {
    let mut spec = CacheWorkload::polymix(4);
    spec.gzip_clients = 0.5;
    for kind in &mut spec.kinds {
        kind.gzip = true;
        kind.vary = polymix::Vary::AcceptEncoding;
        kind.life.cycle = Distribution::Constant(7.0);
        kind.life.variance = 0.0;
        kind.life.expires = Expires::NextChange;
    }
    spec
}

#[test]
fn every_cache_fault_is_detected_and_classified() {
    let requests = 40 * RATE_PER_S as usize;
    let faults_found = |fault| {
        let (_, figures) = run(frequently_changing(), requests, fault);
        let incorrect = figures.wrong.into_keys().filter(|kind| kind != Wrong::FalseMiss.name());
        incorrect.collect::<Vec<_>>()
    };
    assert_eq!(faults_found(None), Vec::<String>::new());
    for (fault, kind) in [
        (Fault::OtherObject, Wrong::WrongObject),
        (Fault::OtherWorld, Wrong::Foreign),
        (Fault::NoIdentity, Wrong::Foreign),
        (Fault::IgnoresVary, Wrong::WrongVariant),
        (Fault::StoresUncacheable, Wrong::HitOnUncacheable),
        (Fault::NeverExpires, Wrong::Stale),
        (Fault::Truncates, Wrong::Truncated),
        (Fault::FlipsBytes, Wrong::WrongBody),
        (Fault::HitsOnReload, Wrong::HitOnReload),
        (Fault::NotModifiedToAll, Wrong::FalseNotModified),
        (Fault::SwapsIdentities, Wrong::FalseHit),
    ] {
        assert_eq!(faults_found(Some(fault)), [kind.name()], "{fault:?}");
    }
}

/// Lifetimes count from the response and are a quarter of the time between two changes: copies are validated several
/// times, and the last renewal extends beyond the change.
#[test]
fn cache_that_validates_its_copies_has_no_incorrect_responses() {
    let renewing = |fault| {
        let mut spec = frequently_changing();
        for kind in &mut spec.kinds {
            kind.life.cycle = Distribution::Constant(20.0);
            kind.life.expires = Expires::MaxAge(Distribution::Constant(5.0));
        }
        run(spec, 60 * RATE_PER_S as usize, fault).1
    };
    let right = renewing(None);
    assert_eq!(right.incorrect(), 0, "{:?}", right.examples);
    assert!(right.possibly_stale > 0, "possibly stale responses are counted");
    let wrong = renewing(Some(Fault::NeverExpires));
    assert!(wrong.wrong[Wrong::Stale.name()] > 0, "stale beyond any possible renewal");
}

#[test]
fn evicting_cache_has_false_misses_only() {
    let (_, figures) = run(CacheWorkload::polymix(1), REQUESTS / 2, Some(Fault::Evicts));
    assert_eq!(figures.incorrect(), 0);
    assert_eq!(figures.wrong[Wrong::FalseMiss.name()], figures.offered - figures.hits);
    assert!(figures.hits > 0 && figures.hits < figures.offered);
}

/// The best hit ratio by cache size, like Web Polygraph's pop-test.
#[test]
fn hit_ratio_grows_with_cache_size_to_the_unlimited_one() {
    let (rows, figures) = run(CacheWorkload::polymix(4), REQUESTS / 2, None);
    let distinct = rows.iter().map(|row| row.object_bytes).sum::<u64>();
    let ratio = |share: f64| {
        let lru = simulated(&rows, Some(Bytes((distinct as f64 * share) as u64))).lru.unwrap();
        lru.documents().unwrap()
    };
    let sweep: Vec<f64> = [0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0].into_iter().map(ratio).collect();
    assert!(sweep.is_sorted(), "{sweep:?}");
    assert_eq!(sweep[0], 0.0, "a cache of size 0 has no hits");
    assert_eq!(sweep.last().copied(), simulated(&rows, None).infinite.documents());
    assert!((sweep.last().unwrap() - figures.hit_ratio.offered.unwrap()).abs() < LIMIT);
    assert!(sweep[2] < 0.9 * sweep[6], "a small cache has fewer hits: {sweep:?}");
}
