//! The trials of one condition, in order.
//!
//! ```text
//!   survey     loss at light load, in each direction, and whether each packet size passes
//!   rounds     stream up, stream down, transactions, connections; then all again, so that drift affects all alike
//!   packets    a search for each size and direction (module `rates`)
//!   latency    RTT when idle, under a stream, under packets at 50 and 90 % of their rate
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::tester::{ExchangesReport, RttReport, Test, TesterError, TrialReport};
use schema::PacketRate;

use super::gateway_plan::{GatewayPlan, TestName};
use super::gateway_under_test::GatewayUnderTest;
use super::{Link, findings};

/// Warm-up of a stream.
const WARM_UP: Duration = Duration::from_millis(500);
/// The survey: longest time in each direction, rate, and packet size.
const SURVEY: Duration = Duration::from_secs(3);
const SURVEY_PER_S: f64 = 2000.0;
pub(super) const SURVEY_BYTES: u16 = 512;
/// Largest share of a link's rate that the survey uses.
const SURVEY_SHARE: f64 = 0.4;
/// Wait after the survey's last packet; less than [`SETTLE`], since queues are empty at light load.
const SURVEY_SETTLE: Duration = Duration::from_millis(500);
/// Longer row of packets after losses in the survey: losses needed for a pattern, highest rate, longest time.
const LOSSES_FOR_PATTERN: f64 = 25.0;
const LONGER_SURVEY_PER_S: f64 = 8000.0;
const LONGER_SURVEY_MAX: Duration = Duration::from_secs(15);
/// CPU usage of the longer row, as a share of the gateway's limit.
const LONGER_SURVEY_CPU_SHARE: f64 = 0.5;
/// Packets of each size in the survey, and their rate.
const SIZE_PACKETS: f64 = 50.0;
const SIZE_PER_S: f64 = 500.0;
/// Concurrent connections.
const PARALLEL: u16 = 64;
/// Wait after the last packet, as in RFC 2544, 23.
pub(super) const SETTLE: Duration = Duration::from_secs(2);
/// Shares of the packet rate at which RTT is measured.
const LOADS: [(f64, u32); 2] = [(0.5, 50), (0.9, 90)];

/// The measurement of one condition.
pub(super) struct ConditionMeasurement<'a> {
    pub plan: &'a GatewayPlan,
    /// The gateway's links, if emulated.
    pub link: Option<Link>,
    pub gateway_under_test: &'a mut dyn GatewayUnderTest,
    /// False after an interrupt.
    pub go_on: &'a dyn Fn() -> bool,
    /// Reports progress.
    pub tell: &'a mut dyn FnMut(&str),
    pub observations: Observations,
}

/// Observations of one condition.
#[derive(Debug, Default)]
pub(super) struct Observations {
    pub survey: Vec<SurveyResult>,
    pub sizes: Vec<SizeResult>,
    /// Figures of each trial, by test: `stream_up`, `stream_down` (bits/s), `transactions`, `connections` (per second).
    pub figures: BTreeMap<&'static str, Vec<f64>>,
    /// CPU time of the gateway over the length of each trial, by test.
    pub cpu: BTreeMap<String, Vec<f64>>,
    /// Of each trial the CPU utilization of the busiest tester end or emulated link.
    pub busiest: BTreeMap<&'static str, Vec<f64>>,
    /// Socket buffers of a stream as set by the kernel.
    pub socket_bytes_actual: Option<[u32; 2]>,
    /// Trials without a figure, since their connection ended early, by test.
    pub broken: BTreeMap<String, BrokenTrials>,
    /// New connections of each trial.
    pub connections: Vec<ExchangesReport>,
    pub rates: Vec<PacketRate>,
    pub rtt: BTreeMap<String, RttReport>,
    /// Why UDP is blocked, if it is.
    pub udp_blocked: Option<String>,
    /// Trials rejected by either end.
    pub refused: Vec<String>,
    /// Why the condition ended early.
    pub ended: Option<Stop>,
    /// Total time of the trials.
    pub lasted: Duration,
}

/// Trials whose connection ended early.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct BrokenTrials {
    pub trials: usize,
    /// All trials of the test.
    pub of: usize,
    /// Causes.
    pub causes: BTreeSet<String>,
}

/// The survey of one direction.
#[derive(Clone, Debug)]
pub(super) struct SurveyResult {
    pub up: bool,
    /// Mean gap between packets.
    pub gap_ns: f64,
    pub seen: TrialReport,
    /// After few losses: a longer row without probes, and its mean gap.
    pub longer_survey: Option<(f64, TrialReport)>,
}

/// Whether packets of a size pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SizeResult {
    pub up: bool,
    pub ip_bytes: u16,
    pub sent: u64,
    pub received: u64,
    /// A send failed since packets are too long: by the sender's device, or by an ICMP message.
    pub too_long: bool,
}

/// Why a condition ended early.
#[derive(Debug)]
pub(super) enum Stop {
    /// The user interrupted.
    Interrupted,
    /// The session failed.
    Failed(TesterError),
}

/// A trial with the gateway's CPU usage.
pub(super) struct TrialOutcome {
    pub seen: TrialReport,
    /// CPU usage of the gateway in cores; absent if unknown.
    pub cpu: Option<f64>,
    /// Utilization of the busier emulated link; absent for a real gateway.
    pub links_busy: Option<f64>,
}

/// How the connection of a trial ended early, if it did. Failures of new connections are counted separately.
fn connection_failure(seen: &TrialReport) -> Option<String> {
    if seen.receiver().broken > 0 {
        return Some("closed early".to_owned());
    }
    let exchanges = seen.exchanges.as_ref().filter(|_| matches!(seen.test, Test::Transactions { .. }))?;
    exchanges.failed.keys().next().cloned()
}

impl ConditionMeasurement<'_> {
    /// Runs all trials until the end or the first error.
    pub fn all(mut self) -> Observations {
        self.observations.ended = self.steps().err();
        self.observations
    }

    fn steps(&mut self) -> Result<(), Stop> {
        if self.plan.survey {
            self.survey()?;
        }
        self.rounds()?;
        if self.plan.tests(TestName::Packets) {
            for up in self.plan.direction.each() {
                for &size in &self.plan.sizes {
                    self.rate_of(up, size)?;
                }
            }
        }
        if self.plan.tests(TestName::Latency) {
            self.latency()?;
        }
        Ok(())
    }

    /// Runs one trial.
    pub fn one(&mut self, test: &Test) -> Result<TrialOutcome, Stop> {
        if !(self.go_on)() {
            return Err(Stop::Interrupted);
        }
        let outcome = self.gateway_under_test.run(test, self.go_on).map_err(Stop::Failed)?;
        if outcome.seen.cut_short {
            return Err(Stop::Interrupted);
        }
        self.observations.lasted += Duration::from_millis(test.lasts_ms().into());
        Ok(outcome)
    }

    /// Runs one trial; `None` if UDP is blocked or the server rejects it, which is recorded.
    pub fn try_one(&mut self, test: &Test) -> Result<Option<TrialOutcome>, Stop> {
        if test.needs_udp() && self.observations.udp_blocked.is_some() {
            return Ok(None);
        }
        match self.one(test) {
            Ok(outcome) => Ok(Some(outcome)),
            Err(Stop::Failed(error @ TesterError::UdpBlocked { .. })) => {
                self.observations.udp_blocked = Some(error.to_string());
                Ok(None)
            }
            Err(Stop::Failed(TesterError::Refused(why))) => {
                if !self.observations.refused.contains(&why) {
                    self.observations.refused.push(why);
                }
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    /// Packets per second of this length that are a light load.
    fn light_rate(&self, ip_bytes: u16, usual: f64) -> f64 {
        let bits = self.link.and_then(|link| link.bits_per_s());
        bits.map_or(usual, |bits| usual.min(SURVEY_SHARE * bits / (8.0 * f64::from(ip_bytes))))
    }

    fn survey(&mut self) -> Result<(), Stop> {
        (self.tell)("survey");
        for up in self.plan.direction.each() {
            let per_second = self.light_rate(SURVEY_BYTES, SURVEY_PER_S);
            let test = Test::Packets {
                up,
                ip_bytes: SURVEY_BYTES,
                per_second,
                lasts_ms: milliseconds(SURVEY.min(self.plan.lasts)),
                settle_ms: milliseconds(SURVEY_SETTLE),
                probes: true,
            };
            let Some(outcome) = self.try_one(&test)? else { return Ok(()) };
            let longer_survey = self.longer_survey(&test, per_second, &outcome)?;
            self.observations.survey.push(SurveyResult {
                up,
                gap_ns: 1e9 / per_second,
                seen: outcome.seen,
                longer_survey,
            });
        }
        if !self.plan.tests(TestName::Packets) {
            return Ok(());
        }
        for up in self.plan.direction.each() {
            for &ip_bytes in &self.plan.sizes {
                let per_second = self.light_rate(ip_bytes, SIZE_PER_S);
                let lasts = Duration::from_secs_f64((SIZE_PACKETS / per_second).min(2.0));
                let settle_ms = milliseconds(SURVEY_SETTLE);
                let test =
                    Test::Packets { up, ip_bytes, per_second, lasts_ms: milliseconds(lasts), settle_ms, probes: false };
                let Some(outcome) = self.try_one(&test)? else { continue };
                let sent = outcome.seen.sender().sent.clone().unwrap_or_default();
                self.observations.sizes.push(SizeResult {
                    up,
                    ip_bytes,
                    sent: sent.sent,
                    received: outcome.seen.receiver().arrivals.map_or(0, |arrivals| arrivals.received),
                    too_long: sent.errors.keys().any(|why| findings::is_too_long_error(why)),
                });
            }
        }
        Ok(())
    }

    /// Sends a longer row of packets, if the survey lost too few to determine the pattern.
    fn longer_survey(
        &mut self,
        test: &Test,
        per_second: f64,
        outcome: &TrialOutcome,
    ) -> Result<Option<(f64, TrialReport)>, Stop> {
        let Some((lost, sent)) = findings::floor_of(&outcome.seen, 1e9 / per_second) else { return Ok(None) };
        let &Test::Packets { up, ip_bytes, settle_ms, .. } = test else { return Ok(None) };
        if lost == 0 || lost as f64 >= LOSSES_FOR_PATTERN {
            return Ok(None);
        }
        // Faster by as much as the gateway's CPU usage allows; no faster if that is unknown.
        let ease = match outcome.cpu.filter(|cpu| *cpu > 0.0) {
            Some(cpu) => LONGER_SURVEY_CPU_SHARE * self.plan.share.map_or(1.0, |share| share.cores().min(1.0)) / cpu,
            None => 1.0,
        };
        let per_second =
            (per_second * ease.max(1.0)).min(self.light_rate(ip_bytes, LONGER_SURVEY_PER_S)).max(per_second);
        let lasts =
            Duration::from_secs_f64(LOSSES_FOR_PATTERN * sent as f64 / lost as f64 / per_second).min(LONGER_SURVEY_MAX);
        (self.tell)("packets are lost: a longer survey");
        let test = Test::Packets { up, ip_bytes, per_second, lasts_ms: milliseconds(lasts), settle_ms, probes: false };
        Ok(self.try_one(&test)?.map(|outcome| (1e9 / per_second, outcome.seen)))
    }

    fn rounds(&mut self) -> Result<(), Stop> {
        let each = self.tests_of_round();
        for round in 1..=self.plan.trials {
            if each.is_empty() {
                break;
            }
            (self.tell)(&format!("trial {round} of {}", self.plan.trials));
            for (name, test) in &each {
                let Some(outcome) = self.try_one(test)? else { continue };
                self.take(name, outcome);
            }
        }
        Ok(())
    }

    fn tests_of_round(&self) -> Vec<(&'static str, Test)> {
        let mut each = Vec::new();
        let lasts_ms = milliseconds(self.plan.lasts);
        if self.plan.tests(TestName::Stream) {
            for up in self.plan.direction.each() {
                each.push((if up { "stream_up" } else { "stream_down" }, self.stream(up, false)));
            }
        }
        if self.plan.tests(TestName::Transactions) {
            each.push(("transactions", Test::Transactions { request: 1, response: 1, lasts_ms }));
        }
        if self.plan.tests(TestName::Connections) {
            each.push(("connections", Test::Connections { parallel: PARALLEL, lasts_ms }));
        }
        each
    }

    fn stream(&self, up: bool, probes: bool) -> Test {
        Test::Stream {
            up,
            streams: 1,
            socket_bytes: self.plan.socket_bytes,
            message_bytes: self.plan.message_bytes,
            lasts_ms: milliseconds(self.plan.lasts + WARM_UP),
            omit_ms: milliseconds(WARM_UP),
            probes,
        }
    }

    /// Counts a trial of a test. Returns whether it has a figure.
    fn record_completeness(&mut self, name: &str, seen: &TrialReport) -> bool {
        let cause = connection_failure(seen);
        if cause.is_none() && !self.observations.broken.contains_key(name) {
            return true;
        }
        let before = self.observations.figures.get(name).map_or(0, Vec::len);
        let broken = self
            .observations
            .broken
            .entry(name.to_owned())
            .or_insert(BrokenTrials { of: before, ..BrokenTrials::default() });
        broken.of += 1;
        broken.trials += usize::from(cause.is_some());
        let whole = cause.is_none();
        broken.causes.extend(cause);
        whole
    }

    fn take(&mut self, name: &'static str, outcome: TrialOutcome) {
        if !self.record_completeness(name, &outcome.seen) {
            // A rate until the early end would look normal, one over the full time slow.
            return;
        }
        let TrialOutcome { seen, cpu, links_busy } = outcome;
        let observations = &mut self.observations;
        let figure = match &seen.exchanges {
            Some(exchanges) => exchanges.per_second,
            None => seen.bits_per_s(),
        };
        observations.figures.entry(name).or_default().push(figure);
        if let Some(cpu) = cpu {
            observations.cpu.entry(name.to_owned()).or_default().push(cpu);
        }
        let busiest = seen.client.busiest.max(seen.server.busiest).max(links_busy.unwrap_or(0.0));
        observations.busiest.entry(name).or_default().push(busiest);
        if observations.socket_bytes_actual.is_none() && seen.exchanges.is_none() {
            // Send buffer of the sender and receive buffer of the receiver.
            let of = |buffers: Option<[u32; 2]>, which: usize| buffers.map(|buffers| buffers[which]);
            let got = of(seen.sender().socket_bytes_actual, 0).zip(of(seen.receiver().socket_bytes_actual, 1));
            observations.socket_bytes_actual = got.map(|(send, receive)| [send, receive]);
        }
        if name == "connections" {
            observations.connections.extend(seen.exchanges);
        }
    }

    fn latency(&mut self) -> Result<(), Stop> {
        (self.tell)("RTT under load");
        let lasts_ms = milliseconds(self.plan.lasts);
        let mut each = vec![("idle".to_owned(), Test::Probes { lasts_ms })];
        for up in self.plan.direction.each() {
            each.push((format!("stream_{}", direction_name(up)), self.stream(up, true)));
        }
        for rate in &self.observations.rates {
            let Some(most) = rate.per_second else { continue };
            for (share, percent) in LOADS {
                let test = Test::Packets {
                    up: rate.up,
                    ip_bytes: rate.ip_bytes,
                    per_second: most * share,
                    lasts_ms,
                    settle_ms: milliseconds(SETTLE),
                    probes: true,
                };
                each.push((format!("packets_{}_{}_{percent}", rate.ip_bytes, direction_name(rate.up)), test));
            }
        }
        for (name, test) in each {
            let Some(outcome) = self.try_one(&test)? else { continue };
            if !self.record_completeness(&format!("rtt_{name}"), &outcome.seen) {
                continue;
            }
            if let Some(cpu) = outcome.cpu {
                self.observations.cpu.entry(format!("rtt_{name}")).or_default().push(cpu);
            }
            if let Some(rtt) = outcome.seen.rtt {
                self.observations.rtt.insert(name, rtt);
            }
        }
        Ok(())
    }
}

/// Name of a direction.
pub(super) const fn direction_name(up: bool) -> &'static str {
    if up { "up" } else { "down" }
}

pub(super) fn milliseconds(lasts: Duration) -> u32 {
    u32::try_from(lasts.as_millis()).unwrap_or(u32::MAX).max(1)
}

#[cfg(test)]
mod tests;
