//! The trials of gateways whose figures are known.

use std::cell::Cell;
use std::net::SocketAddr;

use lab::forward::{Seen, SentSeen};
use ledger::Quantiles;
use stats::arrivals::Arrivals;
use units::Probability;

use super::super::checks;
use super::super::document::condition_of;
use super::super::findings::name;
use super::*;

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
    /// CPU of a packet, and so far.
    packet_s: f64,
    used: Duration,
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
            used: Duration::ZERO,
            passed: 0,
            trials: 0,
        }
    }
}

impl Way for Fake {
    fn run(&mut self, test: &Test, go_on: &dyn Fn() -> bool) -> Result<TrialSeen, ForwardError> {
        self.trials += 1;
        if test.needs_udp() && !self.udp {
            let address: SocketAddr = "192.0.2.7:7021".parse().unwrap();
            return Err(ForwardError::UdpBlocked { address });
        }
        let lasts_s = f64::from(test.lasts_ms()) / 1e3;
        let (mut sender, mut receiver) = (Seen::default(), Seen::default());
        let mut exchanges = None;
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
                    let dropped = self.every.is_some_and(|every| self.passed.is_multiple_of(every));
                    if !dropped && carried < room {
                        carried += 1.0;
                        arrivals.add(number, (number as f64 * 1e9 / rate) as u64);
                    }
                }
                self.used += Duration::from_secs_f64(carried * self.packet_s);
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
                receiver.to_ns = u64::from(test.lasts_ms() - omit_ms) * 1_000_000;
                receiver.socket_bytes_got = Some([1, 32_768]);
                sender.socket_bytes_got = Some([32_000, 1]);
            }
            Test::Transactions { .. } | Test::Connections { .. } => {
                exchanges = Some(ExchangesSeen { per_second: 4000.0, ..ExchangesSeen::default() });
            }
            Test::Probes { .. } => {}
        }
        let rtt =
            test.probes().then(|| RttSeen { sent: 9, received: 9, ns: Quantiles { count: 9, ..Quantiles::default() } });
        let (client, server) = if test.is_up() { (sender, receiver) } else { (receiver, sender) };
        Ok(TrialSeen { test: test.clone(), client, server, rtt, exchanges, cut_short: !go_on() })
    }

    fn cpu(&mut self) -> Option<Duration> {
        Some(self.used)
    }
}

fn plan(tests: &[TestName]) -> GatewayPlan {
    GatewayPlan {
        tests: tests.to_vec(),
        trials: 2,
        sizes: vec![64],
        direction: super::super::Directions::Up,
        share: None,
        ..GatewayPlan::default()
    }
}

fn taken(plan: &GatewayPlan, link: Option<&str>, way: &mut Fake) -> Taken {
    let link = link.map(|link| link.parse().unwrap());
    Measuring { plan, link, way, go_on: &|| true, tell: &mut |_| {}, taken: Taken::default() }.all()
}

#[test]
fn the_rate_of_packets_is_what_a_gateway_carries() {
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
fn a_link_is_told_from_the_gateway_and_the_tester_from_both() {
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
    assert_eq!(check.state, ledger::CheckState::Failed, "{check:?}");
    assert!(check.why.contains("packets of 64 bytes up"), "{}", check.why);
}

/// What is carried in spite of a late sender's bursts is carried; what is lost then may be lost because of them.
#[test]
fn a_late_sender_ends_no_search_but_bounds_it() {
    let taken = taken(&plan(&[TestName::Packets]), None, &mut Fake { late: true, ..Fake::default() });
    let rate = &taken.rates[0];
    assert!((rate.per_second.unwrap() / 50_000.0 - 1.0).abs() < 0.03, "{rate:?}");
    assert_eq!(rate.limited_by, "tester", "{rate:?}");
    assert!(rate.trials.iter().all(|trial| trial.tester_late));
}

#[test]
fn a_gateway_that_drops_every_thousandth_is_named_and_has_a_rate_all_the_same() {
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
fn what_may_be_lost_is_the_searchs_bound() {
    let mut plan = plan(&[TestName::Packets]);
    plan.loss = Probability::new(0.1).unwrap();
    let taken = taken(&plan, None, &mut Fake { carries_per_s: 9_000.0, keeps: 0.0, ..Fake::default() });
    // A tenth of 10,000 may be lost.
    assert!((taken.rates[0].per_second.unwrap() / 10_000.0 - 1.0).abs() < 0.03, "{:?}", taken.rates[0]);
}

#[test]
fn tests_take_turns_and_each_has_its_figures() {
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
    assert_eq!(taken.socket_bytes_got, Some([32_000, 32_768]));
    assert_eq!(condition.rtt_ns.keys().collect::<Vec<_>>(), ["idle", "stream_up"]);
}

#[test]
fn without_udp_the_rest_is_measured_and_the_check_says_so() {
    let plan = plan(&TestName::ALL);
    let taken = taken(&plan, None, &mut Fake { udp: false, ..Fake::default() });
    assert!(taken.ended.is_none() && taken.rates.is_empty() && taken.rtt.is_empty());
    assert_eq!(taken.figures["stream_up"].len(), 2);
    let condition = condition_of("none", None, &taken, &plan, 0.0);
    let checks = checks::checks(&taken, &condition, None);
    let check = checks.iter().find(|check| check.name == "measured").unwrap();
    assert_eq!(check.state, ledger::CheckState::CouldNotRun);
    assert!(check.why.contains("UDP does not come through"), "{}", check.why);
}

#[test]
fn an_interrupt_ends_it_and_keeps_what_there_is() {
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
