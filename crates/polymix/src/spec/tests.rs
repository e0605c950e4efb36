use super::*;
use crate::{Object, Variant, World};

#[test]
fn built_in_workloads_pass_their_check_and_round_trip() {
    for name in CacheWorkload::NAMES {
        let workload = CacheWorkload::named(name).unwrap();
        assert_eq!(workload.name, name);
        workload.check().unwrap();
        assert!(!workload.sources.is_empty(), "{name}");
        let text = toml::to_string(&workload).unwrap();
        assert_eq!(toml::from_str::<CacheWorkload>(&text).unwrap(), workload, "{text}");
    }
    assert_eq!(CacheWorkload::named("polymix-5"), None);
}

#[test]
fn built_in_workloads_have_their_published_hit_ratios() {
    for (name, ratio, within) in [
        ("polymix-1", 0.55, 1e-9),
        // Images are 63.7 % of the requests, not 65 %.
        ("polymix-2", 0.55, 0.002),
        ("polymix-3", 0.55 / 0.95, 0.002),
        ("polymix-4", 0.55, 0.002),
        ("modern", 0.55, 0.002),
        ("gateway-prepared", 0.90, 1e-9),
        ("gateway-new", 0.0, 1e-9),
    ] {
        let found = CacheWorkload::named(name).unwrap().document_hit_ratio();
        assert!((found - ratio).abs() <= within, "{name}: {found}");
    }
    let images = CacheWorkload::polymix(2).requests_per_arrival();
    // A share of 0.15 / 0.35 pages with 13 / (1 + 1/2 + .. + 1/13) images each.
    assert!((images - (1.0 + 0.15 / 0.35 * 13.0 / 3.180_134)).abs() < 1e-5, "{images}");
    assert_eq!(CacheWorkload::polymix(1).requests_per_arrival(), 1.0);
}

/// The gzip bodies of the workload `modern` are as large as in the Web Almanac.
#[test]
fn text_bodies_compress_to_the_assumed_ratio() {
    let world = World::new(CacheWorkload::modern().into(), 1, 1);
    let (mut plain, mut sent) = (0u64, 0u64);
    for number in 0..3000 {
        let object = Object { kind: 1, number };
        plain += world.size(object);
        sent += world.body(object, world.version(object, 1_700_000_000), Variant::Gzip).length();
    }
    let shrunk = sent as f64 / plain as f64;
    assert!((shrunk / named::TEXT_SHRINKS_TO - 1.0).abs() < 0.03, "{shrunk}");
}

#[test]
fn invalid_workload_fields_are_rejected_by_their_key() {
    type Change = fn(&mut CacheWorkload);
    let changes: [(&str, Change); 27] = [
        ("kinds", |workload| workload.kinds.clear()),
        ("kinds", |workload| workload.kinds = (0..27).map(|_| workload.kinds[0].clone()).collect()),
        ("kinds", |workload| workload.kinds[0].name = "a b".into()),
        ("the name is used twice", |workload| workload.kinds[3].name = "html".into()),
        ("recurrence", |workload| workload.recurrence = 1.01),
        ("recurrence", |workload| workload.recurrence = f64::NAN),
        ("https", |workload| workload.https = -0.1),
        ("forms", |workload| workload.forms.ims304 = 0.95),
        ("methods", |workload| workload.methods.head = 1.0),
        ("working_set", |workload| workload.working_set = Some(0)),
        ("per_client_rate", |workload| workload.per_client_rate = Some(0.0)),
        ("zipf", |workload| workload.popularity = Popularity::Zipf { alpha: -1.0, objects: 5 }),
        ("hot_set", |workload| {
            workload.popularity = Popularity::HotSet { fraction: 2.0, probability: 0.1, prefer_small: 0.0 }
        }),
        ("ext", |workload| workload.kinds[1].ext = "html".into()),
        ("ext", |workload| workload.kinds[1].ext = ".a/b".into()),
        ("media_type", |workload| workload.kinds[1].media_type = "a\r\nb: c".into()),
        ("share", |workload| workload.kinds[1].share = -1.0),
        ("shares are 0", |workload| workload.kinds.iter_mut().for_each(|kind| kind.share = 0.0)),
        ("size", |workload| workload.kinds[1].size = Distribution::Constant(0.0)),
        ("cacheable", |workload| workload.kinds[1].cacheable = 1.5),
        ("cycle", |workload| workload.kinds[1].life.cycle = Distribution::Constant(0.0)),
        ("last_modified", |workload| {
            workload.kinds[1].life.expires = Expires::Absent;
            workload.kinds[1].life.last_modified = 0.5;
        }),
        ("vary", |workload| {
            workload.gzip_clients = 0.5;
            workload.kinds[1].gzip = true;
        }),
        ("is not a kind", |workload| workload.kinds[1].embeds.as_mut().unwrap().kind = "script".into()),
        ("must have share = 0", |workload| workload.kinds[0].share = 0.1),
        ("count", |workload| workload.kinds[1].embeds.as_mut().unwrap().count = Distribution::Zipf(65)),
        ("phases", |workload| {
            let phase = WorkloadPhase {
                from: Duration::from_secs(1),
                to: Duration::from_secs(1),
                recurrence: None,
                special: (1.0, 1.0),
                grows: true,
            };
            workload.phases = vec![phase];
        }),
    ];
    for (key, change) in changes {
        let mut workload = CacheWorkload::polymix(4);
        change(&mut workload);
        let why = workload.check().expect_err(key);
        assert!(why.contains(key), "{key}: {why}");
    }
}

#[test]
fn workload_files_reject_unknown_fields() {
    let text = "name = \"small\"\nrecurrence = 0.5\nthink = \"norm(3s,1.5s)\"\npopularity = { zipf = { alpha = 0.8, objects = 10 } }\n\
                [[kinds]]\nname = \"page\"\next = \".html\"\nmedia_type = \"text/html\"\nshare = 1\nsize = \"exp(13KiB)\"\n\
                cacheable = 0.8\nlife = { cycle = \"7d\", last_modified = 1, expires = { max_age = \"1h\" } }\n";
    let workload: CacheWorkload = toml::from_str(text).unwrap();
    workload.check().unwrap();
    assert_eq!(workload.think, Some(Distribution::Normal { mean: 3.0, sd: 1.5 }));
    assert_eq!(workload.kinds[0].life.expires, Expires::MaxAge(Distribution::Constant(3600.0)));
    for (from, to) in [
        ("recurrence", "recurence"),
        ("share = 1", "shares = 1"),
        ("norm(3s,1.5s)", "gauss(3,1)"),
        ("alpha = 0.8", "beta = 0.8"),
        ("max_age", "age"),
        ("life = {", "life = { halflife = 1,"),
    ] {
        assert!(toml::from_str::<CacheWorkload>(&text.replacen(from, to, 1)).is_err(), "{to}");
    }
}

/// The sweep writes the workload to a file for the origin that it starts: that origin must have the same objects.
#[test]
fn digest_identifies_workload_seed_and_differing_fields() {
    for name in CacheWorkload::NAMES {
        let spec = CacheWorkload::named(name).unwrap();
        let digest = spec.digest(7);
        let read: CacheWorkload = toml::from_str(&toml::to_string_pretty(&spec).unwrap()).unwrap();
        assert_eq!(read.digest(7), digest, "{name}");
        assert_ne!(spec.digest(8).whole, digest.whole, "{name}: the digest covers the seed");
        let differences = |change: fn(&mut CacheWorkload)| {
            let mut other = spec.clone();
            change(&mut other);
            assert_ne!(other.digest(7).whole, digest.whole, "{name}");
            other.digest(7).origin_differences(&digest)
        };
        assert_eq!(differences(|other| other.kinds[0].cacheable = 0.123), ["kinds"], "{name}");
        assert_eq!(differences(|other| other.kinds[0].life.variance = 0.123), ["kinds"], "{name}");
        assert_eq!(differences(|other| other.origin_abort = 0.123), ["origin_abort"], "{name}");
        assert_eq!(differences(|other| other.think = Some(Distribution::Constant(9.0))), ["think"], "{name}");
        let of_users = differences(|other| (other.recurrence, other.gzip_clients) = (0.123, 0.3));
        assert!(of_users.is_empty(), "{name}: requests of virtual users do not change the objects");
    }
    let none = |think| CacheWorkload { think, ..CacheWorkload::polymix(1) }.digest(7);
    assert_eq!(none(None), none(Some(Distribution::Constant(0.0))), "a think time of 0 is no think time");
}
