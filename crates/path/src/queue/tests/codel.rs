//! CoDel against the pseudocode of RFC 8289, section 5, transcribed literally.

use std::collections::VecDeque;

use super::*;

/// The RFC's `codel_queue_t`, for a queue of (number, arrival, bytes). Times in nanoseconds; 0 is "none" as there.
#[derive(Default)]
struct Reference {
    queue: VecDeque<(usize, u64, u32)>,
    target: u64,
    interval: u64,
    first_above_time: u64,
    drop_next: u64,
    count: u32,
    lastcount: u32,
    dropping: bool,
    dropped: Vec<usize>,
    drop_times: Vec<u64>,
}

impl Reference {
    fn dodequeue(&mut self, now: u64) -> (Option<(usize, u64, u32)>, bool) {
        let p = self.queue.pop_front();
        let Some((_, tstamp, _)) = p else {
            self.first_above_time = 0;
            return (p, false);
        };
        let sojourn_time = now - tstamp;
        let bytes: u32 = self.queue.iter().map(|&(_, _, bytes)| bytes).sum();
        let mut ok_to_drop = false;
        if sojourn_time < self.target || bytes <= 1500 {
            self.first_above_time = 0;
        } else if self.first_above_time == 0 {
            self.first_above_time = now + self.interval;
        } else if now >= self.first_above_time {
            ok_to_drop = true;
        }
        (p, ok_to_drop)
    }

    fn drop(&mut self, p: Option<(usize, u64, u32)>, now: u64) {
        self.dropped.push(p.unwrap().0);
        self.drop_times.push(now);
    }

    fn control_law(&self, t: u64, count: u32) -> u64 {
        t + (self.interval as f64 / f64::from(count).sqrt()) as u64
    }

    fn deque(&mut self, now: u64) -> Option<(usize, u64, u32)> {
        let (mut p, mut ok_to_drop) = self.dodequeue(now);
        if self.dropping {
            if !ok_to_drop {
                self.dropping = false;
            }
            while now >= self.drop_next && self.dropping {
                self.drop(p, now);
                (p, ok_to_drop) = self.dodequeue(now);
                if !ok_to_drop {
                    self.dropping = false;
                } else {
                    self.count += 1;
                    self.drop_next = self.control_law(self.drop_next, self.count);
                }
            }
        } else if ok_to_drop {
            self.drop(p, now);
            (p, _) = self.dodequeue(now);
            self.dropping = true;
            let delta = self.count - self.lastcount;
            self.count = 1;
            if delta > 1 && now.saturating_sub(self.drop_next) < 16 * self.interval {
                self.count = delta;
            }
            self.drop_next = self.control_law(now, self.count);
            self.lastcount = self.count;
        }
        p
    }
}

/// Runs the reference in front of a link of one byte per microsecond: dropped packets, and departure times of the
/// others.
fn reference(spec: &spec::CoDel, packets: &[(u64, u32)]) -> (Fates, Reference) {
    let (target, interval) = (spec.target.as_nanos() as u64, spec.interval.as_nanos() as u64);
    let mut codel = Reference { target, interval, ..Reference::default() };
    let mut fates: Fates = vec![Err(DropCause::Aqm); packets.len()];
    let mut arrivals = packets.iter().copied().enumerate().peekable();
    let mut free_at = 0;
    loop {
        if codel.queue.is_empty() {
            let Some(&(_, (at, _))) = arrivals.peek() else { break };
            free_at = free_at.max(at);
        }
        // A packet is in the queue at the next dequeue if it arrived before the link was free; on an idle link, the
        // first packet is.
        while let Some(&(number, (at, bytes))) = arrivals.peek()
            && (at < free_at || codel.queue.is_empty())
            && at <= free_at
        {
            codel.queue.push_back((number, at, bytes));
            arrivals.next();
        }
        if let Some((number, _, bytes)) = codel.deque(free_at) {
            free_at += u64::from(bytes) * 1000;
            fates[number] = Ok(free_at);
        }
    }
    (fates, codel)
}

const BYTE_A_MICROSECOND: u64 = 8_000_000;

fn codel_queue(spec: spec::CoDel) -> Queue<usize> {
    queue(constant(BYTE_A_MICROSECOND), HOUR, Discipline::CoDel(spec))
}

/// Packets of 1000 bytes, `per_ms` per millisecond, for `milliseconds`: 1 is exactly the rate.
fn stream(per_ms: f64, milliseconds: u64) -> Vec<(u64, u32)> {
    let count = (milliseconds as f64 * per_ms) as u64;
    (0..count).map(|number| ((number as f64 / per_ms * 1e6) as u64, 1000)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Packet by packet like the RFC's own code, over loads from light to several times the rate.
    #[test]
    fn codel_drops_the_packets_that_rfc_8289_drops(
        packets in packets(1_200_000, 3_000),
        squeeze in 1u64..6,
        target_us in 100u64..20_000,
        interval_us in 1_000u64..100_000,
    ) {
        let packets: Vec<(u64, u32)> = packets.into_iter().map(|(at, bytes)| (at / squeeze, bytes)).collect();
        let us = Duration::from_micros;
        let spec = spec::CoDel { target: us(target_us), interval: us(interval_us) };
        let fates = run(&mut codel_queue(spec), &packets, NO_START);
        prop_assert_eq!(fates, reference(&spec, &packets).0);
    }
}

#[test]
fn codel_follows_rfc_8289_when_dropping_begins_again() {
    // Overload that starts and stops, so that dropping begins again soon after it ended.
    let spec = spec::CoDel::default();
    let mut packets = Vec::new();
    for round in 0..40u64 {
        packets.extend(stream(1.5, 600).into_iter().map(|(at, bytes)| (at + round * 1_000_000_000, bytes)));
    }
    let (fates, codel) = reference(&spec, &packets);
    assert!(codel.dropped.len() > 500, "{}", codel.dropped.len());
    assert_eq!(run(&mut codel_queue(spec), &packets, NO_START), fates);
}

#[test]
fn codel_drops_nothing_while_delays_stay_below_the_target() {
    // Bursts of four packets wait up to 3 ms, then the queue is empty again.
    let packets: Vec<(u64, u32)> = (0..40_000).map(|number| (number / 4 * 5_000_000, 1000)).collect();
    assert!(run(&mut codel_queue(spec::CoDel::default()), &packets, NO_START).iter().all(Result::is_ok));
}

#[test]
fn codel_drop_intervals_follow_the_square_root_of_the_drop_count() {
    // Twice the rate, and no sender slows down: the queue stays above the target.
    let packets = stream(2.0, 5_000);
    let fates = run(&mut codel_queue(spec::CoDel::default()), &packets, NO_START);
    let departures: Vec<u64> = fates.iter().filter_map(|fate| fate.ok()).collect();
    let dropped: Vec<usize> = (0..fates.len()).filter(|&number| fates[number] == Err(DropCause::Aqm)).collect();
    assert!(dropped.len() > 100, "{}", dropped.len());
    // A drop happens at the next dequeue, when the previous packet has left; with 1 ms per packet that is at most 1 ms
    // after the control law's time. The first drop is an interval after the first packet above 5 ms.
    let drop_time = |dropped: usize| {
        let before = fates[..dropped].iter().rev().find_map(|fate| fate.ok()).unwrap();
        assert!(departures.binary_search(&before).is_ok());
        before
    };
    let first_above = fates
        .iter()
        .zip(&packets)
        .filter_map(|(fate, (at, _))| Some(fate.ok()? - 1_000_000).filter(|begins| begins - at >= 5_000_000))
        .next()
        .unwrap();
    let first = drop_time(dropped[0]);
    assert!((100_000_000..=101_000_000).contains(&(first - first_above)), "{first} {first_above}");
    let mut law = first as f64;
    for (count, &number) in (1u32..).zip(&dropped) {
        let late = drop_time(number) as f64 - law;
        assert!((-1.0e3..=1.001e6).contains(&late), "drop {count}: {late} ns after its time");
        law += 100e6 / f64::from(count).sqrt();
    }
}

#[test]
fn codel_reduces_a_standing_queue_to_the_target() {
    // 2 % overload for two minutes: without CoDel 2.4 s would wait at the end.
    let packets = stream(1.02, 120_000);
    let fates = run(&mut codel_queue(spec::CoDel::default()), &packets, NO_START);
    let waits: Vec<u64> = fates.iter().zip(&packets).filter_map(|(fate, (at, _))| Some(fate.ok()? - at)).collect();
    let late = &waits[waits.len() / 2..];
    let mean = late.iter().sum::<u64>() as f64 / late.len() as f64;
    // The target and the packet's own millisecond; the excess comes from the controller's reaction time.
    assert!(mean < 20e6, "mean delay {} ms", mean / 1e6);
    let dropped = fates.iter().filter(|fate| fate.is_err()).count() as f64 / fates.len() as f64;
    assert!((0.015..0.03).contains(&dropped), "{dropped}");
}

#[test]
fn codel_never_drops_the_last_full_packet() {
    // Two packets at a time at a rate so low that each stays for a second.
    let spec = spec::CoDel { target: ms(1), interval: ms(2) };
    let mut queue = queue(constant(8_000), HOUR, Discipline::CoDel(spec));
    let packets: Vec<(u64, u32)> = (0..50).map(|number| (number * 1_000_000_000, 1000)).collect();
    let mut doubled = packets.clone();
    doubled.insert(0, (0, 1000));
    assert!(run(&mut queue, &doubled, NO_START).iter().all(Result::is_ok));
}
