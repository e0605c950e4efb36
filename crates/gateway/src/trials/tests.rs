//! Tests of the trials with simulated gateways whose figures are known.

use std::cell::Cell;
use std::net::SocketAddr;

use crate::tester::{EndReport, SentReport};
use schema::Quantiles;
use schema::document::CheckState;
use stats::arrivals::Arrivals;
use units::Probability;

use super::*;
use crate::checks;
use crate::document::condition_of;
use crate::findings::name;

/// A simulated gateway in virtual time.
struct SimulatedGateway {
    /// Forwarding rate in packets per second.
    forwards_per_s: f64,
    /// Length of its queue in packets.
    queue: f64,
    /// Drops one in this number of packets.
    drops_every: Option<u64>,
    /// Largest rate that the tester can send.
    sends_per_s: f64,
    udp: bool,
    /// Whether the tester sends all packets, but late.
    late: bool,
    /// CPU time per packet.
    packet_s: f64,
    /// Utilization of the emulated links.
    links_busy: Option<f64>,
    /// Number of trials on one connection, the first ones, whose connection ends early.
    broken_connections: u32,
    /// Number of trials after which no packet arrives any more.
    blocks_after: u32,
    passed: u64,
    trials: u32,
}

impl Default for SimulatedGateway {
    fn default() -> Self {
        SimulatedGateway {
            forwards_per_s: 50_000.0,
            queue: 100.0,
            drops_every: None,
            sends_per_s: 1e9,
            udp: true,
            late: false,
            packet_s: 1e-6,
            links_busy: None,
            broken_connections: 0,
            blocks_after: u32::MAX,
            passed: 0,
            trials: 0,
        }
    }
}

impl GatewayUnderTest for SimulatedGateway {
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialOutcome, TesterError> {
        self.trials += 1;
        if test.needs_udp() && !self.udp {
            let address: SocketAddr = "192.0.2.7:7021".parse().unwrap();
            return Err(TesterError::UdpBlocked { address });
        }
        let lasts_s = f64::from(test.lasts_ms()) / 1e3;
        let (mut sender, mut receiver) = (EndReport::default(), EndReport::default());
        let (mut exchanges, mut used_s) = (None, 0.0);
        let lasts_long = matches!(test, Test::Stream { .. } | Test::Transactions { .. });
        let breaks = lasts_long && self.broken_connections > 0;
        self.broken_connections -= u32::from(breaks);
        match test {
            Test::Packets { per_second, .. } => {
                let planned = test.packets();
                let rate = per_second.min(self.sends_per_s);
                let sent = (rate * lasts_s) as u64;
                let capacity = self.forwards_per_s * lasts_s + self.queue;
                let mut arrivals = Arrivals::new(1e9 / rate);
                let mut forwarded = 0.0;
                for number in 0..sent {
                    self.passed += 1;
                    let dropped = self.trials > self.blocks_after
                        || self.drops_every.is_some_and(|drops_every| self.passed.is_multiple_of(drops_every));
                    if !dropped && forwarded < capacity {
                        forwarded += 1.0;
                        arrivals.add(number, (number as f64 * 1e9 / rate) as u64);
                    }
                }
                used_s = forwarded * self.packet_s;
                let late = self.late || rate < *per_second;
                sender.sent = Some(SentReport {
                    planned,
                    sent,
                    from_ns: 0,
                    to_ns: ((sent.saturating_sub(1)) as f64 * 1e9 / rate) as u64,
                    lag_ns: Quantiles {
                        count: sent,
                        p99: if late { 50_000_000 } else { 10_000 },
                        ..Quantiles::default()
                    },
                    ..SentReport::default()
                });
                receiver.arrivals = Some(arrivals.finish(sent));
            }
            Test::Stream { omit_ms, .. } => {
                receiver.bytes = 1_250_000;
                receiver.broken = u32::from(breaks);
                receiver.to_ns = u64::from(test.lasts_ms() - omit_ms) * 1_000_000;
                receiver.socket_bytes_actual = Some([1, 32_768]);
                sender.socket_bytes_actual = Some([32_000, 1]);
            }
            Test::Transactions { .. } | Test::Connections { .. } => {
                let lost = breaks.then(|| ("connection reset by peer".to_owned(), 1));
                let failed = lost.into_iter().collect();
                exchanges = Some(ExchangesReport { per_second: 4000.0, failed, ..ExchangesReport::default() });
            }
            Test::Probes { .. } => {}
        }
        let rtt = test.probes().then(|| RttReport {
            sent: 9,
            received: 9,
            ns: Quantiles { count: 9, ..Quantiles::default() },
        });
        let (client, server) = if test.is_up() { (sender, receiver) } else { (receiver, sender) };
        let seen = TrialReport { test: test.clone(), client, server, rtt, exchanges, cut_short: !go_on() };
        Ok(TrialOutcome { seen, cpu: Some(used_s / lasts_s), links_busy: self.links_busy })
    }
}

fn plan(tests: &[TestName]) -> GatewayPlan {
    GatewayPlan {
        tests: tests.to_vec(),
        trials: 2,
        sizes: vec![64],
        direction: crate::Directions::Up,
        share: None,
        ..GatewayPlan::default()
    }
}

/// The check with this name.
fn check(observations: &Observations, plan: &GatewayPlan, name: &str) -> schema::document::Check {
    let checks = checks::checks(observations, &condition_of("none", None, observations, plan, 0.0), None);
    checks.into_iter().find(|check| check.name == name).unwrap()
}

fn observations(plan: &GatewayPlan, link: Option<&str>, gateway_under_test: &mut SimulatedGateway) -> Observations {
    let link = link.map(|link| link.parse().unwrap());
    ConditionMeasurement {
        plan,
        link,
        gateway_under_test,
        go_on: &|| true,
        tell: &mut |_| {},
        observations: Observations::default(),
    }
    .all()
}

#[test]
fn packet_rate_search_finds_the_capacity_of_a_gateway() {
    for forwards_per_s in [137.0, 5_000.0, 50_000.0] {
        let mut gateway_under_test = SimulatedGateway { forwards_per_s, queue: 3.0, ..SimulatedGateway::default() };
        let observations = observations(&plan(&[TestName::Packets]), None, &mut gateway_under_test);
        let rate = &observations.rates[0];
        let found = rate.per_second.unwrap();
        assert!((0.97..=1.02).contains(&(found / forwards_per_s)), "{forwards_per_s}: {rate:?}");
        assert!(rate.width.unwrap() <= 0.0201, "{rate:?}");
        assert_eq!((rate.limited_by.as_str(), rate.loss_bound, rate.frame_bytes), ("gateway", 0.0, 82));
        assert!(rate.trials.len() < 30, "{}", rate.trials.len());
        assert!(rate.trials.iter().all(|trial| trial.cpu.is_some()));
        assert!(observations.survey[0].longer_survey.is_none() && observations.sizes[0].received > 0);
    }
}

#[test]
fn packet_rate_bottleneck_is_link_gateway_or_tester() {
    // A 10 Mbit/s link forwards 19,531 packets of 64 bytes per second.
    let forwards_per_s = 1e7 / 512.0;
    let plan = plan(&[TestName::Packets]);
    let of_link = observations(
        &plan,
        Some("10Mbit"),
        &mut SimulatedGateway { forwards_per_s, queue: 3.0, ..SimulatedGateway::default() },
    );
    assert_eq!(of_link.rates[0].limited_by, "link");
    let of_tester =
        observations(&plan, None, &mut SimulatedGateway { sends_per_s: 30_000.0, ..SimulatedGateway::default() });
    let rate = &of_tester.rates[0];
    assert_eq!(rate.limited_by, "tester", "{rate:?}");
    assert!((rate.per_second.unwrap() / 30_000.0 - 1.0).abs() < 0.03, "{rate:?}");
    let condition = condition_of("none", None, &of_tester, &plan, 0.0);
    let checks = checks::checks(&of_tester, &condition, None);
    let check = checks.iter().find(|check| check.name == "tester_not_the_limit").unwrap();
    assert_eq!(check.state, schema::CheckState::Failed, "{check:?}");
    assert!(check.why.contains("packets of 64 bytes up"), "{}", check.why);
}

/// Packets forwarded despite the bursts of a late sender count; losses may be due to these bursts.
#[test]
fn late_sender_makes_the_tester_the_bottleneck() {
    let observations = observations(
        &plan(&[TestName::Packets]),
        None,
        &mut SimulatedGateway { late: true, ..SimulatedGateway::default() },
    );
    let rate = &observations.rates[0];
    assert!((rate.per_second.unwrap() / 50_000.0 - 1.0).abs() < 0.03, "{rate:?}");
    assert_eq!(rate.limited_by, "tester", "{rate:?}");
    assert!(rate.trials.iter().all(|trial| trial.tester_late));
}

/// Saturated links limit the figures, unless the gateway is saturated as well.
#[test]
fn saturated_emulated_links_count_as_the_tester() {
    let of = |links_busy, packet_s| {
        let plan = plan(&[TestName::Packets, TestName::Transactions]);
        let observations = observations(
            &plan,
            None,
            &mut SimulatedGateway { links_busy: Some(links_busy), packet_s, ..SimulatedGateway::default() },
        );
        let check = check(&observations, &plan, "tester_not_the_limit");
        (observations.rates[0].limited_by.clone(), check.state, check.why)
    };
    let (by, state, why) = of(0.95, 1e-6);
    assert_eq!((by.as_str(), state), ("tester", CheckState::Failed));
    assert!(why.contains("packets of 64 bytes up") && why.contains("transactions"), "{why}");
    assert_eq!((of(0.949, 1e-6).0.as_str(), of(0.949, 1e-6).1), ("gateway", CheckState::Ok));
    // 20 us per packet at 50,000 packets per second use a whole core. Simulated transactions use no CPU time.
    assert_eq!(of(1.0, 20e-6).0, "gateway");
}

#[test]
fn trial_whose_connection_ends_early_has_no_figure_and_a_finding() {
    let plan = plan(&[TestName::Stream, TestName::Transactions, TestName::Latency]);
    let broken = |broken_connections| {
        let observations =
            observations(&plan, None, &mut SimulatedGateway { broken_connections, ..SimulatedGateway::default() });
        let condition = condition_of("none", None, &observations, &plan, 0.0);
        let check = check(&observations, &plan, "measured");
        (observations, condition, check)
    };
    let (observations, condition, check) = broken(0);
    assert!(observations.broken.is_empty() && condition.findings.is_empty() && check.state == CheckState::Ok);
    // The connections of the first stream and of the first transactions end early, later ones do not.
    let (observations, condition, check) = broken(2);
    assert_eq!((observations.figures["stream_up"].len(), observations.figures["transactions"].len()), (1, 1));
    assert_eq!(check.state, CheckState::CouldNotRun);
    assert!(check.why.contains("1 of 2 trials of `stream up` have no figure"), "{}", check.why);
    let found: Vec<(&str, &str)> =
        condition.findings.iter().map(|finding| (finding.name.as_str(), finding.words.as_str())).collect();
    let of = |cause| format!("in 1 of 2 trials the connection ended early ({cause}): these have no figure");
    let [stream, transactions] = ["closed early", "connection reset by peer"].map(of);
    assert_eq!(found, [(name::BROKEN_OFF, stream.as_str()), (name::BROKEN_OFF, transactions.as_str())]);
    // The fifth connection is the stream of the RTT measurement under load.
    let (observations, condition, _) = broken(5);
    assert!(condition.mbit_per_s.is_none() && condition.transactions_per_s.is_none());
    assert_eq!((observations.broken.len(), observations.rtt.len()), (3, 1));
}

/// If two of three searches find no rate, the rate of the first is reported and a check states that it is from one
/// search.
#[test]
fn failed_search_does_not_change_the_bottleneck_of_others() {
    let plan = GatewayPlan { full: true, ..plan(&[TestName::Packets]) };
    let gateway = SimulatedGateway { forwards_per_s: 137.0, queue: 3.0, ..SimulatedGateway::default() };
    let whole = observations(&plan, None, &mut SimulatedGateway { ..gateway });
    assert_eq!(whole.rates[0].searches.as_ref().unwrap().trials.len(), 3);
    // The trials before the first search: the survey and one packet size.
    let first = 2 + whole.rates[0].trials.len() as u32 / 3;
    let observations = observations(&plan, None, &mut SimulatedGateway { blocks_after: first, ..gateway });
    let rate = &observations.rates[0];
    assert!((rate.per_second.unwrap() / 137.0 - 1.0).abs() < 0.03, "{rate:?}");
    assert_eq!((rate.limited_by.as_str(), rate.searches.is_none()), ("gateway", true));
    let check = check(&observations, &plan, "measured");
    assert_eq!(check.state, CheckState::CouldNotRun);
    assert!(check.why.contains("1 of 3 searches found a rate of packets of 64 bytes up"), "{}", check.why);
}

/// A stream is limited by its window only without losses: with losses the cause is unknown.
#[test]
fn window_bottleneck_requires_no_loss() {
    let plan = plan(&[TestName::Stream]);
    let by = |link: Option<&str>, drops_every| {
        let observations =
            observations(&plan, link, &mut SimulatedGateway { drops_every, ..SimulatedGateway::default() });
        let link = link.map(|link| link.parse().unwrap());
        condition_of("none", link, &observations, &plan, 0.0).bound_by["stream_up"].clone()
    };
    assert_eq!(by(None, None), "window");
    assert_eq!(by(None, Some(1000)), "unknown");
    assert_eq!(by(Some("10Mbit,rtt=20ms"), None), "window");
    assert_eq!(by(Some("10Mbit,rtt=20ms"), Some(1000)), "unknown");
    // The survey had no loss by chance, although the link has one.
    assert_eq!(by(Some("10Mbit,loss=1%,rtt=20ms"), None), "unknown");
    let unknown = GatewayPlan { survey: false, ..plan.clone() };
    let observations = observations(&unknown, None, &mut SimulatedGateway::default());
    assert_eq!(condition_of("none", None, &observations, &unknown, 0.0).bound_by["stream_up"], "unknown");
}

#[test]
fn gateway_with_periodic_loss_has_a_finding_and_a_packet_rate() {
    let plan = plan(&[TestName::Packets]);
    let mut gateway_under_test = SimulatedGateway { drops_every: Some(1000), ..SimulatedGateway::default() };
    let observations = observations(&plan, None, &mut gateway_under_test);
    assert!(observations.survey[0].longer_survey.is_some(), "6 losses are too few for a pattern");
    let condition = condition_of("nat", None, &observations, &plan, 0.0);
    let found: Vec<&str> = condition.findings.iter().map(|finding| finding.name.as_str()).collect();
    assert_eq!(found, [name::LOSS_PERIODIC]);
    assert!((condition.floor["up"] - 0.001).abs() < 2e-4, "{:?}", condition.floor);
    let rate = &observations.rates[0];
    assert!(rate.loss_bound > 0.001 && rate.loss_bound < 0.004, "{rate:?}");
    assert!((rate.per_second.unwrap() / 50_000.0 - 1.0).abs() < 0.03, "{rate:?}");
}

#[test]
fn allowed_loss_is_the_limit_of_the_search() {
    let mut plan = plan(&[TestName::Packets]);
    plan.loss = Probability::new(0.1).unwrap();
    let observations = observations(
        &plan,
        None,
        &mut SimulatedGateway { forwards_per_s: 9_000.0, queue: 0.0, ..SimulatedGateway::default() },
    );
    // A loss of a tenth of 10,000 is tolerated.
    assert!((observations.rates[0].per_second.unwrap() / 10_000.0 - 1.0).abs() < 0.03, "{:?}", observations.rates[0]);
}

#[test]
fn tests_are_interleaved_and_have_separate_figures() {
    let plan = plan(&[TestName::Stream, TestName::Transactions, TestName::Connections, TestName::Latency]);
    let mut progress = Vec::new();
    let mut gateway_under_test = SimulatedGateway::default();
    let tell = &mut |what: &str| progress.push(what.to_owned());
    let observations = ConditionMeasurement {
        plan: &plan,
        link: None,
        gateway_under_test: &mut gateway_under_test,
        go_on: &|| true,
        tell,
        observations: Observations::default(),
    }
    .all();
    assert!(observations.ended.is_none());
    assert_eq!(progress, ["survey", "trial 1 of 2", "trial 2 of 2", "RTT under load"]);
    let condition = condition_of("none", None, &observations, &plan, 0.0);
    // 1.25 MB in 3 s.
    assert!((condition.mbit_per_s.as_ref().unwrap().mean - 10.0 / 3.0).abs() < 1e-9);
    assert_eq!(condition.transactions_per_s.as_ref().unwrap().trials, [4000.0, 4000.0]);
    assert!(condition.mbit_per_s_down.is_none());
    assert_eq!(condition.bound_by["stream_up"], "window");
    assert_eq!(observations.socket_bytes_actual, Some([32_000, 32_768]));
    assert_eq!(condition.rtt_ns.keys().collect::<Vec<_>>(), ["idle", "stream_up"]);
}

#[test]
fn blocked_udp_leaves_tcp_tests_and_fails_the_check() {
    let plan = plan(&TestName::ALL);
    let observations = observations(&plan, None, &mut SimulatedGateway { udp: false, ..SimulatedGateway::default() });
    assert!(observations.ended.is_none() && observations.rates.is_empty() && observations.rtt.is_empty());
    assert_eq!(observations.figures["stream_up"].len(), 2);
    let condition = condition_of("none", None, &observations, &plan, 0.0);
    let checks = checks::checks(&observations, &condition, None);
    let check = checks.iter().find(|check| check.name == "measured").unwrap();
    assert_eq!(check.state, schema::CheckState::CouldNotRun);
    assert!(check.why.contains("UDP does not come through"), "{}", check.why);
}

#[test]
fn interrupt_ends_the_measurement_and_keeps_figures() {
    let plan = plan(&[TestName::Stream]);
    let calls = Cell::new(0);
    let go_on = || {
        calls.set(calls.get() + 1);
        calls.get() < 6
    };
    let mut gateway_under_test = SimulatedGateway::default();
    let observations = ConditionMeasurement {
        plan: &plan,
        link: None,
        gateway_under_test: &mut gateway_under_test,
        go_on: &go_on,
        tell: &mut |_| {},
        observations: Observations::default(),
    }
    .all();
    assert!(observations.ended.as_ref().unwrap().is_interrupt());
    assert_eq!(observations.figures["stream_up"].len(), 1, "one of two trials");
}
