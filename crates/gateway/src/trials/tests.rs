//! The trials of gateways whose figures are known.

use std::cell::Cell;
use std::net::SocketAddr;

use crate::tester::{EndReport, SentSeen};
use schema::Quantiles;
use schema::document::CheckState;
use stats::arrivals::Arrivals;
use units::Probability;

use super::*;
use crate::checks;
use crate::document::condition_of;
use crate::findings::name;

/// A gateway in virtual time.
struct Fake {
    /// It forwards so many packets a second, and keeps so many until it can.
    carries_per_s: f64,
    keeps: f64,
    /// It drops every n-th.
    every: Option<u64>,
    /// The tester sends no more.
    sends_per_s: f64,
    udp: bool,
    /// The tester sends all of it, but late.
    late: bool,
    /// CPU of a packet.
    packet_s: f64,
    /// The lab's links.
    links_busy: Option<f64>,
    /// The first so many connections that are to last a trial do not.
    breaks: u32,
    /// After so many trials nothing arrives any more.
    dies_after: u32,
    passed: u64,
    trials: u32,
}

impl Default for Fake {
    fn default() -> Self {
        Fake {
            carries_per_s: 50_000.0,
            keeps: 100.0,
            every: None,
            sends_per_s: 1e9,
            udp: true,
            late: false,
            packet_s: 1e-6,
            links_busy: None,
            breaks: 0,
            dies_after: u32::MAX,
            passed: 0,
            trials: 0,
        }
    }
}

impl Way for Fake {
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<Tried, TesterError> {
        self.trials += 1;
        if test.needs_udp() && !self.udp {
            let address: SocketAddr = "192.0.2.7:7021".parse().unwrap();
            return Err(TesterError::UdpBlocked { address });
        }
        let lasts_s = f64::from(test.lasts_ms()) / 1e3;
        let (mut sender, mut receiver) = (EndReport::default(), EndReport::default());
        let (mut exchanges, mut used_s) = (None, 0.0);
        let lasts_long = matches!(test, Test::Stream { .. } | Test::Transactions { .. });
        let breaks = lasts_long && self.breaks > 0;
        self.breaks -= u32::from(breaks);
        match test {
            Test::Packets { per_second, .. } => {
                let asked = test.packets();
                let rate = per_second.min(self.sends_per_s);
                let sent = (rate * lasts_s) as u64;
                let room = self.carries_per_s * lasts_s + self.keeps;
                let mut arrivals = Arrivals::new(1e9 / rate);
                let mut carried = 0.0;
                for number in 0..sent {
                    self.passed += 1;
                    let dropped = self.trials > self.dies_after
                        || self.every.is_some_and(|every| self.passed.is_multiple_of(every));
                    if !dropped && carried < room {
                        carried += 1.0;
                        arrivals.add(number, (number as f64 * 1e9 / rate) as u64);
                    }
                }
                used_s = carried * self.packet_s;
                let late = self.late || rate < *per_second;
                sender.sent = Some(SentSeen {
                    asked,
                    sent,
                    from_ns: 0,
                    to_ns: ((sent.saturating_sub(1)) as f64 * 1e9 / rate) as u64,
                    lag_ns: Quantiles {
                        count: sent,
                        p99: if late { 50_000_000 } else { 10_000 },
                        ..Quantiles::default()
                    },
                    ..SentSeen::default()
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
                exchanges = Some(ExchangesSeen { per_second: 4000.0, failed, ..ExchangesSeen::default() });
            }
            Test::Probes { .. } => {}
        }
        let rtt =
            test.probes().then(|| RttSeen { sent: 9, received: 9, ns: Quantiles { count: 9, ..Quantiles::default() } });
        let (client, server) = if test.is_up() { (sender, receiver) } else { (receiver, sender) };
        let seen = TrialSeen { test: test.clone(), client, server, rtt, exchanges, cut_short: !go_on() };
        Ok(Tried { seen, cpu: Some(used_s / lasts_s), links_busy: self.links_busy })
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

/// A condition's check of this name.
fn check(taken: &Taken, plan: &GatewayPlan, name: &str) -> schema::document::Check {
    let checks = checks::checks(taken, &condition_of("none", None, taken, plan, 0.0), None);
    checks.into_iter().find(|check| check.name == name).unwrap()
}

fn taken(plan: &GatewayPlan, link: Option<&str>, way: &mut Fake) -> Taken {
    let link = link.map(|link| link.parse().unwrap());
    Measuring { plan, link, way, go_on: &|| true, tell: &mut |_| {}, taken: Taken::default() }.all()
}

#[test]
fn packet_rate_search_finds_the_capacity_of_a_gateway() {
    for carries_per_s in [137.0, 5_000.0, 50_000.0] {
        let mut way = Fake { carries_per_s, keeps: 3.0, ..Fake::default() };
        let taken = taken(&plan(&[TestName::Packets]), None, &mut way);
        let rate = &taken.rates[0];
        let found = rate.per_second.unwrap();
        assert!((0.97..=1.02).contains(&(found / carries_per_s)), "{carries_per_s}: {rate:?}");
        assert!(rate.width.unwrap() <= 0.0201, "{rate:?}");
        assert_eq!((rate.limited_by.as_str(), rate.loss_bound, rate.frame_bytes), ("gateway", 0.0, 82));
        assert!(rate.trials.len() < 30, "{}", rate.trials.len());
        assert!(rate.trials.iter().all(|trial| trial.cpu.is_some()));
        assert!(taken.survey[0].closer.is_none() && taken.sizes[0].received > 0);
    }
}

#[test]
fn packet_rate_bottleneck_is_link_gateway_or_tester() {
    // 10 Mbit/s carry 19,531 packets of 64 bytes.
    let carries_per_s = 1e7 / 512.0;
    let plan = plan(&[TestName::Packets]);
    let of_link = taken(&plan, Some("10Mbit"), &mut Fake { carries_per_s, keeps: 3.0, ..Fake::default() });
    assert_eq!(of_link.rates[0].limited_by, "link");
    let of_tester = taken(&plan, None, &mut Fake { sends_per_s: 30_000.0, ..Fake::default() });
    let rate = &of_tester.rates[0];
    assert_eq!(rate.limited_by, "tester", "{rate:?}");
    assert!((rate.per_second.unwrap() / 30_000.0 - 1.0).abs() < 0.03, "{rate:?}");
    let condition = condition_of("none", None, &of_tester, &plan, 0.0);
    let checks = checks::checks(&of_tester, &condition, None);
    let check = checks.iter().find(|check| check.name == "tester_not_the_limit").unwrap();
    assert_eq!(check.state, schema::CheckState::Failed, "{check:?}");
    assert!(check.why.contains("packets of 64 bytes up"), "{}", check.why);
}

/// What is carried in spite of a late sender's bursts is carried; what is lost then may be lost because of them.
#[test]
fn late_sender_makes_the_tester_the_bottleneck() {
    let taken = taken(&plan(&[TestName::Packets]), None, &mut Fake { late: true, ..Fake::default() });
    let rate = &taken.rates[0];
    assert!((rate.per_second.unwrap() / 50_000.0 - 1.0).abs() < 0.03, "{rate:?}");
    assert_eq!(rate.limited_by, "tester", "{rate:?}");
    assert!(rate.trials.iter().all(|trial| trial.tester_late));
}

/// Links that are busy all the time bound what is measured over them, unless the gateway is busy all the time as well.
#[test]
fn saturated_emulated_links_count_as_the_tester() {
    let of = |links_busy, packet_s| {
        let plan = plan(&[TestName::Packets, TestName::Transactions]);
        let taken = taken(&plan, None, &mut Fake { links_busy: Some(links_busy), packet_s, ..Fake::default() });
        let check = check(&taken, &plan, "tester_not_the_limit");
        (taken.rates[0].limited_by.clone(), check.state, check.why)
    };
    let (by, state, why) = of(0.95, 1e-6);
    assert_eq!((by.as_str(), state), ("tester", CheckState::Failed));
    assert!(why.contains("packets of 64 bytes up") && why.contains("transactions"), "{why}");
    assert_eq!((of(0.949, 1e-6).0.as_str(), of(0.949, 1e-6).1), ("gateway", CheckState::Ok));
    // 20 us of 50,000 packets a second are a core. Transactions need none of it here.
    assert_eq!(of(1.0, 20e-6).0, "gateway");
}

#[test]
fn trial_whose_connection_ends_early_has_no_figure_and_a_finding() {
    let plan = plan(&[TestName::Stream, TestName::Transactions, TestName::Latency]);
    let broken = |breaks| {
        let taken = taken(&plan, None, &mut Fake { breaks, ..Fake::default() });
        let condition = condition_of("none", None, &taken, &plan, 0.0);
        let check = check(&taken, &plan, "measured");
        (taken, condition, check)
    };
    let (taken, condition, check) = broken(0);
    assert!(taken.broken.is_empty() && condition.findings.is_empty() && check.state == CheckState::Ok);
    // The first stream and the first transactions; what comes later is whole.
    let (taken, condition, check) = broken(2);
    assert_eq!((taken.figures["stream_up"].len(), taken.figures["transactions"].len()), (1, 1));
    assert_eq!(check.state, CheckState::CouldNotRun);
    assert!(check.why.contains("1 of 2 trials of `stream up` have no figure"), "{}", check.why);
    let found: Vec<(&str, &str)> =
        condition.findings.iter().map(|finding| (finding.name.as_str(), finding.words.as_str())).collect();
    let of = |cause| format!("in 1 of 2 trials the connection ended early ({cause}): these have no figure");
    let [stream, transactions] = ["closed early", "connection reset by peer"].map(of);
    assert_eq!(found, [(name::BROKEN_OFF, stream.as_str()), (name::BROKEN_OFF, transactions.as_str())]);
    // The fifth is the stream under which RTT is looked at.
    let (taken, condition, _) = broken(5);
    assert!(condition.mbit_per_s.is_none() && condition.transactions_per_s.is_none());
    assert_eq!((taken.broken.len(), taken.rtt.len()), (3, 1));
}

/// Of three searches the later find nothing: the rate of the first stands, and that it is only one's is said.
#[test]
fn failed_search_does_not_change_the_bottleneck_of_others() {
    let plan = GatewayPlan { full: true, ..plan(&[TestName::Packets]) };
    let gateway = Fake { carries_per_s: 137.0, keeps: 3.0, ..Fake::default() };
    let whole = taken(&plan, None, &mut Fake { ..gateway });
    assert_eq!(whole.rates[0].searches.as_ref().unwrap().trials.len(), 3);
    // Before them are the survey and the one size.
    let first = 2 + whole.rates[0].trials.len() as u32 / 3;
    let taken = taken(&plan, None, &mut Fake { dies_after: first, ..gateway });
    let rate = &taken.rates[0];
    assert!((rate.per_second.unwrap() / 137.0 - 1.0).abs() < 0.03, "{rate:?}");
    assert_eq!((rate.limited_by.as_str(), rate.searches.is_none()), ("gateway", true));
    let check = check(&taken, &plan, "measured");
    assert_eq!(check.state, CheckState::CouldNotRun);
    assert!(check.why.contains("1 of 3 searches found a rate of packets of 64 bytes up"), "{}", check.why);
}

/// A stream is bound by its window only where nothing is lost: what else slows it down is not known.
#[test]
fn window_bottleneck_requires_no_loss() {
    let plan = plan(&[TestName::Stream]);
    let by = |link: Option<&str>, every| {
        let taken = taken(&plan, link, &mut Fake { every, ..Fake::default() });
        let link = link.map(|link| link.parse().unwrap());
        condition_of("none", link, &taken, &plan, 0.0).bound_by["stream_up"].clone()
    };
    assert_eq!(by(None, None), "window");
    assert_eq!(by(None, Some(1000)), "unknown");
    assert_eq!(by(Some("10Mbit,rtt=20ms"), None), "window");
    assert_eq!(by(Some("10Mbit,rtt=20ms"), Some(1000)), "unknown");
    // The survey saw none of it, by chance.
    assert_eq!(by(Some("10Mbit,loss=1%,rtt=20ms"), None), "unknown");
    let unknown = GatewayPlan { survey: false, ..plan.clone() };
    let taken = taken(&unknown, None, &mut Fake::default());
    assert_eq!(condition_of("none", None, &taken, &unknown, 0.0).bound_by["stream_up"], "unknown");
}

#[test]
fn gateway_with_periodic_loss_has_a_finding_and_a_packet_rate() {
    let plan = plan(&[TestName::Packets]);
    let mut way = Fake { every: Some(1000), ..Fake::default() };
    let taken = taken(&plan, None, &mut way);
    assert!(taken.survey[0].closer.is_some(), "6 losses are too few to tell how");
    let condition = condition_of("nat", None, &taken, &plan, 0.0);
    let found: Vec<&str> = condition.findings.iter().map(|finding| finding.name.as_str()).collect();
    assert_eq!(found, [name::LOSS_PERIODIC]);
    assert!((condition.floor["up"] - 0.001).abs() < 2e-4, "{:?}", condition.floor);
    let rate = &taken.rates[0];
    assert!(rate.loss_bound > 0.001 && rate.loss_bound < 0.004, "{rate:?}");
    assert!((rate.per_second.unwrap() / 50_000.0 - 1.0).abs() < 0.03, "{rate:?}");
}

#[test]
fn allowed_loss_is_the_limit_of_the_search() {
    let mut plan = plan(&[TestName::Packets]);
    plan.loss = Probability::new(0.1).unwrap();
    let taken = taken(&plan, None, &mut Fake { carries_per_s: 9_000.0, keeps: 0.0, ..Fake::default() });
    // A tenth of 10,000 may be lost.
    assert!((taken.rates[0].per_second.unwrap() / 10_000.0 - 1.0).abs() < 0.03, "{:?}", taken.rates[0]);
}

#[test]
fn tests_are_interleaved_and_have_separate_figures() {
    let plan = plan(&[TestName::Stream, TestName::Transactions, TestName::Connections, TestName::Latency]);
    let mut told = Vec::new();
    let mut way = Fake::default();
    let tell = &mut |what: &str| told.push(what.to_owned());
    let taken =
        Measuring { plan: &plan, link: None, way: &mut way, go_on: &|| true, tell, taken: Taken::default() }.all();
    assert!(taken.ended.is_none());
    assert_eq!(told, ["survey", "trial 1 of 2", "trial 2 of 2", "RTT under load"]);
    let condition = condition_of("none", None, &taken, &plan, 0.0);
    // 1.25 MB in 3 s.
    assert!((condition.mbit_per_s.as_ref().unwrap().mean - 10.0 / 3.0).abs() < 1e-9);
    assert_eq!(condition.transactions_per_s.as_ref().unwrap().trials, [4000.0, 4000.0]);
    assert!(condition.mbit_per_s_down.is_none());
    assert_eq!(condition.bound_by["stream_up"], "window");
    assert_eq!(taken.socket_bytes_actual, Some([32_000, 32_768]));
    assert_eq!(condition.rtt_ns.keys().collect::<Vec<_>>(), ["idle", "stream_up"]);
}

#[test]
fn blocked_udp_leaves_tcp_tests_and_fails_the_check() {
    let plan = plan(&TestName::ALL);
    let taken = taken(&plan, None, &mut Fake { udp: false, ..Fake::default() });
    assert!(taken.ended.is_none() && taken.rates.is_empty() && taken.rtt.is_empty());
    assert_eq!(taken.figures["stream_up"].len(), 2);
    let condition = condition_of("none", None, &taken, &plan, 0.0);
    let checks = checks::checks(&taken, &condition, None);
    let check = checks.iter().find(|check| check.name == "measured").unwrap();
    assert_eq!(check.state, schema::CheckState::CouldNotRun);
    assert!(check.why.contains("UDP does not come through"), "{}", check.why);
}

#[test]
fn interrupt_ends_the_measurement_and_keeps_figures() {
    let plan = plan(&[TestName::Stream]);
    let asked = Cell::new(0);
    let go_on = || {
        asked.set(asked.get() + 1);
        asked.get() < 6
    };
    let mut way = Fake::default();
    let taken =
        Measuring { plan: &plan, link: None, way: &mut way, go_on: &go_on, tell: &mut |_| {}, taken: Taken::default() }
            .all();
    assert!(taken.ended.as_ref().unwrap().is_interrupt());
    assert_eq!(taken.figures["stream_up"].len(), 1, "one of two");
}
