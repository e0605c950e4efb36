//! Checks that catalogues have the statistics of their models.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

fn content(typed: &str) -> Content {
    typed.parse().unwrap()
}

/// Shares of the total weight, by a key of the object.
fn shares<K: std::hash::Hash + Eq>(
    objects: &[Object],
    key: impl Fn(&Object) -> K,
) -> std::collections::HashMap<K, f64> {
    let whole: f64 = objects.iter().map(|object| object.weight).sum();
    let mut shares = std::collections::HashMap::new();
    for object in objects {
        *shares.entry(key(object)).or_insert(0.0) += object.weight / whole;
    }
    shares
}

#[test]
fn specweb99_content_has_its_four_classes() {
    let objects = content("specweb99:1000").objects();
    assert_eq!(objects.len(), 28 * 36, "whole directories");
    let by_class = shares(&objects, |object| object.path.as_bytes()[object.path.len() - 3]);
    for (class, share) in [(b'0', 0.35), (b'1', 0.5), (b'2', 0.14), (b'3', 0.01)] {
        assert!((by_class[&class] - share).abs() < 1e-9);
    }
    let of_class = |class: u32| {
        let name = format!("class{class}_");
        objects.iter().filter(move |object| object.path.contains(&name)).map(|object| object.bytes)
    };
    for (class, from, to) in [(0, 102, 921), (1, 1024, 9216), (2, 10_240, 92_160), (3, 102_400, 921_600)] {
        assert_eq!((of_class(class).min(), of_class(class).max()), (Some(from), Some(to)));
    }
    let by_file = shares(&objects, |object| object.path.as_bytes()[object.path.len() - 1] - b'0' + 1);
    for (file, share) in
        [(5, 0.353), (4, 0.177), (6, 0.118), (3, 0.088), (7, 0.071), (2, 0.059), (8, 0.051), (9, 0.044)]
    {
        assert!((by_file[&file] - share).abs() < 0.001, "file {file}: {}", by_file[&file]);
    }
    let by_directory = shares(&objects, |object| object.path[4..9].to_owned());
    assert!((by_directory["00000"] / by_directory["00009"] - 10.0).abs() < 1e-9, "Zipf, exponent 1");
    // Mean size of requested objects, by the shares: 0.35 x 0.48 + 0.5 x 4.8 + .. KB.
    let whole: f64 = objects.iter().map(|object| object.weight).sum();
    let mean = objects.iter().map(|object| object.weight * object.bytes as f64).sum::<f64>() / whole;
    assert!((14_000.0..16_500.0).contains(&mean), "{mean}");
}

#[test]
fn surge_content_has_lognormal_body_and_pareto_tail() {
    let objects = content("surge:200000,seed=3").objects();
    let mut sizes: Vec<f64> = objects.iter().map(|object| object.bytes as f64).collect();
    sizes.sort_by(f64::total_cmp);
    let n = sizes.len() as f64;
    let beyond = |bytes: f64| sizes.iter().filter(|&&size| size >= bytes).count() as f64 / n;
    // The standard deviation of a share of 200,000 objects is below 0.0006; the limit is five times that.
    assert!((beyond(surge::TAIL_FROM) - surge::TAIL_SHARE).abs() < 0.003, "{}", beyond(surge::TAIL_FROM));
    for times in [2.0f64, 10.0, 100.0] {
        let expected = surge::TAIL_SHARE * times.powf(-surge::TAIL_ALPHA);
        let actual = beyond(surge::TAIL_FROM * times);
        assert!((actual - expected).abs() < 5.0 * (expected / n).sqrt(), "{times}: {actual} for {expected}");
    }
    // Median and quartiles of the body, whose upper 3.2 % are drawn again: quantiles of the truncated log-normal.
    let body = &sizes[..((1.0 - surge::TAIL_SHARE) * n) as usize];
    for (share, z) in [(0.25, -0.7142), (0.5, -0.0402), (0.75, 0.6058)] {
        let expected = (surge::BODY_MU + surge::BODY_SIGMA * z).exp();
        let actual = body[(share * body.len() as f64) as usize];
        assert!((actual / expected - 1.0).abs() < 0.03, "{share}: {actual} for {expected}");
    }
    assert!(sizes[sizes.len() - 1] <= surge::SIZE_MAX && sizes[0] >= 1.0);
    let ratio = objects[0].weight / objects[99].weight;
    assert!((ratio - 100.0).abs() < 1e-9, "Zipf, exponent 1");
}

#[test]
fn uniform_objects_differ_only_in_popularity() {
    let objects = content("even:1500,alpha=0.5,size=2KiB").objects();
    assert!(objects.iter().all(|object| object.bytes == 2048));
    assert_eq!((objects[0].path.as_str(), objects[1234].path.as_str()), ("/000/000000", "/001/001234"));
    assert!((objects[0].weight / objects[99].weight - 10.0).abs() < 1e-9);
}

#[test]
fn content_bytes_depend_only_on_seed_and_object() {
    let content = content("even:10,size=70KB,seed=5");
    let objects = content.objects();
    let read = |content: &Content, index: u32| {
        let mut bytes = Vec::new();
        content
            .bytes(index, &objects[index as usize], |piece| {
                bytes.extend_from_slice(piece);
                Ok::<(), ()>(())
            })
            .unwrap();
        bytes
    };
    assert_eq!(read(&content, 3).len(), 70_000);
    assert_eq!(read(&content, 3), read(&content, 3));
    assert_ne!(read(&content, 3), read(&content, 4));
    assert_ne!(read(&content, 3), read(&Content { seed: 6, ..content }, 3));
    let (short, whole) = (Object { bytes: 100, ..objects[3].clone() }, read(&content, 3));
    content
        .bytes(3, &short, |piece| {
            assert_eq!(piece, &whole[..100]);
            Ok::<(), ()>(())
        })
        .unwrap();
}

#[test]
fn invalid_content_models_are_rejected() {
    let error_of = |typed: &str| typed.parse::<Content>().unwrap_err().to_string();
    for typed in ["", "specweb99", "specweb96:10", "surge:x", "even:10,colour=red", "even:10,alpha", "even:10,seed=-1"]
    {
        assert!(error_of(typed).contains("specweb99:1000"), "{typed}: {}", error_of(typed));
    }
    assert!(error_of("even:0").contains("from 1 to 1000000") && error_of("even:1000001").contains("from 1 to 1000000"));
    assert!(error_of("even:1,alpha=-0.1").contains("alpha") && error_of("even:1,alpha=nan").contains("alpha"));
    assert!(error_of("surge:1,size=1KB").contains("even") && error_of("even:1,size=0B").contains("from 1B to 1GB"));
    assert!(error_of("even:1,size=10").contains("no unit"));
}

proptest! {
    #[test]
    fn content_models_round_trip_as_text(
        model in prop::sample::select(vec!["specweb99", "surge", "even"]),
        objects in 1u32..3000,
        alpha in prop::option::of(0.0f64..=5.0),
        seed in any::<u64>(),
        size in 1u64..=1_000_000_000,
    ) {
        let size = (model == "even").then_some(Bytes(size));
        let content = Content::new(model, objects, alpha, size, seed).unwrap();
        prop_assert_eq!(content.to_string().parse(), Ok(content));
        let objects = content.objects();
        prop_assert_eq!(&objects, &content.objects());
        prop_assert!(objects.iter().all(|object| object.bytes > 0 && object.weight > 0.0 && object.path.starts_with('/')));
        let paths: HashSet<&str> = objects.iter().map(|object| object.path.as_str()).collect();
        prop_assert_eq!(paths.len(), objects.len());
    }
}
