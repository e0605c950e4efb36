//! PIE against the pseudocode of RFC 8033, section 4 and appendix A, transcribed literally.

use std::collections::VecDeque;

use super::*;

/// The RFC's variables, in seconds.
struct Reference {
    qdelay_ref: f64,
    t_update: f64,
    drop_prob: f64,
    qdelay_old: f64,
    burst_allowance: f64,
    draw: Draw,
}

const MAX_BURST: f64 = 0.150;

impl Reference {
    fn calculate_drop_prob(&mut self, current_qdelay: f64) {
        // alpha and beta for 15 ms, the only T_UPDATE of the reference.
        assert!((self.t_update - 0.015).abs() < 1e-12);
        let mut p = 0.125 * (current_qdelay - self.qdelay_ref) + 1.25 * (current_qdelay - self.qdelay_old);
        if self.drop_prob < 0.000001 {
            p /= 2048.0;
        } else if self.drop_prob < 0.00001 {
            p /= 512.0;
        } else if self.drop_prob < 0.0001 {
            p /= 128.0;
        } else if self.drop_prob < 0.001 {
            p /= 32.0;
        } else if self.drop_prob < 0.01 {
            p /= 8.0;
        } else if self.drop_prob < 0.1 {
            p /= 2.0;
        }
        self.drop_prob += p;
        if current_qdelay == 0.0 && self.qdelay_old == 0.0 {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        self.qdelay_old = current_qdelay;
        self.burst_allowance = f64::max(0.0, self.burst_allowance - self.t_update);
        if self.burst_allowance < 1e-9 {
            self.burst_allowance = 0.0;
        }
    }

    fn drop_early(&mut self, queue_bytes: u64) -> bool {
        if (self.qdelay_old < self.qdelay_ref / 2.0 && self.drop_prob < 0.2) || queue_bytes <= 2 * 1500 {
            return false;
        }
        let u = (self.draw.next() >> 11) as f64 / (1u64 << 53) as f64;
        u < self.drop_prob
    }

    fn enqueue(&mut self, current_qdelay: f64, queue_bytes: u64) -> bool {
        if self.burst_allowance == 0.0 && self.drop_early(queue_bytes) {
            return false;
        }
        let half = self.qdelay_ref / 2.0;
        if self.drop_prob == 0.0 && current_qdelay < half && self.qdelay_old < half {
            self.burst_allowance = MAX_BURST;
        }
        true
    }
}

/// Runs the reference in front of a link of one byte per microsecond, update by update, without shortcuts.
fn reference(target: Duration, packets: &[(u64, u32)]) -> Fates {
    let mut pie = Reference {
        qdelay_ref: target.as_secs_f64(),
        t_update: 0.015,
        drop_prob: 0.0,
        qdelay_old: 0.0,
        burst_allowance: MAX_BURST,
        draw: Draw::new(9),
    };
    // Accepted packets and their sending times: (begins, ends, bytes).
    let mut accepted: VecDeque<(u64, u64, u32)> = VecDeque::new();
    let mut free_at = 0u64;
    let mut next_update = 15_000_000;
    packets
        .iter()
        .map(|&(at, bytes)| {
            while next_update <= at {
                pie.calculate_drop_prob(free_at.saturating_sub(next_update) as f64 / 1e9);
                next_update += 15_000_000;
            }
            while accepted.front().is_some_and(|&(begins, _, _)| begins <= at) {
                accepted.pop_front();
            }
            let waiting = accepted.iter().map(|&(_, _, bytes)| u64::from(bytes)).sum();
            if !pie.enqueue(free_at.saturating_sub(at) as f64 / 1e9, waiting) {
                return Err(DropCause::Aqm);
            }
            let begins = free_at.max(at);
            free_at = begins + u64::from(bytes) * 1000;
            accepted.push_back((begins, free_at, bytes));
            Ok(free_at)
        })
        .collect()
}

fn pie_queue(target: Duration) -> Queue<usize> {
    let pie = spec::Pie { target, ..spec::Pie::default() };
    queue(constant(8_000_000), HOUR, Discipline::Pie(pie))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Packet by packet like the RFC's own code.
    #[test]
    fn pie_drops_the_packets_that_rfc_8033_drops(
        packets in packets(1_200_000, 4_000), squeeze in 1u64..6, target_ms in 2u64..40,
    ) {
        let packets: Vec<(u64, u32)> = packets.into_iter().map(|(at, bytes)| (at / squeeze, bytes)).collect();
        let fates = run(&mut pie_queue(ms(target_ms)), &packets, NO_START);
        prop_assert_eq!(fates, reference(ms(target_ms), &packets));
    }
}

fn poisson(per_ms: f64, milliseconds: f64, begin: f64, seed: u64) -> Vec<(u64, u32)> {
    let mut rng = stats::Rng::new(seed, 0);
    let mut now = 0.0;
    std::iter::from_fn(|| {
        now += rng.exponential() / per_ms * 1e6;
        (now < milliseconds * 1e6).then_some((begin as u64 * 1_000_000 + now as u64, 1000))
    })
    .collect()
}

#[test]
fn pie_follows_rfc_8033_through_long_overload_and_pauses() {
    let mut packets = poisson(1.3, 20_000.0, 0.0, 1);
    packets.extend(poisson(0.5, 5_000.0, 20_000.0, 2));
    packets.extend(poisson(2.0, 10_000.0, 90_000.0, 3));
    let fates = run(&mut pie_queue(ms(15)), &packets, NO_START);
    assert!(fates.iter().filter(|fate| fate.is_err()).count() > 5_000);
    assert_eq!(fates, reference(ms(15), &packets));
}

#[test]
fn pie_controls_the_delay_to_the_target() {
    // Poisson at 1.2 times the rate for two minutes.
    let packets = poisson(1.2, 120_000.0, 0.0, 4);
    let fates = run(&mut pie_queue(ms(15)), &packets, NO_START);
    let waits: Vec<u64> =
        fates.iter().zip(&packets).filter_map(|(fate, (at, _))| Some(fate.ok()? - 1_000_000 - at)).collect();
    let late = &waits[waits.len() / 2..];
    let mean = late.iter().sum::<u64>() as f64 / late.len() as f64 / 1e6;
    assert!((12.0..18.0).contains(&mean), "{mean} ms");
    let dropped = fates.iter().filter(|fate| fate.is_err()).count() as f64 / fates.len() as f64;
    // The overload: 0.2 of 1.2.
    assert!((0.15..0.18).contains(&dropped), "{dropped}");
}

#[test]
fn pie_drops_nothing_of_a_burst_into_an_idle_queue() {
    // 140 ms of packets at the same time; the allowance is 150 ms.
    let packets = vec![(0, 1000); 140];
    assert!(run(&mut pie_queue(ms(15)), &packets, NO_START).iter().all(Result::is_ok));
}

#[test]
fn pie_with_another_update_interval_reaches_the_same_target() {
    // With half the interval, alpha is halved and beta grows by a quarter of alpha; the target stays.
    let pie = spec::Pie { target: ms(15), update: Duration::from_micros(7_500) };
    let mut queue = queue(constant(8_000_000), HOUR, Discipline::Pie(pie));
    let packets = poisson(1.2, 120_000.0, 0.0, 5);
    let fates = run(&mut queue, &packets, NO_START);
    let waits: Vec<u64> =
        fates.iter().zip(&packets).filter_map(|(fate, (at, _))| Some(fate.ok()? - 1_000_000 - at)).collect();
    let late = &waits[waits.len() / 2..];
    let mean = late.iter().sum::<u64>() as f64 / late.len() as f64 / 1e6;
    assert!((12.0..18.0).contains(&mean), "{mean} ms");
}
