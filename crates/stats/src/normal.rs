//! Quantiles of the normal distribution.

/// The quantile of the standard normal distribution: the value below which the probability is `p`. For `p` from 0 to 1,
/// with infinities at both ends; NaN outside. The relative error is about 1e-16.
///
/// Source: M. J. Wichura, "Algorithm AS 241: The percentage points of the normal distribution", Applied Statistics
/// 37 (3), 1988, function PPND16: one ratio of polynomials for the middle, two for the tails.
pub fn quantile(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.0 || p == 1.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    let q = p - 0.5;
    if q.abs() <= 0.425 {
        let r = 0.425 * 0.425 - q * q;
        return q * ratio(&MIDDLE, r);
    }
    let r = (-p.min(1.0 - p).ln()).sqrt();
    let x = if r <= 5.0 { ratio(&TAIL, r - 1.6) } else { ratio(&FAR_TAIL, r - 5.0) };
    x.copysign(q)
}

/// Coefficients of a numerator and a denominator, highest power first.
type Ratio = [[f64; 8]; 2];

fn ratio([numerator, denominator]: &Ratio, r: f64) -> f64 {
    let value = |coefficients: &[f64; 8]| coefficients.iter().fold(0.0, |sum, &coefficient| sum * r + coefficient);
    value(numerator) / value(denominator)
}

/// For 0.075 <= p <= 0.925.
const MIDDLE: Ratio = [
    [
        2.509_080_928_730_122_7e3,
        3.343_057_558_358_813e4,
        6.726_577_092_700_87e4,
        4.592_195_393_154_987e4,
        1.373_169_376_550_946e4,
        1.971_590_950_306_551_3e3,
        1.331_416_678_917_843_8e2,
        3.387_132_872_796_366_5,
    ],
    [
        5.226_495_278_852_545e3,
        2.872_908_573_572_194_3e4,
        3.930_789_580_009_271e4,
        2.121_379_430_158_659_7e4,
        5.394_196_021_424_751e3,
        6.871_870_074_920_579e2,
        4.231_333_070_160_091e1,
        1.0,
    ],
];

/// For smaller p, down to e^-25 = 1.4e-11.
const TAIL: Ratio = [
    [
        7.745_450_142_783_414e-4,
        2.272_384_498_926_918_4e-2,
        2.417_807_251_774_506e-1,
        1.270_458_252_452_368_4,
        3.647_848_324_763_204_5,
        5.769_497_221_460_691,
        4.630_337_846_156_546,
        1.423_437_110_749_683_5,
    ],
    [
        1.050_750_071_644_416_9e-9,
        5.475_938_084_995_345e-4,
        1.519_866_656_361_645_7e-2,
        1.481_039_764_274_800_8e-1,
        6.897_673_349_851e-1,
        1.676_384_830_183_803_8,
        2.053_191_626_637_759,
        1.0,
    ],
];

/// For p below e^-25.
const FAR_TAIL: Ratio = [
    [
        2.010_334_399_292_288_1e-7,
        2.711_555_568_743_487_6e-5,
        1.242_660_947_388_078_4e-3,
        2.653_218_952_657_612_4e-2,
        2.965_605_718_285_049e-1,
        1.784_826_539_917_291_3,
        5.463_784_911_164_114,
        6.657_904_643_501_103,
    ],
    [
        2.044_263_103_389_939_8e-15,
        1.421_511_758_316_446e-7,
        1.846_318_317_510_054_8e-5,
        7.868_691_311_456_133e-4,
        1.487_536_129_085_061_5e-2,
        1.369_298_809_227_358e-1,
        5.998_322_065_558_88e-1,
        1.0,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The check values of the paper, which use all three ratios.
    #[test]
    fn normal_quantile_matches_published_values() {
        for (p, x) in
            [(0.25, -0.674_489_750_196_081_7), (0.001, -3.090_232_306_167_813_5), (1e-20, -9.262_340_089_798_408)]
        {
            assert!((quantile(p) / x - 1.0).abs() < 1e-14, "{p}: {}", quantile(p));
        }
    }

    #[test]
    fn normal_quantile_is_odd_about_one_half_and_infinite_at_the_ends() {
        assert_eq!(quantile(0.5), 0.0);
        for p in [0.4, 0.075, 0.0749, 1e-3, 1e-6] {
            assert!((quantile(p) + quantile(1.0 - p)).abs() < 1e-9, "{p}");
        }
        assert_eq!((quantile(0.0), quantile(1.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(quantile(-1e-9).is_nan() && quantile(1.0 + 1e-9).is_nan() && quantile(f64::NAN).is_nan());
    }

    /// An independent check: the density integrated by Simpson's rule.
    #[test]
    fn normal_cdf_of_the_quantile_is_p() {
        for p in [0.01, 0.074, 0.076, 0.3, 0.6, 0.924, 0.926, 0.999] {
            let (x, steps) = (quantile(p), 20_000);
            let step = x / f64::from(steps);
            let density = |x: f64| (-x * x / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
            let sum: f64 = (0..steps)
                .map(|n| {
                    let from = f64::from(n) * step;
                    (density(from) + 4.0 * density(from + step / 2.0) + density(from + step)) * step / 6.0
                })
                .sum();
            assert!((0.5 + sum - p).abs() < 1e-13, "{p}: {}", 0.5 + sum);
        }
    }
}
