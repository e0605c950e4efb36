//! Checks the statistics of each arrival process: dispersion, correlation, Hurst parameter. Seeded, in virtual time.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn rate(per_second: f64) -> RequestRate {
    RequestRate::from_per_second(per_second).unwrap()
}

fn s(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

fn stretch(lasts: f64, from_per_s: f64, to_per_s: f64) -> Stretch {
    Stretch { lasts: s(lasts), from_per_s, to_per_s }
}

fn open(spacing: Spacing, per_second: f64) -> Arrivals {
    Arrivals::Open { spacing, rate: RateOverTime::constant(rate(per_second)) }
}

fn schedule(arrivals: &Arrivals, seed: u64) -> Schedule {
    Schedule::new(arrivals, Timestamp::ZERO, seed).unwrap()
}

/// Number of arrivals in each of `bins` consecutive windows of `width` seconds.
fn counts(arrivals: &Arrivals, seed: u64, bins: usize, width: f64) -> Vec<f64> {
    let mut counts = vec![0.0; bins];
    let mut schedule = schedule(arrivals, seed);
    loop {
        let bin = (schedule.take().as_nanos() as f64 / 1e9 / width) as usize;
        match counts.get_mut(bin) {
            Some(count) => *count += 1.0,
            None => return counts,
        }
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn variance(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64
}

/// Index of dispersion for counts: variance over mean.
fn dispersion(counts: &[f64]) -> f64 {
    variance(counts) / mean(counts)
}

/// Sums of `factor` consecutive counts.
fn coarser(counts: &[f64], factor: usize) -> Vec<f64> {
    counts.chunks_exact(factor).map(|chunk| chunk.iter().sum()).collect()
}

fn correlation(values: &[f64], lag: usize) -> f64 {
    let mean = mean(values);
    let pairs = values.len() - lag;
    let covariance: f64 = (0..pairs).map(|i| (values[i] - mean) * (values[i + lag] - mean)).sum::<f64>() / pairs as f64;
    covariance / variance(values)
}

/// Hurst parameter by the variance-time plot: the variance of means over m windows falls as m^(2H - 2).
fn hurst(counts: &[f64], scales: &[usize]) -> f64 {
    let points: Vec<(f64, f64)> = scales
        .iter()
        .map(|&m| {
            let means: Vec<f64> = coarser(counts, m).iter().map(|sum| sum / m as f64).collect();
            ((m as f64).ln(), variance(&means).ln())
        })
        .collect();
    let (x, y) =
        (mean(&points.iter().map(|p| p.0).collect::<Vec<_>>()), mean(&points.iter().map(|p| p.1).collect::<Vec<_>>()));
    let slope = points.iter().map(|p| (p.0 - x) * (p.1 - y)).sum::<f64>()
        / points.iter().map(|p| (p.0 - x).powi(2)).sum::<f64>();
    1.0 + slope / 2.0
}

#[test]
fn constant_arrivals_do_not_drift() {
    let start = Timestamp::from_nanos(5);
    let mut schedule = Schedule::new(&Arrivals::constant(rate(3.0)), start, 0).unwrap();
    let taken: Vec<u64> = (0..4).map(|_| schedule.take().as_nanos()).collect();
    assert_eq!(taken, [5, 333_333_338, 666_666_672, 1_000_000_005]);
    for _ in 4..3_000_000 {
        schedule.take();
    }
    assert_eq!(schedule.next().as_nanos(), 1_000_000 * 1_000_000_000 + 5);
}

#[test]
fn closed_loop_has_no_arrivals() {
    assert!(Schedule::new(&Arrivals::Closed, Timestamp::ZERO, 0).is_none());
    assert!(!Arrivals::Closed.is_open() && Arrivals::poisson(rate(1.0)).is_open());
}

#[test]
fn poisson_gaps_are_exponential_and_independent() {
    let mut schedule = schedule(&Arrivals::poisson(rate(1000.0)), 11);
    let mut last = 0;
    let gaps: Vec<f64> = (0..100_000)
        .map(|_| {
            let at = schedule.take().as_nanos();
            let gap = at - last;
            last = at;
            gap as f64 / 1e6
        })
        .collect();
    // Standard errors: 0.0032 of the mean, 0.009 of the variance (the kurtosis of the exponential is 9), 0.0032 of a
    // correlation. The limits are five times these.
    assert!((mean(&gaps) - 1.0).abs() < 0.016, "{}", mean(&gaps));
    assert!((variance(&gaps) - 1.0).abs() < 0.045, "{}", variance(&gaps));
    assert!(correlation(&gaps, 1).abs() < 0.016, "{}", correlation(&gaps, 1));
}

#[test]
fn poisson_dispersion_is_one_at_every_scale() {
    let counts = counts(&Arrivals::poisson(rate(200.0)), 3, 100_000, 0.1);
    for factor in [1, 10, 100] {
        let bins = counts.len() / factor;
        // The standard error of the variance of approximately normal counts is sqrt(2 / bins).
        let dispersion = dispersion(&coarser(&counts, factor));
        assert!((dispersion - 1.0).abs() < 5.0 * (2.0 / bins as f64).sqrt(), "{factor}: {dispersion}");
    }
    let hurst = hurst(&counts, &[1, 3, 10, 30, 100, 300]);
    assert!((hurst - 0.5).abs() < 0.05, "{hurst}");
}

#[test]
fn bursty_arrivals_have_the_dispersion_and_correlation_of_their_markov_chain() {
    let (on, off, factor, per_second) = (2.0, 6.0, 3.0, 50.0);
    let bursts = Bursts::new(factor, s(on), s(off)).unwrap();
    let (high, low) = bursts.factors();
    assert!((high * on + low * off - (on + off)).abs() < 1e-9);
    let arrivals = open(Spacing::Bursts(bursts), per_second);
    let all: Vec<Vec<f64>> = (0..8).map(|seed| counts(&arrivals, seed, 40_000, 1.0)).collect();
    // Fischer and Meier-Hellstern: variance over mean of the counts in a window of length t, in equilibrium.
    let (leave_on, leave_off) = (1.0 / on, 1.0 / off);
    let (fast, slow, both) = (high * per_second, low * per_second, leave_on + leave_off);
    let limit =
        2.0 * (fast - slow).powi(2) * leave_on * leave_off / (both * both * (fast * leave_off + slow * leave_on));
    for t in [1usize, 10, 100] {
        let expected = 1.0 + limit * (1.0 - (1.0 - (-both * t as f64).exp()) / (both * t as f64));
        let actual = mean(&all.iter().map(|counts| dispersion(&coarser(counts, t))).collect::<Vec<_>>());
        assert!((actual / expected - 1.0).abs() < 0.1, "{t} s: {actual} for {expected}");
    }
    // The correlation of the counts falls by the factor e^-both per second.
    let at = |lag| mean(&all.iter().map(|counts| correlation(counts, lag)).collect::<Vec<_>>());
    let fall = at(3) / at(2);
    assert!((fall - (-both).exp()).abs() < 0.05, "{fall} for {}", (-both).exp());
    let offered = mean(&all.concat());
    assert!((offered / per_second - 1.0).abs() < 0.02, "{offered}");
}

#[test]
fn burst_rate_is_limited_by_silent_pauses() {
    let silent = Bursts::new(4.0, s(1.0), s(3.0)).unwrap();
    assert_eq!(silent.factors(), (4.0, 0.0));
    assert!(Bursts::new(4.01, s(1.0), s(3.0)).is_err());
    assert!(Bursts::new(0.9, s(1.0), s(3.0)).is_err());
    assert!(Bursts::new(2.0, Duration::ZERO, s(3.0)).is_err());
    let counts = counts(&open(Spacing::Bursts(silent), 100.0), 5, 4000, 0.25);
    let empty = counts.iter().filter(|&&count| count == 0.0).count() as f64 / counts.len() as f64;
    assert!((0.55..0.78).contains(&empty), "{empty}");
}

#[test]
fn superposed_heavy_tailed_sources_are_self_similar() {
    for (alpha, tolerance) in [(1.2, 0.1), (1.6, 0.1)] {
        let sources = SelfSimilar::new(100, alpha, s(1.0), s(2.0)).unwrap();
        let arrivals = open(Spacing::SelfSimilar(sources), 200.0);
        // Scales from the mean active time up to 300 s, in a run of 20,000 s.
        let actual: Vec<f64> =
            (0..6).map(|seed| hurst(&counts(&arrivals, seed, 20_000, 1.0), &[3, 6, 12, 25, 50, 100, 300])).collect();
        let hurst = mean(&actual);
        assert!((hurst - sources.hurst()).abs() < tolerance, "alpha {alpha}: {hurst} for {}", sources.hurst());
        // With heavy tails the mean converges slowly, so the limit is 10 %.
        let offered = mean(&(0..6).map(|seed| mean(&counts(&arrivals, seed, 5_000, 1.0))).collect::<Vec<_>>());
        assert!((offered / 200.0 - 1.0).abs() < 0.1, "{offered}");
    }
    assert!(SelfSimilar::new(0, 1.4, s(1.0), s(1.0)).is_err());
    assert!(SelfSimilar::new(10, 2.0, s(1.0), s(1.0)).is_err());
    assert!(SelfSimilar::new(10, 1.4, s(0.0), s(1.0)).is_err());
}

#[test]
fn ramps_steps_and_spikes_follow_the_configured_rate() {
    let rate = RateOverTime::new(&[
        stretch(10.0, 0.0, 100.0),
        stretch(5.0, 100.0, 100.0),
        stretch(1.0, 1000.0, 1000.0),
        stretch(4.0, 50.0, 0.0),
    ])
    .unwrap();
    let arrivals_by_stretch = [500.0, 500.0, 1000.0, 100.0];
    let edges = [0.0, 10.0, 15.0, 16.0, 20.0];
    let expected: Vec<f64> = edges.windows(2).map(|w| rate.expected(s(w[1])) - rate.expected(s(w[0]))).collect();
    assert_eq!(expected, arrivals_by_stretch);
    assert_eq!((rate.per_second(s(5.0)), rate.per_second(s(15.5)), rate.per_second(s(99.0))), (50.0, 1000.0, 0.0));
    let arrivals = Arrivals::Open { spacing: Spacing::Constant, rate: rate.clone() };
    let mut schedule = schedule(&arrivals, 1);
    let mut actual = [0.0; 4];
    let mut total = 0;
    while schedule.next() < Timestamp::MAX {
        let second = schedule.take().as_nanos() as f64 / 1e9;
        total += 1;
        actual[edges[1..].iter().position(|&edge| second < edge).unwrap()] += 1.0;
    }
    assert_eq!((actual, total), (arrivals_by_stretch, 2100));
    // On a ramp from 0, arrival k is at the time when the integral of the rate is k: t = sqrt(k / 5).
    let mut again = Schedule::new(&arrivals, Timestamp::ZERO, 1).unwrap();
    for k in 0..500u32 {
        let expected = (f64::from(k) / 5.0).sqrt();
        assert!((again.take().as_nanos() as f64 / 1e9 - expected).abs() < 2e-9, "{k}");
    }
}

#[test]
fn warm_up_uses_the_first_rate() {
    let rate = RateOverTime::new(&[stretch(2.0, 10.0, 10.0), stretch(2.0, 40.0, 40.0)]).unwrap().after(s(3.0));
    assert_eq!(rate.length(), s(7.0));
    assert_eq!([1.0, 4.9, 5.0, 8.0].map(|t| rate.per_second(s(t))), [10.0, 10.0, 40.0, 40.0]);
    assert_eq!(rate.expected(s(7.0)), 50.0 + 80.0);
    let constant = RateOverTime::constant(super::tests::rate(7.0));
    assert_eq!(constant.after(s(3.0)), constant);
    // A rise over 4 s has half of the arrivals in this time, and the full rate afterwards.
    let rising = constant.after_rising(s(4.0));
    let rate = constant.per_second(s(0.0));
    let near = |actual: f64, expected: f64| assert!((actual / expected - 1.0).abs() < 1e-9, "{actual} {expected}");
    near(rising.per_second(s(1.0)), rate / 4.0);
    near(rising.expected(s(4.0)), rate * 2.0);
    near(rising.expected(s(9.0)), rate * 7.0);
    assert_eq!(constant.after_rising(Duration::ZERO), constant);
}

#[test]
fn invalid_rates_are_rejected() {
    for (stretches, at) in [
        (vec![], 0),
        (vec![stretch(1.0, 1.0, 1.0), stretch(0.0, 1.0, 1.0)], 1),
        (vec![stretch(1.0, -1.0, 1.0)], 0),
        (vec![stretch(1.0, 1.0, f64::NAN)], 0),
        (vec![stretch(1.0, 1.0, 2e9)], 0),
        (vec![stretch(1.0, 0.0, 0.0)], 0),
    ] {
        assert_eq!(RateOverTime::new(&stretches).unwrap_err().0, at, "{stretches:?}");
    }
    assert!(RateOverTime::new(&[stretch(1.0, 0.0, 0.0), stretch(1.0, 0.0, 1.0)]).is_ok());
}

/// With a changing rate, the number of Poisson arrivals in each window is the integral of the rate.
#[test]
fn inhomogeneous_poisson_arrivals_follow_the_rate() {
    let rate = RateOverTime::new(&[stretch(50.0, 0.0, 400.0), stretch(50.0, 400.0, 100.0)]).unwrap();
    for spacing in [Spacing::Poisson, Spacing::Bursts(Bursts::new(1.0, s(1.0), s(1.0)).unwrap())] {
        let counts = counts(&Arrivals::Open { spacing, rate: rate.clone() }, 9, 10, 10.0);
        for (bin, &count) in counts.iter().enumerate() {
            let (from, to) = (s(10.0 * bin as f64), s(10.0 * (bin + 1) as f64));
            let expected = rate.expected(to) - rate.expected(from);
            assert!((count - expected).abs() < 5.0 * expected.sqrt(), "{bin}: {count} for {expected}");
        }
    }
}

fn any_spacing() -> impl Strategy<Value = Spacing> {
    prop_oneof![
        Just(Spacing::Constant),
        Just(Spacing::Poisson),
        (1.0f64..2.0, 1u64..5000, 1u64..5000).prop_filter_map("too high", |(factor, on, off)| {
            Bursts::new(factor, Duration::from_millis(on), Duration::from_millis(off)).ok().map(Spacing::Bursts)
        }),
        (1u32..60, 1.05f64..1.95).prop_filter_map("no sources", |(sources, alpha)| {
            SelfSimilar::new(sources, alpha, s(0.5), s(1.0)).ok().map(Spacing::SelfSimilar)
        }),
    ]
}

fn any_rate() -> impl Strategy<Value = RateOverTime> {
    let one = (1u64..10_000, 0.0f64..1e5, 0.0f64..1e5);
    prop_oneof![
        (0.001f64..1e9).prop_map(|per_second| RateOverTime::constant(rate(per_second))),
        prop::collection::vec(one, 1..6).prop_filter_map("nothing arrives", |parts| {
            let parts: Vec<Stretch> = parts.iter().map(|&(ms, from, to)| stretch(ms as f64 / 1e3, from, to)).collect();
            RateOverTime::new(&parts).ok()
        }),
    ]
}

proptest! {
    #[test]
    fn arrivals_are_ordered_and_repeat_with_the_seed(spacing in any_spacing(), rate in any_rate(), seed: u64) {
        let arrivals = Arrivals::Open { spacing, rate };
        let (mut one, mut two) = (schedule(&arrivals, seed), schedule(&arrivals, seed));
        let mut last = Timestamp::ZERO;
        for _ in 0..200 {
            let at = one.take();
            prop_assert!(at >= last);
            prop_assert_eq!(at, two.take());
            last = at;
        }
    }

    /// In any window that begins with an arrival, the number of constant arrivals is rate times length, rounded.
    #[test]
    fn constant_rate_is_exact_in_every_window(per_second in 1.0f64..1e6, from in 0u64..10_000, n in 1u64..10_000) {
        let rate = RateOverTime::constant(rate(per_second));
        let length_ns = rate.reaches((from + n) as f64) - rate.reaches(from as f64);
        prop_assert!((length_ns - n as f64 * 1e9 / per_second).abs() <= 1.5);
    }

    /// A rate scaled by a factor has that factor times the arrivals of the original rate, over any time.
    #[test]
    fn scaling_a_rate_multiplies_it(rate in any_rate(), factor in 0.01f64..10.0, at in 0.0f64..30.0) {
        let (expected, scaled) = (rate.expected(s(at)), rate.scaled(factor).expected(s(at)));
        prop_assert!((scaled - factor * expected).abs() <= 1e-9 * scaled.max(1.0), "{} for {}", scaled, expected);
    }

    /// The integral at the time where it reaches a value is that value.
    #[test]
    fn cumulative_rate_and_its_inverse_agree(rate in any_rate(), share in 0.0f64..1.0) {
        let work = rate.expected(s(20.0)) * share;
        let ns = rate.reaches(work);
        prop_assume!(ns.is_finite());
        let back = rate.reached_at(ns);
        prop_assert!((back - work).abs() <= 1e-6 + work * 1e-9, "{} for {}", back, work);
    }
}

/// After the rate has ended at 0, the random factor must not be simulated further.
#[test]
fn bursts_end_with_the_rate() {
    let ms = Duration::from_millis;
    let rate = RateOverTime::new(&[stretch(1.0, 100.0, 100.0), stretch(1.0, 100.0, 0.0)]).unwrap();
    for spacing in [
        Spacing::Bursts(Bursts::new(2.0, ms(1), ms(1)).unwrap()),
        Spacing::SelfSimilar(SelfSimilar::new(100, 1.5, ms(1), ms(1)).unwrap()),
    ] {
        let mut schedule = schedule(&Arrivals::Open { spacing, rate: rate.clone() }, 1);
        let arrivals = std::iter::from_fn(|| Some(schedule.take()).filter(|&at| at < Timestamp::MAX));
        let last = arrivals.last().unwrap();
        assert!(last <= Timestamp::from_nanos(2_000_000_000), "{last:?}");
    }
}
