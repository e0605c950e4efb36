use stats::Rng;

use super::*;

/// An hour of a group, in blocks of two minutes: times scatter about a level that drifts from minute to minute, as in
/// `levels`; a share of a block's exchanges fails, sometimes more.
fn hour(rng: &mut Rng, levels: &[f64], slower: f64, fails: f64) -> Vec<Tally> {
    levels
        .iter()
        .map(|level| {
            let mut tally = Tally { tried: 12, succeeded: 12, ..Tally::default() };
            // A bad block has four times as many failures as a good one.
            let fails = if rng.uniform() < 0.5 { fails * 1.6 } else { fails * 0.4 };
            for _ in 0..100 {
                tally.sums.attempts += 1;
                if rng.uniform() < fails {
                    tally.sums.failed += 1;
                } else {
                    let log_time = rng.exponential() * 0.3 + level + slower;
                    tally.sums.response.record((log_time.exp() * 20e6) as u64);
                }
            }
            if tally.sums.failed > 6 {
                tally.succeeded = 11;
            }
            tally
        })
        .collect()
}

/// A level that is correlated over a few minutes.
fn levels(rng: &mut Rng) -> Vec<f64> {
    let mut level = 0.0;
    let mut minute = || {
        level = 0.5 * level + 0.2 * (rng.uniform() - 0.5);
        level
    };
    (0..30).map(|_| (minute() + minute()) / 2.0).collect()
}

fn metric<'a>(found: &'a [CompareMetric], name: &str) -> &'a CompareMetric {
    found.iter().find(|metric| metric.name == name).unwrap()
}

/// Of 200 comparisons of two equal sets, 10 may show a difference, if blocks were independent; the binomial's
/// standard deviation is 3.1, and the correlation of neighbouring blocks adds a little.
#[test]
fn two_equal_sets_show_a_difference_as_rarely_as_the_confidence_allows() {
    for paired in [true, false] {
        let mut shown = 0;
        for stream in 0..200 {
            let mut rng = Rng::new(41, stream);
            let first = levels(&mut rng);
            let second = if paired { first.clone() } else { levels(&mut rng) };
            let (a, b) = (hour(&mut rng, &first, 0.0, 0.05), hour(&mut rng, &second, 0.0, 0.05));
            shown += usize::from(compare_blocks(&a, &b, paired, 0.95).iter().any(|metric| metric.shown == Some(true)));
        }
        println!("paired {paired}: {shown} of 200");
        assert!(shown <= 24, "paired {paired}: {shown} of 200");
    }
}

#[test]
fn a_real_difference_is_detected_with_its_size() {
    let (mut slower, mut within, mut failing, mut width) = (0, 0, 0, [0.0; 2]);
    for stream in 0..60 {
        let mut rng = Rng::new(43, stream);
        let shared = levels(&mut rng);
        let other = levels(&mut rng);
        let a = hour(&mut rng, &shared, 0.0, 0.02);
        let b = hour(&mut rng, &shared, 1.1_f64.ln(), 0.10);
        let found = compare_blocks(&a, &b, true, 0.95);
        let median = metric(&found, "response_p50");
        let [low, high] = median.interval.unwrap();
        slower += usize::from(median.shown == Some(true) && low > 0.0);
        within += usize::from((low..=high).contains(&0.1));
        let errors = metric(&found, "error_ratio");
        failing += usize::from(errors.shown == Some(true) && errors.difference.unwrap() > 0.0);
        // A difference between different times is also detected.
        let apart = compare_blocks(&a, &hour(&mut rng, &other, 1.1_f64.ln(), 0.10), false, 0.95);
        let of = |median: &CompareMetric| median.interval.map_or(f64::NAN, |[low, high]| high - low);
        width[0] += of(median);
        width[1] += of(metric(&apart, "response_p50"));
    }
    assert!(slower >= 57 && within >= 52 && failing >= 55, "{slower} {within} {failing}");
    assert!(width[0] < width[1], "disturbances of both sets do not widen the intervals: {width:?}");
}

#[test]
fn an_undecidable_comparison_states_the_reason() {
    let mut rng = Rng::new(44, 1);
    let shared = levels(&mut rng);
    let a = hour(&mut rng, &shared, 0.0, 0.0);
    let mut b = hour(&mut rng, &shared, 0.0, 0.0);
    let found = compare_blocks(&a, &b, true, 0.95);
    let errors = metric(&found, "error_ratio");
    assert_eq!((errors.shown, errors.interval, errors.a), (None, None, Some(0.0)));
    assert_eq!(errors.said, "no attempt failed, neither in A nor in B");
    let median = metric(&found, "response_p50");
    assert_eq!(median.shown, Some(false));
    assert!(median.said.starts_with("no difference shown; a difference of "), "{}", median.said);
    // A single event.
    for block in &mut b[3..6] {
        block.sums.failed = 50;
        block.succeeded = 2;
    }
    let found = compare_blocks(&a, &b, true, 0.95);
    assert!(metric(&found, "error_ratio").said.contains("one event"), "{found:?}");
    // 19 blocks, then few exchanges.
    let found = compare_blocks(&a[..19], &b[..19], true, 0.95);
    assert!(found.iter().all(|metric| metric.shown.is_none() && metric.said.contains("20 blocks")), "{found:?}");
    let few: Vec<Tally> = a
        .iter()
        .map(|_| {
            let mut tally = Tally { tried: 1, succeeded: 1, ..Tally::default() };
            tally.sums.attempts = 1;
            tally.sums.response.record(5);
            tally
        })
        .collect();
    let found = compare_blocks(&few, &few, true, 0.95);
    assert!(metric(&found, "response_p99").said.contains("2000 successful exchanges"), "{found:?}");
    assert!(metric(&found, "response_p50").said.contains("40 successful exchanges"), "{found:?}");
}

#[test]
fn the_comparison_text_states_the_direction() {
    let found = Metric::ErrorRatio.sentence(-0.01, [-0.02, -0.005], true, 0.0075);
    assert_eq!(found, "B's error ratio is 1.00 percentage points lower (0.50 to 2.00)");
    let found = Metric::P99.sentence(0.5, [0.25, 0.8], true, 0.2);
    assert_eq!(found, "B's 99th percentile of response time is 50.0 % longer (25.0 to 80.0)");
}
