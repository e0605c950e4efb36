//! The search for the highest packet rate with tolerable loss: throughput as in RFC 2544, 26.1, by the search of RFC
//! 9971.
//!
//! A first search with short trials, in which queues hide loss, only finds the region. The second one, with trials of
//! full length, determines the result.

use std::time::Duration;

use crate::tester::{Test, TrialReport};
use schema::{PacketRate, SearchTrial};
use stats::search::{Goal, Search, SearchResult, Step, Trial};

use super::checks::{BUSY, is_used_up};
use super::findings::{floor, wilson};
use super::measured::measured;
use super::trials::{ConditionMeasurement, SETTLE, Stop, TrialOutcome, direction_name, milliseconds};

/// First search: length of trials, width of the bracket, and wait after a trial.
const SHORT_TRIAL: Duration = Duration::from_millis(500);
const SHORT_TRIAL_WIDTH: f64 = 0.15;
const SHORT_TRIAL_SETTLE: Duration = Duration::from_millis(500);
/// First rate without prior knowledge.
const START_PER_S: f64 = 20_000.0;
/// Lowest and highest rate.
const MIN_PER_S: f64 = 10.0;
const MAX_PER_S: f64 = 4e6;
const RAMP: f64 = 2.0;
const FINE_RAMP: f64 = 1.1;
/// Limit of the 99th percentile of a sender's lag.
const LAG_P99_NS_MAX: u64 = 1_000_000;
/// Share of the configured rate that a sender must reach.
const OFFERED_MIN: f64 = 0.99;
/// Trials of one rate with a late tester before the tester counts as the bottleneck.
const LATE_MAX: usize = 2;
/// Share of the link rate from which the link counts as the bottleneck.
const LINK_SHARE: f64 = 0.97;
/// Bytes of an Ethernet frame around an IP packet.
const FRAME_BYTES: u16 = 18;
/// Confidence of the upper limit of the loss at light load.
const FLOOR_CONFIDENCE: f64 = 0.999;

impl ConditionMeasurement<'_> {
    /// Finds the rate of a packet size in one direction.
    pub(super) fn rate_of(&mut self, up: bool, ip_bytes: u16) -> Result<(), Stop> {
        if self.observations.udp_blocked.is_some() {
            return Ok(());
        }
        let mut rate = PacketRate {
            ip_bytes,
            frame_bytes: ip_bytes.saturating_add(FRAME_BYTES),
            up,
            loss_bound: self.bound(up),
            ..PacketRate::default()
        };
        let blocked =
            |size: &&super::trials::SizeResult| size.up == up && size.ip_bytes == ip_bytes && size.received == 0;
        if self.observations.sizes.iter().any(|size| blocked(&size)) {
            rate.limited_by = "nothing_passes".into();
            self.observations.rates.push(rate);
            return Ok(());
        }
        (self.tell)(&format!("packets of {ip_bytes} bytes, {}", direction_name(up)));
        let (mut found, mut by_tester) = (Vec::new(), false);
        for _ in 0..self.plan.searches() {
            match self.search(&mut rate) {
                Ok(Some(per_second)) => {
                    found.push(per_second);
                    by_tester |= rate.limited_by == "tester";
                }
                Ok(None) => break,
                Err(stop) => {
                    // An unfinished search has no result; its trials are stored.
                    self.observations.rates.push(PacketRate { limited_by: "unfinished".into(), ..rate });
                    return Err(stop);
                }
            }
        }
        let mean = found.iter().sum::<f64>() / found.len() as f64;
        if !found.is_empty() {
            rate.per_second = Some(mean);
            rate.bits_per_s = Some(mean * 8.0 * f64::from(ip_bytes));
            // A failed later search does not determine the bottleneck.
            rate.limited_by = if by_tester { "tester" } else { "gateway" }.into();
            if found.len() < self.plan.searches() as usize {
                let (some, all) = (found.len(), self.plan.searches());
                let of = format!("packets of {ip_bytes} bytes {}", direction_name(up));
                self.observations.refused.push(format!("{some} of {all} searches found a rate of {of}"));
            }
            if self.link_per_s(ip_bytes).is_some_and(|link| mean >= LINK_SHARE * link) {
                rate.limited_by = "link".into();
            }
            rate.searches = measured(&found).filter(|_| found.len() > 1);
        }
        self.observations.rates.push(rate);
        Ok(())
    }

    /// Tolerated loss: the configured loss plus the loss at light load.
    fn bound(&self, up: bool) -> f64 {
        let configured = self.plan.loss.value();
        let survey = self.observations.survey.iter().find(|survey| survey.up == up);
        match survey.and_then(floor) {
            Some((lost, sent)) if lost > 0 => (configured + wilson(lost, sent, FLOOR_CONFIDENCE)[1]).min(0.9),
            _ => configured,
        }
    }

    /// Packets per second of a size at the link rate.
    fn link_per_s(&self, ip_bytes: u16) -> Option<f64> {
        Some(self.link?.bits_per_s()? / (8.0 * f64::from(ip_bytes)))
    }

    /// One search; `None` if even the lowest rate loses too many packets.
    fn search(&mut self, rate: &mut PacketRate) -> Result<Option<f64>, Stop> {
        let link = self.link_per_s(rate.ip_bytes);
        let min = link.map_or(MIN_PER_S, |link| MIN_PER_S.min(link / 10.0));
        let known =
            self.observations.rates.iter().rev().find(|other| other.up == rate.up).and_then(|other| other.per_second);
        let start = known.unwrap_or(START_PER_S).min(link.unwrap_or(f64::INFINITY)).clamp(min, MAX_PER_S);
        let look = Goal {
            trial: SHORT_TRIAL,
            sum: SHORT_TRIAL,
            exceed_ratio: 0.0,
            width: SHORT_TRIAL_WIDTH,
            min,
            max: MAX_PER_S,
            start,
            ramp: RAMP,
            ramp_max: RAMP,
            whole: false,
        };
        let (seen, _) = self.follow(&look, SHORT_TRIAL_SETTLE, rate)?;
        let start = match seen {
            SearchResult::Regular { lower, .. } | SearchResult::NoUpper { lower, .. } => lower,
            SearchResult::NoLower { upper } => upper,
            SearchResult::Open { .. } => return Ok(None),
        };
        let trial = self.plan.packet_trial();
        let width = self.plan.width.value();
        let ramp = FINE_RAMP.max(1.0 + width);
        let fine = Goal { trial, sum: trial, width, start, ramp, ramp_max: ramp, ..look };
        let (found, late_above) = self.follow(&fine, SETTLE, rate)?;
        match found {
            SearchResult::Regular { lower, upper } => {
                rate.too_many_per_second = Some(upper);
                rate.width = Some(upper / lower - 1.0);
                rate.limited_by = if late_above { "tester" } else { "gateway" }.into();
                Ok(Some(lower))
            }
            SearchResult::NoUpper { lower, .. } => {
                rate.limited_by = "tester".into();
                Ok(Some(lower))
            }
            SearchResult::NoLower { .. } | SearchResult::Open { .. } => {
                rate.limited_by = if late_above { "tester" } else { "nothing_passes" }.into();
                Ok(None)
            }
        }
    }

    /// Runs a search to its end. Returns its result, and whether the tester was late at the upper bound.
    fn follow(&mut self, goal: &Goal, settle: Duration, rate: &mut PacketRate) -> Result<(SearchResult, bool), Stop> {
        let mut search = Search::new(goal.clone());
        let mut late_loads: Vec<f64> = Vec::new();
        while let Step::Try(load) = search.next() {
            let test = Test::Packets {
                up: rate.up,
                ip_bytes: rate.ip_bytes,
                per_second: load,
                lasts_ms: milliseconds(goal.trial),
                settle_ms: milliseconds(settle),
                probes: false,
            };
            let mut tries = 1;
            let trial = loop {
                let Some(outcome) = self.try_one(&test)? else { return Ok((search.result(), false)) };
                let share = self.plan.share.map(|share| share.cores());
                let trial = of_trial(&outcome, load, goal.trial, rate.loss_bound, share);
                rate.trials.push(trial);
                // A late sender catches up in bursts, which are harder to forward: a trial without loss counts all the
                // same.
                let tells = trial.good && !is_short(&trial) || !trial.tester_late;
                if tells || tries >= LATE_MAX {
                    break trial;
                }
                tries += 1;
            };
            let lasted = goal.trial;
            if trial.good && is_short(&trial) {
                // The gateway forwarded all that the tester could send.
                let sent = trial.offered_per_s.min(load);
                search.cap(sent);
                search.add(Trial { load: sent, lasted, full: true, good: true });
            } else {
                if trial.tester_late {
                    late_loads.push(load);
                }
                search.add(Trial { load, lasted, full: true, good: trial.good });
            }
        }
        let upper = search.bounds().1;
        Ok((search.result(), upper.is_some_and(|upper| late_loads.contains(&upper))))
    }
}

/// Whether less was sent than configured.
fn is_short(trial: &SearchTrial) -> bool {
    trial.sent > 1 && trial.offered_per_s < OFFERED_MIN * trial.planned_per_s
}

/// Result of a trial.
fn of_trial(
    outcome: &TrialOutcome,
    planned_per_s: f64,
    lasts: Duration,
    bound: f64,
    share: Option<f64>,
) -> SearchTrial {
    // Saturated links lose packets, too; if the gateway is also saturated, it is the bottleneck.
    let by_links = outcome.links_busy.is_some_and(|busy| busy >= BUSY) && !is_used_up(outcome.cpu, share);
    let seen: &TrialReport = &outcome.seen;
    let sent = seen.sender().sent.clone().unwrap_or_default();
    let arrived = seen.receiver().arrivals.unwrap_or_default();
    let lost = sent.sent.saturating_sub(arrived.received);
    let offered_per_s = sent.per_second();
    SearchTrial {
        planned_per_s,
        offered_per_s,
        actual_s: lasts.as_secs_f64(),
        sent: sent.sent,
        lost,
        longest_silence_ns: arrived.longest_silence_ns,
        good: sent.sent > 0 && lost as f64 <= bound * sent.sent as f64,
        tester_late: sent.lag_ns.p99 > LAG_P99_NS_MAX
            || (sent.sent > 1 && offered_per_s < OFFERED_MIN * planned_per_s)
            || seen.receiver().overflowed > 0
            || by_links,
        cpu: outcome.cpu,
    }
}
