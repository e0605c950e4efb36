use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn world(spec: CacheWorkload) -> World {
    spec.check().unwrap();
    World::new(Arc::new(spec), 7, 1)
}

fn objects(kind: u8, count: u64) -> impl Iterator<Item = Object> {
    (0..count).map(move |number| Object { kind, number })
}

/// Asserts that the mean of the values lies within five standard errors of the expected one.
fn assert_mean(values: impl Iterator<Item = f64>, mean: f64, what: &str) {
    let values: Vec<f64> = values.collect();
    let n = values.len() as f64;
    let found = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - found).powi(2)).sum::<f64>() / n;
    let error = (variance / n).sqrt();
    assert!((found - mean).abs() <= 5.0 * error + 1e-9, "{what}: {found} for {mean}, standard error {error}");
}

#[test]
fn object_sizes_and_cacheable_share_follow_the_workload() {
    for name in CacheWorkload::NAMES {
        let world = world(CacheWorkload::named(name).unwrap());
        for (kind, spec) in (0..).zip(&world.spec.kinds) {
            let what = format!("{name} {}", spec.name);
            // Heavy tails need many values: with 10^5, five standard errors of logn(m, 1.5 m) are 2.4 %.
            assert_mean(objects(kind, 100_000).map(|it| world.size(it) as f64), spec.size.mean(), &what);
            let cacheable = objects(kind, 100_000).map(|it| f64::from(u8::from(world.cacheable(it))));
            assert_mean(cacheable, spec.cacheable, &what);
            let modified = objects(kind, 100_000).map(|it| f64::from(u8::from(world.has_last_modified(it))));
            assert_mean(modified, spec.life.last_modified, &what);
            let tagged = objects(kind, 100_000).map(|it| f64::from(u8::from(world.has_etag(it))));
            assert_mean(tagged, spec.life.etag, &what);
            assert!(objects(kind, 10_000).all(|it| world.has_last_modified(it) || world.has_etag(it)), "{what}");
        }
    }
}

#[test]
fn size_order_matches_object_sizes() {
    let world = world(CacheWorkload::modern());
    for kind in 0..6 {
        let mut all: Vec<Object> = objects(kind, 1000).collect();
        all.sort_by_key(|it| world.size_order(*it));
        assert!(all.is_sorted_by_key(|it| world.size(*it)));
    }
}

#[test]
fn properties_of_an_object_are_independent() {
    let world = world(CacheWorkload::polymix(1));
    // Sizes of cacheable objects have the same mean as those of all objects.
    let cacheable = objects(0, 200_000).filter(|it| world.cacheable(*it)).map(|it| world.size(it) as f64);
    assert_mean(cacheable, 13.0 * 1024.0, "size of cacheable objects");
}

#[test]
fn object_properties_depend_on_the_seed_and_not_on_the_world() {
    let spec = Arc::new(CacheWorkload::polymix(4));
    let (one, other_world) = (World::new(Arc::clone(&spec), 7, 1), World::new(Arc::clone(&spec), 7, 2));
    let other_seed = World::new(spec, 8, 1);
    let facts = |world: &World| -> Vec<(u64, bool, Version)> {
        objects(1, 100).map(|it| (world.size(it), world.cacheable(it), world.version(it, 1_700_000_000))).collect()
    };
    assert_eq!(facts(&one), facts(&other_world));
    assert_eq!(facts(&one), facts(&one.with_id(9)));
    assert_ne!(facts(&one), facts(&other_seed));
    // The bodies of two worlds differ, so that they cannot be confused.
    let object = Object { kind: 1, number: 3 };
    let first = |world: &World| world.body(object, Version::default(), Variant::Plain).piece(0).to_vec();
    assert_ne!(first(&one), first(&other_world));
}

#[test]
fn each_version_has_another_body() {
    let world = world(CacheWorkload::modern());
    for kind in [0, 3] {
        let object = Object { kind, number: 42 };
        let begins: HashSet<Vec<u8>> = (0..20)
            .map(|number| {
                let body = world.body(object, Version { number, ..Version::default() }, Variant::Plain);
                let piece = body.piece(0);
                piece[..piece.len().min(256)].to_vec()
            })
            .collect();
        // Text bodies begin with one of 64 chunks, or of 4 tails if they are short.
        assert!(begins.len() > if kind == 0 { 2 } else { 18 }, "{kind}: {}", begins.len());
    }
}

#[test]
fn gzip_variant_inflates_to_the_plain_body() {
    use std::io::Read as _;

    let world = world(CacheWorkload::modern());
    for object in objects(1, 40) {
        let whole = |variant| {
            let body = world.body(object, Version::default(), variant);
            let mut bytes = Vec::new();
            while !body.piece(bytes.len() as u64).is_empty() {
                bytes.extend_from_slice(body.piece(bytes.len() as u64));
            }
            bytes
        };
        let mut inflated = Vec::new();
        let gzip = whole(Variant::Gzip);
        flate2::read::GzDecoder::new(&gzip[..]).read_to_end(&mut inflated).unwrap();
        assert!(inflated == whole(Variant::Plain), "{object:?}");
        assert_eq!(inflated.len() as u64, world.size(object));
        assert_eq!((world.variant(object, true), world.variant(object, false)), (Variant::Gzip, Variant::Plain));
    }
    assert_eq!(world.variant(Object { kind: 3, number: 0 }, true), Variant::Plain, "images have no gzip variant");
}

#[test]
fn object_changes_follow_the_life_cycle() {
    for (name, kind, mean_s) in [("polymix-1", 0, 2.0 * 365.0 * 86_400.0), ("polymix-4", 1, 7.0 * 86_400.0)] {
        let world = world(CacheWorkload::named(name).unwrap());
        let ages = objects(kind, 20_000).map(|it| {
            let version = world.version(it, 1_700_000_000);
            (version.next_change_s - version.modified_s) as f64
        });
        if name == "polymix-1" {
            assert!(ages.into_iter().all(|length| (length - mean_s).abs() <= 1.0), "no variance");
        } else {
            // A random time is more likely in a long version than in a short one: its mean length exceeds the cycle.
            let mean = ages.sum::<f64>() / 20_000.0;
            assert!(mean > mean_s && mean < 1.2 * mean_s, "{mean}");
        }
        // Objects do not change simultaneously.
        let since = objects(kind, 20_000).map(|it| {
            let version = world.version(it, 1_700_000_000);
            (1_700_000_000 - version.modified_s) as f64 / (version.next_change_s - version.modified_s) as f64
        });
        assert_mean(since, 0.5, name);
    }
}

#[test]
fn copy_lifetimes_follow_their_distribution() {
    let world = world(CacheWorkload::modern());
    let css = 2;
    let Expires::MaxAge(distribution) = &world.spec.kinds[2].life.expires else { panic!() };
    let ages = objects(css, 100_000).map(|it| world.version(it, 1_700_000_000).max_age_s.unwrap() as f64);
    assert_mean(ages, distribution.mean(), "css lifetimes");
    for object in objects(css, 1000) {
        let version = world.version(object, 1_700_000_000);
        assert_eq!(version.expires_s, Some(1_700_000_000 + version.max_age_s.unwrap() as i64));
    }
}

#[test]
fn each_page_embeds_its_own_images() {
    let world = world(CacheWorkload::polymix(4));
    let mut images = HashSet::new();
    let counts: Vec<f64> = objects(1, 50_000)
        .map(|page| {
            let embedded: Vec<Object> = world.embedded(page).collect();
            assert!(
                embedded.iter().all(|image| image.kind == 0 && images.insert(*image)),
                "every image is embedded once"
            );
            assert_eq!(embedded, world.embedded(page).collect::<Vec<_>>());
            embedded.len() as f64
        })
        .collect();
    assert!(counts.iter().all(|count| (1.0..=13.0).contains(count)));
    assert_mean(counts.into_iter(), Distribution::Zipf(13).mean(), "images of a page");
    assert_eq!(world.embedded(Object { kind: 2, number: 1 }).count(), 0, "downloads embed nothing");
    assert!(world.embedded(Object { kind: 1, number: u64::MAX }).count() > 0, "any object number is valid");
}

#[test]
fn think_time_and_planned_aborts_depend_on_the_request_id() {
    let world = world(CacheWorkload::polymix(4));
    let request_ids = || (0..200_000).map(|sequence| RequestId { run: 3, sequence });
    assert_mean(
        request_ids().map(|request_id| world.think(request_id).as_secs_f64()),
        world.spec.think.as_ref().unwrap().mean(),
        "think",
    );
    let cut = request_ids().map(|request_id| f64::from(u8::from(world.origin_aborts(request_id).is_some())));
    assert_mean(cut, 0.001, "planned ends");
    assert!(request_ids().filter_map(|request_id| world.origin_aborts(request_id)).all(|at| at < 16_384));
    let request_id = RequestId { run: 3, sequence: 5 };
    assert_eq!(
        world.think(request_id),
        world.with_id(77).think(request_id),
        "the think time is the same in every world"
    );
    assert_ne!(world.think(request_id), world.think(RequestId { run: 4, ..request_id }));
    assert_mean(
        (0..100_000).map(|connection| f64::from(world.uses(connection))),
        Distribution::Zipf(16).mean(),
        "uses",
    );
    let plain = World::new(Arc::new(CacheWorkload::modern()), 7, 1);
    assert_eq!((plain.uses(0), plain.origin_aborts(request_id)), (u32::MAX, None));
    let idle = CacheWorkload { think: Some(Distribution::Constant(0.0)), ..CacheWorkload::modern() };
    assert_eq!(World::new(Arc::new(idle), 7, 1).think(request_id), Duration::ZERO);
}

#[test]
fn object_paths_have_the_documented_form() {
    let world = World::new(Arc::new(CacheWorkload::polymix(4)), 7, 0x1f3a);
    let mut path = Vec::new();
    world.write_path(Object { kind: 1, number: 0x2b7 }, &mut path);
    assert_eq!(path, b"/y/1f3a/B2b7.html");
    assert!(world.has(Object { kind: 3, number: 0 }) && !world.has(Object { kind: 4, number: 0 }));
}

proptest! {
    /// Each version begins when the one before ends, and version numbers rise by one.
    #[test]
    fn versions_of_an_object_are_consecutive(number: u64, at in 1_000_000_000..4_000_000_000i64, cycle in 1.0..1e6, variance in 0.0..1.0) {
        let mut spec = CacheWorkload::polymix(1);
        spec.kinds[0].life.cycle = Distribution::Constant(cycle);
        spec.kinds[0].life.variance = variance;
        let world = world(spec);
        let object = Object { kind: 0, number };
        let version = world.version(object, at);
        prop_assert!(version.modified_s <= at && at < version.next_change_s);
        prop_assert_eq!(world.version(object, version.modified_s), version);
        prop_assert_eq!(version.expires_s, Some(version.next_change_s));
        let last = world.version(object, version.next_change_s - 1);
        prop_assert_eq!(last, version);
        let next = world.version(object, version.next_change_s);
        prop_assert_eq!(next.modified_s, version.next_change_s);
        prop_assert!(next.number > version.number);
        // Only a change within the same second as the one before may be skipped.
        prop_assert!(next.number == version.number + 1 || cycle < 4.0 || variance > 0.9);
    }
}
