use std::time::Duration;

use schema::{CheckState, Measured};

use super::*;

fn spent(cpu_ms: u64, share: Option<f64>) -> LabSpent {
    let used =
        GatewayUsed { at: Duration::from_secs(10), cpu: Duration::from_millis(cpu_ms), ..GatewayUsed::default() };
    LabSpent { used, share, links: Default::default() }
}

#[test]
fn a_share_is_held_up_to_a_tenth_more() {
    // A tenth of a core over ten seconds is one second; 5 ms may be run over once.
    assert_eq!(share_held(&spent(1104, Some(0.1))).state, CheckState::Ok);
    let over = share_held(&spent(1106, Some(0.1)));
    assert_eq!((over.state, over.weight), (CheckState::Failed, Weight::Invalid));
    assert_eq!(share_held(&spent(9000, None)).state, CheckState::NotApplicable);
}

/// Of half a second 2 % are 10 ms: one more run of the card is 5 ms.
#[test]
fn a_run_over_once_is_no_share_that_is_not_held() {
    let of = |cpu_ms| {
        let mut lab = spent(cpu_ms, Some(0.02));
        lab.used.at = Duration::from_millis(500);
        share_held(&lab).state
    };
    assert_eq!((of(15), of(17)), (CheckState::Ok, CheckState::Failed));
}

#[test]
fn links_are_on_time_up_to_a_hundredth() {
    let of = |late| {
        let link = LinkFigures { written: 1000, late, ..LinkFigures::default() };
        links_on_time(&LabSpent { links: [LinkFigures::default(), link], ..spent(0, None) }).state
    };
    assert_eq!((of(10), of(11)), (CheckState::Ok, CheckState::Failed));
    assert_eq!(links_on_time(&spent(0, None)).state, CheckState::Ok);
}

#[test]
fn one_packet_lost_by_the_lab_makes_it_invalid() {
    let link = LinkFigures { mistaken: 1, ..LinkFigures::default() };
    let lost = nothing_lost_by_mistake(&LabSpent { links: [link, LinkFigures::default()], ..spent(0, None) });
    assert_eq!((lost.state, lost.weight), (CheckState::Failed, Weight::Invalid));
    assert_eq!(nothing_lost_by_mistake(&spent(0, None)).state, CheckState::Ok);
}

#[test]
fn trials_that_differ_by_a_fifth_are_told() {
    let of = |stddev: f64, trials: usize| {
        let figure = Measured { mean: 10.0, stddev: Some(stddev), interval: None, trials: vec![10.0; trials] };
        let condition = GatewayCondition { transactions_per_s: Some(figure), ..GatewayCondition::default() };
        alike(&condition).state
    };
    assert_eq!((of(1.99, 3), of(2.01, 3)), (CheckState::Ok, CheckState::Failed));
    assert_eq!(of(5.0, 2), CheckState::NotApplicable);
}

#[test]
fn a_proxy_must_have_answered() {
    let load = ProxyLoad { achieved_per_s: 0.1, overloaded: true, ..ProxyLoad::default() };
    assert_eq!(proxy_loaded(Ok(&load)).state, CheckState::Ok, "overload is a result");
    assert_eq!(proxy_loaded(Ok(&ProxyLoad::default())).state, CheckState::Failed);
    let gone = proxy_loaded(Err("it ended"));
    assert_eq!((gone.state, gone.why.as_str()), (CheckState::CouldNotRun, "it ended"));
}

#[test]
fn a_stream_is_bound_by_the_first_that_is_used_up() {
    // 90 % of what 10 Mbit/s carry of payload.
    let link = 0.9 * 1e7 * 1448.0 / 1500.0;
    let of = |bits, cpu, busiest| stream_bound(bits, Some(1e7), Some(cpu), Some(0.1), busiest, true);
    assert_eq!(of(link + 1.0, 0.1, 1.0), "link");
    assert_eq!(of(link - 1.0, 0.0901, 1.0), "gateway");
    assert_eq!(of(link - 1.0, 0.0899, 0.95), "tester");
    assert_eq!(of(link - 1.0, 0.0899, 0.949), "window");
    assert_eq!(stream_bound(1e6, None, None, None, 0.5, false), "unknown");
    assert_eq!(stream_bound(1e6, None, Some(0.9), None, 0.5, false), "gateway");
}

#[test]
fn versions_are_compared() {
    assert_eq!(both_ends_one_version("1", "1").state, CheckState::Ok);
    assert_eq!(both_ends_one_version("1", "2").state, CheckState::Failed);
}
