//! Loss in bursts: the Gilbert-Elliott chain. `loss.rs` reads and writes its textual form.

use schema::DropCause;
use units::{Bytes, Probability, Timestamp};

use super::common::percent;
use super::kind::{Built, ClosedForm, EffectKind, Expected, Fate, Site, State};
use super::loss::{IndependentLoss, Loss};
use super::{ClosedEffect, EffectSpec};
use crate::draw::{Draw, Threshold};

/// Loss in bursts: a chain of two states, good and bad, that moves once per packet, before the packet's own draw.
///
/// Source: Gilbert, "Capacity of a burst-noise channel", 1960; Elliott, "Estimates of error rates for codes on
/// burst-noise channels", 1963. Names as in RFC 6534 and netem: p, r, 1 - k, 1 - h.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// p: probability of moving from good to bad, per packet.
    pub to_bad: Probability,
    /// r: probability of moving from bad to good, per packet. The mean stay in the bad state is 1 / r packets.
    pub to_good: Probability,
    /// Probability of loss in the good state (1 - k).
    pub loss_good: Probability,
    /// Probability of loss in the bad state (1 - h); 1 gives the simple Gilbert model.
    pub loss_bad: Probability,
}

impl GilbertElliott {
    /// Share of packets lost in the long run. If neither state is ever left, it is the loss of the good state, in which
    /// the chain begins.
    pub fn mean_loss(&self) -> f64 {
        let (p, r) = (self.to_bad.value(), self.to_good.value());
        let bad = if p + r > 0.0 { p / (p + r) } else { 0.0 };
        (1.0 - bad) * self.loss_good.value() + bad * self.loss_bad.value()
    }
}

/// A chain of two states, of which one loses more. Its state is the random sequence, and 1 while in the bad state; it
/// begins in the good state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Burst {
    to_bad: Threshold,
    to_good: Threshold,
    loss_good: Threshold,
    loss_bad: Threshold,
}

impl Burst {
    const STREAM: u64 = 2;

    fn new(spec: &GilbertElliott) -> Self {
        Burst {
            to_bad: Threshold::new(spec.to_bad),
            to_good: Threshold::new(spec.to_good),
            loss_good: Threshold::new(spec.loss_good),
            loss_bad: Threshold::new(spec.loss_bad),
        }
    }
}

impl EffectKind for Burst {
    type Settings = GilbertElliott;
    type Form = Loss;

    const KEY: &'static str = IndependentLoss::KEY;
    const RANK: u8 = 1;
    const STREAMS: &'static [u64] = &[Self::STREAM];
    const IS_LOSS: bool = true;

    fn spec(form: Loss) -> EffectSpec {
        form.effect()
    }

    fn form(model: &GilbertElliott) -> Loss {
        Loss::Bursts(*model)
    }

    /// The chain begins in the good state.
    fn is_idle(model: &GilbertElliott) -> bool {
        let never = Probability::ZERO;
        model.loss_good == never && (model.loss_bad == never || model.to_bad == never)
    }

    fn describe(model: &GilbertElliott) -> String {
        let GilbertElliott { to_bad, to_good, loss_good, loss_bad } = model;
        let mut words = format!(
            "loss in bursts, mean {} (bad after {} of packets, good after {}",
            percent(model.mean_loss()),
            percent(to_bad.value()),
            percent(to_good.value())
        );
        if loss_bad.value() < 1.0 {
            words.push_str(&format!(", lost in bad {}", percent(loss_bad.value())));
        }
        if loss_good.value() > 0.0 {
            words.push_str(&format!(", in good {}", percent(loss_good.value())));
        }
        words + ")"
    }

    fn label(model: &GilbertElliott) -> String {
        format!("loss {}", Loss::Bursts(*model))
    }

    fn expected(model: &GilbertElliott) -> Expected {
        // Correlation of the states of consecutive packets; independent draws within a state only lower it.
        let memory = (1.0 - model.to_bad.value() - model.to_good.value()).max(0.0);
        let scatter = ((1.0 + memory) / (1.0 - memory).max(1e-6)).max(1.0);
        Expected { dropped: model.mean_loss(), scatter, ..Expected::NOTHING }
    }

    fn build<'a>(model: &'a GilbertElliott, site: &mut Site<'_>) -> Option<Built<'a>> {
        let state = [site.draw(Self::STREAM).key(), 0];
        Some(Built::Closed(ClosedEffect::GilbertElliott(Burst::new(model)), state))
    }
}

impl ClosedForm for Burst {
    /// The chain moves, then the packet is lost or not by the new state.
    #[inline]
    fn handle(&self, [key, is_bad]: &mut State, at: Timestamp, _size: Bytes) -> Fate {
        let mut draw = Draw::new(*key);
        let leaves_state = if *is_bad == 1 { self.to_good } else { self.to_bad };
        *is_bad ^= u64::from(leaves_state.hit(&mut draw));
        let loss = if *is_bad == 1 { self.loss_bad } else { self.loss_good };
        let is_lost = loss.hit(&mut draw);
        *key = draw.key();
        if is_lost { Fate::Dropped(DropCause::Loss) } else { Fate::Leaves(at) }
    }
}

#[cfg(test)]
mod tests {
    use units::Probability;

    use super::*;

    fn spec(p: f64, r: f64, good: f64, bad: f64) -> GilbertElliott {
        let [to_bad, to_good, loss_good, loss_bad] = [p, r, good, bad].map(|value| Probability::new(value).unwrap());
        GilbertElliott { to_bad, to_good, loss_good, loss_bad }
    }

    fn fates(spec: &GilbertElliott, packets: usize) -> Vec<bool> {
        let (burst, mut state) = (Burst::new(spec), [5, 0]);
        (0..packets)
            .map(|_| burst.handle(&mut state, Timestamp::ZERO, Bytes(0)) != Fate::Leaves(Timestamp::ZERO))
            .collect()
    }

    /// Lengths of runs of `value` that both began and ended.
    fn runs(fates: &[bool], value: bool) -> Vec<usize> {
        let mut all: Vec<(bool, usize)> = Vec::new();
        for &fate in fates {
            match all.last_mut() {
                Some((last, length)) if *last == fate => *length += 1,
                _ => all.push((fate, 1)),
            }
        }
        let inner = all.len().saturating_sub(1);
        all[1..inner].iter().filter(|(fate, _)| *fate == value).map(|&(_, length)| length).collect()
    }

    /// Pearson's statistic of `lengths` against a geometric distribution with probability `stop` on {1, 2, ..}, in
    /// classes 1 to `classes` - 1 and one for longer runs.
    fn chi_square(lengths: &[usize], stop: f64, classes: usize) -> f64 {
        let n = lengths.len() as f64;
        (1..=classes)
            .map(|class| {
                let last = class == classes;
                let seen =
                    lengths.iter().filter(|&&length| if last { length >= class } else { length == class }).count();
                let beyond = (1.0 - stop).powi(class as i32 - 1);
                let expected = n * if last { beyond } else { beyond * stop };
                (seen as f64 - expected).powi(2) / expected
            })
            .sum()
    }

    #[test]
    fn gilbert_loss_and_arrival_runs_have_geometric_lengths() {
        // The simple Gilbert model: runs of losses end with r, runs of arrivals with p.
        let (p, r) = (0.05, 0.25);
        let fates = fates(&spec(p, r, 0.0, 1.0), 2_000_000);
        let (losses, arrivals) = (runs(&fates, true), runs(&fates, false));
        // About 83,000 runs of each. 9 degrees of freedom: 33.7 is exceeded once in 10,000 seeds.
        assert!(chi_square(&losses, r, 10) < 33.7, "{}", chi_square(&losses, r, 10));
        assert!(chi_square(&arrivals, p, 10) < 33.7, "{}", chi_square(&arrivals, p, 10));
        let mean = |lengths: &[usize]| lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        // Standard deviation of a geometric length: sqrt(1 - q) / q.
        for (lengths, stop) in [(&losses, r), (&arrivals, p)] {
            let error = (1.0 - stop).sqrt() / stop / (lengths.len() as f64).sqrt();
            assert!((mean(lengths) - 1.0 / stop).abs() < 5.0 * error, "{} {stop}", mean(lengths));
        }
    }

    #[test]
    fn gilbert_elliott_loss_share_is_the_stationary_loss() {
        let spec = spec(0.01, 0.2, 0.002, 0.6);
        let packets = 2_000_000;
        let lost = fates(&spec, packets).iter().filter(|&&lost| lost).count() as f64 / packets as f64;
        let expected = spec.mean_loss();
        // The state's correlation is (1 - p - r) per step, so the share in the bad state varies like that of (p + r) /
        // (2 - p - r) times the number of packets; this bounds the variance of the loss.
        let bad = 0.01 / 0.21;
        let state_variance = bad * (1.0 - bad) * (0.6f64 - 0.002).powi(2) * (2.0 - 0.21) / 0.21;
        let error = ((expected * (1.0 - expected) + state_variance) / packets as f64).sqrt();
        assert!((lost - expected).abs() < 5.0 * error, "{lost} {expected} {error}");
    }

    #[test]
    fn gilbert_elliott_chain_begins_good_and_moves_before_each_draw() {
        assert_eq!(fates(&spec(1.0, 1.0, 0.0, 1.0), 4), [true, false, true, false]);
        assert_eq!(fates(&spec(0.0, 1.0, 0.0, 1.0), 3), [false; 3]);
        assert_eq!(fates(&spec(1.0, 0.0, 0.0, 1.0), 3), [true; 3]);
    }
}
