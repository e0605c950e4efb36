use rusqlite::{Connection, params};
use schema::TapOutcome;

use super::events::{self, Event, EventKind};
use super::values::EvaluationTime;
use super::{rule_store, *};
use crate::quality::Sides;
use crate::quality::tests::{MIDNIGHT, TEST_EXCHANGE, TestExchange, agent, fold_batch as fold, index};

/// An event of this rule, for tests of delivery.
pub(super) fn event(alert: &str) -> Event {
    Event {
        id: "x-1".to_owned(),
        number: 1,
        at_s: MIDNIGHT,
        event: EventKind::Firing,
        alert: alert.to_owned(),
        subject: String::new(),
        metric: Metric::ResponseP99,
        value: Some(312e6),
        value_text: Some("312 ms".to_owned()),
        threshold: "250ms".to_owned(),
        since_s: MIDNIGHT,
        text: "it is slow".to_owned(),
        agent: None,
        group: None,
        program: None,
        peer: None,
        side: Sides::Client,
    }
}

fn rule(text: &str) -> Rule {
    serde_json::from_str(text).unwrap()
}

/// Stores a rule.
fn put_rule(index: &Connection, text: &str, now_s: u64) {
    let change = index.unchecked_transaction().unwrap();
    put(&change, &rule(text), now_s).unwrap();
    change.commit().unwrap();
}

/// Evaluates the minute that ends this number of minutes after midnight, half a minute later. Returns the events as
/// text.
fn evaluate(index: &Connection, minute: u64) -> Vec<String> {
    evaluate_at(index, MIDNIGHT + minute * 60, 0)
}

fn evaluate_at(index: &Connection, end_s: u64, started_s: u64) -> Vec<String> {
    let before = log(index, None, 1).unwrap().first().map_or(0, |event| event.number);
    let now_ns = (end_s + 30) * 1_000_000_000;
    let time = EvaluationTime { end_s, now_ns, started_ns: started_s * 1_000_000_000 };
    let evaluated = rule_store::evaluate(index, time).unwrap();
    let change = index.unchecked_transaction().unwrap();
    rule_store::store_evaluated(&change, &evaluated).unwrap();
    change.commit().unwrap();
    let happened = events::read(index, "id > ?1 ORDER BY id", before, 1000).unwrap();
    happened.iter().map(|event| format!("{} {}", event.event.name(), event.subject)).collect()
}

/// Ten attempts of an agent in the next minute, with this number of failures.
fn minute(index: &mut Connection, agent: &'static str, minute: u64, failed: usize) {
    let exchange = |at: usize| TestExchange {
        agent,
        at_s: MIDNIGHT + minute * 60 + at as u64 * 5,
        outcome: if at < failed { TapOutcome::Failed } else { TapOutcome::Succeeded },
        ..TEST_EXCHANGE
    };
    fold(index, &(0..10).map(exchange).collect::<Vec<_>>());
}

const ERRORS: &str = r#"{"name":"errors","metric":"error_ratio","threshold":"20%","over":"2m","for":"2m","min_attempts":5,
    "ends_at":"10%","ends_after":"1m","by":"agent"}"#;

#[test]
fn an_outage_fires_an_alert_for_its_agent_and_resolves() {
    let mut index = index();
    put_rule(&index, ERRORS, MIDNIGHT);
    let mut happened = Vec::new();
    for at in 0..14 {
        let failed = if (3..7).contains(&at) { 8 } else { 0 };
        minute(&mut index, "a", at, failed);
        minute(&mut index, "b", at, 0);
        happened.extend(evaluate(&index, at + 1).into_iter().map(|event| (at + 1, event)));
        // A minute is not evaluated twice.
        assert_eq!(evaluate(&index, at + 1), Vec::<String>::new());
    }
    // 40 % over two minutes at minute 4, for two minutes: 6. Minutes 7 and 8 are good at 9, and for a minute at 10.
    assert_eq!(happened, [(6, "firing a".to_owned()), (10, "resolved a".to_owned())]);
    let listed = list(&index).unwrap();
    assert_eq!(
        (listed[0].state, listed[0].subjects.len(), listed[0].evaluated_s),
        (State::Ok, 2, Some(MIDNIGHT + 14 * 60))
    );
    let events = log(&index, None, 10).unwrap();
    assert_eq!(events[1].text, "errors: error ratio over 2m of agent a is 80.0 %, above 20%");
    assert_eq!((events[0].since_s, events[0].agent.as_deref()), (MIDNIGHT + 360, Some("a")));
    assert!(events[0].id != events[1].id && events[0].id.len() > 16, "{}", events[0].id);
    assert_eq!(log(&index, Some(events[0].number), 10).unwrap(), events[1..]);
}

/// An agent returns with rows of hours ago, and the manager itself was stopped for an hour.
#[test]
fn late_rows_fire_no_alert() {
    let mut index = index();
    put_rule(&index, ERRORS, MIDNIGHT);
    for at in 0..10 {
        minute(&mut index, "a", 600 + at, 0);
        assert!(evaluate(&index, 601 + at).is_empty());
    }
    (0..120).for_each(|at| minute(&mut index, "a", 300 + at, 10));
    (0..120).for_each(|at| minute(&mut index, "b", 300 + at, 10));
    for at in 10..20 {
        minute(&mut index, "a", 600 + at, 0);
        assert!(evaluate(&index, 601 + at).is_empty());
    }
    // The alert was pending when the manager stopped. After its return the hour's rows arrive, and the present is bad
    // for a minute only.
    minute(&mut index, "a", 620, 10);
    assert!(evaluate(&index, 621).is_empty());
    assert_eq!(list(&index).unwrap()[0].state, State::Pending);
    (621..681).for_each(|at| minute(&mut index, "a", at, 10));
    assert!(evaluate(&index, 681).is_empty() && evaluate(&index, 682).is_empty());
    minute(&mut index, "a", 682, 10);
    assert_eq!(evaluate(&index, 683), ["firing a"]);
}

#[test]
fn missing_data_is_a_separate_alert_state() {
    let mut index = index();
    put_rule(&index, ERRORS, MIDNIGHT);
    for at in 0..4 {
        minute(&mut index, "a", at, 10);
        evaluate(&index, at + 1);
    }
    assert_eq!(list(&index).unwrap()[0].state, State::Firing);
    assert!(evaluate(&index, 5).is_empty(), "the last minute still has a value");
    assert_eq!(evaluate(&index, 6), ["no_data a"]);
    assert!(evaluate(&index, 7).is_empty());
    let listed = &list(&index).unwrap()[0];
    assert_eq!(
        (listed.state, listed.subjects[0].instance.state),
        (State::Firing, State::NoData),
        "the alert is not resolved"
    );
    minute(&mut index, "a", 7, 0);
    assert!(evaluate(&index, 8).is_empty(), "the value is good, and not for long enough");
    minute(&mut index, "a", 8, 0);
    assert_eq!(evaluate(&index, 9), ["resolved a"]);
    // The removed rule has no events and no state.
    for at in 10..13 {
        assert!(evaluate(&index, at).is_empty());
    }
    assert!(list(&index).unwrap()[0].subjects.is_empty());
}

#[test]
fn removing_a_rule_resolves_its_alerts() {
    let mut index = index();
    put_rule(&index, ERRORS, MIDNIGHT);
    let fire = |index: &mut Connection, from: u64| {
        for at in from..from + 4 {
            minute(index, "a", at, 10);
            evaluate(index, at + 1);
        }
        assert_eq!(list(index).unwrap()[0].state, State::Firing);
    };
    fire(&mut index, 0);
    // Storing the same rule changes nothing.
    put_rule(&index, ERRORS, MIDNIGHT + 300);
    assert_eq!(list(&index).unwrap()[0].state, State::Firing);
    put_rule(&index, &ERRORS.replace("20%", "30%"), MIDNIGHT + 300);
    let last = &log(&index, None, 1).unwrap()[0];
    assert_eq!(
        (last.event, last.text.as_str()),
        (EventKind::Resolved, "errors: resolved for agent a: the rule was changed")
    );
    assert_eq!(list(&index).unwrap()[0].state, State::NoData);
    fire(&mut index, 5);
    let change = index.unchecked_transaction().unwrap();
    assert!(remove(&change, "errors", MIDNIGHT + 600).unwrap());
    assert!(!remove(&change, "errors", MIDNIGHT + 600).unwrap());
    change.commit().unwrap();
    assert_eq!(log(&index, None, 1).unwrap()[0].text, "errors: resolved for agent a: the rule was removed");
    assert!(list(&index).unwrap().is_empty());
}

#[test]
fn the_number_of_rules_is_limited_and_invalid_rules_are_rejected() {
    let index = index();
    let change = index.unchecked_transaction().unwrap();
    let named = |name: String| Rule { name, ..rule(ERRORS) };
    for at in 0..RULES_MAX {
        put(&change, &named(format!("r{at}")), MIDNIGHT).unwrap();
    }
    assert!(matches!(put(&change, &named("one-more".into()), MIDNIGHT), Err(AlertError::InvalidRule(_))));
    put(&change, &Rule { threshold: "15%".into(), ..named("r0".into()) }, MIDNIGHT).unwrap();
    assert!(matches!(
        put(&change, &Rule { threshold: "5".into(), ..named("r0".into()) }, MIDNIGHT),
        Err(AlertError::InvalidRule(_))
    ));
}

fn set_reported_at(index: &Connection, name: &str, at_s: u64) {
    let at_ns = (at_s * 1_000_000_000) as i64;
    index.execute("UPDATE agents SET told_at = ?2, last_seen_at = ?2 WHERE name = ?1", params![name, at_ns]).unwrap();
}

/// An agent without attempts, and one whose attempts are unknown.
#[test]
fn the_attempts_metric_counts_only_agents_that_reported_the_minute() {
    let mut index = index();
    agent(&index, "idle", "", 0);
    agent(&index, "away", "", 0);
    put_rule(&index, r#"{"name":"idle","metric":"attempts","threshold":"5","over":"1m","by":"agent"}"#, MIDNIGHT);
    put_rule(&index, r#"{"name":"all","metric":"attempts","threshold":"5","over":"1m"}"#, MIDNIGHT);
    minute(&mut index, "idle", 0, 0);
    set_reported_at(&index, "idle", MIDNIGHT + 61);
    assert!(evaluate(&index, 1).is_empty());
    set_reported_at(&index, "idle", MIDNIGHT + 121);
    assert_eq!(evaluate(&index, 2), ["firing ", "firing idle"]);
    // Reported data ends before the minute does: later attempts are possible.
    set_reported_at(&index, "idle", MIDNIGHT + 170);
    assert_eq!(evaluate(&index, 3), ["no_data ", "no_data idle"]);
}

#[test]
fn silent_agents_and_lost_records_fire_alerts() {
    let index = index();
    agent(&index, "a", "north", 0);
    agent(&index, "b", "south", 0);
    put_rule(&index, r#"{"name":"silent","metric":"agent_silent","threshold":"3m","group":"north"}"#, MIDNIGHT);
    put_rule(&index, r#"{"name":"lost","metric":"records_lost","threshold":"10","over":"5m"}"#, MIDNIGHT);
    put_rule(&index, r#"{"name":"lag","metric":"agent_lag","threshold":"10m"}"#, MIDNIGHT);
    set_reported_at(&index, "a", MIDNIGHT);
    set_reported_at(&index, "b", MIDNIGHT);
    for at in 1..=2 {
        assert!(evaluate(&index, at).is_empty());
    }
    assert_eq!(evaluate(&index, 3), ["firing a"], "3 min and a half");
    index.execute("UPDATE agents SET records_lost = 8, rows_dropped = 3 WHERE name = 'b'", []).unwrap();
    set_reported_at(&index, "a", MIDNIGHT + 200);
    set_reported_at(&index, "b", MIDNIGHT + 200);
    assert_eq!(evaluate(&index, 4), ["firing b", "resolved a"]);
    assert_eq!(log(&index, None, 2).unwrap()[1].text, "lost: number of lost records in 5m of agent b is 11, above 10");
    // The manager was stopped for an hour: no agent counts as silent because of that, and all lag behind.
    let end_s = MIDNIGHT + 2 * 3600;
    assert_eq!(evaluate_at(&index, end_s, end_s - 60), ["firing a", "firing b", "resolved b"]);
}

/// Over a day that is read as hours, with subjects beyond the limit.
#[test]
fn a_rule_over_a_day_reads_hourly_figures() {
    let mut index = index();
    put_rule(&index, r#"{"name":"day","metric":"error_ratio","threshold":"10%","over":"24h"}"#, MIDNIGHT);
    minute(&mut index, "a", 10, 0);
    minute(&mut index, "a", 600, 4);
    minute(&mut index, "a", 1430, 1);
    // 5 of 30 attempts, wherever the day is split.
    assert_eq!(evaluate(&index, 1440), ["firing "]);
    assert_eq!(list(&index).unwrap()[0].subjects[0].instance.value, Some(5.0 / 30.0));
    // The first ten minutes are no longer included.
    evaluate(&index, 1451);
    assert_eq!(list(&index).unwrap()[0].subjects[0].instance.value, Some(5.0 / 20.0));
}

/// Tests the steps of both threads: each event is in the log once, and reaches a receiver that refuses, disappears and
/// returns, under the same identifier.
#[test]
fn alert_events_are_retried_until_the_webhook_accepts_them() {
    use super::log_file::{BYTES_MAX, LogFile};
    use super::threads::{Evaluator, deliver_one};
    use super::webhook::Delivery as Outcome;
    use crate::test_server::{OK_RESPONSE, TestServer};
    use web::post::{Post, Receiver, Roots};

    let folder = tempfile::tempdir().unwrap();
    let data = crate::Data::open(folder.path()).unwrap();
    let (notes, _writing) = crate::notes::Notes::start(data.clone(), std::sync::Arc::new(|_: &str| {})).unwrap();
    let rows: Vec<_> = (0..10)
        .map(|at| TestExchange { at_s: MIDNIGHT + at, outcome: TapOutcome::Failed, ..TEST_EXCHANGE }.row())
        .collect();
    data.change(|change| crate::quality::fold(change, &rows)).unwrap();
    let text = r#"{"name":"bad","metric":"error_ratio","threshold":"1%","over":"1m"}"#;
    data.change(|change| put(change, &rule(text), MIDNIGHT)).unwrap();
    let judging = Evaluator {
        log: LogFile::new(folder.path(), BYTES_MAX),
        data: data.clone(),
        notes,
        signal: std::sync::Arc::default(),
        has_webhook: true,
        started_ns: 0,
    };
    // The minute is not evaluated before it is settled.
    judging.evaluate_once((MIDNIGHT + 89) * 1_000_000_000).unwrap();
    assert!(data.read(|index| log(index, None, 9)).unwrap().is_empty());
    judging.evaluate_once((MIDNIGHT + 90) * 1_000_000_000).unwrap();
    judging.evaluate_once((MIDNIGHT + 92) * 1_000_000_000).unwrap();
    let lines = std::fs::read_to_string(folder.path().join("alerts.log")).unwrap();
    let lines: Vec<Event> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines, data.read(|index| log(index, None, 9)).unwrap());
    assert_eq!((lines.len(), lines[0].text.as_str()), (1, "bad: error ratio over 1m of all agents is 100 %, above 1%"));
    let to = |scripted: &TestServer| {
        let timeout = std::time::Duration::from_secs(60);
        Post::new(Receiver { url: scripted.url.clone(), headers: Vec::new(), roots: Roots::System, timeout }).unwrap()
    };
    let scripted = TestServer::start(vec![(500, "", Vec::new()), (400, "", b"what?".to_vec()), OK_RESPONSE]);
    let post = to(&scripted);
    for expected in ["500", "400 what?"] {
        let exchange = deliver_one(&data, &post, MIDNIGHT + 200).unwrap();
        assert!(matches!(&exchange, Some(Outcome::Retry(_, why)) if why.ends_with(expected)), "{exchange:?}");
    }
    assert_eq!(deliver_one(&data, &post, MIDNIGHT + 200).unwrap(), Some(Outcome::Accepted));
    assert_eq!(deliver_one(&data, &post, MIDNIGHT + 200).unwrap(), None);
    for _ in 0..3 {
        let request = scripted.next();
        assert!(request.head.contains("content-type: application/json"));
        let body: serde_json::Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!((body["id"].as_str(), body["status"].as_str()), (Some(lines[0].id.as_str()), Some("firing")));
    }
    // Without a receiver the event waits. Then the threads start and end.
    data.change(|change| remove(change, "bad", MIDNIGHT + 100)).unwrap();
    let to_closed_server = to(&TestServer::start(Vec::new()));
    assert!(matches!(deliver_one(&data, &to_closed_server, MIDNIGHT + 200).unwrap(), Some(Outcome::Retry(..))));
    assert!(matches!(deliver_one(&data, &to_closed_server, MIDNIGHT + 90_000).unwrap(), Some(Outcome::Abandoned(_))));
    assert_eq!(deliver_one(&data, &to_closed_server, MIDNIGHT + 90_000).unwrap(), None);
    let mut threads = AlertThreads::start(data.clone(), judging.notes.clone(), None).unwrap();
    threads.stop();
}
